//! The store URL of a Redis server and its parameters.

use memchr::memmem;
use percent_encoding::percent_decode_str;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo, TlsCertificates};
use url::Url;

use crate::store::StoreError;

const PORT: u16 = 6379;
const PREFIX: &str = "citetap";
const PREFIX_MAX: usize = 64;
const REPLICAS_MAX: usize = 32;

const NO_CERTIFICATE: &str = "the file that ca names has no certificate";

/// When a write counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// When the server's settings, or WAITAOF, confirm that it is on disk.
    Check,
    /// On reply: the operator asserts that the server syncs every write first. For servers that hide their settings.
    Always,
    /// On reply: the operator accepts that the server's memory is enough.
    Memory,
}

#[derive(Debug)]
pub(super) struct Address {
    pub(super) client: Client,
    /// Prefix of every key.
    pub(super) prefix: String,
    pub(super) durable: Durability,
    /// Number of replicas that must have a write before it counts as stored.
    pub(super) replicas: usize,
}

impl Address {
    /// Parses the URL, and reads the certificate file if it names one.
    pub(super) fn parse(url: &Url) -> Result<Self, StoreError> {
        let unix = url.scheme() == "redis+unix";
        let mut redis = RedisConnectionInfo::default().set_lib_name("citetap", crate::VERSION);
        if !url.username().is_empty() {
            redis = redis.set_username(percent_decode(url.username())?);
        }
        if let Some(password) = url.password() {
            redis = redis.set_password(percent_decode(password)?);
        }
        let (mut prefix, mut durable, mut replicas, mut ca) = (PREFIX.to_owned(), Durability::Check, 0, None);
        for (key, value) in url.query_pairs() {
            match &*key {
                "prefix" => prefix = parse_prefix(&value)?,
                "durable" => durable = parse_durability(&value)?,
                "replicas" => {
                    let number = value.parse().ok().filter(|number| *number <= REPLICAS_MAX);
                    replicas = number.ok_or_else(|| url_error("replicas is a number from 0 to 32"))?;
                }
                "ca" if url.scheme() == "rediss" => {
                    let pem = std::fs::read(&*value).map_err(|_| url_error("the file that ca names cannot be read"))?;
                    if memmem::find(&pem, b"-----BEGIN CERTIFICATE-----").is_none() {
                        return Err(url_error(NO_CERTIFICATE));
                    }
                    ca = Some(TlsCertificates { client_tls: None, root_cert: Some(pem) });
                }
                // In a socket URL the path is taken, so these are parameters.
                "db" if unix => redis = redis.set_db(parse_database(&value)?),
                "user" if unix => redis = redis.set_username(&value),
                "pass" if unix => redis = redis.set_password(&value),
                _ => {
                    return Err(url_error(
                        "its parameters can be prefix, durable and replicas, of rediss also ca, and of redis+unix also db, \
                         user and pass",
                    ));
                }
            }
        }
        let addr = if unix {
            ConnectionAddr::Unix(percent_decode(url.path())?.into())
        } else {
            let path = url.path().trim_start_matches('/');
            if !path.is_empty() {
                redis = redis.set_db(parse_database(path)?);
            }
            let host = percent_decode(url.host_str().unwrap_or_default())?.trim_matches(['[', ']']).to_owned();
            if host.is_empty() {
                return Err(url_error("it names no host"));
            }
            let port = url.port().unwrap_or(PORT);
            match url.scheme() {
                "rediss" => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
                _ => ConnectionAddr::Tcp(host, port),
            }
        };
        let unusable = |_| url_error("the driver does not take it");
        let info: ConnectionInfo = addr.into_connection_info().map_err(unusable)?.set_redis_settings(redis);
        let client = match ca {
            Some(ca) => Client::build_with_tls(info, ca).map_err(|_| url_error(NO_CERTIFICATE))?,
            None => Client::open(info).map_err(unusable)?,
        };
        Ok(Self { client, prefix, durable, replicas })
    }
}

/// A prefix with a brace would change the cluster hash tag.
fn parse_prefix(text: &str) -> Result<String, StoreError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if text.is_empty() || text.len() > PREFIX_MAX || !text.bytes().all(is_allowed) {
        return Err(url_error("prefix has 1 to 64 letters, digits and . _ : -"));
    }
    Ok(text.to_owned())
}

fn parse_durability(text: &str) -> Result<Durability, StoreError> {
    match text {
        "check" => Ok(Durability::Check),
        "always" => Ok(Durability::Always),
        "memory" => Ok(Durability::Memory),
        _ => Err(url_error("durable is check, always or memory")),
    }
}

fn parse_database(text: &str) -> Result<i64, StoreError> {
    let number = text.parse().ok().filter(|number| (0..=i64::from(u16::MAX)).contains(number));
    number.ok_or_else(|| url_error("after the host comes the number of a database, such as /0"))
}

fn percent_decode(text: &str) -> Result<String, StoreError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| url_error("a part of it is not UTF-8"))?;
    Ok(decoded.into_owned())
}

fn url_error(why: &str) -> StoreError {
    StoreError::Engine(format!("redis: the store's URL cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, StoreError> {
        Address::parse(&Url::parse(url).unwrap())
    }

    #[test]
    fn address_parses_every_url_part() {
        let plain = parse("redis://cache.example").unwrap();
        assert_eq!((plain.prefix.as_str(), plain.durable, plain.replicas), ("citetap", Durability::Check, 0));
        assert_eq!(plain.client.get_connection_info().addr(), &ConnectionAddr::Tcp("cache.example".to_owned(), 6379));
        let full = parse("rediss://us%20er:pw%2F1@[::1]:7000/3?prefix=a:b&durable=memory&replicas=2").unwrap();
        let info = full.client.get_connection_info();
        let redis = info.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("us er"), Some("pw/1"), 3));
        assert!(
            matches!(info.addr(), ConnectionAddr::TcpTls { host, port: 7000, insecure: false, .. } if host == "::1")
        );
        assert_eq!((full.prefix.as_str(), full.durable, full.replicas), ("a:b", Durability::Memory, 2));
        let unix = parse("redis+unix:///run/a%20b.sock?db=2&pass=p&durable=always").unwrap();
        let info = unix.client.get_connection_info();
        assert_eq!(info.addr(), &ConnectionAddr::Unix("/run/a b.sock".into()));
        assert_eq!((info.redis_settings().password(), info.redis_settings().db()), (Some("p"), 2));
    }

    #[test]
    fn address_error_omits_the_password() {
        for (url, why) in [
            ("redis://:hunter2@h/x", "number of a database"),
            ("redis://:hunter2@h/-1", "number of a database"),
            ("redis://:hunter2@h?prefix={t}", "prefix has"),
            ("redis://:hunter2@h?prefix=", "prefix has"),
            ("redis://:hunter2@h?durable=yes", "durable is"),
            ("redis://:hunter2@h?replicas=99", "replicas is"),
            ("redis://:hunter2@h?pass=hunter2", "its parameters can be"),
            ("redis://:hunter2@h?ca=a.pem", "its parameters can be"),
            ("rediss://:hunter2@h?ca=/nowhere/a.pem", "cannot be read"),
            ("redis://:%ff@h", "not UTF-8"),
            ("redis:///0", "names no host"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
