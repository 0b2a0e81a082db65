//! The `OTEL_*` variables that decide what is exported. The SDK reads the others itself: headers, compression,
//! resource, sampler, sizes and intervals.

use std::time::Duration;

/// Default of the OTLP specification.
const TIMEOUT: Duration = Duration::from_secs(10);
const PROTOCOL: &str = "http/protobuf";

pub struct Signal {
    pub name: &'static str,
    exporter: &'static str,
    endpoint: &'static str,
    protocol: &'static str,
    timeout: &'static str,
}

pub const TRACES: Signal = Signal {
    name: "traces",
    exporter: "OTEL_TRACES_EXPORTER",
    endpoint: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    protocol: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    timeout: "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
};

pub const METRICS: Signal = Signal {
    name: "metrics",
    exporter: "OTEL_METRICS_EXPORTER",
    endpoint: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    protocol: "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
    timeout: "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
};

type Variables = dyn Fn(&str) -> Option<String>;

pub struct Settings {
    variables: Box<Variables>,
}

impl Settings {
    pub fn new(variables: impl Fn(&str) -> Option<String> + 'static) -> Self {
        Self { variables: Box::new(variables) }
    }

    /// Reads a variable; an empty one counts as unset.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.variables)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Reads the signal's own variable, else the shared one.
    fn signal_or_shared(&self, own: &str, all: &'static str) -> Option<String> {
        self.get(own).or_else(|| self.get(all))
    }

    /// Whether the signal is exported. The error explains an unsupported setting.
    pub fn is_enabled(&self, signal: &Signal) -> Result<bool, String> {
        if self.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(false);
        }
        if self.signal_or_shared(signal.endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT").is_none() {
            return Ok(false);
        }
        match self.get(signal.exporter).as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(false),
            Some(other) => return Err(format!("{}={other}: there are otlp and none", signal.exporter)),
        }
        match self.signal_or_shared(signal.protocol, "OTEL_EXPORTER_OTLP_PROTOCOL").as_deref() {
            None | Some(PROTOCOL) => Ok(true),
            Some(other) => Err(format!(
                "{other} is not supported: set OTEL_EXPORTER_OTLP_PROTOCOL={PROTOCOL}, and the endpoint to the \
                 collector's port for HTTP, mostly 4318"
            )),
        }
    }

    /// Timeout of one export request.
    pub fn timeout(&self, signal: &Signal) -> Duration {
        let value = self.signal_or_shared(signal.timeout, "OTEL_EXPORTER_OTLP_TIMEOUT");
        value.and_then(|value| value.parse().ok()).map_or(TIMEOUT, Duration::from_millis)
    }

    /// Whether the trace context is continued from the client and passed to the upstream.
    pub fn propagates_context(&self) -> bool {
        self.get("OTEL_PROPAGATORS").is_none_or(|value| value.split(',').any(|one| one.trim() == "tracecontext"))
    }
}
