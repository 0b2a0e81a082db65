//! `[[tenants]]` and `auth`: whose requests are accepted.

use super::{Auth, Listen, Rate, Tenant, check, error::ConfigError, layer::Table, resolve::Reader, value::Entry};

pub(super) const KEYS: &[&str] = &["name", "key_sha256", "requests"];

/// Reads all tenants. `requests` is the rate limit of tenants without their own.
pub(super) fn resolve(tables: &[Table], requests: Option<Rate>, errors: &mut Vec<ConfigError>) -> Vec<Tenant> {
    let mut tenants: Vec<Tenant> = Vec::new();
    for table in tables {
        let mut reader = Reader { table: "tenants", keys: &table.keys, errors };
        let name = reader.required("name", &table.location, check::name);
        let key = reader.secret("key_sha256", &table.location, sha256);
        let requests = reader.optional("requests", check::rate_or_off).unwrap_or(requests);
        let (Some(name), Some(key_sha256)) = (name, key) else {
            continue;
        };
        if tenants.iter().any(|other| other.name == name) {
            errors.push(ConfigError::at(&table.location, format!("tenants.name: another tenant is named {name:?}")));
        }
        if let Some(other) = tenants.iter().find(|other| other.key_sha256 == key_sha256) {
            let message = format!("tenants.key_sha256: tenants {:?} and {name:?} have the same key", other.name);
            errors.push(ConfigError::at(&table.location, message));
        }
        tenants.push(Tenant { name, key_sha256, requests });
    }
    tenants
}

/// Resolves `auth` for both listeners.
///
/// `tenants` is the number of tables, so that an invalid table is not mistaken for no tenant.
pub(super) fn auth(entry: &Entry, listens: [Option<&Listen>; 2], tenants: usize) -> Result<Auth, ConfigError> {
    let explicit = check::keyword(entry, &["auto", "keys", "none"], |text| match text {
        "auto" => Some(None),
        "keys" => Some(Some(Auth::Keys)),
        "none" => Some(Some(Auth::Open)),
        _ => None,
    });
    let refuse = |why: &str| Err(ConfigError::at(&entry.location, format!("auth = {}: {why}", entry.shown())));
    match explicit {
        Err(why) => refuse(&why),
        Ok(Some(Auth::Keys)) if tenants == 0 => refuse("nobody could ask without [[tenants]]; add one"),
        Ok(Some(Auth::Open)) if tenants > 0 => {
            refuse(r#"would open every tenant's records to everyone; remove it, or the [[tenants]]"#)
        }
        Ok(Some(auth)) => Ok(auth),
        Ok(None) if tenants > 0 => Ok(Auth::Keys),
        Ok(None) => {
            let mut listens = ["listen", "admin_listen"].into_iter().zip(listens);
            match listens.find_map(|(name, listen)| Some((name, listen.filter(|listen| !listen.is_local())?))) {
                Some((name, listen)) => Err(ConfigError::new(exposed_without_auth(&format!("{name} = {listen}")))),
                None => Ok(Auth::Open),
            }
        }
    }
}

/// Error message for a listener that other machines can reach while no key is required.
pub fn exposed_without_auth(what: &str) -> String {
    format!(
        "{what} can be reached from other machines and nobody needs a key: add [[tenants]], \
         listen on 127.0.0.1, or say auth = \"none\" (CITETAP__AUTH=none) if the network is yours alone"
    )
}

fn sha256(entry: &Entry) -> check::Checked<[u8; 32]> {
    const EXPECTED: &str = "expected the SHA-256 of the key, 64 hexadecimal digits: printf %s \"$KEY\" | sha256sum";
    let text =
        entry.text().filter(|text| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())).ok_or(EXPECTED)?;
    let mut hash = [0; 32];
    for (i, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| EXPECTED)?;
    }
    Ok(hash)
}
