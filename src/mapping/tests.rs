use serde_json::{Value, json};

use super::*;

const BESIDE: Beside<'_> = Beside { session: None, request: "r-1" };

fn mapping(to: To, upstream_model: Option<&str>) -> Mapping {
    Mapping {
        models: vec!["m".to_owned()],
        to,
        path: "/x".to_owned(),
        upstream_model: upstream_model.map(ToOwned::to_owned),
    }
}

fn template(text: &str) -> Result<Mapping, TemplateError> {
    Template::parse(text).map(|template| mapping(To::Template(template), None))
}

fn sent(mapping: &Mapping, body: &str, beside: Beside<'_>) -> Result<Value, Refusal> {
    let ask = Ask::read(body.as_bytes())?;
    let body = mapping.body(&ask, beside)?;
    Ok(serde_json::from_slice(&body).unwrap_or_default())
}

fn refused(body: &str) -> (Option<&'static str>, String) {
    match Ask::read(body.as_bytes()) {
        Err(refusal) => (refusal.param, refusal.message),
        Ok(ask) => (None, format!("{ask:?}")),
    }
}

/// Whatever could end a string, a line, or a document.
const HOSTILE: &str =
    "\"},{\"x\":\"\\\u{0}\n\r\t\u{2028}\u{2029}{{system}}{{messages}}\u{202e}</script>'\\u0022 中文 😀";

#[test]
fn what_a_user_says_stays_one_value() {
    let text = r#"{"q":"{{query}}","in":"Q: {{query}}; {{ user }} ({{session}})","system":"{{system}}","n":[1,"{{query}}"],
                   "messages":"{{messages}}","model":"{{model}}","stream":"{{stream}}","id":"{{request}}","t":0.5}"#;
    let body = json!({"model": HOSTILE, "user": HOSTILE, "metadata": {"session_id": HOSTILE}, "stream": true, "messages": [
        {"role": "system", "content": HOSTILE}, {"role": "user", "content": HOSTILE}]});
    for body in [body.to_string(), format!("{body:#}"), ascii(&body.to_string())] {
        let sent = sent(&template(text).unwrap(), &body, BESIDE).unwrap();
        let expected: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            sent,
            json!({"q": HOSTILE, "in": format!("Q: {HOSTILE}; {HOSTILE} ({HOSTILE})"), "system": HOSTILE, "n": [1, HOSTILE],
                   "messages": expected["messages"], "model": HOSTILE, "stream": true, "id": "r-1", "t": 0.5})
        );
    }
}

/// Every character beyond ASCII escaped.
fn ascii(json: &str) -> String {
    let mut out = String::new();
    for c in json.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

#[test]
fn what_nobody_said_is_left_out() {
    let text = r#"{"q":"{{query}}","user":"{{user}}","s":"{{session}}","y":"{{system}}","l":["{{user}}",{"u":"{{user}}"}],
                   "in":"<{{user}}>","stream":"{{stream}}"}"#;
    let sent = sent(&template(text).unwrap(), r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#, BESIDE);
    assert_eq!(sent.unwrap(), json!({"q":"x","l":[{}],"in":"<>","stream":false}));
}

#[test]
fn templates_are_checked_when_they_are_read() {
    let wrong = |text: &str| template(text).map(|_| ()).unwrap_err();
    assert!(matches!(wrong(r#"{"q":"{{query}}""#), TemplateError::NotJson(_)));
    assert_eq!(wrong(r#"{"q":"{{quary}}"}"#), TemplateError::Unknown("quary".to_owned()));
    assert_eq!(wrong(r#"["{{query}"]"#), TemplateError::Open);
    assert_eq!(wrong(r#"{"{{query}}":"{{query}}"}"#), TemplateError::InName);
    assert_eq!(wrong(r#"{"q":"say {{messages}}"}"#), TemplateError::NotText("messages".to_owned()));
    assert_eq!(wrong(r#"{"q":"{{query}} {{stream}}"}"#), TemplateError::NotText("stream".to_owned()));
    assert_eq!(wrong(r#"{"q":"{{user}}"}"#), TemplateError::AsksNothing);
    for name in template::Slot::NAMES {
        assert!(template(&format!(r#"["{{{{query}}}}","{{{{{name}}}}}"]"#)).is_ok(), "{name}");
    }
    assert!(!format!("{:?}", Template::parse(r#"["{{query}}","app-key-7"]"#).unwrap()).contains("key-7"));
}

#[test]
fn lexiang_gets_the_last_question_and_its_session() {
    let sent = |body: Value, session| {
        sent(&mapping(To::Lexiang, None), &body.to_string(), Beside { session, ..BESIDE }).unwrap()
    };
    let turns = json!([{"role": "user", "content": "一"}, {"role": "assistant", "content": "答"},
                       {"role": "user", "content": [{"type": "text", "text": "二"}, {"type": "image_url", "image_url": {}},
                                                    {"type": "text", "text": "三"}]},
                       {"role": "tool", "content": "x"}]);
    assert_eq!(
        sent(json!({"model": "m", "messages": turns, "temperature": 0.3, "tools": []}), None),
        json!({"query": "二\n三", "stream": true, "new_session": true})
    );
    let own = json!({"model": "m", "stream": false, "messages": turns, "qa_mode": "reasoning", "max_chars": 200,
                     "targets": [{"type": "team", "id": "t"}], "session_id": "body"});
    assert_eq!(
        sent(own, Some("header")),
        json!({"query": "二\n三", "stream": true, "session_id": "header", "qa_mode": "reasoning", "max_chars": 200,
               "targets": [{"type": "team", "id": "t"}]})
    );
    for (key, value) in [
        ("session_id", json!("s")),
        ("conversation_id", json!("s")),
        ("conversation", json!({"id": "s"})),
        ("conversation", json!("s")),
        ("metadata", json!({"session_id": "s"})),
        ("metadata", json!({"conversation_id": "s"})),
    ] {
        let mut body = json!({"model": "m", "messages": turns});
        body[key] = value;
        assert_eq!(sent(body, None)["session_id"], "s", "{key}");
    }
}

#[test]
fn an_openai_upstream_gets_the_body_as_it_came_but_for_the_model() {
    let body = "{ \"temperature\":0.70, \"model\" : \"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u4f60\"}],\"x\":1e2 }";
    let ask = Ask::read(body.as_bytes()).unwrap();
    assert_eq!(mapping(To::OpenAi, None).body(&ask, BESIDE).unwrap(), Cow::Borrowed(body.as_bytes()));
    let renamed = mapping(To::OpenAi, Some("ep-\"1\"")).body(&ask, BESIDE).unwrap();
    assert_eq!(String::from_utf8(renamed.into_owned()).unwrap(), body.replace("\"m\"", "\"ep-\\\"1\\\"\""));
}

#[test]
fn a_request_that_lacks_something_says_what() {
    let body = |rest: &str| format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}]{rest}}}");
    assert!(Ask::read(body("").as_bytes()).is_ok());
    assert!(
        Ask::read(
            body(",\"stream\":null,\"deep\":")
                .replace("\"deep\":", &format!("\"deep\":{}1{}", "[".repeat(5000), "]".repeat(5000)))
                .as_bytes()
        )
        .is_ok()
    );
    for (given, param, said) in [
        ("", None, "no JSON object"),
        ("[]", None, "no JSON object"),
        ("{\"model\":", None, "no JSON object"),
        ("{}", Some("model"), "model is missing"),
        (r#"{"model":7,"messages":[1]}"#, Some("model"), "model is missing"),
        (r#"{"model":"m"}"#, Some("messages"), "messages is missing"),
        (r#"{"model":"m","messages":{}}"#, Some("messages"), "messages is missing"),
        (r#"{"model":"m","messages":[]}"#, Some("messages"), "messages is empty"),
        (&body(",\"stream\":\"yes\""), Some("stream"), "stream is true or false"),
        (&body(",\"model\":\"n\""), Some("model"), "model is given twice"),
    ] {
        let (named, message) = refused(given);
        assert_eq!(named, param, "{given}");
        assert!(message.contains(said), "{given}: {message}");
    }
    assert!(matches!(Ask::read(b"{\"model\":\"\xff\"}"), Err(Refusal { param: None, .. })));
    for messages in [r#"[{"role":"system","content":"x"}]"#, r#"[{"role":"user","content":" "}]"#, "[1]"] {
        let body = format!("{{\"model\":\"m\",\"messages\":{messages}}}");
        let refusal = sent(&mapping(To::Lexiang, None), &body, BESIDE).unwrap_err();
        assert_eq!(refusal, Refusal::of("messages", "has no text of the user"), "{messages}");
    }
}

#[test]
fn half_a_surrogate_is_no_reason_to_refuse_a_question() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"a\ud83d"}]}"#;
    assert_eq!(sent(&mapping(To::Lexiang, None), body, BESIDE).unwrap()["query"], "a\u{fffd}");
}
