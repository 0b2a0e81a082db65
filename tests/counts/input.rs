//! Inputs of the cases: a long answer between the first and last frames of fixtures.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use citetap::{
    citation::{
        Ledger, Record, Rules,
        ledger::{Published, Reference},
        record::CitationType,
    },
    config::default_rules,
    marker::{Source, Sources},
    pipeline::{Budget, Context, Inject, Pipeline, Settings, Supplement},
    profile::{OutputFormat, Positions},
    provider::{Adapter, Provider, Signal, Sink},
    sse::Event,
};
use jiff::Timestamp;
use serde_json::json;

/// Number of deltas of an answer.
pub const DELTAS: usize = 1000;
/// Number of adapters that each read a frame with references.
pub const REPEATS: usize = 10;

/// A typical answer: prose, a list, a heading, code, a link, and markers in several positions.
const TEXT: [&str; 8] = [
    "常州做小程序的团队不少，可以先看本地公司的案例[1]，再比较报价清单和交付周期",
    "。签合同之前，建议把**源码归属**、验收标准和付款节点写进附件[2][3]；",
    "\n\n## 费用\n\n- 模板类通常在数千元，半定制在一万到三万元[1]",
    "\n- 全定制按人天核算，多在五万元以上，服务器与短信费用另计；",
    "\n\n上线前要完成主体认证、备案和类目审核，一般需要一到二十个工作日[2]。",
    "配置里的 `list[0]` 不是引用，`wx.request` 的域名要先登记，",
    "可以参考[开发者文档](https://docs.example.org/miniprogram/filing)里的流程[3]。",
    "如果需要上门沟通，本地团队的返工次数通常更少，响应也更快[1, 2]。",
];

/// An upstream's wire format.
#[derive(Clone, Copy)]
pub enum Wire {
    Doubao,
    Samantha,
    Lexiang,
    OpenAi,
}

impl Wire {
    fn kind(self) -> Provider {
        match self {
            Self::Doubao | Self::Samantha => citetap::provider::doubao::PROVIDER,
            Self::Lexiang => citetap::provider::tencent::PROVIDER,
            Self::OpenAi => citetap::provider::openai::PROVIDER,
        }
    }

    /// A fixture, text that identifies its first frame with references, and text that identifies its finish frame.
    fn fixture(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Doubao => (include_str!("../fixtures/doubao/seed.sse"), "text_card", "SSE_REPLY_END"),
            Self::Samantha => (include_str!("../fixtures/samantha/basic.sse"), "text_card", r#""event_type":2003"#),
            Self::Lexiang => {
                (include_str!("../fixtures/tencent/full.sse"), r#""reference_chunks":["#, r#""is_stop":true"#)
            }
            Self::OpenAi => {
                (include_str!("../fixtures/openai/ark-bots.sse"), r#""references":["#, r#""finish_reason":"stop""#)
            }
        }
    }

    /// The fixture's frames up to and including its first references.
    fn head(self) -> Vec<&'static str> {
        let (stream, references, _) = self.fixture();
        let frames = frames(stream);
        let at = frames.iter().position(|frame| frame.contains(references)).unwrap();
        frames[..=at].to_vec()
    }

    /// The fixture's frames from the finish frame on.
    fn tail(self) -> Vec<&'static str> {
        let (stream, _, end) = self.fixture();
        let frames = frames(stream);
        let at = frames.iter().position(|frame| frame.contains(end)).unwrap();
        frames[at..].to_vec()
    }

    /// Delta `n` in the format of the fixture.
    fn delta(self, n: usize) -> String {
        let text = json!(TEXT[n % TEXT.len()]);
        match self {
            // Every fourth delta is a content block, the others are of the short form.
            Self::Doubao if n.is_multiple_of(4) => format!(
                r#"id: {n}
event: STREAM_CHUNK
data: {{"message_id":"35730705466983426","patch_op":[{{"patch_object":1,"patch_type":1,"patch_value":{{"content_block":[{{"block_type":10000,"block_id":"35744004404449282","content":{{"text_block":{{"text":{text}}}}}}}]}}}}]}}"#
            ),
            Self::Doubao => format!("id: {n}\nevent: CHUNK_DELTA\ndata: {{\"text\":{text}}}"),
            Self::Samantha => {
                let content = json!(json!({ "text": text }).to_string());
                let data = json!(format!(
                    r#"{{"conversation_id":"2910189948","section_id":"2910189949","local_message_id":"dc1c0f7bfade82a8d56ae09c49791e28","message":{{"id":"3570760189948","content_type":2001,"content":{content}}},"message_index":5,"is_delta":true,"is_finish":false}}"#
                ));
                format!(r#"data: {{"event_type":2001,"event_id":"{n}","event_data":{data}}}"#)
            }
            Self::Lexiang => format!(
                r#"data:{{"completion_id":"fb1ec2e0ec41e8f6eeca0ffc22bf7eb4","session_id":"","processes":{{"stage":"","message":"","delta_content":"","content":"","detail":null}},"delta_content":{text},"content":"","finish_reason":"","is_stop":false,"answer_source":"","additional_content":null}}"#
            ),
            Self::OpenAi => format!(
                r#"data: {{"id":"02175000000000000000000000000000000000ffffc0a8b6a1234","object":"chat.completion.chunk","created":1750000000,"model":"doubao-pro-32k-241215","service_tier":"default","choices":[{{"index":0,"delta":{{"content":{text}}},"finish_reason":null}}]}}"#
            ),
        }
    }

    pub fn deltas(self) -> impl Iterator<Item = String> {
        (0..DELTAS).map(move |n| self.delta(n) + "\n\n")
    }

    /// A whole stream, each chunk one frame.
    fn chunks(self) -> Vec<Bytes> {
        let head = self.head().into_iter().map(Bytes::from);
        let tail = self.tail().into_iter().map(Bytes::from);
        head.chain(self.deltas().map(Bytes::from)).chain(tail).collect()
    }
}

fn frames(stream: &str) -> Vec<&str> {
    stream.split_inclusive("\n\n").collect()
}

/// The deltas of a stream in chunks of `size` bytes.
pub fn chunks_of(size: usize) -> Vec<Vec<u8>> {
    let stream: String = Wire::OpenAi.deltas().collect();
    stream.as_bytes().chunks(size).map(<[u8]>::to_vec).collect()
}

/// The texts of the deltas.
pub fn texts() -> Vec<&'static str> {
    TEXT.iter().copied().cycle().take(DELTAS).collect()
}

/// Counts texts and references and ignores other signals.
#[derive(Default)]
pub struct CountingSink {
    pub texts: usize,
    pub references: usize,
}

impl Sink for CountingSink {
    fn signal(&mut self, signal: Signal<'_>) {
        match signal {
            Signal::Text(..) => self.texts += 1,
            Signal::Reference(_) => self.references += 1,
            _ => {}
        }
    }
}

/// Adapters that have already read a delta, and the frames that each of them reads.
pub struct AdapterRun {
    pub adapters: Vec<Box<dyn Adapter>>,
    pub frames: Vec<Vec<u8>>,
    pub sink: CountingSink,
}

/// An adapter that has read a delta of its stream.
pub fn adapter(wire: Wire) -> Box<dyn Adapter> {
    let first = wire.delta(0);
    let mut adapter = wire.kind().adapter();
    adapter.frame(&Event::read(first.as_bytes()), &mut CountingSink::default()).unwrap();
    adapter
}

impl AdapterRun {
    pub fn deltas(wire: Wire) -> Self {
        Self::of(wire, 1, wire.deltas().map(String::into_bytes).collect())
    }

    /// Each adapter reads the frame once, because some skip a repeated list.
    pub fn references(wire: Wire) -> Self {
        let frame = wire.head().pop().unwrap();
        Self::of(wire, REPEATS, vec![frame.as_bytes().to_vec()])
    }

    fn of(wire: Wire, adapters: usize, frames: Vec<Vec<u8>>) -> Self {
        let adapter = || adapter(wire);
        Self {
            adapters: std::iter::repeat_with(adapter).take(adapters).collect(),
            frames,
            sink: CountingSink::default(),
        }
    }
}

/// A search result. Its texts are leaked, so that references can borrow them.
struct Page {
    url: &'static str,
    title: &'static str,
    snippet: &'static str,
    icon: &'static str,
}

fn page(n: usize) -> Page {
    Page {
        url: format!("https://www.site{}.example.com/articles/{n}?from=search&utm_source=chat", n % 7).leak(),
        title: format!("常州小程序开发报价一览：模板、半定制与全定制（第 {n} 篇）").leak(),
        snippet: format!(
            "模板类小程序通常在数千元，半定制在一万到三万元，全定制按人天核算，多在五万元以上；服务器、短信与认证费用另计。见第 {n} 节。"
        )
        .leak(),
        icon: format!("https://logo.example.com/cz/{n}.png?x-expires=1799999999&x-signature=2804bad6fe94").leak(),
    }
}

/// `count` references to `pages` pages. After the last page they repeat under new numbers.
pub fn references(count: usize, pages: usize) -> Vec<Reference<'static>> {
    (0..count)
        .map(|n| {
            let page = page(n % pages);
            Reference {
                number: u32::try_from(n + 1).ok(),
                position: None,
                rank: None,
                score: None,
                url: Some(page.url),
                title: Some(page.title),
                snippet: Some(page.snippet),
                site_name: Some("建站报价示例网"),
                icon_url: Some(page.icon),
                published: Some(Published::Text("2025-11-06T10:02:41+08:00")),
                doc_id: Some(Cow::Owned(format!("e0d8765729063cc3-{:016x}", n % pages))),
                kind: CitationType::Websearch,
                cited: false,
                metadata: vec![("docId", json!(format!("e0d8765729063cc3-{:016x}", n % pages)))],
            }
        })
        .collect()
}

/// A ledger with this number of sources and an answer, and the arguments of its snapshot.
pub fn ledger(sources: usize) -> (Ledger, Arc<Rules>, Timestamp) {
    let mut ledger = Ledger::new(None);
    ledger.set_provider("doubao");
    references(sources, sources).iter().for_each(|reference| ledger.add_reference(reference));
    texts().iter().for_each(|text| ledger.add_text(text));
    (ledger, default_rules(), now())
}

/// The record of a stream with this number of sources, and the positions of its markers.
pub fn record(sources: usize) -> (Record, Positions) {
    let cards = (0..sources).map(|n| {
        let Page { url, title, snippet, icon } = page(n);
        json!({ "text_card": {
            "id": 35_744_004_404_204_546_u64 + n as u64, "summary": snippet, "title": title, "sitename": "建站报价示例网",
            "url": url, "logo_url": icon, "doc_id": format!("e0d8765729063cc3-{n:016x}"),
            "publish_time_second": "2025-11-06T10:02:41+08:00", "index": n + 1,
        }})
    });
    let block = json!({ "search_query_result_block": {
        "summary": "搜索 1 个关键词", "queries": ["常州小程序开发公司推荐"], "results": cards.collect::<Vec<_>>(),
    }});
    let frame = json!({ "message_id": "35730705466983426", "patch_op": [{ "patch_object": 1, "patch_value": {
        "content_block": [{ "block_type": 10_025, "block_id": "35744004404444674", "content": block }],
    }}]});
    let mut pipeline = Pipeline::new(Some(context(Wire::Doubao)), settings());
    pipeline.push(Bytes::from(format!("event: STREAM_CHUNK\ndata: {frame}\n\n")));
    Wire::Doubao.deltas().for_each(|delta| pipeline.push(Bytes::from(delta)));
    let tap = pipeline.tap().unwrap();
    let record = tap.record(false);
    assert_eq!(record.citations.len(), sources);
    (record, tap.positions())
}

/// Makes the allocator merge freed memory now. Otherwise the first large allocation of a case would be charged for it.
pub fn settle() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(64 * 1024)));
}

/// Ten pages as sources of markers.
pub struct PageSources(Vec<Page>);

impl PageSources {
    pub fn new() -> Self {
        Self((0..10).map(page).collect())
    }
}

impl Sources for PageSources {
    fn find(&self, number: u32) -> Option<Source<'_>> {
        let page = self.0.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        Some(Source { number, url: Some(page.url), title: Some(page.title), content: Some(page.snippet) })
    }
}

/// A pipeline with a tap, and the chunks of a stream.
pub fn tapped(wire: Wire) -> (Pipeline, Vec<Bytes>) {
    (Pipeline::new(Some(context(wire)), settings()), wire.chunks())
}

/// A pipeline without a tap, and the chunks of a stream.
pub fn untapped(wire: Wire) -> (Pipeline, Vec<Bytes>) {
    (Pipeline::new(None, settings()), wire.chunks())
}

fn context(wire: Wire) -> Context {
    Context {
        route: "test".to_owned(),
        provider: wire.kind(),
        link_base: url::Url::parse("https://lexiangla.com/").ok(),
        nonce: "0011223344556677".to_owned(),
        created: now(),
        fallback_id: "018f0000-0000-7000-8000-000000000000".to_owned(),
        task: None,
        rules: default_rules(),
    }
}

fn settings() -> Settings {
    Settings {
        inject: Inject::Final,
        emit_empty: false,
        output_format: OutputFormat::default(),
        supplement: Supplement::Off,
        single_document: false,
        frame_cap: 4 << 20,
        budget: Budget::new(64 << 20),
    }
}

fn now() -> Timestamp {
    "2026-01-13T09:18:07.049Z".parse().unwrap()
}
