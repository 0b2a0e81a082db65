//! Replaces message ids for each request; see [`Script::with_fresh_ids`](super::Script::with_fresh_ids).

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use memchr::memmem;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::script::Step;

const KEYS: [&[u8]; 4] = [b"\"message_id", b"\"msgid", b"\"messageId", b"\"completion_id"];
/// A stream with this text uses `id` for the message; elsewhere `id` may be anything.
const CHAT: &[u8] = b"\"chat.completion";
const CHAT_KEY: &[u8] = b"\"id";

/// Accepted lengths; shorter values would match by accident.
const ID_LEN: Range<usize> = 8..65;

/// Most ids replaced; a capture has two or three (question and answer).
const MAX_IDS: usize = 32;

/// Positions of the ids in the bytes that the steps send.
#[derive(Debug, Clone)]
pub(super) struct FreshIds {
    ids: Vec<(Bytes, Vec<usize>)>,
}

impl FreshIds {
    pub(super) fn find(steps: &[Step]) -> Self {
        let sent = Bytes::from(sent_bytes(steps));
        let mut ids: Vec<(Bytes, Vec<usize>)> = Vec::new();
        let chat = memmem::find(&sent, CHAT).map(|_| CHAT_KEY);
        for value in KEYS.into_iter().chain(chat).flat_map(|key| memmem::find_iter(&sent, key).map(|at| at + key.len()))
        {
            let range = value_at(&sent, value);
            if ID_LEN.contains(&range.len()) && ids.len() < MAX_IDS {
                let id = sent.slice(range);
                if !ids.iter().any(|(known, _)| *known == id) {
                    let offsets = occurrences(&sent, &id);
                    ids.push((id, offsets));
                }
            }
        }
        Self { ids }
    }

    /// The steps with new ids, split at the same offsets.
    pub(super) fn apply(&self, steps: &[Step]) -> Arc<[Step]> {
        let mut sent = sent_bytes(steps);
        let salt = Uuid::now_v7();
        for (id, offsets) in &self.ids {
            let new = fresh_id(id, salt);
            for at in offsets {
                sent[*at..at + new.len()].copy_from_slice(&new);
            }
        }
        let mut sent = Bytes::from(sent);
        let renew = |step: &Step| match step {
            Step::Send(bytes) => Step::Send(sent.split_to(bytes.len())),
            other => other.clone(),
        };
        steps.iter().map(renew).collect()
    }
}

fn sent_bytes(steps: &[Step]) -> Vec<u8> {
    let mut all = Vec::new();
    for step in steps {
        if let Step::Send(bytes) = step {
            all.extend_from_slice(bytes);
        }
    }
    all
}

const fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Range of the value after a key, in the forms `":"12"`, `": 12` and `\":\"12\"` (nested JSON string). Empty if the
/// key continues.
fn value_at(bytes: &[u8], mut at: usize) -> Range<usize> {
    let is = |at: usize, accepted: &[u8]| bytes.get(at).is_some_and(|byte| accepted.contains(byte));
    while is(at, b"\\\": ") {
        at += 1;
    }
    let start = at;
    while bytes.get(at).is_some_and(|byte| is_id_byte(*byte)) {
        at += 1;
    }
    let closed = start > 0 && is(start - 1, b"\": ") && is(at, b"\\\",} ");
    if closed { start..at } else { start..start }
}

/// Every position where `id` is not part of a longer word.
fn occurrences(bytes: &[u8], id: &[u8]) -> Vec<usize> {
    let alone = |at: &usize| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let after = bytes.get(at + id.len());
        ![before, after].into_iter().flatten().any(|byte| is_id_byte(*byte))
    };
    memmem::find_iter(bytes, id).filter(alone).collect()
}

fn fresh_id(id: &[u8], salt: Uuid) -> Vec<u8> {
    let random = Sha256::new().chain_update(salt.as_bytes()).chain_update(id).finalize();
    let nibbles = random.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    // One random byte per decimal digit, to keep digits nearly uniform; the digest is long enough for any u64.
    let mut digits = random.iter().cycle().map(|byte| b'0' + byte % 10);
    let mut new = id.to_vec();
    if id.iter().all(u8::is_ascii_digit) {
        for byte in new.iter_mut().skip(1) {
            *byte = digits.next().unwrap_or(*byte);
        }
        return new;
    }
    let is_hex = id.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_'));
    // `chatcmpl-…`, `msg_…`: keep the prefix.
    let from = if is_hex { 0 } else { id.iter().rposition(|byte| matches!(byte, b'-' | b'_')).map_or(0, |at| at + 1) };
    let upper = id.iter().any(u8::is_ascii_uppercase) && !id.iter().any(u8::is_ascii_lowercase);
    let alphabet: &[u8; 16] = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    for (byte, nibble) in new[from..].iter_mut().filter(|byte| byte.is_ascii_alphanumeric()).zip(nibbles) {
        *byte = alphabet[usize::from(nibble)];
    }
    new
}
