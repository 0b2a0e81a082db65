//! The list of providers: lookup by name, detection, and listing. `config`, `api` and `cli` look names up here.

use std::{fmt, str::FromStr};

use super::{
    Adapter, anthropic,
    detect::{Detector, MAX_UNDECIDED},
    doubao, gemini,
    json::{self, Node},
    mcp, openai, openai_responses, tavily, tencent,
};

/// Every provider. If several match a frame, the first one reads it.
pub static REGISTRY: Registry = Registry(&[
    &doubao::DESCRIPTOR,
    &tencent::DESCRIPTOR,
    &openai::DESCRIPTOR,
    &openai_responses::DESCRIPTOR,
    &anthropic::DESCRIPTOR,
    &gemini::DESCRIPTOR,
    &tavily::DESCRIPTOR,
    &mcp::DESCRIPTOR,
]);

/// Builds the adapter of one stream.
pub type Build = fn() -> Box<dyn Adapter>;

/// Detects whether a frame is this provider's, and returns the builder of the adapter for its stream. `data` is
/// [`Node::Null`] if it is not JSON; `event` is empty for a document.
pub type Sniff = fn(event: &str, data: &Node<'_>) -> Option<Build>;

/// A provider's names, its input, and the functions that detect and read it.
pub struct Descriptor {
    /// Name in the configuration, in records and in metrics.
    pub name: &'static str,
    /// Display name.
    pub label: &'static str,
    /// URL that describes the wire format, or the product that uses it.
    pub docs: &'static str,
    pub input: InputKind,
    pub sniff: Sniff,
    pub build: Build,
}

/// What a provider reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Chat streams. A route may name the provider.
    Streams,
    /// JSON documents that a client posts or our own search fetches. A route may not name the provider.
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

/// An ordered list of providers.
pub struct Registry(pub &'static [&'static Descriptor]);

impl Registry {
    /// Name that selects detection by the first frames.
    pub const AUTO: &str = "auto";

    /// Looks up the provider that a route names.
    pub fn for_route(&'static self, name: &str) -> Option<Provider> {
        self.lookup(name, |provider| provider.input == InputKind::Streams)
    }

    /// Looks up the provider of a capture or a posted document.
    pub fn for_capture(&'static self, name: &str) -> Option<Provider> {
        self.lookup(name, |_| true)
    }

    fn lookup(&'static self, name: &str, is_allowed: fn(&Descriptor) -> bool) -> Option<Provider> {
        let found = self.0.iter().find(|provider| provider.name == name && is_allowed(provider));
        found.map(|provider| Provider::Fixed(provider)).or((name == Self::AUTO).then_some(Provider::Auto(self)))
    }

    /// Providers that read chat streams.
    pub fn stream_providers(&self) -> impl Iterator<Item = &'static Descriptor> + Clone {
        self.0.iter().copied().filter(|provider| provider.input == InputKind::Streams)
    }

    /// Names that a route accepts.
    pub fn route_names(&self) -> Vec<&'static str> {
        self.stream_providers().map(|provider| provider.name).chain([Self::AUTO]).collect()
    }

    /// Names that are accepted for a capture or a posted document.
    pub fn capture_names(&self) -> Vec<&'static str> {
        self.0.iter().map(|provider| provider.name).chain([Self::AUTO]).collect()
    }

    /// One row per provider: name, label, input, link.
    pub fn rows(&self) -> impl Iterator<Item = [&'static str; 4]> {
        self.0.iter().map(|provider| [provider.name, provider.label, provider.input.as_str(), provider.docs])
    }

    /// Detects the provider of a JSON document. `None`: no provider matches.
    pub fn detect_document(&self, json: &str) -> Option<Provider> {
        sniff(self.0.iter().copied(), "", json).map(|(provider, _)| Provider::Fixed(provider))
    }
}

/// Returns the first of `candidates` that matches the frame, and the builder of its adapter.
pub(super) fn sniff(
    candidates: impl Iterator<Item = &'static Descriptor> + Clone,
    event: &str,
    data: &str,
) -> Option<(&'static Descriptor, Build)> {
    let find =
        |data: &Node<'_>| candidates.clone().find_map(|provider| Some((provider, (provider.sniff)(event, data)?)));
    json::with_parsed(data, find).unwrap_or_else(|| find(&Node::Null))
}

/// The provider of a stream, or its detection.
#[derive(Clone, Copy)]
pub enum Provider {
    Fixed(&'static Descriptor),
    /// Detected from the first frames, among all providers that read streams.
    Auto(&'static Registry),
}

impl Provider {
    pub const AUTO: Self = Self::Auto(&REGISTRY);

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed(provider) => provider.name,
            Self::Auto(_) => Registry::AUTO,
        }
    }

    /// Builds the adapter of one stream.
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

/// Parses the name in a route.
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
    fn registry_names_are_unique_and_documented() {
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
    fn for_route_refuses_a_document_provider() {
        assert_eq!(REGISTRY.for_route("tavily"), None);
        assert_eq!(REGISTRY.for_capture("tavily"), Some(tavily::PROVIDER));
        assert_eq!("doubao".parse(), Ok(doubao::PROVIDER));
        assert_eq!("auto".parse(), Ok(Provider::AUTO));
        assert_eq!("dubao".parse::<Provider>(), Err(()));
    }
}
