//! Loads the configuration. [`Config`] holds only validated values.
//!
//! Four layers, later ones win: the embedded `config/citetap.toml`, the operator's file, the environment, flags. The
//! embedded file also defines which keys exist, so a key, its default and its documentation are written once.
//!
//! [`load`] runs these steps: `layer` parses TOML into dotted keys with their source locations; `env` and `flags` add
//! their values; `resolve` and the modules it calls validate them. Errors are collected, so one run reports all of them.
//!
//! Called by `cli`; every other module receives a finished [`Config`]. An error must never repeat a secret.

mod allowed_hosts;
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
use crate::mapping::UpstreamFormat;
pub use crate::marker::Style;
pub use crate::pipeline::{inject::Inject, supplement::Supplement};
pub use crate::profile::{Form, OutputFormat, Profile};
pub use crate::provider::Provider;
pub use url_check::{RESERVED, plain_url};

pub use allowed_hosts::AllowedHosts;
pub use cors::Cors;
pub use error::{ConfigError, ConfigErrors, Origin};
pub use flags::Flags;
pub use listen::{Listen, TlsFiles, is_loopback};
pub use load::{Loaded, Setting, from_toml, load, load_search};
pub use rules::default_rules;
pub use tenant::exposed_without_auth;

/// The complete configuration of a process. Built by [`load`]; every value is validated.
///
/// `config/citetap.toml` documents each setting.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: Listen,
    /// Host names that requests may carry where no key is needed.
    pub allowed_hosts: AllowedHosts,
    /// Listener of the API, the console and the operators' endpoints. `None`: they are on `listen`.
    pub admin_listen: Option<Listen>,
    /// File mode of Unix sockets.
    pub socket_mode: u32,
    pub tls: Option<TlsFiles>,
    pub store: StoreUrl,
    pub auth: Auth,
    /// True if the operator wrote `auth = "none"`: access without a key is allowed from other machines too.
    pub open_to_all: bool,
    pub trusted_proxies: Vec<ipnet::IpNet>,
    /// Serve the console and the web component.
    pub console: bool,
    /// Number of threads that serve connections.
    pub workers: usize,
    pub cors: Cors,
    pub log: Log,
    pub timeouts: Timeouts,
    pub limits: Limits,
    pub records: Records,
    pub search: Search,
    /// How sources are scored, filtered and compared.
    pub rules: Arc<crate::citation::Rules>,
    /// At least one, sorted by prefix length, longest first.
    pub routes: Vec<Route>,
    pub tenants: Vec<Tenant>,
}

/// Which store keeps the records, parsed from `store`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    Memory,
    Sqlite(std::path::PathBuf),
    Postgres(EngineUrl),
    Redis(EngineUrl),
}

/// URL of a database server. `Debug` prints only its scheme, because the URL may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineUrl(Url);

impl EngineUrl {
    pub fn new(url: Url) -> Self {
        Self(url)
    }

    /// The URL with its password. Only for the database driver.
    pub fn reveal(&self) -> &Url {
        &self.0
    }
}

impl fmt::Debug for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.scheme())
    }
}

/// Whether a request needs a tenant's key. `Open` beyond loopback requires an explicit `auth = "none"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    Open,
    Keys,
}

/// `[log]`
#[derive(Debug, Clone)]
pub struct Log {
    /// A tracing filter, for example `info` or `citetap=debug`.
    pub level: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text if standard error is a terminal, otherwise JSON.
    Auto,
    Json,
    Text,
}

/// `[timeouts]`
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

/// `[limits]`
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub request_headers: usize,
    pub request_header_bytes: usize,
    pub request_body: u64,
    pub frame: usize,
    pub held_total: usize,
    pub streams: usize,
    /// Rate limit of tenants without their own. `None`: unlimited.
    pub requests: Option<Rate>,
}

/// A rate limit: `count` requests per period. A burst of `count` is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: NonZeroU32,
    pub per: Duration,
}

/// `[records]`
#[derive(Debug, Clone, Copy)]
pub struct Records {
    /// How long a record is kept. `None`: for ever.
    pub ttl: Option<Duration>,
    /// Interval at which expired records are deleted.
    pub sweep: Duration,
    /// Maximum number of writes in the store's queue; further ones are rejected.
    pub queue: usize,
}

/// `[search]`: the search service and the default parameters of a search.
#[derive(Debug, Clone)]
pub struct Search {
    /// `Authorization` header with the API key, marked sensitive. `None`: search is disabled.
    pub authorization: Option<HeaderValue>,
    pub base_url: Url,
    /// Timeout of a search, including its retry.
    pub timeout: Duration,
    pub max_results: u32,
    pub topic: Topic,
    pub search_depth: Depth,
    /// Allowed domains of results, by event type. An empty list allows every domain.
    pub event_types: BTreeMap<String, Vec<String>>,
}

/// One `[[routes]]` table: requests under `prefix` go to `upstream`.
#[derive(Debug, Clone)]
pub struct Route {
    pub name: String,
    /// Starts with `/` and has no trailing slash, unless it is `/`. Removed from the path of the upstream request.
    pub prefix: String,
    /// http or https URL. Its path is prepended to the remaining path of the request.
    pub upstream: Url,
    pub provider: Provider,
    /// False: responses are relayed without being parsed.
    pub tap: bool,
    pub link_base: Option<Url>,
    pub output_format: OutputFormat,
    pub inject: Inject,
    /// Relay the upstream's own `access-control-*` headers.
    pub relay_cors: bool,
    pub emit_empty: bool,
    pub supplement: Arc<Supplementing>,
    /// Example questions that the console shows.
    pub questions: Vec<String>,
    /// How this route answers OpenAI requests under `/v1`. `None`: it answers none.
    pub mapping: Option<Mapping>,
    pub request_headers: HeaderRules,
    pub response_headers: HeaderRules,
}

impl Route {
    /// True if requests reach the upstream or the search service with a credential that the client does not have: a
    /// header, a value of the template, the search key.
    pub fn adds_credentials(&self) -> bool {
        let has_template =
            self.mapping.as_ref().is_some_and(|mapping| matches!(mapping.to, UpstreamFormat::Template(_)));
        !self.request_headers.set.is_empty() || has_template || self.supplement.when != Supplement::Off
    }
}

/// Settings of the search that citetap runs in parallel with an upstream request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supplementing {
    pub when: Supplement,
    /// Location of the query in the request body. `None`: the last user message.
    pub query: Option<Pointer>,
    /// Allowed domains of results. Empty: every domain.
    pub domains: Vec<String>,
    /// How long the finish frame may be delayed for results that have not arrived.
    pub max_wait: Duration,
}

/// Changes to the headers of a request or response. `remove` applies before `set`.
#[derive(Debug, Clone, Default)]
pub struct HeaderRules {
    pub remove: Vec<HeaderName>,
    /// Values are marked sensitive, because they may be credentials.
    pub set: Vec<(HeaderName, HeaderValue)>,
}

/// One `[[tenants]]` table.
#[derive(Clone)]
pub struct Tenant {
    pub name: String,
    pub key_sha256: [u8; 32],
    /// Rate limit: its own, otherwise `limits.requests`.
    pub requests: Option<Rate>,
}

/// Omits the key hash, so that a logged `Config` cannot be used to guess keys offline.
impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).field("requests", &self.requests).finish_non_exhaustive()
    }
}

/// Formats the rate as in the configuration file: `600/m`.
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
