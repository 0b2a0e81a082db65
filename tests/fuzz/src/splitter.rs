//! Target `splitter`: frames and events agree with the WHATWG algorithm, written out line by line, and with another parser.

use bytes::Bytes;
use citetap::sse::{Cut, Event, Splitter};
use eventsource_stream::Eventsource as _;
use futures_util::{FutureExt as _, StreamExt as _};

use crate::input::{chunks, split};

/// Event type, data and last event id.
type Dispatched = (String, String, String);

/// Longer inputs skip the other parser, which is quadratic.
const MAX_ORACLE: usize = 2048;

pub fn run(data: &[u8]) {
    let Some((head, stream)) = split(data) else { return };
    let whole = parse(&[Bytes::copy_from_slice(stream)]);
    for seed in [head[0], 0] {
        assert_eq!(parse(&chunks(stream, seed)), whole, "another chunking");
    }
    let expected = standard(stream);
    assert_eq!(whole.events, expected);
    if stream.len() <= MAX_ORACLE
        && let Ok(text) = std::str::from_utf8(stream)
        && let Some(other) = oracle(text)
    {
        assert_eq!(whole.events, other);
    }
}

#[derive(Debug, Default, PartialEq)]
struct Parsed {
    /// End offsets of frames, after the LF of a CRLF.
    ends: Vec<usize>,
    events: Vec<Dispatched>,
}

fn parse(chunks: &[Bytes]) -> Parsed {
    let mut parsed = Parsed::default();
    let (mut splitter, mut held, mut passed, mut id) = (Splitter::default(), Vec::new(), 0, String::new());
    let mut all = Vec::new();
    for chunk in chunks {
        let mut at = 0;
        while let Some(cut) = splitter.advance(&chunk[at..]) {
            let (Cut::Frame(len) | Cut::Separator(len)) = cut;
            assert!(len > 0 && at + len <= chunk.len());
            held.extend_from_slice(&chunk[at..at + len]);
            at += len;
            match cut {
                Cut::Frame(_) => {
                    dispatch(&Event::read(&held), &mut id, &mut parsed.events);
                    parsed.ends.push(passed + at);
                }
                Cut::Separator(_) if held == b"\n" => *parsed.ends.last_mut().unwrap() += 1,
                Cut::Separator(_) => assert_eq!((&held[..], all.len()), (&b"\xEF\xBB\xBF"[..], 0)),
            }
            all.append(&mut held);
        }
        held.extend_from_slice(&chunk[at..]);
        passed += chunk.len();
    }
    all.append(&mut held);
    assert_eq!(all, chunks.concat(), "every byte once, in order");
    parsed
}

fn dispatch(event: &Event<'_>, id: &mut String, events: &mut Vec<Dispatched>) {
    if let Some(new) = &event.id {
        *id = new.to_string();
    }
    if let Some(data) = &event.data {
        let name = if event.name.is_empty() { "message" } else { &event.name };
        events.push((name.to_owned(), data.to_string(), id.clone()));
    }
}

/// "Interpreting an event stream" of the WHATWG HTML standard. The standard decodes UTF-8 first. Here each line is decoded
/// after splitting, which gives the same lines, because invalid bytes contain no line end.
fn standard(stream: &[u8]) -> Vec<Dispatched> {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = stream.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' => {
                let _ = bytes.next_if_eq(&b'\n');
                lines.push(std::mem::take(&mut line));
            }
            b'\n' => lines.push(std::mem::take(&mut line)),
            _ => line.push(byte),
        }
    }
    let (mut data, mut name, mut id, mut events) = (String::new(), String::new(), String::new(), Vec::new());
    for line in lines {
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.is_empty() {
            if !data.is_empty() {
                data.pop();
                let name = if name.is_empty() { "message".to_owned() } else { name.clone() };
                events.push((name, data.clone(), id.clone()));
            }
            data.clear();
            name.clear();
            continue;
        }
        let (field, value) = match line.split_once(':') {
            Some((field, value)) => (field, value.strip_prefix(' ').unwrap_or(value)),
            None => (&*line, ""),
        };
        match field {
            "event" => name = value.to_owned(),
            "data" => {
                data.push_str(value);
                data.push('\n');
            }
            "id" if !value.contains('\0') => id = value.to_owned(),
            _ => {}
        }
    }
    events
}

/// The events of the other parser, which panics on a BOM and waits after a final CR: `None` for such inputs.
fn oracle(text: &str) -> Option<Vec<Dispatched>> {
    if text.contains('\u{FEFF}') || text.ends_with('\r') {
        return None;
    }
    let whole = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(text.as_bytes())]);
    let events = whole.eventsource().collect::<Vec<_>>().now_or_never()?;
    events.into_iter().map(|event| event.ok().map(|event| (event.event, event.data, event.id))).collect()
}
