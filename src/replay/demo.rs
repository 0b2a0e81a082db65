//! The upstream of `citetap demo`: four recorded answers that need no key and no network.

use std::time::Duration;

use bytes::Bytes;

use super::script::{Pace, Script, Scripted, steps};

/// Bounds for the duration of a reply at speed 1, whatever the number of frames in its capture.
const REPLY_TIME_MIN: Duration = Duration::from_secs(4);
const REPLY_TIME_MAX: Duration = Duration::from_secs(8);

pub(super) const CAPTURES: [(&str, &[u8]); 4] = [
    ("/doubao", include_bytes!("captures/doubao.sse")),
    ("/tencent", include_bytes!("captures/tencent.sse")),
    ("/doubao-en", include_bytes!("captures/doubao-en.sse")),
    ("/openai", include_bytes!("captures/openai.sse")),
];
/// Answer of `/openai` to a request without `"stream": true`, as one document.
const DOCUMENT: (&str, &[u8]) = ("/openai", include_bytes!("captures/openai.json"));

/// Routes of the demo: `/doubao`, `/tencent`, `/doubao-en` and `/openai`, with all paths below.
///
/// Pauses are scaled so that a reply takes 4 to 8 s, divided by `pace.speed`; [`Pace::INSTANT`] has none. Message ids
/// are the captures' and the same each time, unless [`Scripted::with_fresh_ids`] is used.
pub fn demo_routes(pace: Pace) -> Vec<Scripted> {
    let route = |(path, sse): (&str, &'static [u8])| {
        let sse = Bytes::from_static(sse);
        let script = Script::sse_steps(steps(&sse, pace.chunking, &fitted(pace, &sse)));
        let (document_path, document) = DOCUMENT;
        Scripted::new(path, if path == document_path { script.unless_streamed(Script::json(document)) } else { script })
    };
    CAPTURES.into_iter().map(route).collect()
}

fn fitted(pace: Pace, sse: &[u8]) -> Vec<(usize, Duration)> {
    let mut waits = pace.speed(1.0).waits(sse);
    let total: Duration = waits.iter().map(|(_, wait)| *wait).sum();
    if total.is_zero() || pace.speed.is_nan() || pace.speed <= 0.0 {
        return Vec::new();
    }
    let factor = total.clamp(REPLY_TIME_MIN, REPLY_TIME_MAX).as_secs_f64() / total.as_secs_f64() / pace.speed;
    for (_, wait) in &mut waits {
        *wait = Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or_default();
    }
    waits
}
