//! `allowed_hosts`: host names that citetap may be called by where no key is needed.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{
    check::{self, Checked},
    value::Entry,
};

pub(super) const KEY: &str = "allowed_hosts";
/// More is a mistake: `*.example.com` and `*` cover many names.
const MAX_HOSTS: usize = 256;
const EXPECTED: &str = r#"expected a host name without port such as "citetap" or "*.example.com", or "*""#;

/// Host names besides `localhost`, its subdomains and IP addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedHosts {
    any: bool,
    /// In lower case.
    names: Vec<String>,
    /// Parent domains in lower case, with their leading dot.
    parents: Vec<String>,
}

impl AllowedHosts {
    /// True if requests may name this host. `host` has no port; an IPv6 address has its brackets.
    pub fn contains(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = host.strip_suffix('.').unwrap_or(&host);
        let ipv6 = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        self.any
            || name == "localhost"
            || name.ends_with(".localhost")
            || name.parse::<Ipv4Addr>().is_ok()
            || ipv6.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
            || self.names.iter().any(|allowed| allowed == name)
            || self.parents.iter().any(|parent| name.ends_with(parent.as_str()))
    }
}

pub(super) fn allowed_hosts(entry: &Entry) -> Checked<AllowedHosts> {
    let listed = check::list(entry, EXPECTED, pattern)?;
    if listed.len() > MAX_HOSTS {
        return Err(format!("expected {MAX_HOSTS} host names at most"));
    }
    let mut hosts = AllowedHosts::default();
    for pattern in listed {
        match pattern.strip_prefix('*') {
            None => hosts.names.push(pattern),
            Some("") => hosts.any = true,
            Some(parent) => hosts.parents.push(parent.to_owned()),
        }
    }
    Ok(hosts)
}

/// A name, `*.` and a name, or `*`, in lower case.
fn pattern(text: &str) -> Option<String> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let is_name = name.len() <= 253 && name.split('.').all(is_label);
    (text == "*" || is_name).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(patterns: &[&str]) -> AllowedHosts {
        let (mut names, mut parents) = (Vec::new(), Vec::new());
        for pattern in patterns {
            match pattern.strip_prefix('*') {
                None => names.push((*pattern).to_owned()),
                Some(parent) => parents.push(parent.to_owned()),
            }
        }
        AllowedHosts { any: false, names, parents }
    }

    #[test]
    fn loopback_names_and_addresses_are_always_allowed() {
        for host in
            ["localhost", "LocalHost", "localhost.", "app.localhost", "127.0.0.1", "10.0.0.7", "[::1]", "[fe80::1]"]
        {
            assert!(hosts(&[]).contains(host), "{host}");
        }
        for host in
            ["", "evil.example", "127.1", "2130706433", "0x7f000001", "localhost.evil.example", "notlocalhost", "::1"]
        {
            assert!(!hosts(&[]).contains(host), "{host}");
        }
    }

    #[test]
    fn patterns_match_names_and_subdomains() {
        let hosts = hosts(&["citetap", "*.tap.example"]);
        for host in ["citetap", "CITETAP", "a.tap.example", "a.b.tap.example"] {
            assert!(hosts.contains(host), "{host}");
        }
        for host in ["xcitetap", "citetap.evil.example", "tap.example", "xtap.example", "a.tap.example.evil"] {
            assert!(!hosts.contains(host), "{host}");
        }
        assert!(AllowedHosts { any: true, ..AllowedHosts::default() }.contains("evil.example"));
    }

    #[test]
    fn pattern_is_a_name_without_port_or_scheme() {
        for text in ["citetap", "tap.example.com", "*.example.com", "*", "a_b"] {
            assert!(pattern(text).is_some(), "{text}");
        }
        for text in ["", "*.", "**", "a.*", "http://a", "a:80", "a b", ".a", "a..b", "*a"] {
            assert!(pattern(text).is_none(), "{text}");
        }
    }
}
