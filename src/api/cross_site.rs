//! Refuses requests that a browser sends for pages of other sites, which could use the operator's upstream key, or a
//! loopback listener that needs no key. Called by `server` for every request before routing.

use http::{
    HeaderMap, Method, Request,
    header::{HOST, ORIGIN},
    uri::Authority,
};
use url::Url;

use super::{console, cors::Grant, is_api, openapi};
use crate::{
    app::problem::Problem,
    config::{Auth, Config},
    relay::OtherSite,
    transport::listener::{Peer, Surface},
};

/// Checks a request whose origin has this grant. Where keys are needed a page without a key can do little, so the request
/// is only marked with [`OtherSite`], and refused where citetap would add a credential of the operator's.
pub fn check<B>(config: &Config, grant: &Grant, request: &mut Request<B>, peer: Peer) -> Result<(), Problem> {
    if config.cors.any || grant.is_given() || !is_from_other_site(request) || is_public(config, request, peer) {
        return Ok(());
    }
    if config.auth == Auth::Open {
        return Err(Problem::cross_site());
    }
    if peer.surface == Surface::All && request.uri().path() == "/search" {
        return Err(Problem::cross_site());
    }
    request.extensions_mut().insert(OtherSite);
    Ok(())
}

/// The component, which any page may load, and pages of citetap that a link leads to: the linking page cannot read them.
fn is_public<B>(config: &Config, request: &Request<B>, peer: Peer) -> bool {
    let path = request.uri().path();
    if peer.surface != Surface::All || !matches!(*request.method(), Method::GET | Method::HEAD) {
        return false;
    }
    let is = |name: &str, expected: &str| {
        request.headers().get_all(name).iter().next_back().is_some_and(|value| value == expected)
    };
    let is_link = is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document");
    let is_own_page = is_api(path)
        || path == openapi::PATH
        || matches!(path, "/metrics" | "/version" | "/healthz" | "/readyz")
        || (config.console && console::is_file(path));
    (config.console && path == console::COMPONENT) || (is_link && is_own_page)
}

/// True if a browser sends it for a page of another origin. Browsers that do not send `Sec-Fetch-Site` send `Origin` with
/// every request that can change something. Programs send neither.
fn is_from_other_site<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let mut sites = headers.get_all("sec-fetch-site").iter().peekable();
    if sites.peek().is_some() {
        return !sites.all(|site| site == "same-origin" || site == "none");
    }
    let host = request.uri().authority().cloned().or_else(|| host(headers));
    let is_own = |origin: &[u8]| host.as_ref().is_some_and(|host| is_same_host(origin, host));
    !headers.get_all(ORIGIN).iter().all(|origin| is_own(origin.as_bytes()))
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    Authority::try_from(headers.get(HOST)?.as_bytes()).ok()
}

/// Compares host and port. The scheme may differ, as a proxy in front may end TLS.
fn is_same_host(origin: &[u8], host: &Authority) -> bool {
    let origin = std::str::from_utf8(origin).ok().and_then(|origin| Url::parse(origin).ok());
    let Some(origin) = origin.filter(|origin| matches!(origin.scheme(), "http" | "https")) else { return false };
    let default_port = if origin.scheme() == "https" { 443 } else { 80 };
    let is_port = origin.port().unwrap_or(default_port) == host.port_u16().unwrap_or(default_port);
    is_port && origin.host_str().is_some_and(|name| name.eq_ignore_ascii_case(host.host()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_other(headers: &[(&str, &str)]) -> bool {
        let request =
            headers.iter().fold(Request::builder().uri("/x"), |request, (name, value)| request.header(*name, *value));
        is_from_other_site(&request.body(()).unwrap())
    }

    #[test]
    fn fetch_metadata_decides_where_it_is_sent() {
        for site in ["cross-site", "same-site", "anything"] {
            assert!(is_other(&[("sec-fetch-site", site)]), "{site}");
        }
        for site in ["same-origin", "none"] {
            assert!(!is_other(&[("sec-fetch-site", site), ("origin", "https://behind-a-proxy.example")]), "{site}");
        }
        assert!(is_other(&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn origin_is_compared_with_host_and_port() {
        for (host, origin) in [
            ("localhost:8787", "http://localhost:8787"),
            ("LOCALHOST:8787", "http://localhost:8787"),
            ("tap.example", "https://tap.example"),
            ("tap.example:443", "https://tap.example"),
            ("[::1]:8787", "http://[::1]:8787"),
        ] {
            assert!(!is_other(&[("host", host), ("origin", origin)]), "{host} {origin}");
        }
        for (host, origin) in [
            ("localhost:8787", "http://localhost:3000"),
            ("localhost:8787", "http://localhost"),
            ("localhost", "http://localhost:3000"),
            ("localhost", "https://evil.example"),
            ("localhost", "http://localhost.evil.example"),
            ("localhost", "null"),
            ("localhost", "file://"),
        ] {
            assert!(is_other(&[("host", host), ("origin", origin)]), "{host} {origin}");
        }
        assert!(!is_other(&[("host", "localhost")]), "a program");
        assert!(is_other(&[("host", "a"), ("origin", "http://a"), ("origin", "https://evil.example")]));
    }
}
