//! What the server says of itself: whether it is one we can use, and whether what it takes is on disk when it answers.

use std::collections::HashMap;

use redis::{RedisResult, aio::MultiplexedConnection, cmd};

use super::address::Durable;
use crate::store::StoreError;

/// The oldest version with every command that is used.
const OLDEST: (u32, u32) = (6, 2);
/// From this one on a server tells when a write is on disk.
const WAITAOF: (u32, u32) = (7, 2);

/// When a write is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// When the server has answered it.
    Answered,
    /// When the server says so, asked.
    Asked,
    /// At no time that we know of.
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    version: (u32, u32),
    pub(super) sync: Sync,
    /// Its settings are readable.
    known: bool,
    /// Records may vanish before their time.
    evicts: bool,
    is_replica: bool,
}

impl Server {
    pub(super) async fn read(conn: &mut MultiplexedConnection) -> RedisResult<Self> {
        let info: String = cmd("INFO").query_async(conn).await?;
        let mut settings = settings(conn, "*append*").await;
        if let (Some(settings), Some(more)) = (&mut settings, self::settings(conn, "maxmemory*").await) {
            settings.extend(more);
        }
        Ok(Self::of(&info, settings.as_ref()))
    }

    fn of(info: &str, settings: Option<&HashMap<String, String>>) -> Self {
        let told = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
        let set = |key: &str| settings.and_then(|settings| settings.get(key)).map(String::as_str);
        let version = version(told("redis_version").unwrap_or_default());
        // INFO says these as well, where CONFIG is forbidden.
        let policy = set("maxmemory-policy").or_else(|| told("maxmemory_policy")).unwrap_or("noeviction");
        let maxmemory = set("maxmemory").or_else(|| told("maxmemory")).unwrap_or("0");
        let off = set("appendonly") == Some("no") || told("aof_enabled") == Some("0");
        // A rewrite of the file would hold back what should be synced.
        let always = set("appendfsync") == Some("always") && set("no-appendfsync-on-rewrite") == Some("no");
        let sync = match () {
            () if off => Sync::Never,
            () if always && set("appendonly") == Some("yes") => Sync::Answered,
            // Whoever never syncs has nothing to say about it.
            () if version >= WAITAOF && set("appendfsync") != Some("no") => Sync::Asked,
            () => Sync::Never,
        };
        Self {
            version,
            sync,
            known: settings.is_some_and(|settings| settings.contains_key("appendfsync")),
            evicts: policy != "noeviction" && maxmemory != "0",
            is_replica: told("role") == Some("slave"),
        }
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.version < OLDEST {
            let (major, minor) = self.version;
            return Err(StoreError::Engine(format!(
                "redis: the server is of version {major}.{minor}; citetap needs Redis 6.2, or Valkey"
            )));
        }
        Ok(())
    }

    /// What an operator should know about it.
    pub(super) fn remarks(&self, durable: Durable) -> Vec<&'static str> {
        let mut remarks = Vec::new();
        match (durable, self.sync) {
            (Durable::Check, Sync::Never) if self.known => remarks.push(
                "the server loses the last writes when it crashes, so no event says stored: true; set appendonly yes \
                 and appendfsync always there, or add ?durable=memory to the store's URL if its memory is enough",
            ),
            (Durable::Check, Sync::Never) => remarks.push(
                "the server does not tell whether it syncs what it takes, so no event says stored: true; let this \
                 user run CONFIG GET, or add ?durable=always or ?durable=memory to the store's URL",
            ),
            (Durable::Check, Sync::Asked) => remarks.push(
                "the server syncs once a second, so most events say stored: false though the record is stored a \
                 moment later; appendfsync always there is quicker",
            ),
            _ => {}
        }
        if self.evicts {
            remarks.push("the server drops keys when its memory is full; set maxmemory-policy noeviction there");
        }
        if self.is_replica {
            remarks.push("the server is a replica and takes no writes; name the primary");
        }
        remarks
    }
}

/// `None` where it may not be asked.
async fn settings(conn: &mut MultiplexedConnection, pattern: &str) -> Option<HashMap<String, String>> {
    cmd("CONFIG").arg("GET").arg(pattern).query_async(conn).await.ok()
}

fn version(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(version: &str, settings: Option<&[(&str, &str)]>) -> Server {
        let settings = settings.map(|all| all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
        Server::of(&format!("# Server\r\nredis_version:{version}\r\nrole:master\r\n"), settings.as_ref())
    }

    #[test]
    fn when_a_write_is_on_disk() {
        let aof =
            |fsync, rewrite| [("appendonly", "yes"), ("appendfsync", fsync), ("no-appendfsync-on-rewrite", rewrite)];
        let off = [("appendonly", "no"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
        for (version, settings, sync) in [
            ("7.0.15", Some(off), Sync::Never),
            ("7.0.15", Some(aof("no", "no")), Sync::Never),
            ("7.0.15", Some(aof("everysec", "no")), Sync::Never),
            ("7.0.15", Some(aof("always", "yes")), Sync::Never),
            ("7.0.15", Some(aof("always", "no")), Sync::Answered),
            ("7.0.15", None, Sync::Never),
            ("7.2.0", Some(off), Sync::Never),
            ("7.2.0", Some(aof("no", "no")), Sync::Never),
            ("7.2.0", Some(aof("everysec", "no")), Sync::Asked),
            ("8.0.1", Some(aof("always", "yes")), Sync::Asked),
            ("8.0.1", Some(aof("always", "no")), Sync::Answered),
            ("8.0.1", None, Sync::Asked),
        ] {
            let server = server(version, settings.as_ref().map(|all| &all[..]));
            assert_eq!(server.sync, sync, "{version} {settings:?}");
            assert_eq!(server.remarks(Durable::Check).is_empty(), sync == Sync::Answered, "{version} {settings:?}");
            assert!(server.remarks(Durable::Memory).is_empty() && server.remarks(Durable::Always).is_empty());
        }
    }

    #[test]
    fn what_else_an_operator_should_know() {
        assert!(server("6.2.0", None).check().is_ok());
        let old = server("6.0.20", None).check().unwrap_err().to_string();
        assert!(old.contains("version 6.0") && old.contains("needs Redis 6.2"), "{old}");
        let evicts = |policy, maxmemory| {
            let server = server("8.0.0", Some(&[("maxmemory-policy", policy), ("maxmemory", maxmemory)]));
            !server.remarks(Durable::Memory).is_empty()
        };
        assert!(evicts("allkeys-lru", "1000") && !evicts("noeviction", "1000") && !evicts("allkeys-lru", "0"));
        let told = Server::of("redis_version:7.0.0\nmaxmemory:9\nmaxmemory_policy:volatile-ttl\nrole:slave\n", None);
        assert_eq!(told.remarks(Durable::Always).len(), 2);
    }
}
