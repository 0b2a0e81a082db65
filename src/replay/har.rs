//! Reads HAR files, as saved by a browser's network panel.

use serde::Deserialize;

use super::capture::{Capture, CaptureError, Format, MAX_STREAMS};

#[derive(Deserialize)]
struct Har {
    log: Option<Log>,
}

#[derive(Deserialize)]
struct Log {
    #[serde(default)]
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    response: Option<Response>,
    /// Chrome extension: the parsed events, without the original bytes.
    #[serde(default, rename = "_eventSourceMessages")]
    messages: Option<Vec<Message>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Message {
    event_name: String,
    event_id: String,
    data: String,
}

#[derive(Deserialize)]
struct Response {
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    #[serde(default)]
    mime_type: String,
    text: Option<String>,
    encoding: Option<String>,
}

/// All event streams with a body, in the order of the file; `None` if the JSON is not a HAR file.
pub(super) fn read(json: &[u8]) -> Result<Option<Vec<Capture>>, CaptureError> {
    let Ok(Har { log: Some(log) }) = serde_json::from_slice::<Har>(json) else {
        return Ok(None);
    };
    let entries = log.entries.len();
    let (mut captures, mut listed) = (Vec::new(), 0);
    for entry in log.entries {
        let Some(content) = entry.response.and_then(|response| response.content) else {
            continue;
        };
        if !is_event_stream(&content.mime_type) {
            continue;
        }
        listed += 1;
        let base64 = content.encoding.as_deref() == Some("base64");
        let sse = match content.text.filter(|text| !text.is_empty()) {
            Some(text) if base64 => decode_base64(text.as_bytes()).ok_or(CaptureError::HarBase64)?,
            Some(text) => text.into_bytes(),
            None => from_messages(&entry.messages.unwrap_or_default()),
        };
        if !sse.is_empty() && captures.len() < MAX_STREAMS {
            captures.push(Capture { sse: sse.into(), format: Format::Har, skipped: 0 });
        }
    }
    let skipped = entries - captures.len();
    match captures.first_mut() {
        Some(first) => first.skipped = skipped,
        None if listed == 0 => return Err(CaptureError::HarWithoutStream { entries }),
        None => return Err(CaptureError::HarWithoutBody { streams: listed }),
    }
    Ok(Some(captures))
}

fn from_messages(messages: &[Message]) -> Vec<u8> {
    let mut sse = String::new();
    for Message { event_name, event_id, data } in messages {
        for (field, value) in [("id", event_id), ("event", event_name)] {
            // Events without a name are saved as `message`.
            if !value.is_empty() && !value.contains(['\r', '\n']) && value != "message" {
                sse.extend([field, ": ", value, "\n"]);
            }
        }
        for line in data.split('\n') {
            sse.extend(["data: ", line, "\n"]);
        }
        sse.push('\n');
    }
    sse.into_bytes()
}

fn is_event_stream(mime: &str) -> bool {
    let essence = mime.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/event-stream")
}

/// RFC 4648 section 4; line breaks allowed, padding optional.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut bit_count) = (0u32, 0u32);
    let text = text.trim_ascii_end();
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    for byte in text.iter().filter(|b| !b.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            out.push((bits >> bit_count) as u8);
            bits &= (1 << bit_count) - 1;
        }
    }
    // Six bits left over mean a single dangling character; other leftovers must be zero padding.
    (bit_count < 6 && bits == 0).then_some(out)
}
