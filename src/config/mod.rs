//! What the operator said, resolved: only valid values reach [`Config`].
//!
//! Layers, later ones winning: the embedded `config/citetap.toml`, a file, the environment, flags. The embedded file
//! is also the list of known keys, so a key, its default and its comment are written once.
//!
//! `toml` parses; `layer` flattens into dotted keys that remember their origin; `env` and `flags` add theirs;
//! `resolve` and those it calls check. Errors are collected, not thrown: an operator mends a file in one go.

mod check;
mod cors;
mod env;
mod error;
mod flags;
mod input;
mod layer;
mod listen;
mod load;
mod mapping;
pub mod pointer;
mod questions;
mod resolve;
mod route;
mod rules;
pub mod search;
mod suggest;
mod supplement;
mod tenant;
#[cfg(test)]
mod tests;
mod url_check;
mod value;

use std::{collections::BTreeMap, fmt, num::NonZeroU32, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use url::Url;

use self::{
    pointer::Pointer,
    search::{Depth, Topic},
};
pub use crate::mapping::Mapping;
pub use crate::marker::Style;
pub use crate::pipeline::{inject::Inject, supplement::Supplement};
pub use crate::profile::{Form, Manner, Profile};
pub use crate::provider::Provider;
pub use url_check::{RESERVED, plain_url};

pub use cors::Cors;
pub use error::{ConfigError, ConfigErrors, Origin};
pub use flags::Flags;
pub use listen::{Listen, TlsFiles, is_loopback};
pub use load::{Loaded, Setting, from_toml, load, load_search};
pub use rules::default_rules;
pub use tenant::open_to_others;

/// Everything citetap runs by. Built by [`load`]; every value is valid.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: Listen,
    /// Where the API and the operators' paths are; `None`: with everything else.
    pub admin_listen: Option<Listen>,
    /// Permissions of Unix sockets.
    pub socket_mode: u32,
    pub tls: Option<TlsFiles>,
    pub store: StoreUrl,
    pub auth: Auth,
    /// It was said that everybody may ask, from wherever.
    pub open_to_all: bool,
    pub trusted_proxies: Vec<ipnet::IpNet>,
    /// Are the console and the component served?
    pub console: bool,
    /// Threads that serve connections.
    pub workers: usize,
    pub cors: Cors,
    pub log: Log,
    pub timeouts: Timeouts,
    pub limits: Limits,
    pub records: Records,
    pub search: Search,
    /// How sources are scored, filtered and weighed against each other.
    pub rules: Arc<crate::citation::Rules>,
    /// Longest prefix first; at least one.
    pub routes: Vec<Route>,
    pub tenants: Vec<Tenant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    Memory,
    Sqlite(std::path::PathBuf),
    Postgres(EngineUrl),
    Redis(EngineUrl),
}

/// Where a server of the operator's is, and the password for it: shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineUrl(Url);

impl EngineUrl {
    pub fn new(url: Url) -> Self {
        Self(url)
    }

    /// For the engine's driver alone.
    pub fn reveal(&self) -> &Url {
        &self.0
    }
}

impl fmt::Debug for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.scheme())
    }
}

/// Who may ask. `Open` on an address beyond loopback is refused unless it was said (`auth = "none"`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    Open,
    Keys,
}

#[derive(Debug, Clone)]
pub struct Log {
    /// A tracing filter: `info`, `citetap=debug`, …
    pub level: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// JSON unless standard error is a terminal.
    Auto,
    Json,
    Text,
}

#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    pub connect: Duration,
    pub request_headers: Duration,
    pub first_byte: Duration,
    pub upstream_idle: Duration,
    pub client_stall: Duration,
    pub total: Option<Duration>,
    pub heartbeat: Option<Duration>,
    pub commit: Duration,
    pub drain_delay: Duration,
    pub drain: Duration,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub request_headers: usize,
    pub request_header_bytes: usize,
    pub request_body: u64,
    pub frame: usize,
    pub held_total: usize,
    pub streams: usize,
    /// Of a tenant that has no rate of its own; `None`: as many as come.
    pub requests: Option<Rate>,
}

/// So many in this time. All of them may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: NonZeroU32,
    pub per: Duration,
}

#[derive(Debug, Clone, Copy)]
pub struct Records {
    pub ttl: Option<Duration>,
    pub sweep: Duration,
    /// Puts waiting for the writer before further ones are refused.
    pub queue: usize,
}

/// The search service, and what a search is where nothing else is asked for.
#[derive(Debug, Clone)]
pub struct Search {
    /// The key as the header that it becomes, marked sensitive; `None`: there is no search.
    pub authorization: Option<HeaderValue>,
    pub base_url: Url,
    /// For the whole search, its retry included.
    pub timeout: Duration,
    pub max_results: u32,
    pub topic: Topic,
    pub search_depth: Depth,
    /// Domains that results must lie in, by event type; an empty list enforces nothing.
    pub event_types: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone)]
pub struct Route {
    pub name: String,
    /// Begins with `/`, does not end with one unless it is `/`. Stripped before the upstream.
    pub prefix: String,
    /// http or https; its path is put before the rest of the request's path.
    pub upstream: Url,
    pub provider: Provider,
    /// Is what it answers read at all?
    pub tap: bool,
    pub link_base: Option<Url>,
    pub manner: Manner,
    pub inject: Inject,
    pub emit_empty: bool,
    pub supplement: Arc<Supplementing>,
    /// What the console offers to ask.
    pub questions: Vec<String>,
    /// The OpenAI requests that it answers; `None`: only what comes under its prefix.
    pub mapping: Option<Mapping>,
    pub request_headers: HeaderRules,
    pub response_headers: HeaderRules,
}

/// A search of our own beside a route's answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supplementing {
    pub when: Supplement,
    /// Where a request's body has the query; `None`: its last user message.
    pub query: Option<Pointer>,
    /// What is found must lie in them; empty: anywhere.
    pub domains: Vec<String>,
    /// For what is not there at the finish.
    pub max_wait: Duration,
}

/// `remove` first, then `set`.
#[derive(Debug, Clone, Default)]
pub struct HeaderRules {
    pub remove: Vec<HeaderName>,
    /// Values are marked sensitive: they may be credentials.
    pub set: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Clone)]
pub struct Tenant {
    pub name: String,
    pub key_sha256: [u8; 32],
    /// Its own, or that of all.
    pub requests: Option<Rate>,
}

/// By hand, so that a logged `Config` holds no hash to try keys against.
impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).field("requests", &self.requests).finish_non_exhaustive()
    }
}

/// As it is written in the file.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            0..60 => "s",
            60..3600 => "m",
            3600..86_400 => "h",
            _ => "d",
        };
        write!(f, "{}/{unit}", self.count)
    }
}
