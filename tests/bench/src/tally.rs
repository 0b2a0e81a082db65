//! Counters of the clients of one thread, printed as one line of JSON.

#[derive(Default)]
pub struct Tally {
    pub started: u64,
    pub finished: u64,
    pub failed: u64,
    pub error: Option<String>,
    pub events: u64,
    pub window_events: u64,
    pub window_finishes: u64,
    pub window_stored: u64,
    pub bytes: u64,
    pub cited: u64,
    pub stored: u64,
    /// Streams that were open when the window began.
    pub open: u64,
    pub lags_ns: Vec<u32>,
    pub first_ns: Vec<u64>,
    /// `crowd`: from the start until the last request was written, and until the last stream had its first byte.
    pub last_sent_ns: u64,
    pub last_first_ns: u64,
}

impl Tally {
    pub fn end(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => self.finished += 1,
            Err(error) => {
                self.failed += 1;
                self.error.get_or_insert(error);
            }
        }
    }

    /// Adds the counters of another thread.
    pub fn add(&mut self, other: Self) {
        self.started += other.started;
        self.finished += other.finished;
        self.failed += other.failed;
        self.error = self.error.take().or(other.error);
        self.events += other.events;
        self.window_events += other.window_events;
        self.window_finishes += other.window_finishes;
        self.window_stored += other.window_stored;
        self.bytes += other.bytes;
        self.cited += other.cited;
        self.stored += other.stored;
        self.open += other.open;
        self.lags_ns.extend(other.lags_ns);
        self.first_ns.extend(other.first_ns);
        self.last_sent_ns = self.last_sent_ns.max(other.last_sent_ns);
        self.last_first_ns = self.last_first_ns.max(other.last_first_ns);
    }

    pub fn json(&self) -> String {
        let error = self.error.as_ref().map_or("null".to_owned(), |error| format!("{error:?}"));
        format!(
            "{{\"started\":{},\"finished\":{},\"failed\":{},\"error\":{error},\"events\":{},\"bytes\":{},\"cited\":{},\"stored\":{},\
             \"open\":{},\"window_events\":{},\"window_finishes\":{},\"window_stored\":{},\"lag_us\":{},\"first_us\":{},\
             \"last_sent_us\":{},\"last_first_us\":{}}}",
            self.started,
            self.finished,
            self.failed,
            self.events,
            self.bytes,
            self.cited,
            self.stored,
            self.open,
            self.window_events,
            self.window_finishes,
            self.window_stored,
            quantiles(self.lags_ns.iter().map(|&ns| f64::from(ns))),
            quantiles(self.first_ns.iter().map(|&ns| ns as f64)),
            self.last_sent_ns / 1000,
            self.last_first_ns / 1000,
        )
    }
}

/// Quantiles in microseconds, as JSON.
fn quantiles(ns: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = ns.collect();
    values.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| {
        let index = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
        values.get(index).copied().unwrap_or(0.0) / 1000.0
    };
    format!("{{\"p50\":{:.1},\"p99\":{:.1},\"p999\":{:.1},\"max\":{:.1}}}", at(0.5), at(0.99), at(0.999), at(1.0))
}
