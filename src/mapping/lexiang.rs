//! Builds the body of Tencent Lexiang's `ai/qa`: one query. The upstream keeps earlier ones in a session.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{ChatRequest, InvalidRequest, RequestContext};

/// Lexiang's own parameters, copied if a client sends them.
const LEXIANG_KEYS: &[&str] =
    &["anonymous_staff_id", "skip_faq", "new_session", "qa_mode", "max_chars", "targets", "language", "research"];

/// Builds the body. Always requests a stream, so that timeouts see a long answer's progress and a client that disconnects
/// ends it. Without a session, requests a new one, because Lexiang otherwise continues the user's last session.
pub fn body(request: &ChatRequest<'_>, context: RequestContext<'_>) -> Result<Vec<u8>, InvalidRequest> {
    let mut members: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    put(&mut members, "query", &request.query()?);
    put(&mut members, "stream", &true);
    match context.session.map(str::to_owned).or_else(|| request.session()) {
        Some(session) => put(&mut members, "session_id", &session),
        None => put(&mut members, "new_session", &true),
    }
    for key in LEXIANG_KEYS {
        if let Some(value) = request.get(key) {
            members.insert(key, value.to_owned());
        }
    }
    // Cannot fail: all keys are strings and all values are raw JSON.
    Ok(serde_json::to_vec(&members).unwrap_or_default())
}

fn put<'k>(members: &mut BTreeMap<&'k str, Box<RawValue>>, key: &'k str, value: &impl Serialize) {
    if let Ok(value) = to_raw_value(value) {
        members.insert(key, value);
    }
}
