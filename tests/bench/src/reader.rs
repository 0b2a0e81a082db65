//! Reads one answer as a client: counts its events, and checks their order and the end.

use memchr::memmem;

use crate::dialect::{BEFORE_NUMBER, BEFORE_STAMP, BEFORE_TOTAL, NUMBER, STAMP};
use crate::http::{self, Chunked};

/// Bytes kept from the end of a buffer, because a pattern may be split; all patterns are shorter.
const KEPT: usize = 63;
const STAMPED: usize = BEFORE_STAMP.len() + STAMP + BEFORE_NUMBER.len() + NUMBER;
const _: () = assert!(STAMPED <= KEPT && BEFORE_NUMBER.len() == BEFORE_TOTAL.len());

pub struct Reader {
    head: Option<Vec<u8>>,
    chunked: Chunked,
    tail: Vec<u8>,
    pub seen: u32,
    total: Option<u32>,
    out_of_order: bool,
    pub bytes: u64,
    /// A citation event was received.
    pub cited: bool,
    /// The citation event has `"stored":true`.
    pub stored: bool,
}

impl Reader {
    pub fn new() -> Self {
        Self {
            head: Some(Vec::new()),
            chunked: Chunked::START,
            tail: Vec::new(),
            seen: 0,
            total: None,
            out_of_order: false,
            bytes: 0,
            cited: false,
            stored: false,
        }
    }

    pub fn ended(&self) -> bool {
        self.chunked == Chunked::Done
    }

    /// Parses received bytes; calls `event` with the stamp of each event.
    pub fn feed(&mut self, bytes: &[u8], mut event: impl FnMut(u64)) -> Result<(), String> {
        let mut chunked = self.chunked;
        let fed = if let Some(mut head) = self.head.take() {
            head.extend_from_slice(bytes);
            let Some(len) = http::head_len(&head) else {
                self.head = Some(head);
                return Ok(());
            };
            check_head(&head[..len])?;
            chunked.feed(&head[len..], |payload| self.payload(payload, &mut event))
        } else {
            chunked.feed(bytes, |payload| self.payload(payload, &mut event))
        };
        self.chunked = chunked;
        fed
    }

    /// Checks the complete answer; the error says what is wrong.
    pub fn verdict(&self) -> Result<(), String> {
        match self.total {
            _ if !self.ended() => Err(format!("cut after {} events", self.seen)),
            _ if self.out_of_order => Err("events are missing or out of order".to_owned()),
            Some(total) if total == self.seen => Ok(()),
            Some(total) => Err(format!("{} events of {total}", self.seen)),
            None => Err(format!("no finish after {} events", self.seen)),
        }
    }

    fn payload(&mut self, payload: &[u8], event: &mut impl FnMut(u64)) {
        self.bytes += payload.len() as u64;
        let mut buffer = std::mem::take(&mut self.tail);
        buffer.extend_from_slice(payload);
        let mut done = 0;
        while let Some(at) = memmem::find(&buffer[done..], BEFORE_STAMP).map(|at| done + at) {
            let Some(found) = buffer.get(at..at + STAMPED) else { break };
            let (stamp, rest) = found[BEFORE_STAMP.len()..].split_at(STAMP);
            let (key, number) = rest.split_at(BEFORE_NUMBER.len());
            let number = decimal(number) as u32;
            if key == BEFORE_TOTAL {
                self.total = Some(number);
            } else {
                self.seen += 1;
                self.out_of_order |= number != self.seen;
                event(decimal(stamp));
            }
            done = at + STAMPED;
        }
        self.cited = self.cited || memmem::find(&buffer, b"\"type\":\"citations\"").is_some();
        self.stored = self.stored || self.cited && memmem::find(&buffer, b"\"stored\":true").is_some();
        let kept = done.max(buffer.len().saturating_sub(KEPT));
        buffer.drain(..kept);
        self.tail = buffer;
    }
}

fn check_head(head: &[u8]) -> Result<(), String> {
    let head = std::str::from_utf8(head).map_err(|e| e.to_string())?;
    if head.split(' ').nth(1) != Some("200") {
        return Err(format!("the response is {}", head.lines().next().unwrap_or_default()));
    }
    match http::header(head, "transfer-encoding") {
        Some(coding) if coding.eq_ignore_ascii_case("chunked") => Ok(()),
        _ => Err("the response is not chunked".to_owned()),
    }
}

fn decimal(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit.wrapping_sub(b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{self, Values};
    use crate::upstream::{chunk, finish};

    fn answer(dialect: &dialect::Dialect, leave_out: Option<u32>) -> Vec<u8> {
        let mut out = http::RESPONSE.to_vec();
        for number in (1..=9).filter(|number| Some(*number) != leave_out) {
            chunk(
                &mut out,
                &dialect.deltas[number as usize],
                Values { id: 7, number, at_ns: 1000 + u64::from(number) },
            );
        }
        let event = b"event: citations\ndata: {\"type\":\"citations\",\"stored\":true}\n\n";
        out.extend_from_slice(format!("{:x}\r\n", event.len()).as_bytes());
        out.extend_from_slice(event);
        out.extend_from_slice(b"\r\n");
        finish(&mut out, dialect, Values { id: 7, number: 9, at_ns: 0 });
        out
    }

    #[test]
    fn answer_split_at_any_byte_is_read_the_same() {
        for dialect in &dialect::all(dialect::REFERENCES) {
            let bytes = answer(dialect, None);
            for at in 0..bytes.len() {
                let (mut reader, mut stamps) = (Reader::new(), Vec::new());
                reader.feed(&bytes[..at], |stamp| stamps.push(stamp)).unwrap();
                assert!(reader.verdict().is_err());
                reader.feed(&bytes[at..], |stamp| stamps.push(stamp)).unwrap();
                reader.verdict().unwrap();
                assert_eq!(stamps, (1001..=1009).collect::<Vec<_>>());
                assert!(reader.cited && reader.stored);
            }
        }
    }

    #[test]
    fn missing_event_fails_the_verdict() {
        let mut reader = Reader::new();
        reader.feed(&answer(&dialect::all(dialect::REFERENCES)[0], Some(4)), drop).unwrap();
        assert!(reader.verdict().is_err());
    }
}
