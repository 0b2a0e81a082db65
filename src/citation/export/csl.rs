//! Exports CSL-JSON, which Zotero, pandoc and citeproc read.

use serde_json::{Map, Value, json};

use super::source::{Day, Source};

pub fn items(sources: &[Source<'_>], accessed: Option<Day<'_>>) -> String {
    let items: Vec<Value> = sources.iter().map(|source| item(source, accessed)).collect();
    let text = serde_json::to_string_pretty(&items).unwrap_or_default();
    // Equivalent JSON that is safe to embed in an HTML page.
    text.replace('<', "\\u003c") + "\n"
}

fn item(source: &Source<'_>, accessed: Option<Day<'_>>) -> Value {
    let mut item = Map::new();
    let mut set = |name: &str, value: Value| item.insert(name.to_owned(), value);
    set("id", json!(source.key));
    set("type", json!(if source.url.is_some() { "webpage" } else { "document" }));
    set("title", json!(source.label));
    if let Some(site) = source.site.as_ref().filter(|site| **site != source.label) {
        set("container-title", json!(site));
    }
    if let Some(day) = source.published {
        set("issued", date_parts(day));
    }
    if let Some(url) = &source.url {
        set("URL", json!(url));
        if let Some(day) = accessed {
            set("accessed", date_parts(day));
        }
    }
    if let Some(snippet) = &source.snippet {
        set("abstract", json!(snippet));
    }
    Value::Object(item)
}

fn date_parts(day: Day<'_>) -> Value {
    json!({ "date-parts": [day.ymd] })
}
