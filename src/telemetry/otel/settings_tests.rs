use super::settings::{METRICS, Settings, TRACES};
use std::time::Duration;

fn settings(variables: &'static [(&'static str, &'static str)]) -> Settings {
    Settings::new(move |name| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned()))
}

const SOMEWHERE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318");

#[test]
fn otel_without_endpoint_exports_nothing() {
    for variables in [&[] as &[_], &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], &[("OTEL_TRACES_EXPORTER", "otlp")]] {
        assert_eq!(settings(variables).is_enabled(&TRACES), Ok(false), "{variables:?}");
    }
    assert_eq!(settings(&[SOMEWHERE]).is_enabled(&TRACES), Ok(true));
    assert_eq!(settings(&[SOMEWHERE]).is_enabled(&METRICS), Ok(true));
}

#[test]
fn otel_exports_one_signal_alone() {
    let traces = settings(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector.example/here")]);
    assert_eq!((traces.is_enabled(&TRACES), traces.is_enabled(&METRICS)), (Ok(true), Ok(false)));
    let metrics = settings(&[SOMEWHERE, ("OTEL_TRACES_EXPORTER", "none")]);
    assert_eq!((metrics.is_enabled(&TRACES), metrics.is_enabled(&METRICS)), (Ok(false), Ok(true)));
}

#[test]
fn otel_sdk_disabled_overrides_the_rest() {
    let disabled = settings(&[SOMEWHERE, ("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert_eq!(disabled.is_enabled(&TRACES), Ok(false));
    assert_eq!(settings(&[SOMEWHERE, ("OTEL_SDK_DISABLED", "false")]).is_enabled(&TRACES), Ok(true));
}

#[test]
fn otel_unsupported_setting_names_the_supported() {
    let grpc = settings(&[SOMEWHERE, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    let why = grpc.is_enabled(&TRACES).unwrap_err();
    assert!(why.contains("grpc") && why.contains("http/protobuf") && why.contains("4318"), "{why}");
    let console = settings(&[SOMEWHERE, ("OTEL_METRICS_EXPORTER", "console")]);
    assert!(console.is_enabled(&METRICS).unwrap_err().contains("OTEL_METRICS_EXPORTER=console"));
    assert_eq!(console.is_enabled(&TRACES), Ok(true));
}

#[test]
fn otel_signal_variable_overrides_the_shared() {
    let mixed = settings(&[
        SOMEWHERE,
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "soon"),
    ]);
    assert_eq!(mixed.is_enabled(&TRACES), Ok(true));
    assert!(mixed.is_enabled(&METRICS).is_err());
    assert_eq!(mixed.timeout(&TRACES), Duration::from_millis(250));
    assert_eq!(mixed.timeout(&METRICS), Duration::from_secs(10));
}

#[test]
fn otel_propagates_unless_propagators_exclude_it() {
    assert!(settings(&[]).propagates_context());
    assert!(settings(&[("OTEL_PROPAGATORS", "baggage, tracecontext")]).propagates_context());
    assert!(!settings(&[("OTEL_PROPAGATORS", "none")]).propagates_context());
}
