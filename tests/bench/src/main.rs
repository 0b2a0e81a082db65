//! Both ends of the comparison: `upstream` sends stamped streams, `load` receives and counts them.
//! Each is a process with one runtime thread, which leaves a core to the proxy; only `load --mode crowd` has several.
//! `tests/bench/compare` starts them.

mod clock;
mod dialect;
mod http;
mod load;
mod options;
mod pacer;
mod reader;
mod tally;
mod upstream;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let done = options::Options::parse(args).and_then(|options| match command.as_str() {
        "upstream" => upstream::run(&options),
        "load" => load::run(&options),
        _ => Err("usage: citetap-bench upstream|load --NAME VALUE...".to_owned()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("citetap-bench {command}: {error}");
            ExitCode::FAILURE
        }
    }
}
