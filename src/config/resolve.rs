//! Validates the merged settings and builds a [`Config`].

use std::{path::Path, sync::Arc, time::Duration};

use super::{
    Config, Limits, Listen, Log, LogFormat, Origin, Records, Timeouts, allowed_hosts,
    check::{self, Checked, GIB, KIB},
    cors,
    error::{ConfigError, Location},
    layer::{Layer, Settings},
    listen, route, rules, search,
    supplement::SearchService,
    tenant,
    value::Entry,
};

/// Minimum of hyper's read buffer.
const MIN_HEADER_BYTES: u64 = 8 * KIB;
/// A smaller frame could hardly contain one reference.
const MIN_FRAME: u64 = KIB;
const MAX_COUNT: u64 = 1_000_000;

pub(super) fn resolve(layer: &Layer, cwd: &Path, errors: &mut Vec<ConfigError>) -> Option<Config> {
    let mut reader = Reader { table: "", keys: &layer.settings, errors };
    let listen = reader.optional("listen", |entry| listen::listen(entry, cwd));
    let allowed_hosts = reader.optional(allowed_hosts::KEY, allowed_hosts::allowed_hosts);
    let admin_listen = reader.optional("admin_listen", |entry| listen::listen_or_off(entry, cwd));
    let socket_mode = reader.optional("socket_mode", listen::mode);
    let listens = [listen.as_ref(), admin_listen.as_ref().and_then(Option::as_ref)];
    let tls = listen::tls(&mut reader, cwd, listens);
    let store = reader.optional("store", |entry| check::store(entry, cwd));
    let trusted_proxies = reader.optional("trusted_proxies", |entry| {
        check::list(entry, "expected networks such as 10.0.0.0/8 or addresses", check::network)
    });
    let cors = reader.optional(cors::ORIGINS, cors::cors);
    let console = reader.optional("console", check::boolean);
    let workers = reader.optional("workers", check::workers);
    let level = reader.optional("log.level", check::log_level);
    let format = reader.optional("log.format", |entry| {
        check::keyword(entry, &["auto", "json", "text"], |text| match text {
            "auto" => Some(LogFormat::Auto),
            "json" => Some(LogFormat::Json),
            "text" => Some(LogFormat::Text),
            _ => None,
        })
    });
    let timeouts = timeouts(&mut reader);
    let limits = limits(&mut reader);
    let records = Records {
        ttl: reader.duration_or_off("records.ttl", SECOND),
        sweep: reader.duration("records.sweep", SECOND),
        queue: reader.count("records.queue", MAX_COUNT),
    };

    let search = search::resolve(&mut reader);
    let rules = Arc::new(rules::resolve(&mut reader));

    let auth = match layer.settings.get("auth").map(|entry| tenant::auth(entry, listens, layer.tenants.len())) {
        Some(Err(error)) => {
            errors.push(error);
            None
        }
        Some(Ok(auth)) => Some(auth),
        None => None,
    };
    let service = SearchService::new(layer.settings.get(search::KEY), search.as_ref());
    let own = listens.map(|listen| listen.and_then(Listen::tcp));
    let routes = route::resolve(&layer.routes, own, service, errors);
    if layer.routes.is_empty() {
        errors.push(ConfigError::new("no route: set CITETAP_UPSTREAM=https://… or add [[routes]] to citetap.toml"));
    }
    let tenants = tenant::resolve(&layer.tenants, limits.requests, errors);
    Some(Config {
        listen: listen?,
        allowed_hosts: allowed_hosts?,
        admin_listen: admin_listen?,
        socket_mode: socket_mode?,
        tls,
        store: store?,
        auth: auth?,
        open_to_all: layer.settings.get("auth").and_then(Entry::text) == Some("none"),
        trusted_proxies: trusted_proxies?,
        console: console?,
        workers: workers?,
        cors: cors?,
        log: Log { level: level?, format: format? },
        timeouts,
        limits,
        records,
        search: search?,
        rules,
        routes,
        tenants,
    })
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn timeouts(reader: &mut Reader<'_>) -> Timeouts {
    Timeouts {
        connect: reader.duration("timeouts.connect", MILLISECOND),
        request_headers: reader.duration("timeouts.request_headers", MILLISECOND),
        first_byte: reader.duration("timeouts.first_byte", MILLISECOND),
        upstream_idle: reader.duration("timeouts.upstream_idle", MILLISECOND),
        client_stall: reader.duration("timeouts.client_stall", MILLISECOND),
        total: reader.duration_or_off("timeouts.total", MILLISECOND),
        heartbeat: reader.duration_or_off("timeouts.heartbeat", MILLISECOND),
        commit: reader.duration("timeouts.commit", Duration::ZERO),
        drain_delay: reader.duration("timeouts.drain_delay", Duration::ZERO),
        drain: reader.duration("timeouts.drain", Duration::ZERO),
    }
}

fn limits(reader: &mut Reader<'_>) -> Limits {
    let limits = Limits {
        request_headers: reader.count("limits.request_headers", 1024),
        request_header_bytes: reader.size("limits.request_header_bytes", MIN_HEADER_BYTES, 1024 * KIB),
        request_body: reader.optional("limits.request_body", |e| check::size(e, 1..=1024 * GIB)).unwrap_or_default(),
        frame: reader.size("limits.frame", MIN_FRAME, GIB),
        held_total: reader.size("limits.held_total", MIN_FRAME, 1024 * GIB),
        streams: reader.count("limits.streams", MAX_COUNT),
        requests: reader.optional("limits.requests", check::rate_or_off).flatten(),
    };
    held_covers_frame(reader, &limits);
    limits
}

/// Checks that `limits.held_total` is at least `limits.frame`. Reports the one that is not a default.
///
/// An invalid value reads as zero and has an error of its own.
fn held_covers_frame(reader: &mut Reader<'_>, limits: &Limits) {
    if limits.held_total == 0 || limits.held_total >= limits.frame {
        return;
    }
    let (Some(held), Some(frame)) = (reader.keys.get("limits.held_total"), reader.keys.get("limits.frame")) else {
        return;
    };
    let error = if held.location.origin == Origin::Default {
        let (frame_is, held_is) = (frame.shown(), held.shown());
        let message = format!("limits.frame = {frame_is}: must not be above limits.held_total ({held_is})");
        ConfigError::at(&frame.location, message)
    } else {
        let (frame_is, held_is) = (frame.shown(), held.shown());
        let message = format!("limits.held_total = {held_is}: must not be below limits.frame ({frame_is})");
        ConfigError::at(&held.location, message)
    };
    reader.errors.push(error);
}

/// Reads the keys of one table and collects errors.
///
/// An invalid value reads as `None` or zero. It never leaves this module, because `load` returns no `Config` if there is
/// an error.
pub(super) struct Reader<'a> {
    /// The table's name in errors: `routes` or `tenants`, empty at the top level.
    pub table: &'static str,
    pub keys: &'a Settings,
    pub errors: &'a mut Vec<ConfigError>,
}

impl Reader<'_> {
    /// Parses the value of `key`. Returns `None` if the key is absent or invalid.
    pub fn optional<T>(&mut self, key: &str, check: impl FnOnce(&Entry) -> Checked<T>) -> Option<T> {
        self.optional_as(key, Entry::shown, check)
    }

    /// Like [`optional`](Self::optional); `show` formats the value for the error.
    pub fn optional_as<T>(
        &mut self,
        key: &str,
        show: impl FnOnce(&Entry) -> String,
        check: impl FnOnce(&Entry) -> Checked<T>,
    ) -> Option<T> {
        let entry = self.keys.get(key)?;
        let name = self.name(key);
        check(entry)
            .map_err(|why| {
                self.errors.push(ConfigError::at(&entry.location, format!("{name} = {}: {why}", show(entry))));
            })
            .ok()
    }

    /// Like [`optional`](Self::optional), but a missing key is an error too.
    pub fn required<T>(&mut self, key: &str, table: &Location, check: impl FnOnce(&Entry) -> Checked<T>) -> Option<T> {
        self.expect_key(key, table);
        self.optional(key, check)
    }

    /// Like [`required`](Self::required), but an error never repeats the value.
    pub fn secret<T>(&mut self, key: &str, table: &Location, check: impl FnOnce(&Entry) -> Checked<T>) -> Option<T> {
        self.expect_key(key, table);
        let entry = self.keys.get(key)?;
        check(entry).map_err(|why| self.refuse(key, &entry.location, &why)).ok()
    }

    /// Adds an error that does not repeat the value.
    pub fn refuse(&mut self, key: &str, location: &Location, why: &str) {
        let message = format!("{}: {why}", self.name(key));
        self.errors.push(ConfigError::at(location, message));
    }

    fn expect_key(&mut self, key: &str, table: &Location) {
        if !self.keys.contains_key(key) {
            self.errors.push(ConfigError::at(table, format!("[[{}]] without {key:?}", self.table)));
        }
    }

    fn name(&self, key: &str) -> String {
        if self.table.is_empty() { key.to_owned() } else { format!("{}.{key}", self.table) }
    }

    fn duration(&mut self, key: &str, min: Duration) -> Duration {
        self.optional(key, |entry| check::duration(entry, min)).unwrap_or_default()
    }

    fn duration_or_off(&mut self, key: &str, min: Duration) -> Option<Duration> {
        self.optional(key, |entry| check::duration_or_off(entry, min)).flatten()
    }

    fn size(&mut self, key: &str, min: u64, max: u64) -> usize {
        let max = max.min(usize::MAX as u64);
        self.optional(key, |entry| check::size(entry, min..=max)).unwrap_or_default() as usize
    }

    pub fn count(&mut self, key: &str, max: u64) -> usize {
        self.optional(key, |entry| check::count(entry, 1..=max)).unwrap_or_default() as usize
    }
}
