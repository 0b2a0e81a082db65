//! The binary: arguments go to [`citetap::cli`].

use std::process::ExitCode;

/// mimalloc takes a sixth off the CPU of a whole exchange compared with glibc's allocator: 1.36 instead of 1.50 to 1.65 × nginx
/// for 1,000 streams of 200 events, measured with an earlier build. Version 2, as version 3 keeps several MiB more of what
/// large frames have freed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // mimalloc asks for huge pages, and a single allocation keeps a whole one resident. Without them the process takes 24
    // instead of 42 MiB at rest, and 52 instead of 68 KiB for each of 1,000 open streams.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    citetap::cli::main()
}
