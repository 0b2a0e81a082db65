//! Stops DNS rebinding: where no key is needed, a web page whose host name was made to point to this machine must not
//! reach anything here. Called by `server` for every request before routing.

use http::{Request, header::HOST, uri::Authority};

use crate::{
    app::problem::Problem,
    config::{Auth, Config},
    transport::listener::Peer,
};

/// Refuses a request for a host name that is neither a loopback name, an IP address nor in `allowed_hosts`. Health checks
/// may use any name. No browser connects to a Unix socket, nor leaves the host out.
pub fn check<B>(config: &Config, request: &Request<B>, peer: Peer) -> Result<(), Problem> {
    let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz");
    if config.auth != Auth::Open || peer.is_unix || is_probe {
        return Ok(());
    }
    let is_allowed = |authority: &Authority| config.allowed_hosts.contains(authority.host());
    for host in request.headers().get_all(HOST).iter().filter(|host| !host.is_empty()) {
        let host =
            Authority::try_from(host.as_bytes()).map_err(|_| Problem::bad_request("Host is a host and a port"))?;
        if !is_allowed(&host) {
            return Err(Problem::unknown_host());
        }
    }
    if request.uri().authority().is_none_or(is_allowed) { Ok(()) } else { Err(Problem::unknown_host()) }
}
