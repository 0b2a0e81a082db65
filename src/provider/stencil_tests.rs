use super::*;
use crate::{
    provider::{Adapter, Dialect, json::asked, of_dialect},
    sse::Event,
};

/// Keeps what a frame says of itself.
#[derive(Default)]
struct Conversations(Vec<String>);

impl Sink for Conversations {
    fn signal(&mut self, signal: Signal<'_>) {
        if let Signal::Conversation(id) = signal {
            self.0.push(id.to_owned());
        }
    }
}

/// What is learnt from `frames`, each of them read.
fn learnt(dialect: Dialect, frames: &[&str]) -> (Stencils, Box<dyn Adapter>) {
    let (mut adapter, mut stencils) = (of_dialect(dialect), Stencils::default());
    for frame in frames {
        let before = adapter.epoch();
        let mut sink = Conversations::default();
        let mut listener = Listener::new(&mut sink);
        let (read, asked) = asked::during(|| adapter.frame(&Event::read(frame.as_bytes()), &mut listener));
        assert_eq!(read, Ok(()), "{frame}");
        if let Some(epoch) = before.filter(|_| adapter.epoch() == before) {
            stencils.learn(frame.as_bytes(), &asked, listener.said, epoch);
        }
    }
    (stencils, adapter)
}

/// What `other` says after `frames`, if it is known by them.
fn alike(dialect: Dialect, frames: &[&str], other: &str) -> Option<(usize, String)> {
    let (mut stencils, adapter) = learnt(dialect, frames);
    let read = stencils.read(other.as_bytes(), adapter.epoch()?, &mut Conversations::default());
    read.map(|(length, text)| (length, text.into_owned()))
}

fn openai(text: &str, more: &str) -> String {
    format!(
        "data: {{\"id\":\"c-1\",\"created\":17,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text}}},\"finish_reason\":null}}]{more}}}\n\n"
    )
}

/// After `first`, which is read twice: the adapter knows its names then.
fn like_openai(first: &str, other: &str) -> Option<String> {
    alike(Dialect::OpenAi, &[first, first], other).map(|(length, text)| {
        assert_eq!(length, other.find("\n\n").unwrap() + 2);
        text
    })
}

#[test]
fn another_text_makes_a_frame_that_is_alike() {
    let first = openai("\"中文\"", "");
    for (text, read) in [("\"b[1]\"", "b[1]"), ("\"\\u4e2d\\n\\\"x\\\"\"", "中\n\"x\""), ("\"{}\"", "{}")] {
        assert_eq!(like_openai(&first, &(openai(text, "") + "data: next")).as_deref(), Some(read), "{text}");
    }
    for text in
        ["\"\"", "\" \"", "\"\u{3000}\"", "\"\\n\"", "null", "5", "[]", "\"a", "\"\\ud800\"", "\"\\x\"", "\"\t\""]
    {
        assert_eq!(like_openai(&first, &openai(text, "")), None, "{text}");
    }
    let invalid = openai("\"?\"", "").replace('?', "\u{1}").into_bytes();
    let invalid: Vec<u8> = invalid.into_iter().map(|byte| if byte == 1 { 0xFF } else { byte }).collect();
    let (mut stencils, adapter) = learnt(Dialect::OpenAi, &[&first, &first]);
    let epoch = adapter.epoch().unwrap();
    assert!(stencils.read(&invalid, epoch, &mut Conversations::default()).is_none(), "no UTF-8");
}

#[test]
fn what_nobody_asks_for_may_differ() {
    let first = openai("\"a\"", ",\"at\":\"1\",\"n\":5,\"x\":{\"y\":\"z\"}");
    let same = |more: &str| like_openai(&first, &openai("\"b\"", more)).is_some();
    assert!(same(",\"at\":\"22\",\"n\":0,\"x\":{\"y\":\"\"}"));
    assert!(same(",\"at\":\"\\n\\\"\",\"n\":0,\"x\":{\"y\":\"\"}"));
    assert!(same(",\"at\":\"\",\"n\":123456789012345678901234567890,\"x\":{\"y\":\"中\"}"));
    for more in [
        ",\"at\":\"1\",\"n\":05,\"x\":{\"y\":\"z\"}",
        ",\"at\":\"1\",\"n\":-5,\"x\":{\"y\":\"z\"}",
        ",\"at\":\"1\",\"n\":5.5,\"x\":{\"y\":\"z\"}",
        ",\"at\":\"1\",\"n\":,\"x\":{\"y\":\"z\"}",
        ",\"at\":\"1\",\"n\":\"5\",\"x\":{\"y\":\"z\"}",
        ",\"at\":\"\\x\",\"n\":5,\"x\":{\"y\":\"z\"}",
        ",\"at\":null,\"n\":5,\"x\":{\"y\":\"z\"}",
        ",\"n\":5,\"at\":\"1\",\"x\":{\"y\":\"z\"}",
        ",\"at\":\"1\",\"n\":5,\"x\":{\"y\":\"z\",\"usage\":1}",
        ",\"at\":\"1\",\"n\":5,\"x\":{\"usage\":\"z\"}",
        "",
    ] {
        assert!(!same(more), "{more}");
    }
}

/// Whatever was seen to differ before: which of them are looked at one by one is a matter of speed.
#[test]
fn what_did_not_differ_so_far_still_may() {
    let frame =
        |at: &str, n: u32, y: &str| openai("\"b\"", &format!(",\"at\":\"{at}\",\"n\":{n},\"x\":{{\"y\":\"{y}\"}}"));
    let first = frame("1", 5, "z");
    let (mut stencils, adapter) = learnt(Dialect::OpenAi, &[&first, &first]);
    let tight = |stencils: &Stencils| stencils.each[stencils.last].tight.len();
    let mut read = |other: &str| {
        let read = stencils.read(other.as_bytes(), adapter.epoch().unwrap(), &mut Conversations::default());
        let read = read.map(|(length, text)| (length, text.into_owned()));
        assert_eq!(read, Some((other.len(), "b".to_owned())), "{other}");
        tight(&stencils)
    };
    let least = read(&first);
    assert_eq!(read(&frame("1", 6, "z")), least + 1);
    assert_eq!(read(&frame("1", 7, "z")), least + 1);
    assert_eq!(read(&frame("22", 8, "")), least + 3);
    assert_eq!(read(&first), least + 3);
    assert!(
        stencils
            .read(
                frame("1", 5, "z").replace("\"n\":5", "\"n\":05").as_bytes(),
                adapter.epoch().unwrap(),
                &mut Conversations::default()
            )
            .is_none()
    );
}

#[test]
fn what_was_asked_for_must_be_the_same() {
    let first = openai("\"a\"", "");
    assert!(like_openai(&first, &openai("\"b\"", "").replace("c-1", "c-2")).is_some(), "the first id counts");
    for (from, to) in [
        ("null", "\"stop\""),
        ("\"index\":0", "\"index\":1"),
        ("\"index\":0", "\"index\":10"),
        ("\"delta\"", "\"message\""),
        ("\"content\"", "\"reasoning\""),
        ("data:", "event: error\ndata:"),
        ("}]}", "}],\"error\":{\"message\":\"m\"}}"),
        ("\n\n", "\r\n\r\n"),
        ("\n\n", "\n"),
        ("\n\n", "\ndata: x\n\n"),
    ] {
        assert_eq!(like_openai(&first, &openai("\"b\"", "").replace(from, to)), None, "{from} {to}");
    }
}

#[test]
fn lists_that_were_read_before_must_be_the_same_whole() {
    let list = |title: &str| format!(",\"search_results\":[{{\"title\":\"{title}\",\"url\":\"https://a.example/\"}}]");
    let first = openai("\"a\"", &list("A"));
    assert!(like_openai(&first, &openai("\"b\"", &list("A"))).is_some());
    assert!(like_openai(&first, &openai("\"b\"", &list("B"))).is_none());
}

#[test]
fn a_frame_that_says_more_is_no_example() {
    let usage = ",\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}";
    for more in [usage, ",\"references\":[{\"title\":\"A\"}]"] {
        // Each time another list, as one that came before says nothing.
        let frame = openai("\"a\"", more);
        assert!(alike(Dialect::OpenAi, &[&frame], &frame).is_none(), "{more}");
    }
    let nothing = openai("\"\"", "");
    assert_eq!(like_openai(&nothing, &nothing).as_deref(), Some(""), "and one that says nothing is one");
}

#[test]
fn doubao_has_ids_channels_and_copies_for_the_ear() {
    let block = |id: &str, text: &str| {
        format!(
            "id: {id}\nevent: STREAM_CHUNK\ndata: {{\"message_id\":\"5\",\"conversation_id\":\"6\",\"patch_op\":[{{\"patch_object\":1,\"patch_value\":{{\"content_block\":[{{\"block_type\":10000,\"content\":{{\"text_block\":{{\"text\":\"{text}\"}}}}}}]}}}}]}}\n\n"
        )
    };
    let delta = |id: &str, text: &str| format!("id: {id}\nevent: CHUNK_DELTA\ndata: {{\"text\":\"{text}\"}}\n\n");
    let spoken = |text: &str| {
        format!(
            "event: STREAM_CHUNK\ndata: {{\"message_id\":\"5\",\"patch_op\":[{{\"patch_object\":111,\"patch_value\":{{\"tts\":\"{text}\"}}}}]}}\n\n"
        )
    };
    let known = [&*block("1", "甲"), &*delta("2", "乙"), &*spoken("乙")];
    let text = |other: &str| alike(Dialect::DoubaoWeb, &known, other).map(|(_, text)| text);
    assert_eq!(text(&block("30", "丙")).as_deref(), Some("丙"));
    assert_eq!(text(&delta("", "丁")).as_deref(), Some("丁"));
    assert_eq!(text(&delta("x\u{0}", "丁")), None);
    assert_eq!(text(&spoken("丙")).as_deref(), Some(""), "not for the eye");
    assert_eq!(text(&delta("2", "乙").replace("id: 2\n", "")), None);

    let (mut stencils, adapter) = learnt(Dialect::DoubaoWeb, &known);
    let mut sink = Conversations::default();
    stencils.read(block("4", "丙").as_bytes(), adapter.epoch().unwrap(), &mut sink);
    assert_eq!(sink.0, ["6"], "its conversation is told each time: another frame may name another");

    let thinking = "event: STREAM_CHUNK\ndata: {\"patch_op\":[{\"patch_value\":{\"content_block\":[{\"block_type\":10040,\"block_id\":\"t\"}]}}]}\n\n";
    let (mut stencils, adapter) = learnt(Dialect::DoubaoWeb, &[&*delta("1", "甲"), thinking]);
    let read = |stencils: &mut Stencils| {
        let other = delta("3", "乙");
        let read = stencils.read(other.as_bytes(), adapter.epoch()?, &mut Conversations::default());
        read.map(|(_, text)| text.into_owned())
    };
    assert_eq!(read(&mut stencils), None, "it means another channel now");
    let (mut stencils, _) = learnt(Dialect::DoubaoWeb, &[&*delta("1", "甲"), thinking, &*delta("2", "甲")]);
    assert_eq!(read(&mut stencils).as_deref(), Some(""), "a thought is no text");
}

#[test]
fn a_text_that_may_be_json_of_its_own_is_read() {
    let frame = |content: &str| {
        format!(
            "event: STREAM_CHUNK\ndata: {{\"patch_op\":[{{\"patch_object\":102,\"patch_value\":{{\"content\":\"{content}\"}}}}]}}\n\n"
        )
    };
    assert!(alike(Dialect::DoubaoWeb, &[&frame("plain")], &frame("other")).is_none());
}

#[test]
fn what_begins_alike_is_seen_whatever_its_length() {
    let bytes: Vec<u8> = (0..40).collect();
    for length in 0..=40 {
        let same = &bytes[..length];
        assert!(begins(&bytes, same) && begins(same, same), "{length}");
        assert!(length == 0 || !begins(&same[1..], same), "{length}");
        for at in 0..length {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(!begins(&other, same), "{at} of {length}");
        }
    }
}

#[test]
fn blank_is_what_it_is_elsewhere() {
    for c in '\0'..=char::MAX {
        assert_eq!(is_blank(&c.to_string()), c.is_whitespace(), "{c:?}");
    }
    assert!(is_blank("") && !is_blank(" a"));
}

#[test]
fn frames_are_tried_so_often_and_kept_so_many() {
    let (mut stencils, adapter) = learnt(Dialect::OpenAi, &[]);
    let epoch = adapter.epoch().unwrap();
    let (_, asked) = asked::during(|| ());
    let frame = |n: usize| format!("data: [{n}]\n\n");
    for n in 0..usize::from(TRIES) {
        assert!(stencils.wants(b"x"), "{n}");
        stencils.learn(frame(n).as_bytes(), &asked, Said::default(), epoch);
    }
    assert!(!stencils.wants(b"x"));
    let known = |stencils: &mut Stencils, n: usize| {
        stencils.read(frame(n).as_bytes(), epoch, &mut Conversations::default()).is_some()
    };
    let kept: Vec<usize> = (0..usize::from(TRIES)).filter(|n| known(&mut stencils, *n)).collect();
    assert_eq!(kept.len(), MAX_STENCILS);
    assert!(kept.contains(&(usize::from(TRIES) - 1)), "the newest");
    (0..WORTH).for_each(|_| assert!(known(&mut stencils, kept[0])));
    assert!(stencils.wants(b"x"), "it pays");
    assert!(stencils.wants(&[b'x'; MAX_FRAME]) && !stencils.wants(&[b'x'; MAX_FRAME + 1]));
    for n in 100..110 {
        kept[..MAX_STENCILS - 1].iter().for_each(|of_use| assert!(known(&mut stencils, *of_use), "{n}"));
        stencils.learn(frame(n).as_bytes(), &asked, Said::default(), epoch);
        assert!(known(&mut stencils, n), "and what is not makes room");
    }
}
