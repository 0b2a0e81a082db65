//! `citetap demo`: runs the proxy in front of a scripted upstream, without configuration or network access.

use std::{net::SocketAddr, path::PathBuf};

use super::{Failure, inherited::InheritedSockets, print, serve};
use crate::{
    app::{App, auth::SINGLE_TENANT},
    config,
    replay::{
        Pace, Scripted, Upstream,
        demo_history::{MAX_DAYS, history},
        demo_routes,
    },
    store::{Entry, Filter, StoreError},
    telemetry::{self, LogTarget},
    transport::listener::Surface,
};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  citetap demo\n  citetap demo --listen 127.0.0.1:9000 --speed 4")]
pub struct Args {
    /// Address and port to listen on
    #[arg(short, long, value_name = "ADDR", default_value = "127.0.0.1:8787", value_parser = listen)]
    listen: SocketAddr,

    /// The SQLite file that keeps the demo's citations
    #[arg(long, value_name = "FILE", default_value = "citetap-demo.db")]
    store: PathBuf,

    /// Speed of the answers as a factor of real time
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    speed: f64,

    /// Give each answer an id of its own, so that none replaces an earlier one
    #[arg(long)]
    fresh_ids: bool,

    /// Fill an empty store with made-up answers of this many days; 0 for none
    #[arg(long, value_name = "DAYS", default_value = "14", value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_DAYS)))]
    history: u16,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let expected = |_| "expected an address and a port, such as 127.0.0.1:8787".to_owned();
    numeric.as_deref().unwrap_or(text).parse().map_err(expected)
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if speed.is_finite() && speed > 0.0 { Ok(speed) } else { Err("a speed is above 0".to_owned()) }
}

pub async fn run(args: Args) -> Result<(), Failure> {
    let mut routes = demo_routes(Pace::LIVE.speed(args.speed));
    if args.fresh_ids {
        routes = routes.into_iter().map(Scripted::with_fresh_ids).collect();
    }
    let upstream = Upstream::bind(routes).await?;
    let toml = configuration(&args, &upstream.url());
    let loaded = config::from_toml(&toml, &std::env::current_dir()?)?;
    telemetry::init(&loaded.config.log, LogTarget::Stderr);
    let serve::Started { listeners, app, .. } = serve::start(loaded.config, InheritedSockets::default()).await?;
    let generated = fill_history(&app, args.history).await.map_err(|error| Failure::Other(error.to_string()))?;
    let signals = serve::signals()?;
    // The demo has a single TCP listener; its address contains the port that the system chose.
    let listen = listeners.addresses(Surface::All)?.parse().unwrap_or(args.listen);
    print(welcome(listen, &args, generated).as_bytes())?;
    let served = serve::serve(listeners, app, signals).await;
    upstream.shutdown().await;
    served
}

/// Fills an empty store with generated records. Returns their number.
async fn fill_history(app: &App, days: u16) -> Result<usize, StoreError> {
    let first = app.store.list(SINGLE_TENANT, &Filter { limit: 1, ..Filter::default() }).await?;
    if !first.entries.is_empty() {
        return Ok(0);
    }
    let answers = history(days, jiff::Timestamp::now(), &app.config.rules).into_iter();
    let entries: Vec<Entry> = answers
        .map(|(created, record)| Entry {
            tenant: SINGLE_TENANT.to_owned(),
            created_ms: created.as_millisecond(),
            record,
        })
        .collect();
    app.store.put(&entries).await?;
    Ok(entries.len())
}

fn configuration(args: &Args, upstream: &str) -> String {
    let store = format!("sqlite:{}", args.store.display());
    // The data is generated, so access needs no key and any origin may read it. The commit timeout is longer than the
    // default, so that a busy disk does not change what the demo shows.
    let mut toml = format!(
        "listen = \"{}\"\nauth = \"none\"\nstore = {}\n[timeouts]\ndrain = \"1s\"\ncommit = \"5s\"\n[cors]\norigins = [\"*\"]\n",
        args.listen,
        toml::Value::String(store)
    );
    let doubao = "request = \"template\"\npath = \"/chat/completion\"\n\
                  template = '{\"messages\":[{\"content\":\"{{query}}\"}]}'";
    let lexiang = "request = \"lexiang\"";
    for (name, provider, model, request, question) in [
        ("doubao", "doubao", "doubao-demo", doubao, "常州比较好的小程序开发公司"),
        ("tencent", "tencent", "lexiang-demo", lexiang, "设备报修怎样变成工单，派单规则怎么设？"),
        (
            "doubao-en",
            "auto",
            "doubao-demo-en",
            doubao,
            "What should I check before installing a heat pump in a cold climate?",
        ),
        ("openai", "openai", "openai-demo", "", "Does a heat pump work below freezing?"),
    ] {
        toml += &format!(
            "[[routes]]\nname = \"{name}\"\nprefix = \"/{name}\"\nupstream = \"{upstream}/{name}\"\n\
             provider = \"{provider}\"\nlink_base = \"https://lexiangla.com\"\nquestions = [\"{question}\"]\n\
             [routes.openai]\nmodels = [\"{model}\"]\n{request}\n"
        );
    }
    toml
}

const EXAMPLE_REQUEST: &str = r#"{"model":"lexiang-demo","stream":true,"messages":[{"role":"user","content":"?"}]}"#;

fn welcome(listen: SocketAddr, args: &Args, generated: usize) -> String {
    let host = if listen.ip().is_unspecified() { format!("127.0.0.1:{}", listen.port()) } else { listen.to_string() };
    let history = match generated {
        0 => String::new(),
        _ => format!(", which begins with made-up answers of the last {} days (--history 0: none)", args.history),
    };
    format!(
        "citetap {version} demo on http://{host}, in front of a scripted upstream. Nothing leaves this machine.\n\n\
         Open http://{host}/ in a browser: ask, watch the sources come, and look at what was kept.\n\n\
         Watch an answer stream, with one \"event: citations\" before its finish:\n\n  \
         curl -N http://{host}/doubao/chat/completion -d '{{}}'\n  \
         curl -N http://{host}/tencent/cgi-bin/v1/ai/qa -d '{{}}'\n  \
         curl -N http://{host}/openai/v1/chat/completions -d '{{\"stream\":true}}'\n\n\
         Then ask what it rests on:\n\n  \
         curl -s http://{host}/citations/{id}\n\n\
         Or as an OpenAI client does, with the base URL http://{host}/v1 and any key:\n\n  \
         curl -N http://{host}/v1/chat/completions -d '{EXAMPLE_REQUEST}'\n  \
         curl -s http://{host}/v1/models\n\n\
         In English: curl -N http://{host}/doubao-en/chat/completion -d '{{}}'\n\
         Everything kept so far: curl -s http://{host}/citations\n\
         Citations are kept in {store}{history}. Ctrl-C ends the demo.\n\n",
        version = crate::VERSION,
        id = if args.fresh_ids { "MESSAGE_ID_FROM_THE_EVENT" } else { "35730705466983426" },
        store = args.store.display(),
    )
}
