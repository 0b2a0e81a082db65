//! Checks which room of `src` imports which. Imports that the table does not list are errors, and so are cycles. Unit
//! tests may import more, because they combine rooms.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

/// A room and the rooms that it may import. A room comes after the rooms it imports, so there is no cycle.
const ROOMS: &[(&str, &[&str])] = &[
    ("sse", &[]),
    ("marker", &[]),
    // The text of an answer is scanned for markers.
    ("citation", &["marker"]),
    ("provider", &["sse", "citation"]),
    ("profile", &["sse", "citation", "marker", "provider"]),
    ("pipeline", &["sse", "citation", "marker", "provider", "profile"]),
    ("mapping", &["provider"]),
    ("config", &["citation", "marker", "provider", "profile", "pipeline", "mapping"]),
    ("store", &["citation", "config"]),
    ("transport", &["config"]),
    // The exporter sends HTTP requests.
    ("telemetry", &["config", "store", "pipeline", "provider", "transport"]),
    ("search", &["citation", "config", "pipeline", "provider", "transport"]),
    ("replay", &["citation", "config", "pipeline", "profile", "provider"]),
    (
        "app",
        &[
            "citation",
            "config",
            "mapping",
            "pipeline",
            "profile",
            "provider",
            "search",
            "store",
            "telemetry",
            "transport",
        ],
    ),
    (
        "relay",
        &["app", "citation", "config", "pipeline", "profile", "provider", "search", "store", "telemetry", "transport"],
    ),
    ("ops", &["app", "transport"]),
    (
        "api",
        &[
            "app",
            "citation",
            "config",
            "mapping",
            "marker",
            "ops",
            "pipeline",
            "profile",
            "provider",
            "relay",
            "replay",
            "search",
            "sse",
            "store",
            "telemetry",
            "transport",
        ],
    ),
    ("server", &["api", "app", "ops", "relay", "transport"]),
    (
        "cli",
        &[
            "api",
            "app",
            "citation",
            "config",
            "marker",
            "pipeline",
            "profile",
            "provider",
            "replay",
            "search",
            "server",
            "sse",
            "store",
            "telemetry",
            "transport",
        ],
    ),
];

fn files(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push(path);
        }
    }
}

/// The code of a file without its unit tests and comments.
fn code(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let in_tests = path.components().any(|part| part.as_os_str() == "tests");
    if name == "tests.rs" || name.ends_with("_tests.rs") || in_tests {
        return String::new();
    }
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// The rooms after `crate::`, also in `use crate::{a::b, c}`.
fn imported(code: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for path in Regex::new(r"crate::(\w+)").unwrap().captures_iter(code) {
        rooms.insert(path[1].to_owned());
    }
    for (start, opening) in code.match_indices("crate::{") {
        let (mut depth, mut item) = (0, String::new());
        for c in code[start + opening.len()..].chars() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    rooms.insert(std::mem::take(&mut item));
                }
                c if depth == 0 => item.push(c),
                _ => {}
            }
        }
        rooms.insert(item);
    }
    let first = |item: &String| item.trim().split("::").next().unwrap_or_default().to_owned();
    rooms.iter().map(first).filter(|room| !room.is_empty()).collect()
}

fn room_of(src: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(src).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

#[test]
fn rooms_import_only_rooms_in_the_table() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&src, &mut all);
    let table: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    let mut wrong = Vec::new();
    for path in &all {
        let room = room_of(&src, path);
        if room == "lib" || room == "main" {
            continue;
        }
        let Some(allowed) = table.get(room.as_str()) else { panic!("{room} is not in the table") };
        for import in imported(&code(path)) {
            if import != room && table.contains_key(import.as_str()) && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{} imports {import}", path.strip_prefix(&src).unwrap().display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rooms_come_after_the_rooms_they_import() {
    for (at, (room, imports)) in ROOMS.iter().enumerate() {
        for import in *imports {
            let before = ROOMS[..at].iter().any(|(earlier, _)| earlier == import);
            assert!(before, "{room} imports {import}, which comes after it");
        }
    }
}

#[test]
fn imports_are_found_in_every_spelling() {
    let code = "use crate::a::b;\nuse crate::{\n    c::{d, e},\n    f,\n};\nfn g() { crate::h::i() }";
    let rooms: Vec<String> = imported(code).into_iter().collect();
    assert_eq!(rooms, ["a", "c", "f", "h"]);
}
