use std::error::Error;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::json;

use super::capture::{self, Capture, CaptureError, CaptureFile, Format, MAX_CAPTURE, MAX_STREAMS};

type Test = Result<(), Box<dyn Error>>;

const SSE: &str =
    "id: 0\r\nevent: SSE_ACK\r\ndata: {\"t\":\"搜索 2 个关键词\"}\r\n\r\n: 心跳\n\ndata:{\"a\":[1]}\n\ndata: cut";

fn read_all(bytes: &[u8]) -> Result<Vec<Capture>, CaptureError> {
    match capture::read(bytes)? {
        CaptureFile::Streams(streams) => Ok(streams),
        CaptureFile::Document(text) => panic!("a document: {text}"),
    }
}

/// Reads a capture of exactly one stream.
fn read(bytes: &[u8]) -> Result<Capture, CaptureError> {
    let mut all = read_all(bytes)?;
    assert_eq!(all.len(), 1);
    Ok(all.remove(0))
}

fn curl(head: &str, body: &str) -> Result<Capture, CaptureError> {
    read(format!("{head}{body}").as_bytes())
}

fn error_text(bytes: impl AsRef<[u8]>) -> String {
    capture::read(bytes.as_ref()).map_or_else(|err| err.to_string(), |capture| format!("no error: {capture:?}"))
}

#[test]
fn capture_raw_sse_is_kept_byte_for_byte() -> Test {
    let invalid = b"data: \xE6\x90\n\n\xFF: x\rdata\n\n".as_slice();
    let cases: [&[u8]; 9] = [
        SSE.as_bytes(),
        b"\xEF\xBB\xBFdata: x\n\n",
        b"\n\n\r\ndata: x\n\n",
        b": only a comment\n\n",
        b"retry: 10\n\n",
        b"event:finish\rdata:x\r\r",
        b"odd: field first\ndata: x\n\n",
        b"data: {\"text\":\"* > < HTTP/1.1 200\"}\n\n* not curl's\n\ndata: 1\n\n",
        invalid,
    ];
    for case in cases {
        let capture = read(case)?;
        assert_eq!(capture, Capture { sse: Bytes::copy_from_slice(case), format: Format::Sse, skipped: 0 });
    }
    Ok(())
}

#[test]
fn capture_curl_headers_are_dropped() -> Test {
    let heads = [
        ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", 3),
        ("HTTP/2 200 \r\ncontent-type: text/event-stream\r\n\r\n", 3),
        ("\u{feff}HTTP/1.1 200 OK\ncontent-type: text/event-stream\n\n", 3),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 302 Found\r\nlocation: /x\r\n\r\nHTTP/2 200\r\n\r\n", 7),
        (
            "* Trying 127.0.0.1:80...\n> POST /chat HTTP/1.1\n> Host: x\r\n>\n< HTTP/1.1 200 OK\r\n< \r\n{ [40 bytes data]\n",
            7,
        ),
        (
            "*   Trying 1.2.3.4:443...\n} [5 bytes data]\n> GET / HTTP/2\r\n> \r\n< HTTP/2 200 \r\n<\r\nHTTP/2 200 \r\na: b\r\n\r\n",
            9,
        ),
    ];
    for (head, skipped) in heads {
        let capture = curl(head, SSE)?;
        assert_eq!((capture.format, capture.skipped), (Format::Curl, skipped), "{head}");
        assert_eq!(capture.sse, SSE.as_bytes(), "{head}");
    }
    // A BOM and blank lines after the headers belong to the body.
    assert_eq!(curl(heads[0].0, "\u{feff}\ndata: x\n\n")?.sse, "\u{feff}\ndata: x\n\n".as_bytes());
    Ok(())
}

#[test]
fn capture_curl_lines_in_the_body_are_dropped() -> Test {
    let head = "* Connected\n< HTTP/1.1 200 OK\n< \n";
    let body = "{ [9 bytes data]\ndata: 一\n\n* a remark\n{ [9 bytes data]\ndata: 二\n\n* Connection #0 to host x left intact\n";
    assert_eq!(curl(head, body)?.sse, "data: 一\n\ndata: 二\n\n".as_bytes());
    let cut = "data: 一\n\ndata: 二* Connection #0 to host x left intact\n";
    assert_eq!(curl(head, cut)?.sse, "data: 一\n\ndata: 二".as_bytes());
    let reset = "data: 一\n\ndata: 二* transfer closed with outstanding read data remaining\n* Closing connection 0\ncurl: (18) x\n";
    assert_eq!(curl(head, reset)?.sse, "data: 一\n\ndata: 二".as_bytes());
    let broken =
        "data: 一\n\n* Closing connection 0\ncurl: (18) transfer closed with outstanding read data remaining\n";
    assert_eq!(curl(head, broken)?.sse, "data: 一\n\n".as_bytes());
    Ok(())
}

#[test]
fn capture_curl_progress_meter_is_dropped() -> Test {
    let title = "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\n\
                 \x20                                Dload  Upload   Total   Spent    Left  Speed\n";
    let row = "\r  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0";
    assert_eq!(row.len(), 79);
    let capture =
        read(format!("{title}{row}{row}data: 一\r\n\r\ndata: 二\r\n\r\n{row}data: 三\n\n{row}\n").as_bytes())?;
    assert_eq!(capture.sse, "data: 一\r\n\r\ndata: 二\r\n\r\ndata: 三\n\n".as_bytes());
    // A progress row may precede a blank line of the body; only the line end after the last row is curl's.
    let capture =
        read(format!("{title}{row}data: 一\n{row}\n{row}data: 二\n\n{row}\n* Closing connection 0\n").as_bytes())?;
    assert_eq!(capture.sse, "data: 一\n\ndata: 二\n\n".as_bytes());
    Ok(())
}

#[test]
fn capture_json_lines_become_frames() -> Test {
    let lines = "\u{feff}\n{\"t\":\"参考 10 篇资料\"}\r\n\n  {\"id\":9007199254740993}\n{\"cut\":\n[DONE]";
    let capture = read(lines.as_bytes())?;
    let sse = "data: {\"t\":\"参考 10 篇资料\"}\n\ndata: {\"id\":9007199254740993}\n\ndata: [DONE]\n\n";
    assert_eq!(capture, Capture { sse: sse.into(), format: Format::JsonLines, skipped: 1 });
    assert_eq!(read(b"{\"log\":{\"level\":1}}\n{\"log\":2}")?.format, Format::JsonLines);
    Ok(())
}

#[test]
fn capture_one_json_value_is_a_document() -> Test {
    for (text, document) in [
        ("{\n  \"a\": \"标题\"\n}\n", "{\n  \"a\": \"标题\"\n}"),
        ("\u{feff} {\"a\":1}", "{\"a\":1}"),
        ("[\n1,\n2\n]", "[\n1,\n2\n]"),
        ("{\"lone\":\"\\ud800\"}", "{\"lone\":\"\\ud800\"}"),
    ] {
        assert_eq!(capture::read(text.as_bytes())?, CaptureFile::Document(document.to_owned()));
    }
    assert_eq!(read(b"{\"a\":1}\n{\"b\":2}")?.format, Format::JsonLines, "two are lines");
    Ok(())
}

#[test]
fn capture_har_streams_are_read_plain_and_base64() -> Test {
    let entry = |mime: &str, text: &str, encoding: Option<&str>| json!({"request": {}, "response": {"content": {"mimeType": mime, "text": text, "encoding": encoding}}});
    let har = json!({"log": {"version": "1.2", "entries": [
        {"response": null},
        entry("text/html", "<p>", None),
        entry("text/event-stream", "", None),
        entry("Text/Event-Stream; charset=utf-8", &STANDARD.encode(SSE), Some("base64")),
        entry("text/event-stream", SSE, None),
    ]}});
    for json in [har.to_string(), serde_json::to_string_pretty(&har)?, format!("\u{feff}{har}\n")] {
        let all = read_all(json.as_bytes())?;
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|capture| capture.sse == SSE.as_bytes() && capture.format == Format::Har));
        assert_eq!(all.iter().map(|capture| capture.skipped).collect::<Vec<_>>(), [3, 0]);
    }
    for (streams, skipped) in [(MAX_STREAMS, 0), (MAX_STREAMS + 2, 2)] {
        let entries = vec![entry("text/event-stream", SSE, None); streams];
        let all = read_all(json!({"log": {"entries": entries}}).to_string().as_bytes())?;
        assert_eq!((all.len(), all[0].skipped), (MAX_STREAMS, skipped));
    }
    for len in 0..9 {
        let text = format!("data: {}", "x".repeat(len));
        let har = json!({"log": {"entries": [entry("text/event-stream", &STANDARD.encode(&text), Some("base64"))]}});
        assert_eq!(read(har.to_string().as_bytes())?.sse, text.as_bytes());
    }
    Ok(())
}

#[test]
fn capture_har_uses_chrome_messages_without_a_body() -> Test {
    let har = json!({"log": {"entries": [{
    "response": {"content": {"mimeType": "text/event-stream", "size": 0}},
    "_eventSourceMessages": [
        {"time": 1.5, "eventName": "SSE_ACK", "eventId": "1", "data": "{\"问\":1}"},
        {"time": 2, "eventName": "message", "eventId": "", "data": "a\nb"}
    ]}]}});
    let sse = "id: 1\nevent: SSE_ACK\ndata: {\"问\":1}\n\ndata: a\ndata: b\n\n";
    assert_eq!(read(har.to_string().as_bytes())?.sse, sse.as_bytes());
    Ok(())
}

#[test]
fn capture_error_names_found_and_accepted() {
    const ACCEPTED: &str = "raw SSE, the output of `curl -N` (also with `-i` or `-v`), one JSON payload per line, one JSON document, \
         or a HAR file";
    for empty in ["", "\u{feff}", " \r\n\n"] {
        assert_eq!(error_text(empty), format!("the capture is empty; accepted are {ACCEPTED}"));
    }
    let seen = |seen: &str| format!("not a capture: {seen}; accepted are {ACCEPTED}");
    let html = "<!DOCTYPE html><html lang=\"zh\"><title>四〇四</title>";
    let cases = [
        (html.into(), "text that starts with `<!DOCTYPE html><html lang=\"zh\"><title>四〇…`"),
        (b"\x1F\x8B\x08\x00".to_vec(), "bytes that are not text"),
        (b"{\"log\":{\"entries\":[{".to_vec(), "JSON that breaks off at line 1 column 20"),
        (b"{oops}".to_vec(), "text that starts with `{oops}`"),
        (
            b"HTTP/1.1 401 Unauthorized\r\n\r\n{\"error\":1}".to_vec(),
            "an HTTP response (status 401) whose body is no event stream but text that starts with `{\"error\":1}`",
        ),
        (
            b"HTTP/2 200\r\nContent-Encoding: gzip\r\n\r\n\x1F\x8B\x08".to_vec(),
            "an HTTP response (status 200) whose body is no event stream but bytes that are not text, compressed: \
             repeat it with `curl --compressed`",
        ),
        (
            b"\xFF\xFEd\0a\0".to_vec(),
            "UTF-16 text (PowerShell's `>` writes it: let curl write the file, with `-o FILE`)",
        ),
    ];
    for (bytes, what) in cases {
        assert_eq!(error_text(bytes), seen(what));
    }
    assert_eq!(error_text("< HTTP/1.1 502 Bad Gateway\n"), "the HTTP response (status 502) in the capture has no body");
    assert_eq!(
        error_text(r#"{"log":{"entries":[{},{}]}}"#),
        "the HAR file has no event stream: none of its 2 entries is of type text/event-stream"
    );
    let har = |rest: &str| {
        format!(r#"{{"log":{{"entries":[{{"response":{{"content":{{"mimeType":"text/event-stream"{rest}}}}}}}]}}}}"#)
    };
    assert!(error_text(har("")).contains("names 1 event stream(s) without their bodies"));
    for bad in ["A", "====", "AB=C", "a\u{e9}", "AB"] {
        let text = error_text(har(&format!(r#","text":"{bad}","encoding":"base64""#)));
        assert!(text.contains("says base64, and is not"), "{bad}: {text}");
    }
}

#[test]
fn capture_over_64_mib_is_refused() {
    let mut bytes = vec![b'x'; MAX_CAPTURE];
    bytes[..6].copy_from_slice(b"data: ");
    assert!(read(&bytes).is_ok());
    bytes.push(b'\n');
    assert_eq!(read(&bytes), Err(CaptureError::TooLarge { len: MAX_CAPTURE + 1 }));
    assert_eq!(error_text(bytes), "the capture has 67108865 bytes, more than the 64 MiB that are read");
}
