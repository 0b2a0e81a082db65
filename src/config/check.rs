//! Parses and validates single values: durations, sizes, rates, keywords, store URLs.
//!
//! Called by `resolve` and its sibling modules through [`Reader`](super::resolve::Reader), which prefixes each error
//! with the key and its location. An error therefore states only what was expected.

use std::{net::IpAddr, num::NonZeroU32, ops::RangeInclusive, path::Path, str::FromStr, time::Duration};

use http::HeaderName;
use ipnet::IpNet;
use url::Url;

use super::{
    EngineUrl, Rate, StoreUrl,
    suggest::nearest,
    value::{Entry, Value},
};

/// A parsed value, or a text that states what was expected.
pub(super) type Checked<T> = Result<T, String>;

/// Maximum duration: ten years. Keeps deadlines computed from it from overflowing.
const MAX_DURATION: Duration = Duration::from_secs(3650 * DAY);
const DAY: u64 = 24 * 60 * 60;

/// Maximum length of a route's or tenant's name. The name is a metric label and part of the store key.
const MAX_NAME: usize = 32;

/// Maximum count of a rate. `off` disables the limit.
const MAX_RATE: u64 = 1_000_000;
const MAX_WORKERS: u64 = 1024;

const DURATION: &str = r#"expected a duration such as "250ms", "5s", "10m" or "30d""#;
const SIZE: &str = r#"expected a size such as "16KiB" or "10MiB", or a number of bytes"#;
const RATE: &str =
    r#"expected a number of requests and a time, such as "20/s", "600/m", "10000/h" or "50000/d", or "off""#;
const STORE: &str = r#"expected "sqlite:PATH", "postgres://…", "redis://…" or "memory:""#;

pub(super) fn duration(entry: &Entry, min: Duration) -> Checked<Duration> {
    let value = entry.text().and_then(parse_duration).ok_or(DURATION)?;
    if value < min {
        return Err(format!("must be at least {}", format_duration(min)));
    }
    if value > MAX_DURATION {
        return Err(format!("must be at most {}", format_duration(MAX_DURATION)));
    }
    Ok(value)
}

pub(super) fn duration_or_off(entry: &Entry, min: Duration) -> Checked<Option<Duration>> {
    if entry.text() == Some("off") {
        return Ok(None);
    }
    duration(entry, min).map(Some).map_err(|why| format!(r#"{why}, or "off""#))
}

/// Parses a number of worker threads. `auto` is the number of CPU cores.
pub(super) fn workers(entry: &Entry) -> Checked<usize> {
    if entry.text() == Some("auto") {
        return Ok(std::thread::available_parallelism().map_or(1, usize::from));
    }
    count(entry, 1..=MAX_WORKERS).map(|count| count as usize).map_err(|why| format!("{why}, or \"auto\""))
}

/// Parses a rate such as `600/m`. `off` gives `None`.
pub(super) fn rate_or_off(entry: &Entry) -> Checked<Option<Rate>> {
    if entry.text() == Some("off") {
        return Ok(None);
    }
    let (count, per) = entry.text().and_then(parse_rate).ok_or(RATE)?;
    let count = within(count, 1..=MAX_RATE, |number| number.to_string())?;
    let count = u32::try_from(count).ok().and_then(NonZeroU32::new).ok_or(RATE)?;
    Ok(Some(Rate { count, per }))
}

fn parse_rate(text: &str) -> Option<(u64, Duration)> {
    let (count, unit) = split_unit(text)?;
    let seconds = match unit {
        "/s" => 1,
        "/m" => 60,
        "/h" => 60 * 60,
        "/d" => DAY,
        _ => return None,
    };
    Some((count, Duration::from_secs(seconds)))
}

/// Returns `None` for an unknown unit and on overflow.
fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(60 * 60).map(Duration::from_secs),
        "d" => number.checked_mul(DAY).map(Duration::from_secs),
        _ => None,
    }
}

fn format_duration(duration: Duration) -> String {
    match (duration.as_millis(), duration.as_secs()) {
        (millis, _) if millis % 1000 != 0 => format!("{millis}ms"),
        (_, secs) if secs >= DAY && secs % DAY == 0 => format!("{}d", secs / DAY),
        (_, secs) => format!("{secs}s"),
    }
}

pub(super) fn size(entry: &Entry, range: RangeInclusive<u64>) -> Checked<u64> {
    let value = match &entry.value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => entry.text().and_then(parse_size),
    };
    within(value.ok_or(SIZE)?, range, |bytes| match bytes {
        n if n >= GIB && n % GIB == 0 => format!("{}GiB", n / GIB),
        n if n >= MIB && n % MIB == 0 => format!("{}MiB", n / MIB),
        n if n >= KIB && n % KIB == 0 => format!("{}KiB", n / KIB),
        n => n.to_string(),
    })
}

pub(super) const KIB: u64 = 1024;
pub(super) const MIB: u64 = 1024 * KIB;
pub(super) const GIB: u64 = 1024 * MIB;

fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    match unit {
        "" | "B" => Some(number),
        "KiB" => number.checked_mul(KIB),
        "MiB" => number.checked_mul(MIB),
        "GiB" => number.checked_mul(GIB),
        _ => None,
    }
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

pub(super) fn count(entry: &Entry, range: RangeInclusive<u64>) -> Checked<u64> {
    let value = match &entry.value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    within(value.ok_or("expected a whole number")?, range, |number| number.to_string())
}

fn within(value: u64, range: RangeInclusive<u64>, show: impl Fn(u64) -> String) -> Checked<u64> {
    if value < *range.start() {
        return Err(format!("must be at least {}", show(*range.start())));
    }
    if value > *range.end() {
        return Err(format!("must be at most {}", show(*range.end())));
    }
    Ok(value)
}

pub(super) fn boolean(entry: &Entry) -> Checked<bool> {
    match &entry.value {
        Value::Bool(flag) => Ok(*flag),
        Value::Text(text) if text == "true" => Ok(true),
        Value::Text(text) if text == "false" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Parses a keyword. The error lists the allowed ones and suggests the most similar.
pub(super) fn keyword<T>(entry: &Entry, names: &[&str], parse: impl Fn(&str) -> Option<T>) -> Checked<T> {
    let text = entry.text();
    if let Some(value) = text.and_then(parse) {
        return Ok(value);
    }
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    let hint = text.and_then(|text| nearest(text, names.iter().copied()));
    let hint = hint.map_or(String::new(), |name| format!("; did you mean {name:?}?"));
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => Err(format!("expected {} or {last}{hint}", rest.join(", "))),
        _ => Err(format!("expected {}{hint}", quoted.join(", "))),
    }
}

pub(super) fn store(entry: &Entry, cwd: &Path) -> Checked<StoreUrl> {
    let text = entry.text().ok_or(STORE)?;
    if text == "memory:" {
        return Ok(StoreUrl::Memory);
    }
    let scheme = text.split(':').next().unwrap_or_default().to_ascii_lowercase();
    if let Some(engine) = engine(&scheme) {
        return match Url::parse(text) {
            Ok(url) if !url.cannot_be_a_base() => Ok(engine(EngineUrl::new(url))),
            _ => Err(format!("expected a URL such as {scheme}://user:password@host/0, its parts percent-encoded")),
        };
    }
    let Some(path) = text.strip_prefix("sqlite:") else {
        return Err(STORE.to_owned());
    };
    let path = path.strip_prefix("//").unwrap_or(path);
    if path == ":memory:" {
        return Err(r#"a store in memory is written "memory:""#.to_owned());
    }
    if path.is_empty() || path.ends_with('/') {
        return Err("expected a file name after sqlite:".to_owned());
    }
    if path.contains(['?', '\0']) {
        return Err("expected a file name without parameters after sqlite:".to_owned());
    }
    Ok(StoreUrl::Sqlite(cwd.join(path)))
}

/// Maps a URL scheme to a store that is a database server.
fn engine(scheme: &str) -> Option<fn(EngineUrl) -> StoreUrl> {
    match scheme {
        "postgres" | "postgresql" => Some(StoreUrl::Postgres),
        "redis" | "rediss" | "redis+unix" => Some(StoreUrl::Redis),
        _ => None,
    }
}

/// Parses a log level, or a filter that `EnvFilter` accepts. `EnvFilter` alone would accept a misspelled level.
pub(super) fn log_level(entry: &Entry) -> Checked<String> {
    const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
    let text = entry.text().unwrap_or_default();
    if text.contains(['=', ',', '[']) {
        return match tracing_subscriber::EnvFilter::try_new(text) {
            Ok(_) => Ok(text.to_owned()),
            Err(_) => Err(r#"expected a level or a filter such as "info,citetap=debug""#.to_owned()),
        };
    }
    keyword(entry, LEVELS, |text| LEVELS.contains(&text).then(|| text.to_owned()))
}

/// Parses a list: an array in a file, comma-separated text in the environment.
pub(super) fn list<T>(entry: &Entry, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Checked<Vec<T>> {
    let wrong = |item: String| format!("{item}: {expected}");
    let read = |text: &str| parse(text).ok_or_else(|| wrong(super::value::quoted(text)));
    match &entry.value {
        Value::List(items) => items.iter().map(|item| read(item.text().ok_or_else(|| wrong(item.shown()))?)).collect(),
        Value::Text(text) => text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(read).collect(),
        _ => Err(format!("expected an array: {expected}")),
    }
}

/// Parses a CIDR network. A single address becomes a /32 or /128.
pub(super) fn network(text: &str) -> Option<IpNet> {
    IpNet::from_str(text).map(|net| net.trunc()).ok().or_else(|| text.parse().map(|ip: IpAddr| ip.into()).ok())
}

pub(super) fn header_name(text: &str) -> Option<HeaderName> {
    text.parse().ok()
}

/// Parses the name of a route or tenant: `[a-z0-9-]{1,32}`.
pub(super) fn name(entry: &Entry) -> Checked<String> {
    let valid = |text: &&str| {
        (1..=MAX_NAME).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let text = entry.text().filter(valid);
    text.map(str::to_owned).ok_or_else(|| format!("expected 1 to {MAX_NAME} of a-z, 0-9 and -"))
}
