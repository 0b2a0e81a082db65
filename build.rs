//! Tells the binary which commit it was built from, where there is one to tell, and puts the console's files into it.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

/// What is served below `/`; `console` is a folder. Missing ones are left out.
const SERVED: [(&str, &str); 3] = [("index.html", "/"), ("component.js", "/component.js"), ("console", "/console")];

fn main() -> io::Result<()> {
    commit();
    let web = Path::new("web");
    let mut files = Vec::new();
    for (name, path) in SERVED {
        let file = web.join(name);
        if file.exists() {
            println!("cargo:rerun-if-changed={}", file.display());
            find(&file, path, &mut files)?;
        } else if web.exists() {
            // One that is added later is seen in its folder; to name it while it is not there would mean a new build
            // each time.
            println!("cargo:rerun-if-changed=web");
        }
    }
    embed(files)
}

fn commit() {
    let commit = Command::new("git")
        .args(["rev-parse", "--short=10", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok());
    // Where there is no repository, as in an image's build, the environment may say it.
    let commit = env::var("CITETAP_COMMIT").ok().or(commit);
    let commit = commit.as_deref().map(str::trim).unwrap_or("unknown");
    println!("cargo:rustc-env=CITETAP_COMMIT={commit}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CITETAP_COMMIT");
    // HEAD names a branch and stays as it is when that moves; its log grows. A file that is not there would
    // mean a new build each time.
    for file in [".git/HEAD", ".git/logs/HEAD"] {
        if Path::new(file).exists() {
            println!("cargo:rerun-if-changed={file}");
        }
    }
}

/// Every file at or below `file`, with the path that it is served at.
fn find(file: &Path, path: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    if !file.is_dir() {
        files.push((path.to_owned(), file.to_owned()));
        return Ok(());
    }
    println!("cargo:rerun-if-changed={}", file.display());
    for entry in fs::read_dir(file)? {
        let entry = entry?;
        let name = entry.file_name();
        // Also what an editor leaves behind.
        match name.to_str().filter(|name| !name.starts_with('.')) {
            Some(name) => find(&entry.path(), &format!("{path}/{name}"), files)?,
            None => println!("cargo:warning={} is not served", entry.path().display()),
        }
    }
    Ok(())
}

/// Writes `web.rs`: the files in the order of their paths, each as it is and compressed.
fn embed(mut files: Vec<(String, PathBuf)>) -> io::Result<()> {
    files.sort();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut code = String::from("&[\n");
    for (index, (path, file)) in files.iter().enumerate() {
        let Some(kind) = kind(file) else {
            println!("cargo:warning={} is not served: its kind is not known", file.display());
            continue;
        };
        let bytes = fs::read(file)?;
        let tag: String = Sha256::digest(&bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let write = |coding: &str, encoded: Vec<u8>| -> io::Result<String> {
            let name = out.join(format!("{index}{coding}"));
            // What does not become smaller is sent as it is.
            let smaller = coding.is_empty() || encoded.len() < bytes.len();
            fs::write(&name, encoded)?;
            Ok(if smaller { format!("include_bytes!({:?})", name.display().to_string()) } else { "&[]".to_owned() })
        };
        let (plain, gzip, brotli) =
            (write("", bytes.clone())?, write(".gz", gzip(&bytes)?)?, write(".br", brotli(&bytes)?)?);
        code += &format!(
            "File {{ path: {path:?}, kind: {kind:?}, tag: {tag:?}, plain: {plain}, gzip: {gzip}, brotli: {brotli} }},\n"
        );
    }
    code += "]\n";
    fs::write(out.join("web.rs"), code)
}

fn kind(file: &Path) -> Option<&'static str> {
    Some(match file.extension()?.to_str()? {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        _ => return None,
    })
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn brotli(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoded = Vec::new();
    let parameters = brotli::enc::BrotliEncoderParams::default();
    brotli::BrotliCompress(&mut &bytes[..], &mut encoded, &parameters)?;
    Ok(encoded)
}
