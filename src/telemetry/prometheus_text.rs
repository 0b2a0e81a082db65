//! Converts OpenMetrics text, as prometheus-client writes it, to the Prometheus text format 0.0.4.
//!
//! The formats differ in three ways: OpenMetrics describes a counter without its `_total` suffix, has UNIT lines, and
//! ends with EOF.

/// Converts a whole exposition. Relies on HELP and TYPE of a metric being adjacent.
pub fn from_open_metrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1024);
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = Some(rest);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, words)) = help.take().and_then(|help| help.split_once(' ')) {
                out.extend(["# HELP ", name, total, " ", words, "\n"]);
            }
            out.extend(["# TYPE ", name, total, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            out.extend([line, "\n"]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_text_names_counters_with_total() {
        let open = "# HELP a Some help.\n# TYPE a counter\na_total{b=\"# TYPE c counter\"} 1\n\
            # HELP d_seconds More.\n# TYPE d_seconds histogram\n# UNIT d_seconds seconds\n\
            d_seconds_sum 0.5\nd_seconds_count 1\nd_seconds_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let classic = "# HELP a_total Some help.\n# TYPE a_total counter\na_total{b=\"# TYPE c counter\"} 1\n\
            # HELP d_seconds More.\n# TYPE d_seconds histogram\n\
            d_seconds_sum 0.5\nd_seconds_count 1\nd_seconds_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(from_open_metrics(open), classic);
    }
}
