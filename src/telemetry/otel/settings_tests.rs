use super::settings::{METRICS, Settings, TRACES};
use std::time::Duration;

fn settings(said: &'static [(&'static str, &'static str)]) -> Settings {
    Settings::new(move |name| said.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned()))
}

const SOMEWHERE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318");

#[test]
fn nothing_is_exported_unless_there_is_somewhere_to_send_it() {
    for said in [&[] as &[_], &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], &[("OTEL_TRACES_EXPORTER", "otlp")]] {
        assert_eq!(settings(said).wants(&TRACES), Ok(false), "{said:?}");
    }
    assert_eq!(settings(&[SOMEWHERE]).wants(&TRACES), Ok(true));
    assert_eq!(settings(&[SOMEWHERE]).wants(&METRICS), Ok(true));
}

#[test]
fn one_signal_alone() {
    let traces = settings(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector.example/here")]);
    assert_eq!((traces.wants(&TRACES), traces.wants(&METRICS)), (Ok(true), Ok(false)));
    let metrics = settings(&[SOMEWHERE, ("OTEL_TRACES_EXPORTER", "none")]);
    assert_eq!((metrics.wants(&TRACES), metrics.wants(&METRICS)), (Ok(false), Ok(true)));
}

#[test]
fn disabled_is_off_whatever_else_is_said() {
    let disabled = settings(&[SOMEWHERE, ("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert_eq!(disabled.wants(&TRACES), Ok(false));
    assert_eq!(settings(&[SOMEWHERE, ("OTEL_SDK_DISABLED", "false")]).wants(&TRACES), Ok(true));
}

#[test]
fn what_cannot_be_had_is_told_with_what_can() {
    let grpc = settings(&[SOMEWHERE, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    let why = grpc.wants(&TRACES).unwrap_err();
    assert!(why.contains("grpc") && why.contains("http/protobuf") && why.contains("4318"), "{why}");
    let console = settings(&[SOMEWHERE, ("OTEL_METRICS_EXPORTER", "console")]);
    assert!(console.wants(&METRICS).unwrap_err().contains("OTEL_METRICS_EXPORTER=console"));
    assert_eq!(console.wants(&TRACES), Ok(true));
}

#[test]
fn the_signals_own_goes_first() {
    let mixed = settings(&[
        SOMEWHERE,
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "soon"),
    ]);
    assert_eq!(mixed.wants(&TRACES), Ok(true));
    assert!(mixed.wants(&METRICS).is_err());
    assert_eq!(mixed.timeout(&TRACES), Duration::from_millis(250));
    assert_eq!(mixed.timeout(&METRICS), Duration::from_secs(10));
}

#[test]
fn traces_are_continued_unless_propagators_leave_that_out() {
    assert!(settings(&[]).propagates());
    assert!(settings(&[("OTEL_PROPAGATORS", "baggage, tracecontext")]).propagates());
    assert!(!settings(&[("OTEL_PROPAGATORS", "none")]).propagates());
}
