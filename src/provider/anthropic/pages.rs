//! The pages that the server fetched. A citation of one names its index and title, and not its URL.

use crate::{citation::text, provider::json::Node};

/// Fetched pages whose citations are resolved. Those of further pages have no URL.
const MAX_PAGES: usize = 64;
/// Bytes of a page's longest URL. Citations of a page with a longer one have no URL.
const MAX_URL: usize = 2 * 1024;
/// Bytes of a title that are compared.
const MAX_TITLE: usize = 1024;

/// A fetched page.
pub struct FetchedPage {
    /// `None` if it is too long.
    url: Option<String>,
    title: Option<String>,
    /// A PDF, which is cited by pages, not by characters.
    is_paged: bool,
}

impl FetchedPage {
    pub fn new(url: &str, title: Option<&str>, is_paged: bool) -> Self {
        Self {
            url: (url.len() <= MAX_URL).then(|| url.to_owned()),
            title: title.map(|title| text::first_bytes(title, MAX_TITLE).to_owned()),
            is_paged,
        }
    }
}

/// The fetched pages of one message, in their order.
#[derive(Default)]
pub struct FetchedPages(Vec<FetchedPage>);

impl FetchedPages {
    pub fn add(&mut self, page: FetchedPage) {
        if self.0.len() < MAX_PAGES {
            self.0.push(page);
        }
    }

    /// Returns the URL of the page that a citation names. `None`: it names a document of the request, or several pages fit.
    ///
    /// The index counts the documents of the request too, which the response does not show. So the page at the index must
    /// also have the citation's title, and a title without an index that fits must be unique.
    pub fn url_of(&self, citation: &Node<'_>, is_paged: bool) -> Option<&str> {
        let title = citation.text(&["document_title"]).map(|title| text::first_bytes(title, MAX_TITLE));
        let fits = |page: &&FetchedPage| page.is_paged == is_paged && page.title.as_deref() == title;
        let index = citation.get("document_index").and_then(Node::as_number);
        let at_index = index.and_then(|index| self.0.get(usize::try_from(index).ok()?)).filter(fits);
        let page = at_index.or_else(|| {
            let mut fitting = self.0.iter().filter(|_| title.is_some()).filter(fits);
            fitting.next().filter(|_| fitting.next().is_none())
        });
        page?.url.as_deref()
    }
}
