//! `citetap health`: calls `/healthz` or `/readyz` of a running citetap. For container health checks.

use std::{
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use super::{Failure, serve};
use crate::{
    config::{Flags, Listen},
    transport::service_client,
};

const DEFAULT_URL: &str = "http://127.0.0.1:8787";

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  citetap health\n  citetap health --ready --url unix:/run/citetap.sock")]
pub struct Args {
    /// The URL of citetap, or unix:PATH [default: as configured, else http://127.0.0.1:8787]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// The configuration file of that citetap [default: citetap.toml in the working directory, if there is one]
    #[arg(short, long, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,

    /// Check readiness (/readyz) instead of liveness (/healthz)
    #[arg(long)]
    ready: bool,

    /// Seconds to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    timeout: f64,
}

/// Where the running citetap listens.
enum Target {
    Url(String),
    Socket(PathBuf),
    /// A TLS listener of this machine. The certificate is not verified: it names the public host, not the loopback address,
    /// and a health check sends no secrets.
    LocalTls(SocketAddr),
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let target = match args.url {
        Some(url) => match url.strip_prefix("unix:") {
            Some(path) => Target::Socket(path.into()),
            None => Target::Url(url.trim_end_matches('/').to_owned()),
        },
        None => configured(args.config)?,
    };
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let limit = Duration::try_from_secs_f64(args.timeout)
        .map_err(|_| Failure::Other("--timeout is a number of seconds".to_owned()))?;
    let client = service_client::builder(limit).timeout(limit);
    let (client, base, shown) = match target {
        Target::Url(base) => (client, base.clone(), base),
        Target::LocalTls(address) => {
            let base = format!("https://{address}");
            (client.tls_backend_rustls().tls_danger_accept_invalid_certs(true), base.clone(), base)
        }
        Target::Socket(socket) => {
            let shown = format!("unix:{}", socket.display());
            (client.unix_socket(socket), "http://localhost".to_owned(), shown)
        }
    };
    let response = async { client.build()?.get(format!("{base}{path}")).send().await };
    let why = match response.await {
        Ok(response) if response.status().is_success() => return Ok(()),
        Ok(response) => format!(" answered {}", response.status()),
        Err(error) if error.is_timeout() => format!(" did not answer within {} s", args.timeout),
        Err(error) if error.is_builder() => ": is no URL such as http://127.0.0.1:8787/healthz".to_owned(),
        Err(error) => format!(": {}", service_client::why(&error)),
    };
    Err(Failure::Other(format!("{shown}{path}{why}")))
}

/// Derives the target from the configuration that `citetap serve` would use.
fn configured(config: Option<PathBuf>) -> Result<Target, Failure> {
    let named = config.is_some();
    let loaded = serve::load(&Flags { config, ..Flags::default() }, &std::env::current_dir()?);
    let config = match loaded {
        Ok(loaded) => loaded.config,
        Err(failure) if named => return Err(failure),
        // Without a configuration, for example next to a demo, use the default address.
        Err(_) => {
            let _ = writeln!(io::stderr(), "citetap: no valid configuration here, so the default address is asked");
            return Ok(Target::Url(DEFAULT_URL.to_owned()));
        }
    };
    // Both listeners answer health checks. Only systemd knows the addresses of its sockets.
    let admin = config.admin_listen.as_ref().map(|listen| (listen, config.tls.as_ref().is_some_and(|tls| tls.admin)));
    let known = [Some((&config.listen, config.tls.is_some())), admin].into_iter().flatten();
    for (listen, tls) in known {
        match listen {
            Listen::Tcp(address) if tls => return Ok(Target::LocalTls(connect_address(*address))),
            Listen::Tcp(address) => return Ok(Target::Url(format!("http://{}", connect_address(*address)))),
            Listen::Unix(path) => return Ok(Target::Socket(path.clone())),
            Listen::Systemd => {}
        }
    }
    Err(Failure::Other("listen = \"systemd\" names no address: say with --url where its socket is".to_owned()))
}

/// Replaces an unspecified IP address by loopback.
fn connect_address(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
