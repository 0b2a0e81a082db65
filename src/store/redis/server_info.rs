//! Properties of the server: whether it is usable, and when it syncs writes to disk.

use std::collections::HashMap;

use redis::{RedisResult, aio::MultiplexedConnection, cmd};

use super::address::Durability;
use crate::store::StoreError;

/// Oldest supported version (ZMSCORE came with 6.2).
const VERSION_MIN: (u32, u32) = (6, 2);
/// First version with WAITAOF.
const WAITAOF_SINCE: (u32, u32) = (7, 2);

/// When a write is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncMode {
    /// Before the server replies.
    BeforeReply,
    /// When WAITAOF confirms it.
    OnWaitAof,
    /// Never, as far as we can tell.
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerInfo {
    version: (u32, u32),
    pub(super) sync: SyncMode,
    /// True if the settings could be read.
    known: bool,
    /// True if the server may evict keys before they expire.
    evicts: bool,
    is_replica: bool,
}

impl ServerInfo {
    pub(super) async fn read(conn: &mut MultiplexedConnection) -> RedisResult<Self> {
        let info: String = cmd("INFO").query_async(conn).await?;
        let mut settings = settings(conn, "*append*").await;
        if let (Some(settings), Some(more)) = (&mut settings, self::settings(conn, "maxmemory*").await) {
            settings.extend(more);
        }
        Ok(Self::of(&info, settings.as_ref()))
    }

    fn of(info: &str, settings: Option<&HashMap<String, String>>) -> Self {
        let info_field =
            |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
        let setting = |key: &str| settings.and_then(|settings| settings.get(key)).map(String::as_str);
        let version = version(info_field("redis_version").unwrap_or_default());
        // INFO has these too, if CONFIG is forbidden.
        let policy = setting("maxmemory-policy").or_else(|| info_field("maxmemory_policy")).unwrap_or("noeviction");
        let maxmemory = setting("maxmemory").or_else(|| info_field("maxmemory")).unwrap_or("0");
        let off = setting("appendonly") == Some("no") || info_field("aof_enabled") == Some("0");
        // Otherwise a rewrite of the file suspends syncing.
        let always = setting("appendfsync") == Some("always") && setting("no-appendfsync-on-rewrite") == Some("no");
        let sync = match () {
            () if off => SyncMode::Never,
            () if always && setting("appendonly") == Some("yes") => SyncMode::BeforeReply,
            // With `appendfsync no` WAITAOF confirms nothing.
            () if version >= WAITAOF_SINCE && setting("appendfsync") != Some("no") => SyncMode::OnWaitAof,
            () => SyncMode::Never,
        };
        Self {
            version,
            sync,
            known: settings.is_some_and(|settings| settings.contains_key("appendfsync")),
            evicts: policy != "noeviction" && maxmemory != "0",
            is_replica: info_field("role") == Some("slave"),
        }
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.version < VERSION_MIN {
            let (major, minor) = self.version;
            return Err(StoreError::Engine(format!(
                "redis: the server is of version {major}.{minor}; citetap needs Redis 6.2, or Valkey"
            )));
        }
        Ok(())
    }

    /// Problems of the setup that the operator should know.
    pub(super) fn warnings(&self, durable: Durability) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        match (durable, self.sync) {
            (Durability::Check, SyncMode::Never) if self.known => warnings.push(
                "the server loses the last writes when it crashes, so no event says stored: true; set appendonly yes \
                 and appendfsync always there, or add ?durable=memory to the store's URL if its memory is enough",
            ),
            (Durability::Check, SyncMode::Never) => warnings.push(
                "the server does not tell whether it syncs what it takes, so no event says stored: true; let this \
                 user run CONFIG GET, or add ?durable=always or ?durable=memory to the store's URL",
            ),
            (Durability::Check, SyncMode::OnWaitAof) => warnings.push(
                "the server syncs once a second, so most events say stored: false though the record is stored a \
                 moment later; appendfsync always there is quicker",
            ),
            _ => {}
        }
        if self.evicts {
            warnings.push("the server drops keys when its memory is full; set maxmemory-policy noeviction there");
        }
        if self.is_replica {
            warnings.push("the server is a replica and takes no writes; name the primary");
        }
        warnings
    }
}

/// Reads settings; `None` if CONFIG is forbidden.
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

    fn server(version: &str, settings: Option<&[(&str, &str)]>) -> ServerInfo {
        let settings = settings.map(|all| all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
        ServerInfo::of(&format!("# Server\r\nredis_version:{version}\r\nrole:master\r\n"), settings.as_ref())
    }

    #[test]
    fn server_info_sync_mode_follows_version_and_aof() {
        let aof =
            |fsync, rewrite| [("appendonly", "yes"), ("appendfsync", fsync), ("no-appendfsync-on-rewrite", rewrite)];
        let off = [("appendonly", "no"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
        for (version, settings, sync) in [
            ("7.0.15", Some(off), SyncMode::Never),
            ("7.0.15", Some(aof("no", "no")), SyncMode::Never),
            ("7.0.15", Some(aof("everysec", "no")), SyncMode::Never),
            ("7.0.15", Some(aof("always", "yes")), SyncMode::Never),
            ("7.0.15", Some(aof("always", "no")), SyncMode::BeforeReply),
            ("7.0.15", None, SyncMode::Never),
            ("7.2.0", Some(off), SyncMode::Never),
            ("7.2.0", Some(aof("no", "no")), SyncMode::Never),
            ("7.2.0", Some(aof("everysec", "no")), SyncMode::OnWaitAof),
            ("8.0.1", Some(aof("always", "yes")), SyncMode::OnWaitAof),
            ("8.0.1", Some(aof("always", "no")), SyncMode::BeforeReply),
            ("8.0.1", None, SyncMode::OnWaitAof),
        ] {
            let server = server(version, settings.as_ref().map(|all| &all[..]));
            assert_eq!(server.sync, sync, "{version} {settings:?}");
            assert_eq!(
                server.warnings(Durability::Check).is_empty(),
                sync == SyncMode::BeforeReply,
                "{version} {settings:?}"
            );
            assert!(server.warnings(Durability::Memory).is_empty() && server.warnings(Durability::Always).is_empty());
        }
    }

    #[test]
    fn server_info_warns_about_version_and_eviction() {
        assert!(server("6.2.0", None).check().is_ok());
        let old = server("6.0.20", None).check().unwrap_err().to_string();
        assert!(old.contains("version 6.0") && old.contains("needs Redis 6.2"), "{old}");
        let evicts = |policy, maxmemory| {
            let server = server("8.0.0", Some(&[("maxmemory-policy", policy), ("maxmemory", maxmemory)]));
            !server.warnings(Durability::Memory).is_empty()
        };
        assert!(evicts("allkeys-lru", "1000") && !evicts("noeviction", "1000") && !evicts("allkeys-lru", "0"));
        let info_field =
            ServerInfo::of("redis_version:7.0.0\nmaxmemory:9\nmaxmemory_policy:volatile-ttl\nrole:slave\n", None);
        assert_eq!(info_field.warnings(Durability::Always).len(), 2);
    }
}
