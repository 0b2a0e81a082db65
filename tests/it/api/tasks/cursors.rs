//! `/tasks/{taskId}/cursors/{consumer}`: the read position of a consumer.

use citetap::{
    citation::url::source_id,
    replay::{Script, Step},
};
use http::Method;
use serde_json::{Value, json};

use super::{begin, commit, committed, failing, message, results, shown};
use crate::{
    api::{proxy, put},
    net::{Client, eventually, request, tencent},
};

#[tokio::test]
async fn cursor_is_stored_and_never_moves_backwards() {
    let (_upstream, proxy, like) = begin().await;
    let names = ["a", "b", "c", "d", "e"].map(|name| (name, 0.5));
    put(&proxy, &[message(&like, "task", "m", 1, &[&names])]).await;
    proxy.get("/tasks/task/cursors/c").await.is_problem(404, "unknown-cursor").await;
    let first = results(&proxy, "consumer=c&limit=2").await["cursor"].clone();
    let at = committed(&proxy, "c", &first).await;
    assert_eq!((at.last_query_id.as_str(), at.last_source_id, at.consumed_count), ("q1", source_id("b"), 2));
    let kept = proxy.get("/tasks/task/cursors/c").await;
    assert_eq!((kept.status.as_u16(), kept.header("cache-control")), (200, Some("no-store")));
    let kept = kept.json().await;
    let mut keys: Vec<&str> = kept.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["consumed_count", "last_query_id", "last_source_id", "task_id", "updated_at"]);
    assert!(kept["updated_at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    assert_eq!(commit(&proxy, "c", &first).await.json().await, kept, "repeating a commit changes nothing");

    let second = results(&proxy, "consumer=c&limit=2").await["cursor"].clone();
    committed(&proxy, "c", &second).await;
    let problem = commit(&proxy, "c", &first).await.is_problem(409, "cursor-conflict").await;
    assert_eq!(problem["current"], proxy.get("/tasks/task/cursors/c").await.json().await);
    assert_eq!(
        (&problem["current"]["last_source_id"], &problem["current"]["consumed_count"]),
        (&json!(source_id("d")), &json!(4))
    );
    assert_eq!(shown(&results(&proxy, "consumer=c").await), ["q1 e"]);
}

/// A cursor of the protocol is a position and a count. It can be committed after each item or after several.
#[tokio::test]
async fn cursor_of_position_and_count_is_accepted() {
    let (_upstream, proxy, like) = begin().await;
    let names = ["a", "b", "c", "d", "e"].map(|name| (name, 0.5));
    put(&proxy, &[failing(message(&like, "task", "m", 1, &[&names]), 9)]).await;
    let cursor_at = |name: &str, count: u32| {
        json!({ "task_id": "task", "last_query_id": "q1", "last_source_id": source_id(name), "consumed_count": count,
                "updated_at": "2026-01-13T09:18:07.000Z" })
    };
    assert_eq!(committed(&proxy, "c", &cursor_at("a", 1)).await.consumed_count, 1, "one item at a time");
    assert_eq!(committed(&proxy, "c", &cursor_at("b", 2)).await.consumed_count, 2);
    assert_eq!(committed(&proxy, "c", &cursor_at("b", 2)).await.consumed_count, 2, "a repeated commit");
    assert_eq!(committed(&proxy, "c", &cursor_at("d", 4)).await.consumed_count, 4, "two at once");
    for older in [cursor_at("a", 1), cursor_at("b", 2), cursor_at("d", 3), cursor_at("c", 4)] {
        let problem = commit(&proxy, "c", &older).await.is_problem(409, "cursor-conflict").await;
        assert_eq!(problem["current"]["consumed_count"], 4);
    }
    // Items that joined before the position have not been read. The count shows that.
    put(&proxy, &[failing(message(&like, "task", "m", 1, &[&[&[("new", 0.9)], &names[..]].concat()]), 9)]).await;
    commit(&proxy, "d", &cursor_at("c", 3)).await.is_problem(409, "cursor-conflict").await;
    let problem = commit(&proxy, "d", &cursor_at("nobody", 7)).await.is_problem(409, "cursor-conflict").await;
    assert_eq!(problem["current"], Value::Null);
    assert_eq!(committed(&proxy, "d", &cursor_at("e", 6)).await.consumed_count, 6);
    let rest = results(&proxy, "consumer=d").await;
    assert_eq!((&rest["items"], &rest["failed"]), (&json!([]), &json!([])));
}

/// In the middle of a page: the page's cursor, moved back to the processed items.
#[tokio::test]
async fn cursor_within_a_page_resumes_there() {
    let (_upstream, proxy, like) = begin().await;
    let names = ["a", "b", "c"].map(|name| (name, 0.5));
    put(&proxy, &[message(&like, "task", "m", 1, &[&names])]).await;
    let page = results(&proxy, "consumer=c").await;
    let mut cursor = page["cursor"].clone();
    cursor["last_source_id"] = page["items"][1]["source_id"].clone();
    cursor["consumed_count"] = 2.into();
    assert_eq!(committed(&proxy, "c", &cursor).await.consumed_count, 2);
    assert_eq!(shown(&results(&proxy, "consumer=c").await), ["q1 c"]);
    assert_eq!(committed(&proxy, "c", &page["cursor"]).await.consumed_count, 3);
    commit(&proxy, "c", &cursor).await.is_problem(409, "cursor-conflict").await;
}

/// The position alone would miss these items: they precede it but joined after the commit.
#[tokio::test]
async fn items_joining_before_the_cursor_are_read() {
    let (_upstream, proxy, like) = begin().await;
    put(&proxy, &[message(&like, "task", "m2", 20, &[&[("a", 0.8), ("b", 0.4)]])]).await;
    let page = results(&proxy, "consumer=c").await;
    assert_eq!(shown(&page), ["q1 a", "q1 b"]);
    // Between reading and committing: a reference after the finish, with the highest score.
    put(&proxy, &[message(&like, "task", "m2", 20, &[&[("a", 0.8), ("late", 0.9), ("b", 0.4)]])]).await;
    committed(&proxy, "c", &page["cursor"]).await;
    let page = results(&proxy, "consumer=c").await;
    assert_eq!(shown(&page), ["q1 late"]);
    // A message that started earlier and ended later.
    put(&proxy, &[message(&like, "task", "m1", 10, &[&[("a", 0.9), ("slow", 0.1)]])]).await;
    committed(&proxy, "c", &page["cursor"]).await;
    let page = results(&proxy, "consumer=c").await;
    assert_eq!(shown(&page), ["q1 slow"], "and a, which is first now, is not read twice");
    committed(&proxy, "c", &page["cursor"]).await;
    assert_eq!(shown(&results(&proxy, "consumer=c").await), [""; 0]);
    assert_eq!(
        shown(&results(&proxy, "").await),
        ["q1 a", "q1 slow", "q2 late", "q2 b"],
        "a new consumer reads in order"
    );
}

/// The same over the wire: references after the finish update the record.
#[tokio::test]
async fn references_after_the_finish_are_read() {
    let late = [tencent::answer("m-1"), tencent::references("m-1", &[3])];
    let (waiting, go) = (std::time::Duration::from_millis(600), tencent::text("m-1", ""));
    let script = Script::sse_steps([
        Step::Send(late[0].clone().into()),
        Step::Pause(waiting),
        Step::Send((late[1].clone() + &go).into()),
    ]);
    let (_upstream, proxy) = proxy(vec![("/m-1", script)], "").await;
    let mut client = Client::h1(proxy.addr).await;
    let mut open = client.send(request(Method::POST, "/chat/m-1", &[("x-task-id", "task")], "{}")).await;
    open.until("event:finish").await;
    let page = results(&proxy, "consumer=c").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    committed(&proxy, "c", &page["cursor"]).await;
    open.whole().await;
    let later = eventually(async || {
        let page = results(&proxy, "consumer=c").await;
        (!page["items"].as_array().unwrap().is_empty()).then_some(page)
    });
    let later = later.await.expect("the late one");
    assert_eq!(later["items"][0]["url"], "https://s3.example.com/");
    assert_eq!(committed(&proxy, "c", &later["cursor"]).await.consumed_count, 3);
}

#[tokio::test]
async fn cursor_can_pass_a_page_of_failures() {
    let (_upstream, proxy, like) = begin().await;
    put(&proxy, &[failing(message(&like, "task", "m", 1, &[&[]]), 3)]).await;
    let page = results(&proxy, "consumer=c").await;
    assert_eq!((page["items"].as_array().unwrap().len(), page["failed"].as_array().unwrap().len()), (0, 1));
    let at = committed(&proxy, "c", &page["cursor"]).await;
    assert_eq!((at.consumed_count, at.last_source_id.as_str()), (0, ""));
    assert_eq!(results(&proxy, "consumer=c").await["failed"], json!([]));
    assert_eq!(commit(&proxy, "c", &page["cursor"]).await.status, 200);
}
