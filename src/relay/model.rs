//! The model that a request names, read as it is sent on: `model` of the JSON object, wherever it stands in it. Nothing
//! else of the request is looked at longer than it takes to find that it is something else.

use std::sync::{Arc, OnceLock};

use memchr::memchr2;

use crate::citation::text;

/// A longer one is none.
const MAX_MODEL: usize = 256;
const KEY: &[u8] = b"model";

pub struct Seeker {
    found: Arc<OnceLock<String>>,
    depth: u32,
    within: Within,
    /// The string that is being read, where it may matter; with its escapes.
    string: Vec<u8>,
    /// In the object itself: the value that follows is the model's.
    is_model: bool,
    /// In the object itself: a string that comes now is a key.
    key: bool,
    over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Structure,
    String,
    Escape,
}

impl Seeker {
    pub fn new(found: Arc<OnceLock<String>>) -> Self {
        let (string, within) = (Vec::new(), Within::Structure);
        Self { found, depth: 0, within, string, is_model: false, key: false, over: false }
    }

    /// The next bytes of the request.
    pub fn look(&mut self, mut bytes: &[u8]) {
        while !self.over && !bytes.is_empty() {
            if self.within == Within::String && !self.matters() {
                // Images and long prompts.
                bytes = bytes.get(memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())..).unwrap_or_default();
            }
            let Some((byte, rest)) = bytes.split_first() else { return };
            self.byte(*byte);
            bytes = rest;
        }
    }

    fn matters(&self) -> bool {
        self.depth == 1 && (self.key || self.is_model) && self.string.len() <= MAX_MODEL
    }

    fn byte(&mut self, byte: u8) {
        match (self.within, byte) {
            (Within::String, b'"') => {
                self.within = Within::Structure;
                self.string_ended();
            }
            (Within::String | Within::Escape, _) => {
                let escapes = self.within == Within::String && byte == b'\\';
                self.within = if escapes { Within::Escape } else { Within::String };
                if self.matters() {
                    self.string.push(byte);
                }
            }
            (Within::Structure, b'"') => {
                self.over = self.depth == 0;
                self.within = Within::String;
                self.string.clear();
            }
            (Within::Structure, b'{' | b'[') => {
                self.over = self.depth == 0 && byte == b'[';
                self.depth += 1;
                self.key |= self.depth == 1;
            }
            (Within::Structure, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                self.over = self.depth == 0;
            }
            (Within::Structure, b':') if self.depth == 1 => self.key = false,
            (Within::Structure, b',') if self.depth == 1 => (self.key, self.is_model) = (true, false),
            (Within::Structure, _) => self.over = self.depth == 0 && !byte.is_ascii_whitespace(),
        }
    }

    fn string_ended(&mut self) {
        if self.depth != 1 {
            return;
        }
        if self.key {
            self.is_model = self.string == KEY;
        } else if self.is_model {
            self.over = true;
            let quoted = [b"\"", &*self.string, b"\""].concat();
            let name: Option<String> = serde_json::from_slice(&quoted).ok();
            if let Some(name) = name.filter(|name| !name.is_empty() && self.string.len() <= MAX_MODEL) {
                let _ = self.found.set(text::single_line(&name, MAX_MODEL));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In one piece, and cut in two at every byte.
    fn model(body: &str) -> Option<String> {
        let seek = |pieces: &[&[u8]]| {
            let found = Arc::default();
            let mut seeker = Seeker::new(Arc::clone(&found));
            pieces.iter().for_each(|piece| seeker.look(piece));
            found.get().cloned()
        };
        let whole = seek(&[body.as_bytes()]);
        for at in 0..body.len() {
            let (left, right) = body.as_bytes().split_at(at);
            assert_eq!(seek(&[left, right]), whole, "{body} cut at {at}");
        }
        whole
    }

    #[test]
    fn it_is_found_wherever_it_stands() {
        let found = Some("gpt-4o".to_owned());
        assert_eq!(model(r#"{"model":"gpt-4o","messages":[]}"#), found);
        assert_eq!(model(r#"{"messages":[{"role":"user","content":"说\"model\":\"x\""}], "model" : "gpt-4o"}"#), found);
        assert_eq!(model(" \n{\"stream\":true,\"n\":1,\"model\":\"gpt\\u002d4o\"}"), found);
        assert_eq!(model(r#"{"model":"豆包"}"#).as_deref(), Some("豆包"));
    }

    #[test]
    fn what_is_not_the_requests_own_is_not_taken() {
        for body in [
            r#"{"messages":[{"model":"inner"}],"tools":{"model":"inner"}}"#,
            r#"{"x":"model","y":"model: z"}"#,
            r#"{"model":null,"name":"x"}"#,
            r#"{"model":["a"],"b":"c"}"#,
            r#"{"model":{"a":"b"}}"#,
            r#"[{"model":"a"}]"#,
            r#""model":"a""#,
            "model=a",
            r#"{"model":""}"#,
            "",
        ] {
            assert_eq!(model(body), None, "{body}");
        }
    }

    #[test]
    fn at_its_limit_and_over_it() {
        let named = |length| model(&format!(r#"{{"model":"{}"}}"#, "m".repeat(length))).map(|name| name.len());
        assert_eq!(named(MAX_MODEL), Some(MAX_MODEL));
        assert_eq!(named(MAX_MODEL + 1), None);
    }
}
