//! Commands that terminate by themselves. `serve` and `demo` are in `serve`.

use std::{
    io::{Read, Write},
    process::Stdio,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    process::{CommandOutput, Running, as_sent, citetap, dead_port, run, the_record},
    support::{NONCE, fixtures},
};

fn plain(args: &[&str]) -> CommandOutput {
    let dir = tempfile::tempdir().unwrap();
    run(citetap(dir.path(), args), "")
}

fn capture(name: &str) -> String {
    fixtures().join(name).display().to_string()
}

/// Runs `check` with this file; `env` has names and values.
fn check(toml: &str, args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("citetap.toml"), toml).unwrap();
    let mut command = citetap(dir.path(), &[&["check"], args].concat());
    command.envs(env.iter().copied());
    run(command, "")
}

const COMMANDS: [&str; 8] = ["serve", "demo", "replay", "export", "search", "check", "health", "completions"];

#[test]
fn help_of_each_command_ends_with_examples_that_parse() {
    for command in COMMANDS {
        let ran = plain(&[command, "--help"]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let (_, examples) = ran.out.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{command}: {}", ran.out));
        let lines: Vec<&str> = examples.lines().take_while(|line| line.starts_with("  ")).collect();
        assert_eq!(lines.len(), 2, "{command}: {examples}");
        assert!(lines.iter().all(|line| line.contains(&format!("citetap {command}"))), "{lines:?}");
    }
    let all = plain(&["--help"]);
    assert!(all.out.contains("Examples:\n") && COMMANDS.iter().all(|command| all.out.contains(command)), "{}", all.out);
}

#[test]
fn version_prints_the_commit_and_the_stores() {
    for args in [&["--version"][..], &["-V"], &["serve", "--version"]] {
        let ran = plain(args);
        assert_eq!(ran.code, 0);
        let expected = format!("{} ({}, stores: sqlite postgres redis memory)", citetap::VERSION, citetap::COMMIT);
        assert!(ran.out.trim_end().ends_with(&expected), "{}", ran.out);
    }
}

#[test]
fn wrong_usage_exits_2_with_usage() {
    for args in [
        &[][..],
        &["serv"],
        &["replay"],
        &["replay", "x", "--output", "yaml"],
        &["replay", "x", "--diff", "--output", "json"],
        &["replay", "x", "--provider", "nobody"],
        &["replay", "x", "--entry", "one"],
        &["replay", "x", "--link-base", "ftp://a.example"],
        &["demo", "--listen", "here"],
        &["completions", "basic"],
        &["check", "--nonsense"],
        &["export"],
        &["export", "m-1", "--format", "yaml"],
        &["export", "m-1", "--url", "not a url"],
        &["export", "m-1", "--lang", "fr"],
    ] {
        let ran = plain(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {ran:?}");
        assert!(ran.err.contains("--help") || ran.err.contains("Usage"), "{args:?}: {}", ran.err);
    }
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = plain(&["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert!(COMMANDS.iter().all(|command| ran.out.contains(command)), "{shell}");
    }
}

const GOOD: &str = "store = \"memory:\"\n[timeouts]\ndrain = \"7s\"\n[[routes]]\nname = \"doubao\"\nprefix = \"/doubao\"\n\
    upstream = \"http://127.0.0.1:1\"\n[routes.request_headers.set]\nx-secret = \"canary-header\"\n\
    [[tenants]]\nname = \"acme\"\nkey_sha256 = \"c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff\"\n";

#[test]
fn check_prints_each_value_with_its_origin() {
    let env = [("CITETAP__TIMEOUTS__CONNECT", "3s")];
    let table = check(GOOD, &["--listen", "127.0.0.1:9999"], &env);
    assert_eq!(table.code, 0, "{table:?}");
    let row = |key: &str| {
        let line = table.out.lines().find(|line| line.split_whitespace().next() == Some(key));
        line.unwrap_or_else(|| panic!("{key}: {}", table.out)).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("listen"), "listen 127.0.0.1:9999 flag --listen");
    assert_eq!(row("timeouts.connect"), "timeouts.connect 3s env CITETAP__TIMEOUTS__CONNECT");
    assert_eq!(row("timeouts.drain"), "timeouts.drain 7s citetap.toml:3");
    assert_eq!(row("timeouts.commit"), "timeouts.commit 250ms default");
    assert_eq!(row("routes.doubao.upstream"), "routes.doubao.upstream http://127.0.0.1:1 citetap.toml:7");
    assert!(table.err.contains("valid"));

    let json = check(GOOD, &["--output", "json"], &env).json();
    let find = |key: &str| json.as_array().unwrap().iter().find(|one| one["key"] == key).unwrap().clone();
    assert_eq!(find("timeouts.drain"), json!({"key": "timeouts.drain", "value": "7s", "origin": "citetap.toml:3"}));
    assert_eq!(find("tenants.acme.key_sha256")["value"], "•••");
    assert_eq!(find("routes.doubao.request_headers.set.x-secret")["value"], "•••");
    for text in [&table.out, &table.err, &json.to_string()] {
        assert!(!text.contains("canary") && !text.contains("c0ffee"), "{text}");
    }
}

#[test]
fn check_reports_an_unknown_key_with_a_suggestion() {
    let ran = check("store = \"memory:\"\n[timeouts]\n  drian = \"5s\"\n", &["--upstream", "http://127.0.0.1:1"], &[]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("citetap.toml:3:3: unknown key \"drian\""), "{}", ran.err);
    assert!(ran.err.contains("did you mean \"drain\"?"), "{}", ran.err);

    let unset = check("", &[], &[]);
    assert_eq!(unset.code, 1);
    assert!(unset.err.contains("CITETAP_UPSTREAM"), "{}", unset.err);
    let typo = check(GOOD, &[], &[("CITETAP__TIMEOUTS__DRIAN", "1s")]);
    assert_eq!(typo.code, 1);
    assert!(typo.err.contains("CITETAP__TIMEOUTS__DRAIN"), "{}", typo.err);
    // The value may be a secret, so it is not repeated.
    let bad_hash = check(&GOOD.replace("c0ffeec0", "canary"), &[], &[]);
    assert_eq!(bad_hash.code, 1);
    assert!(bad_hash.err.contains("citetap.toml:12:") && !bad_hash.err.contains("canary"), "{}", bad_hash.err);
}

#[test]
fn check_reach_tries_the_store_and_every_upstream() {
    let dead = format!("http://127.0.0.1:{}", dead_port());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let live = format!("http://{}", listener.local_addr().unwrap());

    let ran = check("store = \"memory:\"\n", &["--reach", "--upstream", &live], &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("ok      store") && ran.err.contains("ok      upstream 127.0.0.1:"), "{}", ran.err);

    let ran = check("store = \"memory:\"\n", &["--reach", "--upstream", &dead], &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("failed  upstream 127.0.0.1:") && ran.err.contains("1 of 2 checks failed"), "{}", ran.err);

    let ran = check("store = \"sqlite:no/such/folder/x.db\"\n", &["--reach", "--upstream", &live], &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("failed  store"), "{}", ran.err);
}

/// A golden record as `replay` of the same capture prints it.
fn golden(name: &str) -> Value {
    let text = std::fs::read(fixtures().join(name).with_extension("citations.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Removes the fields that differ from run to run.
fn timeless(mut record: Value) -> Value {
    for key in ["nonce", "createdAt", "stored", "route", "corroboration"] {
        record[key].take();
    }
    for citation in record["citations"].as_array_mut().unwrap() {
        let scores = citation["scores"].take();
        assert!(scores["final"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)), "{scores}");
    }
    record
}

/// Removes freshness and the scores derived from it, which depend on the date.
fn unscored(stream: &str) -> String {
    let mut out = String::new();
    let mut rest = stream;
    while let Some(at) = ["\"scores\":{", "\"corroboration\":{"].iter().filter_map(|key| rest.find(key)).min() {
        let (before, after) = rest.split_at(at);
        out += before;
        rest = after.split_once('}').unwrap().1;
    }
    out + rest
}

#[test]
fn replay_gives_the_golden_records_and_streams() {
    let names = ["doubao/seed.sse", "doubao/nested-strings.sse", "samantha/basic.sse", "tencent/full.sse"];
    for name in names.into_iter().chain(["openai/perplexity-full.sse"]) {
        let file = capture(name);
        let base = ["replay", &file, "--link-base", "https://lexiangla.com/"];
        let json = plain(&base).json();
        assert_eq!(json["stored"], false, "nothing is stored here");
        assert_eq!(timeless(json), timeless(golden(name)), "{name}");

        let sse = plain(&[&base[..], &["--output", "sse"]].concat());
        let golden = std::fs::read_to_string(fixtures().join(name).with_extension("out.sse")).unwrap();
        let ours = sse.out.split_once("\"nonce\":\"").unwrap().1.split_once('"').unwrap().0;
        let time = sse.out.split_once("\"createdAt\":\"").unwrap().1.split_once('"').unwrap().0;
        let normalized = sse.out.replace(ours, NONCE).replace(time, "2026-01-13T09:18:07.049Z");
        let normalized = normalized.replace("\"route\":\"replay\"", "\"route\":\"test\"");
        let normalized = normalized.replace("\"stored\":false", "\"stored\":true");
        assert!(unscored(&normalized) == unscored(&golden), "{name}: {}", sse.out);
    }
}

#[test]
fn replay_transcodes_a_capture_to_another_dialect() {
    let seed = capture("doubao/seed.sse");
    for profile in crate::transcoded::PROFILES {
        let sse = plain(&["replay", &seed, "--output", "sse", "--profile", profile.as_str()]);
        let got = crate::client::client(profile, sse.out.as_bytes());
        assert!(got.done && got.finishes == 1 && got.sources.len() == 10 && !got.text.is_empty(), "{}", sse.out);
        let diff = plain(&["replay", &seed, "--diff", "--profile", profile.as_str()]);
        assert!(diff.code == 1 && diff.err.contains("--diff compares bytes"), "{}", diff.err);
    }
}

#[test]
fn replay_prints_a_table_and_a_diff() {
    let seed = capture("doubao/seed.sse");
    let table = plain(&["replay", &seed, "--output", "table"]);
    assert!(
        table.out.starts_with("message 35730705466983426 (doubao): 搜索 2 个关键词，参考 10 篇资料\n"),
        "{}",
        table.out
    );
    assert!(table.out.contains("http://www.fiaoo.com/") && table.out.contains("10 sources"), "{}", table.out);

    let diff = plain(&["replay", &seed, "--diff"]).out;
    let bytes = std::fs::read(&seed).unwrap();
    let at: usize = diff.strip_prefix("@@ at byte ").unwrap().split_once(' ').unwrap().0.parse().unwrap();
    assert!(bytes[at..].starts_with(b"id: ") && bytes[..at].ends_with(b"\n\n"), "at a boundary: {at}");
    assert!(memchr::memmem::find(&bytes[..at], b"SSE_REPLY_END").is_none(), "before the finish: {at}");
    assert!(diff.contains("\n+event: citations\n+data: {"), "{diff}");
    assert!(diff.contains(&format!("{} bytes relayed as they came", bytes.len())), "{diff}");
    let off = plain(&["replay", &seed, "--diff", "--inject", "off"]).out;
    assert_eq!(off, format!("{} bytes relayed as they came, 0 bytes added in 0 events\n", bytes.len()));
}

#[test]
fn replay_reads_standard_input_curl_har_and_json_lines() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(capture("doubao/seed.sse")).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    let curl = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{text}");
    let har = json!({"log": {"version": "1.2", "entries": [{"request": {"url": "https://example.com/chat"},
        "response": {"status": 200, "content": {"mimeType": "text/event-stream", "text": text}}}]}});
    for (input, args) in [
        (text.clone(), &["replay", "-"][..]),
        (curl, &["replay", "-"]),
        (har.to_string(), &["replay", "-", "--entry", "1"]),
    ] {
        let record = run(citetap(dir.path(), args), input.clone()).json();
        assert_eq!(timeless(record), timeless(golden("doubao/seed.sse")), "{}", &input[..40]);
    }
    // Only payloads: without event names the provider must be given, and the finish is unknown.
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let command = citetap(dir.path(), &["replay", "-", "--provider", "doubao"]);
    let record = run(command, lines.join("\n")).json();
    assert_eq!(record["messageId"], "35730705466983426");
    assert_eq!(record["citations"].as_array().unwrap().len(), 10);
}

#[test]
fn replay_reads_one_json_body_on_one_line_or_several() {
    let dir = tempfile::tempdir().unwrap();
    for (name, provider, sources) in
        [("tavily/general.json", "tavily", 4), ("tencent/whole.json", "tencent", 2), ("mcp/tool-block.json", "mcp", 2)]
    {
        let body: Value = serde_json::from_slice(&std::fs::read(fixtures().join(name)).unwrap()).unwrap();
        for input in [body.to_string(), format!("{body:#}\n")] {
            for args in [&["replay", "-"][..], &["replay", "-", "--provider", provider]] {
                let record = run(citetap(dir.path(), args), input.clone()).json();
                assert_eq!((&record["provider"], &record["complete"]), (&json!(provider), &json!(true)), "{name}");
                assert_eq!(record["citations"].as_array().unwrap().len(), sources, "{name}");
            }
            let passed = run(citetap(dir.path(), &["replay", "-", "--output", "sse"]), input.clone());
            assert_eq!(passed.out, input.trim(), "the stream is unchanged");
        }
    }
}

#[test]
fn replay_of_a_har_file_prints_all_streams_or_the_selected_one() {
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str| std::fs::read_to_string(capture(name)).unwrap();
    let entry = |mime: &str, text: String| json!({"response": {"content": {"mimeType": mime, "text": text}}});
    let har = json!({"log": {"entries": [
        entry("text/html", "<p>".to_owned()),
        entry("text/event-stream", text("doubao/seed.sse")),
        entry("text/event-stream", "data: {\"tick\":1}\n\n".to_owned()),
        entry("text/event-stream", text("tencent/full.sse")),
    ]}})
    .to_string();
    let replay = |args: &[&str]| run(citetap(dir.path(), &[&["replay", "-"], args].concat()), har.clone());
    let all = replay(&[]);
    assert_eq!(all.err, "citetap: 1 entry of the HAR file is no part of the stream\n");
    let all = all.json();
    let providers: Vec<&Value> = all["records"].as_array().unwrap().iter().map(|one| &one["provider"]).collect();
    assert_eq!((providers, &all["skipped"]), (vec![&json!("doubao"), &json!("tencent")], &json!(1)));
    let tables = replay(&["--output", "table"]).out;
    assert_eq!(tables.matches("message ").count(), 2, "{tables}");
    assert!(tables.contains("\n\nmessage "), "{tables}");

    assert_eq!(replay(&["--entry", "3"]).json()["provider"], "tencent");
    assert!(replay(&["--entry", "1", "--output", "bibtex"]).out.starts_with("@online{"));
    assert_eq!(replay(&["--entry", "2", "--output", "sse"]).out, "data: {\"tick\":1}\n\n");
    for args in [&["--output", "bibtex"][..], &["--output", "sse"], &["--diff"]] {
        let ran = replay(args);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        assert!(ran.err.contains("the streams 1, 3 have a message; choose one with --entry"), "{}", ran.err);
    }
    for (entry, why) in [("2", "no message"), ("4", "--entry is a number from 1 to 3"), ("0", "--entry is a number")] {
        let ran = replay(&["--entry", entry]);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
}

#[test]
fn replay_of_an_invalid_capture_fails_with_a_reason() {
    let missing = plain(&["replay", "no-such-file.sse"]);
    assert_eq!((missing.code, missing.out.as_str()), (1, ""));
    assert!(missing.err.starts_with("citetap: no-such-file.sse: "), "{}", missing.err);
    let dir = tempfile::tempdir().unwrap();
    for (input, why) in [
        (&b"hello"[..], "not a capture"),
        (b"", "empty"),
        (b"\xff\xfe\0\0", ""),
        (b"{\"a\":\n1}", "one JSON document with the keys a"),
    ] {
        let ran = run(citetap(dir.path(), &["replay", "-"]), input);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.starts_with("citetap: -: ") && ran.err.contains(why), "{}", ran.err);
    }
    // A valid stream of an unknown provider.
    let ran = run(citetap(dir.path(), &["replay", "-"]), "data: {\"x\":1}\n\n");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("try --provider"), "{}", ran.err);
    let ran = run(citetap(dir.path(), &["replay", "-", "--output", "sse"]), "data: {\"x\":1}\n\n");
    assert_eq!((ran.code, ran.out.as_str()), (0, "data: {\"x\":1}\n\n"), "the stream passes anyway");
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let seed = std::fs::read(capture("doubao/seed.sse")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for output in ["sse", "json", "table"] {
        let mut command = citetap(dir.path(), &["replay", "-", "--output", output]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Close the pipe before anything is written, as `| head -1` does.
        drop(child.stdout.take());
        child.stdin.take().unwrap().write_all(&seed).unwrap();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""), "{output}");
    }
}

#[test]
fn replay_in_live_mode_ends_with_the_same_list() {
    let file = capture("doubao/query-then-results.sse");
    let live = plain(&["replay", &file, "--inject", "live", "--output", "sse"]).out;
    let last = plain(&["replay", &file, "--output", "sse"]).out;
    let (theirs, ours) = crate::net::split(live.as_bytes());
    assert_eq!(theirs, std::fs::read(&file).unwrap());
    let lens: Vec<usize> = ours.iter().map(|record| record.citations.len()).collect();
    assert!(lens.len() > 1 && lens.is_sorted(), "{lens:?}");
    let (last, end) = (as_sent(the_record(last.as_bytes())), ours.last().unwrap().clone());
    assert_eq!(end.citations, last.citations);
    assert!(end.complete && !ours[0].complete);
}

#[test]
fn replay_prints_export_formats() {
    let seed = capture("doubao/seed.sse");
    let shown = |args: &[&str]| {
        let ran = plain(&[&["replay", &seed, "--output"], args].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
        ran.out
    };
    assert!(shown(&["markdown"]).starts_with("1. [常州做小程序"));
    assert!(shown(&["footnotes"]).starts_with("[^1]: [常州做小程序"));
    assert!(shown(&["bibtex"]).starts_with("@online{fiaoo-com-"));
    assert!(shown(&["ris"]).starts_with("TY  - ELEC\r\n"));
    assert!(shown(&["csv"]).starts_with("\"number\",\"aliases\",\"title\","));
    assert!(shown(&["html"]).starts_with("<!doctype html>\n<html lang=\"zh\">"));
    assert!(shown(&["csl"]).starts_with("[\n  {"));
    assert!(shown(&["prompt"]).starts_with("搜索完成，找到 10 个结果：\n[1] "));
    assert!(shown(&["prompt", "--lang", "en", "--cited"]).starts_with("Search finished, "));
}

#[tokio::test]
async fn export_prints_the_record_of_a_running_citetap() {
    let dir = tempfile::tempdir().unwrap();
    let demo = Running::start(citetap(dir.path(), &["demo", "--listen", "127.0.0.1:0", "--speed", "1000"])).await;
    let url = format!("http://{}/", demo.addr);
    demo.post("/doubao-en/chat/completion").await.whole().await;
    let id = "35790211840077314";
    let shown = |args: &[&str]| plain(&[&["export", id, "--url", &url], args].concat());
    let list = shown(&[]);
    assert_eq!((list.code, list.err.as_str()), (0, ""));
    assert!(
        list.out.starts_with("1. [Heat pumps in cold climates: what field data shows](https://energy.example.org/"),
        "{}",
        list.out
    );
    for format in ["footnotes", "html", "csv", "bibtex", "ris", "csl", "prompt"] {
        let ours = shown(&["--format", format, "--cited", "--provider", "doubao", "--lang", "zh"]);
        let path = format!("/citations/{id}?format={format}&cited=true&lang=zh");
        assert_eq!(ours.out, demo.get(&path).await.whole().await.text(), "{format}: the API returns the same");
    }
    let json = shown(&["--format", "json"]).json();
    assert_eq!(json["messageId"], id);

    for (args, why) in [
        (&["export", "nobody", "--url", &url][..], "404 Not Found: there is no record"),
        (&["export", "a/../b c", "--url", &url], "400 Bad Request: a message id is"),
        (&["export", "..", "--url", &url], "not a message id"),
        (&["export", id, "--url", "ftp://127.0.0.1/"], "http or https"),
        (&["export", id, "--url", &url, "--provider", "nobody&x=1"], "404"),
        (&["export", id, "--url", &format!("http://127.0.0.1:{}", dead_port())], "could not connect"),
        (&["export", id, "--url", &url, "--key-file", "no-such-file"], "--key-file no-such-file: "),
    ] {
        let ran = plain(args);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{args:?}");
        assert!(ran.err.contains(why), "{args:?}: {}", ran.err);
    }
}

#[tokio::test]
async fn export_sends_the_key_of_a_file_and_never_prints_it() {
    let dir = tempfile::tempdir().unwrap();
    let hash = Sha256::digest("canary-key");
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let toml = format!(
        "store = \"memory:\"\n{}[[tenants]]\nname = \"acme\"\nkey_sha256 = \"{hex}\"\n",
        crate::net::route("chat", "http://127.0.0.1:1")
    );
    let running = Running::serve(dir.path(), &toml).await;
    let url = format!("http://{}", running.addr);
    std::fs::write(dir.path().join("key"), "canary-key\n").unwrap();
    std::fs::write(dir.path().join("empty"), "\n").unwrap();
    let ask = |args: &[&str], stdin: &str| {
        run(citetap(dir.path(), &[&["export", "m-1", "--url", &url], args].concat()), stdin)
    };
    for (args, stdin, why) in [
        (&[][..], "", "401 Unauthorized"),
        (&["--key-file", "key"], "", "404 Not Found"),
        (&["--key-file", "-"], "canary-key\n", "404 Not Found"),
        (&["--key-file", "-"], "canary-wrong", "401 Unauthorized"),
        (&["--key-file", "-"], "canary\nwrong", "not a key"),
        (&["--key-file", "empty"], "", "it is empty"),
    ] {
        let ran = ask(args, stdin);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains(why) && !ran.err.contains("canary"), "{args:?}: {}", ran.err);
    }
}
