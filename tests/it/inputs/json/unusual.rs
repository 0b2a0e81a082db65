//! A hundred unusual documents, valid and invalid, through every adapter.

use bytes::Bytes;
use citetap::{
    pipeline::{End, Inject},
    provider::Provider,
};

use super::super::{Bench, doubao, openai};
use crate::{net::tencent, support::pass};

/// Numbers, some of them invalid.
const NUMBERS: &str = "0 -0 00 01 -01 1 -1 +1 --1 -+1 - + 0.0 0. .0 . -. -.5 1.5 1.5.5 1. 1.e1 1.0e 1e 1e1 1E1 1e+1 1e-1 1e+ 1e- 1e1.5 \
    1e01 1e001 e1 E 0e0 0e+ 0E 0e00 123456789 9007199254740991 9007199254740993 9223372036854775807 9223372036854775808 \
    -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616 340282366920938463463374607431768211456 \
    1e308 1e309 -1e309 1e-400 4.9e-324 2.2250738585072011e-308 1e9999999999 0e9999999999 1e-9999999999 0x1 0X1F 0b1 0o7 1_000 \
    1,000 1/2 ١٢ １ Infinity -Infinity +Infinity NaN -NaN nan inf 1n 1L 1.0f 1d 0.1e-7 -1.5E+10 5e5e5 1e1e1 0xG ½ ∞";

/// Strings without their quotes.
const STRINGS: &[&str] = &[
    "",
    " ",
    "a",
    "中",
    "😀",
    r"\",
    r"\\",
    r"\\\",
    r#"\""#,
    r"\/",
    r"\b\f\n\r\t",
    r"\a",
    r"\v",
    r"\0",
    r"\x41",
    r"\e",
    r"\'",
    r"\u",
    r"\u0",
    r"\u00",
    r"\u004",
    r"\u0041",
    r"\U0041",
    r"\u00zz",
    r"\u{41}",
    r"\u 041",
    r"\u-041",
    r"\u+041",
    r"\u0000",
    r"\u001f",
    r"\u007f",
    r"\u2028\u2029",
    r"\ufeff",
    r"\ufffe",
    r"\uffff",
    r"\ud800",
    r"\udc00",
    r"\ud800\ud800",
    r"\ud800\udc00",
    r"\udc00\ud800",
    r"\ud83d\ude00",
    r"\ud83d\u0041",
    r"\ud83d\n",
    r"\ud83d\",
    r"\ud83d\u",
    r"\ud83d\ude",
    r"\uD83D\uDE00",
    "\t",
    "\u{7f}",
    "\u{80}",
    "\u{2028}",
    "\u{feff}",
    "\u{202e}",
    "\u{fffd}",
    "\u{10ffff}",
    "a\u{300}",
    "\0",
    "\u{1}",
    "\u{1f}",
    "'",
    "`",
    "<script>",
    "]]>",
    "${x}",
    "%s%n",
    "{}",
    "[1]",
    "data: x",
    ": ping",
    "\u{b}",
];

/// Structures.
const STRUCTURES: &[&str] = &[
    "",
    " ",
    "\t",
    "null",
    "Null",
    "NULL",
    "nul",
    "nulll",
    "true",
    "True",
    "tru",
    "truee",
    "false",
    "fals",
    "none",
    "undefined",
    "[]",
    "[ ]",
    "[",
    "]",
    "[[",
    "]]",
    "[]]",
    "[[]",
    "[1",
    "[1,",
    "[,]",
    "[,1]",
    "[1,,2]",
    "[1,]",
    "[1 2]",
    "[1;2]",
    "[1:2]",
    "[\"a\"",
    "[\"a",
    "[a]",
    "['a']",
    "[1]x",
    "[1][2]",
    "[[],[],[[]]]",
    "[null,null]",
    "[ 1 , 2 ]",
    "[1,\t2]",
    "[1,\u{a0}2]",
    "[1,\u{2003}2]",
    "[\u{c}]",
    "[\u{b}]",
    "(1)",
    "<1>",
    "{}",
    "{ }",
    "{",
    "}",
    "{{",
    "}}",
    "{{}}",
    "{}}",
    "{]",
    "[}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\" 1}",
    "{\"a\"::1}",
    "{\"a\":1",
    "{\"a\":1,",
    "{\"a\":1,}",
    "{,}",
    "{,\"a\":1}",
    "{\"a\":1,,\"b\":2}",
    "{\"a\":1 \"b\":2}",
    "{\"a\":1;\"b\":2}",
    "{a:1}",
    "{'a':1}",
    "{1:1}",
    "{null:1}",
    "{true:1}",
    "{[]:1}",
    "{{}:1}",
    "{\"a\":1}x",
    "{\"a\":1}{\"b\":2}",
    "{\"a\":1},",
    "{\"\":1}",
    "{\" \":1}",
    "{\"a\":1,\"a\":2}",
    "{\"a\":1,\"\\u0061\":2}",
    "{\"a\":{\"a\":{\"a\":{}}}}",
    "{\"a\":[{\"a\":[]}]}",
    "{\"\\ud800\":1}",
    "{\"\\u0000\":1}",
    "{\"__proto__\":{}}",
    "{\"constructor\":1}",
    "{\"a\":/**/1}",
    "{/*a*/}",
    "//",
    "// a",
    "/**/",
    "/* a */ 1",
    "1 // a",
    "#",
    "# a",
    "1 # a",
    "--",
    "<!-- -->",
    "<?xml?>",
    "\u{feff}",
    "\u{feff}{}",
    "{}\u{feff}",
    "\u{200b}{}",
    "\u{ffff}",
    "*",
    "&a",
    "!!int 1",
    "a",
    "\"",
    "\"\"",
    "\"a",
    "a\"",
    "\"a\"\"b\"",
    "\"a\" \"b\"",
    "'a'",
    "`a`",
    "\\",
    "\\u0061",
    "\\\"",
    ",",
    ":",
    ";",
    ".",
    "-",
    "@",
    "\0",
    "~",
    "{\"a\":NaN}",
    "{\"a\":-}",
    "{\"a\":+1}",
    "{\"a\":.5}",
    "{\"a\":1.}",
    "{\"a\":01}",
    "{\"a\":\"b\" + \"c\"}",
    "{\"a\":b}",
    "{\"a\":function(){}}",
    "[1]\n",
    "\n[1]",
    "[\n1\n]",
    "[1,\n2]",
    "{\n\"a\"\n:\n1\n}",
    "[\"a\nb\"]",
    "[\"a\\\nb\"]",
    "1\n2",
    "[DONE]",
    "[done]",
    "DONE",
    "ping",
];

/// Byte sequences that are not UTF-8.
const BYTES: &[&[u8]] = &[
    b"\xff",
    b"\xfe\xff",
    b"\xff\xfe",
    b"\xc0\x80",
    b"\xe0\x80\x80",
    b"\xf0\x80\x80\x80",
    b"\xed\xa0\x80",
    b"\xed\xb0\x80",
    b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\x80",
    b"\xbf",
    b"\xc3",
    b"\xe4\xb8",
    b"\xf0\x9f\x98",
    b"\xc3(",
    b"\xe4(\xad",
    b"\xef\xbb",
    b"\xef\xbb\xbf",
    b"[\xff]",
    b"{\"\xff\":1}",
    b"{\"a\":\"\xe4\xb8\"}",
    b"[\"\xc0\xaf\"]",
    b"[\"\xed\xa0\xbd\xed\xb8\x80\"]",
];

fn documents() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = NUMBERS.split_whitespace().map(|number| number.as_bytes().to_vec()).collect();
    all.extend(NUMBERS.split_whitespace().map(|number| format!("[{number}]").into_bytes()));
    all.extend(STRINGS.iter().map(|string| format!("[\"{string}\"]").into_bytes()));
    all.extend(STRINGS.iter().map(|string| format!("{{\"{string}\":\"{string}\"}}").into_bytes()));
    all.extend(STRUCTURES.iter().map(|text| text.as_bytes().to_vec()));
    all.extend(BYTES.iter().map(|bytes| bytes.to_vec()));
    // Control characters, raw in a string and after a backslash.
    all.extend((0..32).map(|byte| [b"[\"", &[byte][..], b"\"]"].concat()));
    all.extend((32..127).map(|byte| [b"[\"\\", &[byte][..], b"\"]"].concat()));
    for depth in [63, 64, 65, 128, 1000, 20_000] {
        all.push([b"[".repeat(depth), b"]".repeat(depth)].concat());
        all.push(b"{\"a\":".repeat(depth));
        all.push([b"[{\"a\":".repeat(depth), b"0".to_vec(), b"}]".repeat(depth)].concat());
    }
    for length in [1000, 100_000] {
        all.push(b"9".repeat(length));
        all.push([&b"[\""[..], &b"\\u4e2d".repeat(length), b"\"]"].concat());
        all.push([&b"[\""[..], &"中".repeat(length).into_bytes(), b"\"]"].concat());
        all.push([&b"["[..], &b"0,".repeat(length), b"0]"].concat());
        all.push([&b"{"[..], &b"\"a\":0,".repeat(length), b"\"a\":0}"].concat());
        all.push(b" ".repeat(length));
        all.push(b"\"".repeat(length));
        all.push(b"\\".repeat(length));
    }
    all
}

/// As a frame: a document with several lines needs several `data:` lines.
fn frame(document: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = document.split(|byte| *byte == b'\n').collect();
    let mut frame = Vec::new();
    for line in lines {
        frame.extend([b"data:", line, b"\n"].concat());
    }
    frame.push(b'\n');
    frame
}

#[tokio::test]
async fn j71_unusual_json_documents_are_relayed() {
    let documents = documents();
    assert!(documents.len() >= 318, "{}", documents.len());
    let all: Vec<u8> = documents.iter().flat_map(|document| frame(document)).collect();
    let answers = [
        ("tencent", tencent::answer("m")),
        ("doubao", doubao::cards("b", &[doubao::card(1)]) + &doubao::end(1)),
        ("openai", openai::citations(&["https://s1.example.com/"])),
    ];
    for (provider, answer) in &answers {
        // All of them in one stream, except OpenAI's `[DONE]`, followed by references.
        let odd: Vec<u8> = match *provider {
            "openai" => documents
                .iter()
                .filter(|document| !document.starts_with(b"[DONE]"))
                .flat_map(|document| frame(document))
                .collect(),
            _ => all.clone(),
        };
        let stream = [odd, answer.clone().into_bytes()].concat();
        let mut bench = Bench::new(provider, vec![vec![Bytes::from(stream)]]).await;
        assert!(!bench.one(0).await.citations.is_empty(), "{provider}: tapped to the end");
    }
    // Each document alone, and as a value where frames have objects, arrays and strings.
    for document in &documents {
        let text = String::from_utf8_lossy(document);
        let holders = [
            frame(document),
            frame(
                format!("{{\"completion_id\":{text},\"processes\":{text},\"additional_content\":{text}}}").as_bytes(),
            ),
            frame(
                format!("{{\"completion_id\":\"m\",\"additional_content\":{{\"reference_chunks\":[{text}]}}}}")
                    .as_bytes(),
            ),
            [
                b"event: STREAM_CHUNK\n".to_vec(),
                frame(format!("{{\"message_id\":{text},\"patch_op\":[{text}]}}").as_bytes()),
            ]
            .concat(),
            frame(format!("{{\"event_type\":2001,\"event_data\":{text}}}").as_bytes()),
            frame(format!("{{\"choices\":[{{\"index\":0,\"delta\":{text}}}],\"citations\":{text}}}").as_bytes()),
        ];
        for holder in holders {
            for kind in [
                citetap::provider::tencent::PROVIDER,
                citetap::provider::doubao::PROVIDER,
                citetap::provider::openai::PROVIDER,
                Provider::AUTO,
            ] {
                if document.len() > 4096 && kind != Provider::AUTO {
                    continue;
                }
                let passed = pass(kind, Inject::Final, vec![Bytes::from(holder.clone())], End::Clean);
                assert!(!passed.stream_stats.panicked, "{text}");
                assert_eq!(passed.upstream_bytes(), holder);
            }
        }
    }
}
