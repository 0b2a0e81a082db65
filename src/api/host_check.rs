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
    let is_allowed_header =
        |host: &[u8]| host.is_empty() || Authority::try_from(host).is_ok_and(|host| is_allowed(&host));
    let mut headers = request.headers().get_all(HOST).iter();
    if request.uri().authority().is_none_or(is_allowed) && headers.all(|host| is_allowed_header(host.as_bytes())) {
        Ok(())
    } else {
        Err(Problem::unknown_host())
    }
}
