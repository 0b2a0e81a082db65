use std::process::ExitCode;

fn main() -> ExitCode {
    citetap::cli::main()
}
