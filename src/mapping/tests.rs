use serde_json::{Value, json};

use super::*;

const CONTEXT: RequestContext<'_> = RequestContext { session: None, request_id: "r-1" };

fn mapping(to: UpstreamFormat, upstream_model: Option<&str>) -> Mapping {
    Mapping {
        models: vec!["m".to_owned()],
        to,
        path: "/x".to_owned(),
        upstream_model: upstream_model.map(ToOwned::to_owned),
    }
}

fn template(text: &str) -> Result<Mapping, TemplateError> {
    Template::parse(text).map(|template| mapping(UpstreamFormat::Template(template), None))
}

/// The upstream's body for a client's `body`.
fn mapped(mapping: &Mapping, body: &str, context: RequestContext<'_>) -> Result<Value, InvalidRequest> {
    let request = ChatRequest::read(body.as_bytes())?;
    let body = mapping.body(&request, context)?;
    Ok(serde_json::from_slice(&body).unwrap_or_default())
}

fn read_error(body: &str) -> (Option<&'static str>, String) {
    match ChatRequest::read(body.as_bytes()) {
        Err(error) => (error.param, error.message),
        Ok(request) => (None, format!("{request:?}")),
    }
}

/// Text that could end a string, a line or a document if it was not escaped.
const HOSTILE: &str =
    "\"},{\"x\":\"\\\u{0}\n\r\t\u{2028}\u{2029}{{system}}{{messages}}\u{202e}</script>'\\u0022 中文 😀";

#[test]
fn template_hostile_text_stays_one_value() {
    let text = r#"{"q":"{{query}}","in":"Q: {{query}}; {{ user }} ({{session}})","system":"{{system}}","n":[1,"{{query}}"],
                   "messages":"{{messages}}","model":"{{model}}","stream":"{{stream}}","id":"{{request}}","t":0.5}"#;
    let body = json!({"model": HOSTILE, "user": HOSTILE, "metadata": {"session_id": HOSTILE}, "stream": true, "messages": [
        {"role": "system", "content": HOSTILE}, {"role": "user", "content": HOSTILE}]});
    for body in [body.to_string(), format!("{body:#}"), ascii(&body.to_string())] {
        let upstream = mapped(&template(text).unwrap(), &body, CONTEXT).unwrap();
        let expected: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            upstream,
            json!({"q": HOSTILE, "in": format!("Q: {HOSTILE}; {HOSTILE} ({HOSTILE})"), "system": HOSTILE, "n": [1, HOSTILE],
                   "messages": expected["messages"], "model": HOSTILE, "stream": true, "id": "r-1", "t": 0.5})
        );
    }
}

/// Escapes every character outside ASCII.
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
fn template_absent_values_are_omitted() {
    let text = r#"{"q":"{{query}}","user":"{{user}}","s":"{{session}}","y":"{{system}}","l":["{{user}}",{"u":"{{user}}"}],
                   "in":"<{{user}}>","stream":"{{stream}}"}"#;
    let upstream =
        mapped(&template(text).unwrap(), r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#, CONTEXT);
    assert_eq!(upstream.unwrap(), json!({"q":"x","l":[{}],"in":"<>","stream":false}));
}

#[test]
fn template_parse_reports_each_error() {
    let error = |text: &str| template(text).map(|_| ()).unwrap_err();
    assert!(matches!(error(r#"{"q":"{{query}}""#), TemplateError::NotJson(_)));
    assert_eq!(error(r#"{"q":"{{quary}}"}"#), TemplateError::Unknown("quary".to_owned()));
    assert_eq!(error(r#"["{{query}"]"#), TemplateError::Unclosed);
    assert_eq!(error(r#"{"{{query}}":"{{query}}"}"#), TemplateError::InKey);
    assert_eq!(error(r#"{"q":"say {{messages}}"}"#), TemplateError::NotText("messages".to_owned()));
    assert_eq!(error(r#"{"q":"{{query}} {{stream}}"}"#), TemplateError::NotText("stream".to_owned()));
    assert_eq!(error(r#"{"q":"{{user}}"}"#), TemplateError::NoQuery);
    for name in template::Slot::NAMES {
        assert!(template(&format!(r#"["{{{{query}}}}","{{{{{name}}}}}"]"#)).is_ok(), "{name}");
    }
    assert!(!format!("{:?}", Template::parse(r#"["{{query}}","app-key-7"]"#).unwrap()).contains("key-7"));
}

#[test]
fn lexiang_body_has_last_query_and_session() {
    let mapped = |body: Value, session| {
        mapped(&mapping(UpstreamFormat::Lexiang, None), &body.to_string(), RequestContext { session, ..CONTEXT })
            .unwrap()
    };
    let messages = json!([{"role": "user", "content": "一"}, {"role": "assistant", "content": "答"},
                       {"role": "user", "content": [{"type": "text", "text": "二"}, {"type": "image_url", "image_url": {}},
                                                    {"type": "text", "text": "三"}]},
                       {"role": "tool", "content": "x"}]);
    assert_eq!(
        mapped(json!({"model": "m", "messages": messages, "temperature": 0.3, "tools": []}), None),
        json!({"query": "二\n三", "stream": true, "new_session": true})
    );
    let own = json!({"model": "m", "stream": false, "messages": messages, "qa_mode": "reasoning", "max_chars": 200,
                     "targets": [{"type": "team", "id": "t"}], "session_id": "body"});
    assert_eq!(
        mapped(own, Some("header")),
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
        let mut body = json!({"model": "m", "messages": messages});
        body[key] = value;
        assert_eq!(mapped(body, None)["session_id"], "s", "{key}");
    }
}

#[test]
fn openai_body_is_unchanged_except_the_model() {
    let body = "{ \"temperature\":0.70, \"model\" : \"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u4f60\"}],\"x\":1e2 }";
    let request = ChatRequest::read(body.as_bytes()).unwrap();
    assert_eq!(mapping(UpstreamFormat::OpenAi, None).body(&request, CONTEXT).unwrap(), Cow::Borrowed(body.as_bytes()));
    let renamed = mapping(UpstreamFormat::OpenAi, Some("ep-\"1\"")).body(&request, CONTEXT).unwrap();
    assert_eq!(String::from_utf8(renamed.into_owned()).unwrap(), body.replace("\"m\"", "\"ep-\\\"1\\\"\""));
}

#[test]
fn read_error_names_the_parameter() {
    let body = |rest: &str| format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}]{rest}}}");
    assert!(ChatRequest::read(body("").as_bytes()).is_ok());
    assert!(
        ChatRequest::read(
            body(",\"stream\":null,\"deep\":")
                .replace("\"deep\":", &format!("\"deep\":{}1{}", "[".repeat(5000), "]".repeat(5000)))
                .as_bytes()
        )
        .is_ok()
    );
    for (body, param, text) in [
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
        let (actual, message) = read_error(body);
        assert_eq!(actual, param, "{body}");
        assert!(message.contains(text), "{body}: {message}");
    }
    assert!(matches!(ChatRequest::read(b"{\"model\":\"\xff\"}"), Err(InvalidRequest { param: None, .. })));
    for messages in [r#"[{"role":"system","content":"x"}]"#, r#"[{"role":"user","content":" "}]"#, "[1]"] {
        let body = format!("{{\"model\":\"m\",\"messages\":{messages}}}");
        let error = mapped(&mapping(UpstreamFormat::Lexiang, None), &body, CONTEXT).unwrap_err();
        assert_eq!(error, InvalidRequest::new("messages", "has no text of the user"), "{messages}");
    }
}

#[test]
fn query_lone_surrogate_becomes_replacement_character() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"a\ud83d"}]}"#;
    assert_eq!(mapped(&mapping(UpstreamFormat::Lexiang, None), body, CONTEXT).unwrap()["query"], "a\u{fffd}");
}
