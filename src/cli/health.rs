//! `citetap health`.

use std::{
    io::{self, Write},
    net::IpAddr,
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;

use super::{Failure, serve};
use crate::{config::Flags, upstream::Client};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  citetap health\n  citetap health --ready --url http://127.0.0.1:9000")]
pub struct Args {
    /// Where it listens [default: as configured, else http://127.0.0.1:8787]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Ask whether it is ready (/readyz), not only whether it is up (/healthz)
    #[arg(long)]
    ready: bool,

    /// Seconds to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    timeout: f64,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let base = match args.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => configured()?,
    };
    let url = format!("{base}{}", if args.ready { "/readyz" } else { "/healthz" });
    let limit = Duration::try_from_secs_f64(args.timeout)
        .map_err(|_| Failure::Other("--timeout is a number of seconds".to_owned()))?;
    let request = Request::get(&url).body(Empty::<Bytes>::new());
    let request =
        request.map_err(|_| Failure::Other(format!("{url} is no URL such as http://127.0.0.1:8787/healthz")))?;
    let answer = tokio::time::timeout(limit, Client::new(limit).send(request)).await;
    match answer {
        Ok(Ok(response)) if response.status().is_success() => Ok(()),
        Ok(Ok(response)) => Err(Failure::Other(format!("{url} answered {}", response.status()))),
        Ok(Err(fault)) => Err(Failure::Other(format!("{url}: {fault}"))),
        Err(_) => Err(Failure::Other(format!("{url} did not answer within {} s", args.timeout))),
    }
}

/// The address of this machine's citetap: what it would listen on, reached from here.
fn configured() -> Result<String, Failure> {
    let cwd = std::env::current_dir()?;
    // Where nothing is configured, as beside a demo, the default address is asked.
    let Ok(loaded) = serve::load(&Flags::default(), &cwd) else {
        let _ = writeln!(io::stderr(), "citetap: no valid configuration here, so the default address is asked");
        return Ok("http://127.0.0.1:8787".to_owned());
    };
    let mut listen = loaded.config.listen;
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => listen.set_ip(std::net::Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => listen.set_ip(std::net::Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Ok(format!("http://{listen}"))
}
