//! Tells the binary which commit it was built from, where there is one to tell.

use std::process::Command;

fn main() {
    let commit = Command::new("git")
        .args(["rev-parse", "--short=10", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok());
    // Where there is no repository, as in an image's build, the environment may say it.
    let commit = std::env::var("CITETAP_COMMIT").ok().or(commit);
    let commit = commit.as_deref().map(str::trim).unwrap_or("unknown");
    println!("cargo:rustc-env=CITETAP_COMMIT={commit}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CITETAP_COMMIT");
    // HEAD names a branch and stays as it is when that moves; its log grows. A file that is not there would
    // mean a new build each time.
    for file in [".git/HEAD", ".git/logs/HEAD"] {
        if std::path::Path::new(file).exists() {
            println!("cargo:rerun-if-changed={file}");
        }
    }
}
