use std::{error::Error, time::Duration};

use bytes::Bytes;

use super::{
    capture::{Capture, Format},
    demo::demo_routes,
    script::{Chunking, Pace, Reply, Script, Scripted, Step},
};

type Test = Result<(), Box<dyn Error>>;

fn capture(sse: &str) -> Capture {
    Capture { sse: Bytes::copy_from_slice(sse.as_bytes()), format: Format::Sse, skipped: 0 }
}

fn steps(script: &Script) -> Vec<Step> {
    match script.reply() {
        Reply::Steps(steps) => steps.to_vec(),
        Reply::Echo | Reply::Hang => Vec::new(),
    }
}

fn sent(script: &Script) -> Vec<u8> {
    let sends = steps(script).into_iter().filter_map(|step| match step {
        Step::Send(bytes) => Some(bytes),
        _ => None,
    });
    sends.collect::<Vec<_>>().concat()
}

fn length(script: &Script) -> Duration {
    steps(script).iter().map(|step| if let Step::Pause(wait) = step { *wait } else { Duration::ZERO }).sum()
}

fn send(text: &str) -> Step {
    Step::Send(Bytes::copy_from_slice(text.as_bytes()))
}

const MIXED: &str = "\u{feff}data: 一\n\nevent: x\r\ndata: 二\r\n\r\n\ndata: \"searching\"\n\ndata: cut";

#[test]
fn script_frames_end_at_blank_lines() {
    let script = Script::from_capture(&capture(MIXED), Pace::LIVE.speed(2.0));
    let expected = [
        send("\u{feff}data: 一\n\n"),
        Step::Pause(Duration::from_millis(20)),
        send("event: x\r\ndata: 二\r\n\r\n"),
        Step::Pause(Duration::from_millis(200)),
        send("\ndata: \"searching\"\n\n"),
        Step::Pause(Duration::from_millis(20)),
        send("data: cut"),
    ];
    assert_eq!(steps(&script), expected);
}

#[test]
fn script_every_chunking_keeps_bytes_and_waits() {
    for n in 0..MIXED.len() + 2 {
        let script = Script::from_capture(&capture(MIXED), Pace::LIVE.chunking(Chunking::Bytes(n)));
        assert_eq!(sent(&script), MIXED.as_bytes());
        assert_eq!(length(&script), Duration::from_millis(480));
        let longest = steps(&script).iter().map(|step| if let Step::Send(b) = step { b.len() } else { 0 }).max();
        assert_eq!(longest, Some(n.clamp(1, MIXED.len())));
    }
    let whole = Script::from_capture(&capture(MIXED), Pace::LIVE.chunking(Chunking::Whole));
    assert_eq!(steps(&whole), [send(MIXED)]);
}

#[test]
fn script_invalid_speed_disables_waits() {
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let script = Script::from_capture(&capture(MIXED), Pace::LIVE.speed(speed));
        assert_eq!((length(&script), sent(&script)), (Duration::ZERO, MIXED.as_bytes().to_vec()), "{speed}");
    }
}

#[test]
fn fresh_ids_change_only_the_ids() -> Test {
    let sse = concat!(
        "data: {\"message_id\":\"35730705466983426\",\"n\":357307054669834261,\"c\":\"77777777777\"}\n\n",
        "data: {\"event_data\":\"{\\\"message_id\\\":\\\"35730705466983426\\\"}\"}\n\n",
        "data: {\"msgid\": 35730705466983426, \"completion_id\":\"3f2a9c04-77aa-4b1c-8d2e-001122334455\"}\n\n",
        "data: {\"messageId\":\"chatcmpl-AbCdEf12345\",\"message_id\":\"12\",\"message_ids\":[\"11111111111\"],\"id\":\"22222222222\"}\n\n",
    );
    let plain = Script::from_capture(&capture(sse), Pace::INSTANT.chunking(Chunking::Bytes(5)));
    assert_eq!(sent(&plain), sse.as_bytes());
    let fresh = plain.clone().with_fresh_ids();
    let (one, two) = (String::from_utf8(sent(&fresh))?, String::from_utf8(sent(&fresh))?);
    assert_ne!(one, two);
    assert_eq!(steps(&fresh).len(), steps(&plain).len());
    let id = one[21..].split('"').next().ok_or("no id")?;
    assert!(id.len() == 17 && id.starts_with('3') && id.bytes().all(|b| b.is_ascii_digit()), "{id}");
    assert_ne!(id, "35730705466983426");
    assert_eq!(one.matches(id).count(), 3);
    for kept in ["357307054669834261", "77777777777", "chatcmpl-", "\"12\"", "11111111111"] {
        assert!(one.contains(kept), "{kept} in {one}");
    }
    assert!(!one.contains("3f2a9c04") && !one.contains("AbCdEf12345"));
    assert!(one.contains("\"id\":\"22222222222\""), "an id of something else");
    assert_eq!(one.len(), sse.len());
    let mask = |text: &str| text.chars().map(|c| if c.is_ascii_alphanumeric() { '0' } else { c }).collect::<String>();
    assert_eq!(mask(&one), mask(sse));
    Ok(())
}

#[test]
fn demo_reply_takes_four_to_eight_seconds() {
    let routes = demo_routes(Pace::LIVE);
    let paths: Vec<_> = routes.iter().map(|route| route.path.as_str()).collect();
    assert_eq!(paths, ["/doubao", "/tencent", "/doubao-en", "/openai"]);
    for (route, fast) in routes.iter().zip(demo_routes(Pace::LIVE.speed(10.0))) {
        let took = length(&route.script).as_secs_f64();
        assert!((3.99..8.01).contains(&took), "{}: {took}", route.path);
        assert!((length(&fast.script).as_secs_f64() * 10.0 - took).abs() < 0.01);
    }
}

#[test]
fn demo_replies_have_ids_that_can_be_fresh() {
    for route in demo_routes(Pace::INSTANT) {
        assert_eq!(length(&route.script), Duration::ZERO);
        assert_eq!(sent(&route.script), sent(&route.script));
        let Scripted { path, script } = route.with_fresh_ids();
        assert_ne!(sent(&script), sent(&script), "{path} has no message id");
    }
}

#[test]
fn fresh_ids_include_chat_completion_ids() -> Test {
    let sse = "data: {\"id\":\"chatcmpl-AbCdEf12345\",\"object\":\"chat.completion.chunk\"}\n\n".repeat(2);
    let fresh = Script::from_capture(&capture(&sse), Pace::INSTANT).with_fresh_ids();
    let (one, two) = (String::from_utf8(sent(&fresh))?, String::from_utf8(sent(&fresh))?);
    assert!(one != two && one.starts_with("data: {\"id\":\"chatcmpl-") && !one.contains("AbCdEf12345"), "{one}");
    Ok(())
}

#[test]
fn script_request_without_stream_gets_the_document() {
    let script = Script::sse("data: 1\n\n").unless_streamed(Script::json("{}"));
    for (body, whole) in [
        ("", true),
        ("{}", true),
        ("{\"stream\":false}", true),
        ("{\"stream\": true}", false),
        ("{ \"stream\" :\ntrue", false),
    ] {
        assert_eq!(sent(&script.clone().for_request(body.as_bytes())) == b"{}", whole, "{body}");
    }
    assert_eq!(sent(&Script::sse("data: 1\n\n").for_request(b"{}")), b"data: 1\n\n", "one that has only a stream");
}
