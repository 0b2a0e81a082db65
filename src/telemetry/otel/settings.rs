//! What the `OTEL_*` variables ask for. Those that are not here the SDK reads itself: headers, compression, resource,
//! sampler, sizes and intervals.

use std::time::Duration;

/// As the specification has it.
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

    /// An empty one says nothing.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.variables)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The signal's own, else that of all.
    fn either(&self, own: &str, all: &'static str) -> Option<String> {
        self.get(own).or_else(|| self.get(all))
    }

    /// An error says why what is asked for cannot be had.
    pub fn wants(&self, signal: &Signal) -> Result<bool, String> {
        if self.get("OTEL_SDK_DISABLED").is_some_and(|said| said.eq_ignore_ascii_case("true")) {
            return Ok(false);
        }
        if self.either(signal.endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT").is_none() {
            return Ok(false);
        }
        match self.get(signal.exporter).as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(false),
            Some(other) => return Err(format!("{}={other}: there are otlp and none", signal.exporter)),
        }
        match self.either(signal.protocol, "OTEL_EXPORTER_OTLP_PROTOCOL").as_deref() {
            None | Some(PROTOCOL) => Ok(true),
            Some(other) => Err(format!(
                "{other} is not spoken here: set OTEL_EXPORTER_OTLP_PROTOCOL={PROTOCOL}, and the endpoint to the \
                 collector's port for HTTP, mostly 4318"
            )),
        }
    }

    /// Milliseconds, of one request to the collector.
    pub fn timeout(&self, signal: &Signal) -> Duration {
        let said = self.either(signal.timeout, "OTEL_EXPORTER_OTLP_TIMEOUT");
        said.and_then(|said| said.parse().ok()).map_or(TIMEOUT, Duration::from_millis)
    }

    /// Are traces continued from the client's, and by the upstream?
    pub fn propagates(&self) -> bool {
        self.get("OTEL_PROPAGATORS").is_none_or(|said| said.split(',').any(|one| one.trim() == "tracecontext"))
    }
}
