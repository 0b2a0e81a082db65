//! A collector that decodes exported protobuf.

use std::{collections::BTreeMap, time::Duration};

use citetap::replay::{Script, Scripted, Upstream};
use http::StatusCode;
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{AnyValue, KeyValue, any_value::Value},
    metrics::v1::{Metric, metric::Data},
    trace::v1::Span,
};
use prost::Message;

use crate::net::eventually;

pub struct Collector {
    upstream: Upstream,
}

pub type Attributes = BTreeMap<String, String>;

/// The sums of one histogram for one set of attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub attributes: Attributes,
    pub count: u64,
    pub sum: f64,
    pub bounds: Vec<f64>,
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::ArrayValue(list)) => list.values.iter().map(|one| text(Some(one))).collect::<Vec<_>>().join(","),
        other => format!("{other:?}"),
    }
}

pub fn attributes(of: &[KeyValue]) -> Attributes {
    let all: Attributes = of.iter().map(|one| (one.key.clone(), text(one.value.as_ref()))).collect();
    assert_eq!(all.len(), of.len(), "duplicate attribute: {of:?}");
    all
}

pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Collector {
    pub async fn start() -> Self {
        Self::of(Script::new([]).status(StatusCode::OK)).await
    }

    pub async fn of(script: Script) -> Self {
        Self { upstream: Upstream::bind(vec![Scripted::new("/", script)]).await.unwrap() }
    }

    pub fn url(&self) -> String {
        self.upstream.url()
    }

    pub fn requests(&self) -> Vec<citetap::replay::RecordedRequest> {
        self.upstream.requests()
    }

    fn bodies<T: Message + Default>(&self, path: &str) -> Vec<T> {
        let requests = self.upstream.requests().into_iter().filter(|seen| seen.path == path);
        let whole = requests.filter(|seen| seen.outcome == citetap::replay::Outcome::Ended);
        whole.map(|seen| T::decode(seen.body).unwrap()).collect()
    }

    pub fn traces(&self) -> Vec<ExportTraceServiceRequest> {
        self.bodies("/v1/traces")
    }

    pub fn spans(&self) -> Vec<Span> {
        let resources = self.traces().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// Waits for this number of spans.
    pub async fn got(&self, count: usize) -> Vec<Span> {
        let all = eventually(|| async { Some(self.spans()).filter(|spans| spans.len() >= count) }).await;
        let all = all.unwrap_or_else(|| panic!("{count} spans, not {:?}", self.spans()));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(self.spans().len(), count, "{:?}", self.spans());
        all
    }

    /// The last value of each metric.
    pub fn metrics(&self) -> BTreeMap<String, Metric> {
        let requests: Vec<ExportMetricsServiceRequest> = self.bodies("/v1/metrics");
        let resources = requests.into_iter().flat_map(|request| request.resource_metrics);
        let metrics = resources.flat_map(|resource| resource.scope_metrics).flat_map(|scope| scope.metrics);
        metrics.map(|metric| (metric.name.clone(), metric)).collect()
    }

    pub fn points(&self, name: &str) -> Vec<Point> {
        let Some(Metric { data: Some(Data::Histogram(histogram)), .. }) = self.metrics().remove(name) else {
            return Vec::new();
        };
        let point = |point: &opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint| Point {
            attributes: attributes(&point.attributes),
            count: point.count,
            sum: point.sum.unwrap(),
            bounds: point.explicit_bounds.clone(),
        };
        histogram.data_points.iter().map(point).collect()
    }
}
