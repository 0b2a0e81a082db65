//! Reads the model name from a request body while it is relayed: the string `model` of the top-level JSON object. Fed by
//! `request_body` if telemetry is exported. It buffers at most one key or the name, never the body.

use std::sync::{Arc, OnceLock};

use memchr::memchr2;

use crate::citation::text;

/// Bytes of a model name. A longer name is ignored.
const MAX_MODEL: usize = 256;
const KEY: &[u8] = b"model";

/// An incremental JSON scanner.
pub struct ModelScanner {
    /// Set once.
    found: Arc<OnceLock<String>>,
    depth: u32,
    lexeme: Lexeme,
    /// The current string with its escapes, if [`Self::is_string_kept`].
    string: Vec<u8>,
    /// The next value of the top-level object is the model's.
    is_model: bool,
    /// The next string of the top-level object is a key.
    expects_key: bool,
    is_done: bool,
}

/// Where in the JSON text the scanner is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lexeme {
    Structure,
    String,
    Escape,
}

impl ModelScanner {
    pub fn new(found: Arc<OnceLock<String>>) -> Self {
        let (string, lexeme) = (Vec::new(), Lexeme::Structure);
        Self { found, depth: 0, lexeme, string, is_model: false, expects_key: false, is_done: false }
    }

    /// Scans the next bytes of the body.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !self.is_done && !bytes.is_empty() {
            if self.lexeme == Lexeme::String && !self.is_string_kept() {
                // Skips the rest of the string: images and long prompts are large.
                bytes = bytes.get(memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())..).unwrap_or_default();
            }
            let Some((byte, rest)) = bytes.split_first() else { return };
            self.byte(*byte);
            bytes = rest;
        }
    }

    fn is_string_kept(&self) -> bool {
        self.depth == 1 && (self.expects_key || self.is_model) && self.string.len() <= MAX_MODEL
    }

    fn byte(&mut self, byte: u8) {
        match (self.lexeme, byte) {
            (Lexeme::String, b'"') => {
                self.lexeme = Lexeme::Structure;
                self.end_string();
            }
            (Lexeme::String | Lexeme::Escape, _) => {
                let escapes = self.lexeme == Lexeme::String && byte == b'\\';
                self.lexeme = if escapes { Lexeme::Escape } else { Lexeme::String };
                if self.is_string_kept() {
                    self.string.push(byte);
                }
            }
            (Lexeme::Structure, b'"') => {
                self.is_done = self.depth == 0;
                self.lexeme = Lexeme::String;
                self.string.clear();
            }
            (Lexeme::Structure, b'{' | b'[') => {
                self.is_done = self.depth == 0 && byte == b'[';
                self.depth += 1;
                self.expects_key |= self.depth == 1;
            }
            (Lexeme::Structure, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                self.is_done = self.depth == 0;
            }
            (Lexeme::Structure, b':') if self.depth == 1 => self.expects_key = false,
            (Lexeme::Structure, b',') if self.depth == 1 => (self.expects_key, self.is_model) = (true, false),
            (Lexeme::Structure, _) => self.is_done = self.depth == 0 && !byte.is_ascii_whitespace(),
        }
    }

    fn end_string(&mut self) {
        if self.depth != 1 {
            return;
        }
        if self.expects_key {
            self.is_model = self.string == KEY;
        } else if self.is_model {
            self.is_done = true;
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

    /// The model in a body, checked for every split of it in two.
    fn model(body: &str) -> Option<String> {
        let scan = |pieces: &[&[u8]]| {
            let found = Arc::default();
            let mut scanner = ModelScanner::new(Arc::clone(&found));
            pieces.iter().for_each(|piece| scanner.feed(piece));
            found.get().cloned()
        };
        let whole = scan(&[body.as_bytes()]);
        for at in 0..body.len() {
            let (left, right) = body.as_bytes().split_at(at);
            assert_eq!(scan(&[left, right]), whole, "{body} cut at {at}");
        }
        whole
    }

    #[test]
    fn model_is_found_at_any_position() {
        let found = Some("gpt-4o".to_owned());
        assert_eq!(model(r#"{"model":"gpt-4o","messages":[]}"#), found);
        assert_eq!(model(r#"{"messages":[{"role":"user","content":"说\"model\":\"x\""}], "model" : "gpt-4o"}"#), found);
        assert_eq!(model(" \n{\"stream\":true,\"n\":1,\"model\":\"gpt\\u002d4o\"}"), found);
        assert_eq!(model(r#"{"model":"豆包"}"#).as_deref(), Some("豆包"));
    }

    #[test]
    fn model_outside_the_top_level_is_ignored() {
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
    fn model_longer_than_the_limit_is_ignored() {
        let model_len = |length| model(&format!(r#"{{"model":"{}"}}"#, "m".repeat(length))).map(|name| name.len());
        assert_eq!(model_len(MAX_MODEL), Some(MAX_MODEL));
        assert_eq!(model_len(MAX_MODEL + 1), None);
    }
}
