//! Exports numbered search results for the prompt of a model. Each source is one line, so that no title can forge another one.

use super::{Lang, source::Source};
use crate::citation::text::first_chars;

/// Sources in the list.
const MAX_SOURCES: usize = 10;
/// Characters of a snippet.
const MAX_SNIPPET: usize = 150;

/// Renders the list under the record's numbers, so that the markers of the answer can be looked up in the record.
pub fn evidence(sources: &[Source<'_>], lang: Lang) -> String {
    let count = sources.len();
    if count == 0 {
        return match lang {
            Lang::Zh => "搜索完成，找到 0 个结果。\n".to_owned(),
            Lang::En => "Search finished, 0 results found.\n".to_owned(),
        };
    }
    let mut out = match lang {
        Lang::Zh => format!("搜索完成，找到 {count} 个结果：\n"),
        Lang::En if count == 1 => "Search finished, 1 result found:\n".to_owned(),
        Lang::En => format!("Search finished, {count} results found:\n"),
    };
    for source in sources.iter().take(MAX_SOURCES) {
        let snippet = first_chars(source.snippet.as_deref().unwrap_or_default(), MAX_SNIPPET);
        let line = format!("[{}] {}: {snippet}", source.number, source.label);
        out += line.trim_end();
        out.push('\n');
    }
    out + match lang {
        Lang::Zh => "\n请基于以上搜索结果回答用户问题，使用 [1]、[2] 等格式引用来源。\n",
        Lang::En => {
            "\nAnswer the user's question from the search results above, and cite your sources as [1], [2] and so on.\n"
        }
    }
}
