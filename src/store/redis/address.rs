//! The URL of a server, and what its parameters say.

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

/// When a record counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// When the server's settings, or it itself, say that the write is on disk.
    Check,
    /// When it answered: the operator says that it syncs every write first. For servers that hide their settings.
    Always,
    /// When it answered: the operator says that its memory is enough.
    Memory,
}

#[derive(Debug)]
pub(super) struct Address {
    pub(super) client: Client,
    /// What every key begins with.
    pub(super) prefix: String,
    pub(super) durable: Durable,
    /// So many replicas must have a write before it counts as stored.
    pub(super) replicas: usize,
}

impl Address {
    /// Reads the file of certificates, too, if one is named.
    pub(super) fn parse(url: &Url) -> Result<Self, StoreError> {
        let unix = url.scheme() == "redis+unix";
        let mut redis = RedisConnectionInfo::default().set_lib_name("citetap", crate::VERSION);
        if !url.username().is_empty() {
            redis = redis.set_username(decoded(url.username())?);
        }
        if let Some(password) = url.password() {
            redis = redis.set_password(decoded(password)?);
        }
        let (mut prefix, mut durable, mut replicas, mut ca) = (PREFIX.to_owned(), Durable::Check, 0, None);
        for (key, value) in url.query_pairs() {
            match &*key {
                "prefix" => prefix = checked_prefix(&value)?,
                "durable" => durable = checked_durable(&value)?,
                "replicas" => {
                    let number = value.parse().ok().filter(|number| *number <= REPLICAS_MAX);
                    replicas = number.ok_or_else(|| refused("replicas is a number from 0 to 32"))?;
                }
                "ca" if url.scheme() == "rediss" => {
                    let pem = std::fs::read(&*value).map_err(|_| refused("the file that ca names cannot be read"))?;
                    if memmem::find(&pem, b"-----BEGIN CERTIFICATE-----").is_none() {
                        return Err(refused(NO_CERTIFICATE));
                    }
                    ca = Some(TlsCertificates { client_tls: None, root_cert: Some(pem) });
                }
                // A path has no room for these.
                "db" if unix => redis = redis.set_db(database(&value)?),
                "user" if unix => redis = redis.set_username(&value),
                "pass" if unix => redis = redis.set_password(&value),
                _ => {
                    return Err(refused(
                        "its parameters can be prefix, durable and replicas, of rediss also ca, and of redis+unix also db, \
                         user and pass",
                    ));
                }
            }
        }
        let addr = if unix {
            ConnectionAddr::Unix(decoded(url.path())?.into())
        } else {
            let path = url.path().trim_start_matches('/');
            if !path.is_empty() {
                redis = redis.set_db(database(path)?);
            }
            let host = decoded(url.host_str().unwrap_or_default())?.trim_matches(['[', ']']).to_owned();
            if host.is_empty() {
                return Err(refused("it names no host"));
            }
            let port = url.port().unwrap_or(PORT);
            match url.scheme() {
                "rediss" => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
                _ => ConnectionAddr::Tcp(host, port),
            }
        };
        let unusable = |_| refused("the driver does not take it");
        let info: ConnectionInfo = addr.into_connection_info().map_err(unusable)?.set_redis_settings(redis);
        let client = match ca {
            Some(ca) => Client::build_with_tls(info, ca).map_err(|_| refused(NO_CERTIFICATE))?,
            None => Client::open(info).map_err(unusable)?,
        };
        Ok(Self { client, prefix, durable, replicas })
    }
}

/// A prefix with a brace would move the hash tag.
fn checked_prefix(text: &str) -> Result<String, StoreError> {
    let ours = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if text.is_empty() || text.len() > PREFIX_MAX || !text.bytes().all(ours) {
        return Err(refused("prefix has 1 to 64 letters, digits and . _ : -"));
    }
    Ok(text.to_owned())
}

fn checked_durable(text: &str) -> Result<Durable, StoreError> {
    match text {
        "check" => Ok(Durable::Check),
        "always" => Ok(Durable::Always),
        "memory" => Ok(Durable::Memory),
        _ => Err(refused("durable is check, always or memory")),
    }
}

fn database(text: &str) -> Result<i64, StoreError> {
    let number = text.parse().ok().filter(|number| (0..=i64::from(u16::MAX)).contains(number));
    number.ok_or_else(|| refused("after the host comes the number of a database, such as /0"))
}

fn decoded(text: &str) -> Result<String, StoreError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| refused("a part of it is not UTF-8"))?;
    Ok(decoded.into_owned())
}

fn refused(why: &str) -> StoreError {
    StoreError::Engine(format!("redis: the store's URL cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, StoreError> {
        Address::parse(&Url::parse(url).unwrap())
    }

    #[test]
    fn what_a_url_says() {
        let plain = parse("redis://cache.example").unwrap();
        assert_eq!((plain.prefix.as_str(), plain.durable, plain.replicas), ("citetap", Durable::Check, 0));
        assert_eq!(plain.client.get_connection_info().addr(), &ConnectionAddr::Tcp("cache.example".to_owned(), 6379));
        let full = parse("rediss://us%20er:pw%2F1@[::1]:7000/3?prefix=a:b&durable=memory&replicas=2").unwrap();
        let info = full.client.get_connection_info();
        let redis = info.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("us er"), Some("pw/1"), 3));
        assert!(
            matches!(info.addr(), ConnectionAddr::TcpTls { host, port: 7000, insecure: false, .. } if host == "::1")
        );
        assert_eq!((full.prefix.as_str(), full.durable, full.replicas), ("a:b", Durable::Memory, 2));
        let unix = parse("redis+unix:///run/a%20b.sock?db=2&pass=p&durable=always").unwrap();
        let info = unix.client.get_connection_info();
        assert_eq!(info.addr(), &ConnectionAddr::Unix("/run/a b.sock".into()));
        assert_eq!((info.redis_settings().password(), info.redis_settings().db()), (Some("p"), 2));
    }

    #[test]
    fn what_is_refused_is_said_without_the_password() {
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
