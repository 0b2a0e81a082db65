//! Command line flags that set configuration: the highest layer.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;

use super::{
    Inject, Origin,
    error::Location,
    value::{Entry, Value},
};
use crate::provider::REGISTRY;

/// Flags that set configuration. Flattened into the arguments of `serve` and `check`.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Configuration")]
pub struct Flags {
    /// Configuration file [default: citetap.toml in the working directory, if there is one]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Address and port to listen on, unix:PATH or systemd [default: 127.0.0.1:8787]
    #[arg(short, long, value_name = "ADDR")]
    pub listen: Option<String>,

    /// Relay everything to this upstream: adds one route with prefix /
    #[arg(short, long, value_name = "URL")]
    pub upstream: Option<String>,

    /// Wire format of --upstream [default: auto]
    #[arg(short, long, value_name = "NAME", value_parser = PossibleValuesParser::new(REGISTRY.route_names()))]
    pub provider: Option<String>,

    /// Where citations are kept: sqlite:PATH or memory: [default: sqlite:citetap.db]
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,

    /// When --upstream's streams get a citation event [default: final]
    #[arg(long, value_name = "WHEN", value_parser = PossibleValuesParser::new(Inject::NAMES))]
    pub inject: Option<String>,

    /// Base URL of relative links in --upstream's references
    #[arg(long, value_name = "URL")]
    pub link_base: Option<String>,

    /// Log level or filter, such as debug or info,citetap=trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// Log format: auto, json or text [default: auto]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

impl Flags {
    /// Flags that set a top-level key or a key of a section.
    pub(super) fn settings(&self) -> impl Iterator<Item = (&'static str, Entry)> {
        entries([
            ("listen", "--listen", &self.listen),
            ("store", "--store", &self.store),
            ("log.level", "--log-level", &self.log_level),
            ("log.format", "--log-format", &self.log_format),
        ])
    }

    /// Flags that set a key of the sidecar route.
    pub(super) fn sidecar(&self) -> impl Iterator<Item = (&'static str, Entry)> {
        entries([
            ("upstream", "--upstream", &self.upstream),
            ("provider", "--provider", &self.provider),
            ("link_base", "--link-base", &self.link_base),
            ("inject", "--inject", &self.inject),
        ])
    }
}

/// Entries of the flags that are present.
fn entries<const N: usize>(
    flags: [(&'static str, &'static str, &Option<String>); N],
) -> impl Iterator<Item = (&'static str, Entry)> {
    flags.map(|(key, flag, value)| (key, flag, value.clone())).into_iter().filter_map(|(key, flag, value)| {
        let location = Location::new(Origin::Flag(flag.to_owned()));
        Some((key, Entry { location, value: Value::Text(value?) }))
    })
}
