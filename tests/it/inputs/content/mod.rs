//! Citation content: c73 to c82.

mod links;
mod texts;

use serde_json::{Value, json};

/// References with these URLs.
fn linking(urls: &[&str]) -> Value {
    let list = urls.iter().enumerate();
    list.map(|(n, url)| json!({"target_id": format!("t{n}"), "title": format!("T{n}"), "url": url})).collect()
}

/// References with these titles.
fn titled(titles: &[&str]) -> Value {
    let list = titles.iter().enumerate();
    list.map(|(n, title)| json!({"target_id": format!("t{n}"), "title": title, "content": title, "url": format!("https://s{n}.example.com/")}))
        .collect()
}
