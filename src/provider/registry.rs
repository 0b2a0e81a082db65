//! The providers, one line each, and how they are named, told apart and listed.

use std::{fmt, str::FromStr};

use super::{
    Adapter,
    detect::{Detector, MAX_UNDECIDED},
    doubao,
    json::{self, Node},
    mcp, openai, tavily, tencent,
};

/// Every provider. Where a frame could be of several, the first of them reads it.
pub static REGISTRY: Registry =
    Registry(&[&doubao::DESCRIPTOR, &tencent::DESCRIPTOR, &openai::DESCRIPTOR, &tavily::DESCRIPTOR, &mcp::DESCRIPTOR]);

/// Makes the adapter of one stream.
pub type Build = fn() -> Box<dyn Adapter>;

/// Tells from an event's name and its data whether they are this provider's, and who reads them. The data is
/// [`Node::Null`] where it is not JSON, and the name empty where a document was handed in.
pub type Sniff = fn(event: &str, data: &Node<'_>) -> Option<Build>;

/// What is known of a provider besides its adapter.
pub struct Descriptor {
    /// In the configuration, in records and in metrics.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    /// Where the wire format, or the product that speaks it, is described.
    pub docs: &'static str,
    pub input: InputKind,
    pub sniff: Sniff,
    pub build: Build,
}

/// What a provider can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Chat streams: a route may name it.
    Streams,
    /// Documents that are handed in, or fetched by us: no chat stream is made of them.
    Documents,
}

impl InputKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Documents => "documents",
        }
    }
}

pub struct Registry(pub &'static [&'static Descriptor]);

impl Registry {
    /// The name that has the first frames decide.
    pub const AUTO: &str = "auto";

    /// The provider that a route names.
    pub fn for_route(&'static self, name: &str) -> Option<Provider> {
        self.named(name, |provider| provider.input == InputKind::Streams)
    }

    /// The provider that is named for a capture or a JSON body that is handed in.
    pub fn for_capture(&'static self, name: &str) -> Option<Provider> {
        self.named(name, |_| true)
    }

    fn named(&'static self, name: &str, suits: fn(&Descriptor) -> bool) -> Option<Provider> {
        let named = self.0.iter().find(|provider| provider.name == name && suits(provider));
        named.map(|provider| Provider::Fixed(provider)).or((name == Self::AUTO).then_some(Provider::Auto(self)))
    }

    /// Those that read chat streams.
    pub fn stream_providers(&self) -> impl Iterator<Item = &'static Descriptor> + Clone {
        self.0.iter().copied().filter(|provider| provider.input == InputKind::Streams)
    }

    /// What a route may name.
    pub fn route_names(&self) -> Vec<&'static str> {
        self.stream_providers().map(|provider| provider.name).chain([Self::AUTO]).collect()
    }

    /// What may be named for a capture or a JSON body that is handed in.
    pub fn capture_names(&self) -> Vec<&'static str> {
        self.0.iter().map(|provider| provider.name).chain([Self::AUTO]).collect()
    }

    /// A line for each provider: name, label, what it reads, link.
    pub fn rows(&self) -> impl Iterator<Item = [&'static str; 4]> {
        self.0.iter().map(|provider| [provider.name, provider.label, provider.input.as_str(), provider.docs])
    }

    /// Whose JSON document is it? `None` where it could be anybody's.
    pub fn detect_document(&self, json: &str) -> Option<Provider> {
        sniff(self.0.iter().copied(), "", json).map(|(provider, _)| Provider::Fixed(provider))
    }
}

/// The first provider that knows the frame as its own, and who reads its stream.
pub(super) fn sniff(
    among: impl Iterator<Item = &'static Descriptor> + Clone,
    event: &str,
    data: &str,
) -> Option<(&'static Descriptor, Build)> {
    let find = |data: &Node<'_>| among.clone().find_map(|provider| Some((provider, (provider.sniff)(event, data)?)));
    json::with_parsed(data, find).unwrap_or_else(|| find(&Node::Null))
}

/// What a route says about its upstream.
#[derive(Clone, Copy)]
pub enum Provider {
    Fixed(&'static Descriptor),
    /// Decided by the first frames, among all that read streams.
    Auto(&'static Registry),
}

impl Provider {
    pub const AUTO: Self = Self::Auto(&REGISTRY);

    #[expect(non_snake_case, reason = "the name that config::route still uses")]
    pub const fn Of(provider: &Self) -> Self {
        *provider
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed(provider) => provider.name,
            Self::Auto(_) => Registry::AUTO,
        }
    }

    pub const fn is_auto(self) -> bool {
        matches!(self, Self::Auto(_))
    }

    /// The adapter of one stream.
    pub fn adapter(self) -> Box<dyn Adapter> {
        match self {
            Self::Fixed(provider) => (provider.build)(),
            Self::Auto(registry) => Box::new(Detector::new(registry.0, Some(MAX_UNDECIDED))),
        }
    }
}

impl PartialEq for Provider {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Provider {}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// As a route names it.
impl FromStr for Provider {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        REGISTRY.for_route(name).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_provider_has_a_label_and_a_link() {
        let mut names = REGISTRY.capture_names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), REGISTRY.0.len() + 1);
        for provider in REGISTRY.0 {
            assert!(provider.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", provider.name);
            assert!(!provider.label.is_empty() && provider.docs.starts_with("https://"), "{}", provider.name);
        }
    }

    #[test]
    fn readmes_and_manual_list_every_provider() {
        let pages = [
            include_str!("../../README.md"),
            include_str!("../../README.zh-CN.md"),
            include_str!("../../docs/src/providers.md"),
        ];
        for page in pages {
            let rows: Vec<String> = REGISTRY
                .rows()
                .map(|[name, label, reads, docs]| format!("| `{name}` | {label} | {reads} | [docs]({docs}) |\n"))
                .collect();
            assert!(page.contains(&rows.concat()), "{}", rows.concat());
        }
    }

    #[test]
    fn a_route_names_no_provider_that_reads_documents_alone() {
        assert_eq!(REGISTRY.for_route("tavily"), None);
        assert_eq!(REGISTRY.for_capture("tavily"), Some(tavily::PROVIDER));
        assert_eq!("doubao".parse(), Ok(doubao::PROVIDER));
        assert_eq!("auto".parse(), Ok(Provider::AUTO));
        assert_eq!("dubao".parse::<Provider>(), Err(()));
    }
}
