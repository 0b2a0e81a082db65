//! The streams: frames as three upstreams write them, with placeholders for the values that change per event.

/// Digits of a message's id, an event's number and a stamp. The widths are fixed, so placeholders are filled in place.
const ID: usize = 17;
pub const NUMBER: usize = 8;
pub const STAMP: usize = 19;
/// JSON before a stamp, between it and the number of an event, and between it and the total in the finish.
pub const BEFORE_STAMP: &[u8] = b"\"at_ns\":\"";
pub const BEFORE_NUMBER: &[u8] = b"\",\"n\":\"";
pub const BEFORE_TOTAL: &[u8] = b"\",\"z\":\"";

/// Values of the placeholders.
#[derive(Clone, Copy)]
pub struct Values {
    pub id: u64,
    pub number: u32,
    pub at_ns: u64,
}

#[derive(Clone, Copy)]
enum Placeholder {
    Id,
    Number,
    Stamp,
}

/// One SSE frame.
pub struct Frame {
    bytes: Vec<u8>,
    placeholders: Vec<(usize, Placeholder)>,
}

impl Frame {
    /// `{ID}`, `{N}` and `{AT}` are placeholders.
    fn new(text: &str) -> Self {
        let mut frame = Self { bytes: Vec::new(), placeholders: Vec::new() };
        let mut rest = text;
        while let Some((at, token, placeholder, width)) =
            [("{ID}", Placeholder::Id, ID), ("{N}", Placeholder::Number, NUMBER), ("{AT}", Placeholder::Stamp, STAMP)]
                .into_iter()
                .filter_map(|(token, placeholder, width)| rest.find(token).map(|at| (at, token, placeholder, width)))
                .min_by_key(|found| found.0)
        {
            frame.bytes.extend_from_slice(&rest.as_bytes()[..at]);
            frame.placeholders.push((frame.bytes.len(), placeholder));
            frame.bytes.resize(frame.bytes.len() + width, b'0');
            rest = &rest[at + token.len()..];
        }
        frame.bytes.extend_from_slice(rest.as_bytes());
        frame
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn write(&self, out: &mut Vec<u8>, values: Values) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for &(at, placeholder) in &self.placeholders {
            let (value, width) = match placeholder {
                Placeholder::Id => (values.id, ID),
                Placeholder::Number => (values.number.into(), NUMBER),
                Placeholder::Stamp => (values.at_ns, STAMP),
            };
            digits(&mut out[start + at..start + at + width], value);
        }
    }
}

/// Writes the value in decimal, padded with zeros.
fn digits(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Frames of one upstream: before the text (with the references), the text (sent repeatedly), the finish.
pub struct Dialect {
    pub preface: Vec<Frame>,
    pub deltas: Vec<Frame>,
    pub finish: Vec<Frame>,
}

pub const NAMES: [&str; 3] = ["doubao", "tencent", "openai"];

/// Default number of references.
pub const REFERENCES: usize = SOURCES.len();

/// All dialects in the order of [`NAMES`], with `references` before the text.
pub fn all(references: usize) -> [Dialect; 3] {
    [doubao(references), tencent(references), openai(references)]
}

/// References: title, site, path, summary.
const SOURCES: [(&str, &str, &str, &str); 10] = [
    (
        "常州小程序开发公司怎么选",
        "本地生活示例",
        "changzhou/miniapp",
        "选择本地的开发团队，建议依次看案例、报价清单、源码归属、交付周期和售后响应，并把验收标准写进合同附件。",
    ),
    (
        "微信小程序备案与类目审核流程",
        "开发者文档示例",
        "docs/filing",
        "小程序上架前需完成主体认证、备案和类目审核，备案一般需要一到二十个工作日，涉及电商、医疗等类目需补充资质。",
    ),
    (
        "小程序开发报价一览：模板、半定制与全定制",
        "建站报价示例网",
        "price/list",
        "模板类通常在数千元，半定制在一万到三万元，全定制按人天核算，多在五万元以上；服务器、短信与认证费用另计。",
    ),
    (
        "小程序外包合同里必须写清的八个条款",
        "企服法务示例",
        "law/contracts",
        "源码交付、知识产权归属、付款节点、延期违约、缺陷修复期限和数据安全责任，是外包合同中争议最多的条款。",
    ),
    (
        "制造企业上线报修小程序：从提报到派工只要两分钟",
        "智造案例示例",
        "case/repair",
        "一家制造企业用小程序替代纸质报修单，扫码提报、自动派工，平均响应时间由四十分钟缩短到两分钟。",
    ),
    (
        "本地团队还是外地团队？开发沟通成本调查",
        "产业调研示例",
        "survey/2025-local",
        "受访企业中，选择本地团队的项目平均返工一点三次，异地团队为二点一次；当面评审需求是差异的主要来源。",
    ),
    (
        "小程序上线之后：维护费、迭代与数据迁移",
        "运维手记示例",
        "blog/maintenance",
        "年度维护费一般为开发费用的百分之十到二十，应约定故障响应时限、平台规则变更时的适配责任以及数据导出方式。",
    ),
    (
        "商城怎么设置满减活动？三步讲清楚",
        "短视频示例站",
        "video/7412009",
        "满减功能要先分清订单满减和商品满减：前者按整单金额计算，后者只对活动商品生效。",
    ),
    (
        "Heat pumps in cold climates: what field data shows",
        "Energy Notes",
        "energy/heat-pumps",
        "Field data from 2,300 homes shows seasonal efficiency above 2.4 where the winter mean stays below zero.",
    ),
    (
        "数据库索引设计的十个误区",
        "工程师示例社区",
        "engineering/index",
        "联合索引的顺序应由查询的过滤条件决定；过多的索引会拖慢写入，并占用缓存。",
    ),
];

/// An answer in pieces as models send them, with complete and split markers.
const PIECES: [&str; 24] = [
    "选择小程序",
    "开发团队",
    "时，可以先",
    "看本地公司的",
    "案例和报价",
    "[1]",
    "。备案一般",
    "需要一到二十个",
    "工作日[2]",
    "，模板类的",
    "价格在数千元",
    "[3",
    "]。合同里要",
    "写清源码交付、",
    "知识产权和",
    "付款节点[4]",
    "；上线之后",
    "的维护费约为",
    "开发费用的",
    "百分之十到二十[7]",
    "。The field data",
    " agree [9]",
    "，本地团队的",
    "返工次数更少[6]。\\n",
];

const END: &str = ",\"at_ns\":\"{AT}\",\"n\":\"{N}\"}\n\n";

/// Formats `count` references as a JSON list. After the first ten they repeat with other URLs.
fn listed(count: usize, one: impl Fn(usize, (&str, &str, &str, &str)) -> String) -> String {
    let all = SOURCES.into_iter().cycle().take(count).enumerate().map(|(i, (title, site, path, summary))| {
        let path = if i < SOURCES.len() { path.to_owned() } else { format!("{path}/{i}") };
        one(i, (title, site, &path, summary))
    });
    all.collect::<Vec<_>>().join(",")
}

fn doubao(references: usize) -> Dialect {
    let cards = listed(references, |i, (title, site, path, summary)| {
        format!(
            r#"{{"text_card":{{"id":3574400440420{i:04},"summary":"{summary}","title":"{title}","sitename":"{site}","url":"https://www.example.com/{path}","logo_url":"https://logo.example.com/{i}.png?x-expires=1799999999&x-signature=2804bad6fe9{i}","doc_id":"fa6e992ffc4dd982-beea6b256eb7dcf{i}","publish_time_second":"2025-10-2{}T07:50:20+08:00","original_doc_rank":{i},"index":{}}}}}"#,
            i % 10,
            i + 1
        )
    });
    let preface = [
        "id: 0\nevent: SSE_HEARTBEAT\ndata: {}\n\n".to_owned(),
        r#"id: 1
event: SSE_ACK
data: {"query_list":[{"question_id":"35730705466982914","local_message_id":"u-19b25856e1c1","message_index":4}],"ack_client_meta":{"conversation_id":"7{ID}","section_id":"78","conversation_type":3},"timeout_conf":{"first_chunk_timeout":60000,"chunk_timeout":120000}}

"#
        .to_owned(),
        r#"id: 2
event: STREAM_MSG_NOTIFY
data: {"content":{"content_type":9999,"content_block":[]},"meta":{"message_id":"{ID}","conversation_id":"7{ID}","section_id":"78","user_type":2,"index_in_conv":5,"bot_id":"b-1"}}

"#
        .to_owned(),
        format!(
            "id: 3\nevent: STREAM_CHUNK\ndata: {}{cards}{}\n\n",
            r#"{"message_id":"{ID}","patch_op":[{"patch_object":1,"patch_type":1,"patch_value":{"content_block":[{"block_type":10025,"block_id":"35744004404444674","content":{"search_query_result_block":{"summary":"搜索 2 个关键词，参考 10 篇资料","queries":["常州比较好的小程序开发公司","小程序开发公司推荐"],"results":["#,
            r#"]}},"is_finish":true}]}}]}"#
        ),
    ];
    // Half of the text comes in blocks, three of eight pieces as compact deltas, one of eight as text for speech output.
    let deltas = PIECES.iter().enumerate().map(|(i, piece)| match i % 8 {
        0 | 2 | 4 | 6 => format!(
            "id: {{N}}\nevent: STREAM_CHUNK\ndata: {}{piece}{}{END}",
            r#"{"message_id":"{ID}","patch_op":[{"patch_object":1,"patch_type":1,"patch_value":{"content_block":[{"block_type":10000,"block_id":"35744004404444675","parent_id":"","content":{"text_block":{"text":""#,
            r#""}},"is_finish":false}]}}]"#
        ),
        7 => format!(
            "id: {{N}}\nevent: STREAM_CHUNK\ndata: {}{piece}{}{END}",
            r#"{"message_id":"{ID}","patch_op":[{"patch_object":111,"patch_type":1,"patch_value":{"tts_content":""#, r#""}}]"#
        ),
        _ => format!("id: {{N}}\nevent: CHUNK_DELTA\ndata: {{\"text\":\"{piece}\"{END}"),
    });
    let finish = [
        r#"id: {N}
event: STREAM_CHUNK
data: {"message_id":"{ID}","patch_op":[{"patch_object":3,"patch_type":2,"patch_value":{}},{"patch_object":50,"patch_type":1,"patch_value":{"ext":{"is_finish":"1"}}}]}

"#,
        r#"id: {N}
event: SSE_REPLY_END
data: {"end_type":1,"msg_finish_attr":{"msgid":"{ID}","brief":"选择小程序开发团队时，可以先看本地公司的案例..."},"at_ns":"{AT}","z":"{N}"}

"#,
        "id: {N}\nevent: SSE_REPLY_END\ndata: {\"end_type\":2,\"answer_finish_attr\":{\"has_suggest\":true}}\n\n",
        "id: {N}\nevent: SSE_REPLY_END\ndata: {\"end_type\":3}\n\n",
    ];
    dialect(preface, deltas, finish)
}

fn tencent(references: usize) -> Dialect {
    let frame = |stage: &str, detail: &str, delta: &str, additional: &str| {
        format!(
            r#"data:{{"completion_id":"fb1ec2e0ec41e8f{{ID}}","session_id":"","processes":{{"stage":"{stage}","message":"","delta_content":"","content":"","detail":{detail}}},"delta_content":"{delta}","content":"","finish_reason":"","is_stop":false,"answer_source":"","additional_content":{additional}"#
        )
    };
    let page = |i: usize| format!("3fa97e884d1100f75c6b284a5917{i:04x}");
    let chunks = listed(references, |i, (title, site, _, summary)| {
        format!(
            r#"{{"block_id":"","content":"{summary}","content_with_mllm":"{summary}","file_info":{{"target_id":"8417ec31e4b6a15a6d5d333d2f6a{i:04x}","target_type":"kb_file"}},"file_pages":[{i}],"file_type":"docx","meeting_info":{{"cover_url":"","start_time":0}},"owner":{{"avatar":"https://avatar.example.com/u/docs.png","display_name":"产品文档组"}},"space_info":{{"id":"3f49dbbfe051cb20cc038923424fedf8","name":"{site}"}},"target_id":"{page}","target_type":"kb_entry","title":"{title}","updated_at":{updated},"url":"/pages/{page}"}}"#,
            updated = 1_758_700_800 + i,
            page = page(i)
        )
    });
    let docs = listed(references, |i, (title, ..)| {
        format!(
            r#"{{"block_id":"","file_type":"docx","target_id":"{page}","target_type":"kb_entry","title":"{title}","url":"/pages/{page}"}}"#,
            page = page(i)
        )
    });
    let preface = [
        frame("internal_searching", r#"{"space_name":"示例空间"}"#, "", "null") + "}\n\n",
        frame(
            "finished_internal_searching",
            &format!(r#"{{"space_count":1,"doc_count":{references},"space_name":"示例空间"}}"#),
            "",
            &format!(r#"{{"context_limit_reference_chunks_top_n":9,"reference_chunks":[{chunks}]}}"#),
        ) + "}\n\n",
    ];
    let deltas = PIECES.iter().enumerate().map(|(i, piece)| {
        let marker = format!(r#"<span id=\"ai-qa-ref\">{}</span>"#, i % 10 + 1);
        let piece = if piece.contains("[3") || piece.starts_with(']') { "价格" } else { piece };
        let piece = piece.split_once('[').map_or(piece.to_owned(), |(text, _)| format!("{text}{marker}"));
        frame("", "null", &piece, "null") + END
    });
    let finish = [format!(
        "event:finish\ndata:{}{docs}{}",
        r#"{"completion_id":"fb1ec2e0ec41e8f{ID}","session_id":"90632a3c99ea7da3f3e1ede94cdff4269c9b9e2a","processes":{"stage":"","message":"","delta_content":"","content":"","detail":null},"delta_content":"","content":"选择小程序开发团队时，可以先看本地公司的案例和报价<span id=\"ai-qa-ref\">1</span>。备案一般需要一到二十个工作日<span id=\"ai-qa-ref\">2</span>。","finish_reason":"stop","is_stop":true,"answer_source":"internal-space","additional_content":{"generated_question":"","reference_docs":["#,
        "],\"scenario\":\"qa\"},\"at_ns\":\"{AT}\",\"z\":\"{N}\"}\n\n"
    )];
    dialect(preface, deltas, finish)
}

fn openai(references: usize) -> Dialect {
    let frame = |delta: &str, finish: &str| {
        format!(
            r#"data: {{"id":"chatcmpl-{{ID}}","object":"chat.completion.chunk","created":1750000000,"model":"doubao-pro-32k-241215","service_tier":"default","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]"#
        )
    };
    let references = listed(references, |i, (title, site, path, summary)| {
        format!(
            r#"{{"url":"https://www.example.org/{path}","logo_url":"https://logo.example.com/{i}.png?x-expires=1799999999&x-signature=abc","mobile_url":"https://m.example.org/{path}","site_name":"{site}","title":"{title}","summary":"{summary}","publish_time":"2025-06-1{}T10:00:00+08:00","cover_image":{{"url":"https://img.example.com/{i}.png","width":640,"height":360}},"extra":{{"rel_info":""}}}}"#,
            i % 10
        )
    });
    let preface =
        [frame(r#"{"content":"","role":"assistant"}"#, "null") + &format!(",\"references\":[{references}]}}\n\n")];
    let deltas = PIECES.iter().map(|piece| frame(&format!(r#"{{"content":"{piece}"}}"#), "null") + END);
    let finish = [
        frame(r#"{"content":"","role":"assistant"}"#, "\"stop\"") + ",\"at_ns\":\"{AT}\",\"z\":\"{N}\"}\n\n",
        "data: [DONE]\n\n".to_owned(),
    ];
    dialect(preface, deltas, finish)
}

fn dialect<A: AsRef<str>, B: AsRef<str>, C: AsRef<str>>(
    preface: impl IntoIterator<Item = A>,
    deltas: impl IntoIterator<Item = B>,
    finish: impl IntoIterator<Item = C>,
) -> Dialect {
    Dialect {
        preface: preface.into_iter().map(|text| Frame::new(text.as_ref())).collect(),
        deltas: deltas.into_iter().map(|text| Frame::new(text.as_ref())).collect(),
        finish: finish.into_iter().map(|text| Frame::new(text.as_ref())).collect(),
    }
}
