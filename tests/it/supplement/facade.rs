//! OpenAI requests are supplemented like any other.

use serde_json::{Value, json};

use super::{QUESTION, answer, chat, finds, ms};

fn asking() -> String {
    let turns = json!([{"role": "user", "content": "before"}, {"role": "assistant", "content": "…"},
                       {"role": "user", "content": [{"type": "text", "text": QUESTION}]}]);
    json!({"model": "m", "messages": turns}).to_string()
}

fn urls(body: &Value) -> Vec<&str> {
    body["citations"].as_array().unwrap().iter().map(|url| url.as_str().unwrap()).collect()
}

#[tokio::test]
async fn last_user_message_is_searched_and_results_are_added() {
    let kinds = [
        "supplement = \"always\"\n[routes.openai]\nmodels = [\"m\"]\nrequest = \"lexiang\"",
        // In the upstream request, not in the client's.
        "supplement = \"always\"\nsupplement_query = \"/in/q\"\n[routes.openai]\nmodels = [\"m\"]\nrequest = \"template\"\n\
         path = \"/ask\"\ntemplate = '{\"in\":{\"q\":\"{{query}}\"}}'",
    ];
    for of_route in kinds {
        let chat = chat(answer(&[1], ms(300)), finds(), &format!("max_wait_ms = 5000\n{of_route}"), "").await;
        let body = chat.proxy.post("/v1/chat/completions", asking()).await.json().await;
        assert_eq!(urls(&body), ["https://s1.example.com/", "https://coin.example/2", "https://other.example/3"]);
        assert_eq!(body["citetap"]["citations"][1]["origin"], "supplemental");
        let request: Value = serde_json::from_slice(&chat.tavily.requests()[0].body).unwrap();
        assert_eq!(request["query"], QUESTION);
        assert_eq!(chat.stored(|record| record.citations.len() == 3).await.message_id, "m");
        assert_eq!(chat.outcome("joined").await, 1);
    }
}

#[tokio::test]
async fn rejected_request_is_not_searched() {
    let of_route = "supplement = \"always\"\n[routes.openai]\nmodels = [\"m\"]\nrequest = \"lexiang\"";
    let chat = chat(answer(&[1], ms(0)), finds(), of_route, "").await;
    let silent = json!({"model": "m", "messages": [{"role": "system", "content": "x"}]}).to_string();
    for body in [silent, "{".to_owned(), asking().replace("\"m\"", "\"n\"")] {
        assert!(chat.proxy.post("/v1/chat/completions", body).await.status.is_client_error());
    }
    assert_eq!((chat.upstream.request_count(), chat.tavily.request_count()), (0, 0));
}
