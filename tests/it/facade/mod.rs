//! The OpenAI facade in front of routes with models.

mod ends;
mod errors;
mod openai;
mod paths;
mod requests;
mod responses;
mod tenants;

use citetap::replay::{Script, Scripted, Upstream};
use http::Method;
use serde_json::{Value, json};

use crate::net::{Client, ClientResponse, Proxy, Whole, frames, request};

/// A proxy with the models `lexiang`, `plain` and `named` (OpenAI-like upstreams) and `filled` (a template), each on
/// its own path. `toml` precedes the routes. Paths without a script are 404.
async fn facade(scripts: Vec<(&str, Script)>, toml: &str) -> (Upstream, Proxy) {
    let scripts = scripts.into_iter().map(|(path, script)| Scripted::new(path, script)).collect();
    let upstream = Upstream::bind(scripts).await.unwrap();
    let toml = format!("{toml}\n{}", routes(&upstream.url()));
    (upstream, Proxy::start(&toml).await)
}

fn routes(url: &str) -> String {
    let route = |name: &str, more: &str| {
        format!("[[routes]]\nname = \"{name}\"\nprefix = \"/{name}\"\nupstream = \"{url}\"\n{more}\n")
    };
    let template = r#"{"q":"{{query}}","as":"{{model}}","to":"{{session}}","who":"{{user}}","stream":true}"#;
    route("kb", "link_base = \"https://lexiangla.com\"\n[routes.openai]\nmodels = [\"lexiang\"]\nrequest = \"lexiang\"")
        + &route("oai", "[routes.openai]\nmodels = [\"plain\"]")
        + &route("bot", "[routes.openai]\nmodels = [\"named\"]\nupstream_model = \"ep-1\"\npath = \"/api/v3/bots?v=2\"")
        + &route(
            "tmpl",
            &format!(
                "provider = \"tencent\"\n[routes.openai]\nmodels = [\"filled\", \"org/filled:2\"]\nrequest = \"template\"\n\
                 path = \"/ask\"\ntemplate = '{template}'"
            ),
        )
}

const LEXIANG: &str = "/cgi-bin/v1/ai/qa";

/// A request with one question.
fn asking(model: &str, stream: bool) -> String {
    json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "何为热泵？"}]}).to_string()
}

/// The same request, padded with spaces to this size.
fn padded(model: &str, len: usize) -> String {
    let body = asking(model, false);
    format!("{body}{}", " ".repeat(len - body.len()))
}

async fn chat(proxy: &Proxy, body: impl Into<bytes::Bytes>) -> ClientResponse {
    chat_with(proxy, &[], body).await
}

async fn chat_with(proxy: &Proxy, headers: &[(&str, &str)], body: impl Into<bytes::Bytes>) -> ClientResponse {
    let headers = [headers, &[("content-type", "application/json")]].concat();
    let mut client = Client::h1(proxy.addr).await;
    client.send(request(Method::POST, "/v1/chat/completions", &headers, body)).await
}

/// Checks that the response is an OpenAI error and returns its `error`.
pub async fn failed(response: ClientResponse, status: u16, code: &str) -> Value {
    assert_eq!(response.status, status);
    assert_eq!(response.header("content-type"), Some("application/json"));
    let error = response.json().await["error"].take();
    assert_eq!(error["code"], code, "{error}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    let keys: Vec<&String> = error.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["code", "message", "param", "type"]);
    error
}

/// The chunks of a stream, which must end with `[DONE]`.
fn chunks(whole: &Whole) -> Vec<Value> {
    assert_eq!((whole.status.as_u16(), &whole.error), (200, &None));
    assert_eq!(whole.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let bytes = whole.bytes();
    let datas =
        frames(&bytes).into_iter().filter_map(|frame| citetap::sse::Event::read(frame).data.map(|d| d.into_owned()));
    let mut datas: Vec<String> = datas.collect();
    assert_eq!(datas.pop().as_deref(), Some("[DONE]"));
    datas.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The concatenated deltas.
fn text(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}
