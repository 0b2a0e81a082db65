//! `[[tenants]]`, and who may ask.

use super::{Auth, Listen, Rate, Tenant, check, error::ConfigError, layer::Table, resolve::Reader, value::Entry};

pub(super) const KEYS: &[&str] = &["name", "key_sha256", "requests"];

/// `requests` is what a tenant may ask that has no rate of its own.
pub(super) fn resolve(tables: &[Table], requests: Option<Rate>, errors: &mut Vec<ConfigError>) -> Vec<Tenant> {
    let mut tenants: Vec<Tenant> = Vec::new();
    for table in tables {
        let mut reader = Reader { table: "tenants", keys: &table.keys, errors };
        let name = reader.required("name", &table.place, check::name);
        let key = reader.secret("key_sha256", &table.place, sha256);
        let requests = reader.optional("requests", check::rate_or_off).unwrap_or(requests);
        let (Some(name), Some(key_sha256)) = (name, key) else {
            continue;
        };
        if tenants.iter().any(|other| other.name == name) {
            errors.push(ConfigError::at(&table.place, format!("tenants.name: another tenant is named {name:?}")));
        }
        if let Some(other) = tenants.iter().find(|other| other.key_sha256 == key_sha256) {
            let message = format!("tenants.key_sha256: tenants {:?} and {name:?} have the same key", other.name);
            errors.push(ConfigError::at(&table.place, message));
        }
        tenants.push(Tenant { name, key_sha256, requests });
    }
    tenants
}

/// Decides `auth` for `listen` and `admin_listen`; `tenants` counts the tables, so that a faulty one is not taken for none.
pub(super) fn auth(entry: &Entry, listens: [Option<&Listen>; 2], tenants: usize) -> Result<Auth, ConfigError> {
    let said = check::word(entry, &["auto", "keys", "none"], |text| match text {
        "auto" => Some(None),
        "keys" => Some(Some(Auth::Keys)),
        "none" => Some(Some(Auth::Open)),
        _ => None,
    });
    let refuse = |why: &str| Err(ConfigError::at(&entry.place, format!("auth = {}: {why}", entry.shown())));
    match said {
        Err(why) => refuse(&why),
        Ok(Some(Auth::Keys)) if tenants == 0 => refuse("nobody could ask without [[tenants]]; add one"),
        Ok(Some(Auth::Open)) if tenants > 0 => {
            refuse(r#"would open every tenant's records to everyone; remove it, or the [[tenants]]"#)
        }
        Ok(Some(auth)) => Ok(auth),
        Ok(None) if tenants > 0 => Ok(Auth::Keys),
        Ok(None) => {
            let mut named = ["listen", "admin_listen"].into_iter().zip(listens);
            match named.find_map(|(name, listen)| Some((name, listen.filter(|listen| !listen.is_local())?))) {
                Some((name, listen)) => Err(ConfigError::new(open_to_others(&format!("{name} = {listen}")))),
                None => Ok(Auth::Open),
            }
        }
    }
}

/// Refuses an address that others can reach.
pub fn open_to_others(what: &str) -> String {
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
