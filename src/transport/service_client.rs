//! The HTTP client for citetap's own calls: search, telemetry, `citetap health` and `citetap export`.
//!
//! It follows no redirect, decompresses nothing and uses no proxy from the environment. As in [`super::client`], a request is
//! sent again only if its pooled connection was closed before anything was written.

use std::{error::Error, time::Duration};

use reqwest::{Client, ClientBuilder, redirect, retry};
use tower::layer::layer_fn;

use super::{client, fd_guard::FdGuard, tls::PROTOCOLS};

/// A client that trusts the same certificates as the upstream client.
pub fn builder(connect_timeout: Duration) -> ClientBuilder {
    let mut tls = client::trust();
    tls.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .connect_timeout(connect_timeout)
        .connector_layer(layer_fn(FdGuard::new))
}

/// Why a request failed, without its URL.
pub fn why(error: &(dyn Error + 'static)) -> String {
    let cause = client::cause(error);
    match error.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_connect() => format!("could not connect: {cause}"),
        Some(error) if error.is_request() || error.is_body() || error.is_decode() => {
            format!("the connection broke: {cause}")
        }
        _ => cause.to_string(),
    }
}
