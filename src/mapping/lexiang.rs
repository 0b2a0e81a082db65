//! Tencent Lexiang's `ai/qa`: one question, and a session in which it remembers the ones before.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{Ask, Beside, Refusal};

/// Parameters of the interface's own, which a client may send beside OpenAI's.
const OWN: &[&str] =
    &["anonymous_staff_id", "skip_faq", "new_session", "qa_mode", "max_chars", "targets", "language", "research"];

/// It is always asked to stream: only then is a long answer seen to be alive, and ended when nobody wants it.
/// Without a session it is told to begin a new one, as it would go on with the user's last one otherwise.
pub fn body(ask: &Ask<'_>, beside: Beside<'_>) -> Result<Vec<u8>, Refusal> {
    let mut members: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    put(&mut members, "query", &ask.query()?);
    put(&mut members, "stream", &true);
    match beside.session.map(str::to_owned).or_else(|| ask.session()) {
        Some(session) => put(&mut members, "session_id", &session),
        None => put(&mut members, "new_session", &true),
    }
    for key in OWN {
        if let Some(value) = ask.get(key) {
            members.insert(key, value.to_owned());
        }
    }
    // String keys and raw values: this cannot fail.
    Ok(serde_json::to_vec(&members).unwrap_or_default())
}

fn put<'k>(members: &mut BTreeMap<&'k str, Box<RawValue>>, key: &'k str, value: &impl Serialize) {
    if let Ok(value) = to_raw_value(value) {
        members.insert(key, value);
    }
}
