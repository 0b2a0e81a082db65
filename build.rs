//! Build script: passes the git commit to the crate and embeds the console's files, compressed.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

/// Files and folders in `web`, with the path at which each is served. Missing ones are skipped.
const WEB_FILES: [(&str, &str); 3] = [("index.html", "/"), ("component.js", "/component.js"), ("console", "/console")];

fn main() -> io::Result<()> {
    set_commit();
    let web = Path::new("web");
    let mut files = Vec::new();
    for (name, path) in WEB_FILES {
        let file = web.join(name);
        if file.exists() {
            println!("cargo:rerun-if-changed={}", file.display());
            collect_files(&file, path, &mut files)?;
        } else if web.exists() {
            // Watch the folder: cargo rebuilds every time if a watched file does not exist.
            println!("cargo:rerun-if-changed=web");
        }
    }
    embed(files)
}

/// Sets `CITETAP_COMMIT` for the crate: the environment variable, else the commit of HEAD, else `unknown`.
fn set_commit() {
    let commit = Command::new("git")
        .args(["rev-parse", "--short=10", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok());
    // An image build has no repository.
    let commit = env::var("CITETAP_COMMIT").ok().or(commit);
    let commit = commit.as_deref().map(str::trim).unwrap_or("unknown");
    println!("cargo:rustc-env=CITETAP_COMMIT={commit}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CITETAP_COMMIT");
    // HEAD names a branch and does not change with each commit, but its log does. Watch only existing files: cargo rebuilds
    // every time if a watched file does not exist.
    for file in [".git/HEAD", ".git/logs/HEAD"] {
        if Path::new(file).exists() {
            println!("cargo:rerun-if-changed={file}");
        }
    }
}

/// Collects all files at or below `file`, with the path at which each is served.
fn collect_files(file: &Path, path: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    if !file.is_dir() {
        files.push((path.to_owned(), file.to_owned()));
        return Ok(());
    }
    println!("cargo:rerun-if-changed={}", file.display());
    for entry in fs::read_dir(file)? {
        let entry = entry?;
        let name = entry.file_name();
        // Skip hidden files, such as those that editors leave behind.
        match name.to_str().filter(|name| !name.starts_with('.')) {
            Some(name) => collect_files(&entry.path(), &format!("{path}/{name}"), files)?,
            None => println!("cargo:warning={} is not served", entry.path().display()),
        }
    }
    Ok(())
}

/// Writes `web.rs`, a list of the files sorted by path, each uncompressed, gzipped and brotli-compressed.
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
            // An encoding that is not smaller is left empty.
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
