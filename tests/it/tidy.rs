//! Checks of the code itself: which room may name which, and what no room may hold.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Each room of `src/` and the rooms that it may name. A room's tests may name more: they bring it together with others.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("state", &["model"]),
    ("scheduler", &["model", "state"]),
    ("rpc", &["model", "state"]),
    ("store", &["model", "state"]),
    ("raft", &["model", "state", "rpc", "store"]),
    ("controller", &["model", "state", "scheduler", "rpc", "store", "raft", "telemetry"]),
    ("worker", &["model", "rpc", "telemetry"]),
    ("cli", &["model", "rpc", "telemetry"]),
    ("telemetry", &[]),
    ("role", &["controller", "worker", "model", "telemetry"]),
];

/// Words that only some rooms may know. Peers carry generated messages, so raft knows of them beside rpc.
const ONLY_IN: &[(&str, &[&str])] =
    &[("openraft::", &["raft"]), ("rusqlite::", &["store"]), ("proto::", &["rpc", "raft"])];

/// What decides and never waits, beside the core's own rooms.
const PURE: &[&str] = &[
    "model/",
    "state/",
    "scheduler/",
    "controller/reconcile.rs",
    "controller/lease.rs",
    "worker/reconcile.rs",
];

const MOST_LINES: usize = 800;

#[test]
fn rooms_name_only_what_they_may() {
    let mut faults = Vec::new();
    for source in sources("src").iter().filter(|source| !source.is_test()) {
        let room = source.room();
        let Some((_, allowed)) = MAY_NAME.iter().find(|(name, _)| *name == room) else {
            if !matches!(room, "lib" | "bin") {
                faults.push(format!("{}: {room} is in no table of this test", source.path));
            }
            continue;
        };
        for (line, named) in crate_paths(&source.code()) {
            let is_room = MAY_NAME.iter().any(|(name, _)| *name == named);
            if is_room && named != room && !allowed.contains(&named.as_str()) {
                faults.push(format!("{}:{line}: {room} must not name {named}", source.path));
            }
        }
    }
    report(&faults);
}

#[test]
fn words_stay_in_their_rooms() {
    let mut faults = Vec::new();
    for source in sources("src") {
        for (word, rooms) in ONLY_IN {
            for (line, text) in (1..).zip(source.code().lines()) {
                if has_word(text, word) && !rooms.contains(&source.room()) {
                    faults
                        .push(format!("{}:{line}: {word} is known to {rooms:?} only", source.path));
                }
            }
        }
    }
    report(&faults);
}

#[test]
fn what_decides_never_waits() {
    let mut faults = Vec::new();
    let sources = sources("src");
    let pure = |source: &&Source| PURE.iter().any(|pure| source.below_src().starts_with(pure));
    for source in sources.iter().filter(pure) {
        for (line, text) in (1..).zip(source.code().lines()) {
            if has_word(text, "async ") || text.contains(".await") || has_word(text, "tokio::") {
                faults.push(format!("{}:{line}: {}", source.path, text.trim()));
            }
        }
    }
    report(&faults);
}

#[test]
fn nothing_is_left_for_later() {
    let never = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
        concat!("#[ign", "ore"),
    ];
    let mut faults = Vec::new();
    for source in ["src", "tests", "benches", "chaos-tests"].iter().flat_map(|dir| sources(dir)) {
        for (line, text) in (1..).zip(source.text.lines()) {
            if let Some(word) = never.iter().find(|word| text.contains(**word)) {
                faults.push(format!("{}:{line}: {word}", source.path));
            }
        }
        let lines = source.text.lines().count();
        if lines > MOST_LINES {
            faults.push(format!("{}: {lines} lines; cut it by noun", source.path));
        }
    }
    report(&faults);
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

struct Source {
    path: String,
    text: String,
}

impl Source {
    fn below_src(&self) -> &str {
        self.path.strip_prefix("src/").unwrap_or(&self.path)
    }

    fn room(&self) -> &str {
        let first = self.below_src().split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    fn is_test(&self) -> bool {
        let mut parts = self.below_src().split('/');
        parts.any(|part| matches!(part, "tests" | "tests.rs" | "testing"))
    }

    /// Without comments, and without the tests at the end of the file.
    fn code(&self) -> String {
        let end = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        let lines = self.text[..end].lines();
        lines.map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
    }
}

/// Every `crate::name`, also within `crate::{…}`, with its line.
fn crate_paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let line = code[..at].lines().count().max(1);
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => found.push((line, name_at(rest))),
            Some(list) => found.extend(names_in(list).into_iter().map(|name| (line, name))),
        }
    }
    found
}

/// The first names of the paths in a braced list.
fn names_in(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut depth, mut fresh) = (0, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ if depth == 0 && fresh && c.is_alphabetic() => {
                names.push(name_at(&list[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

fn name_at(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Whether `word` stands in the text, and not as the end of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Every Rust source below `dir`, with its path from the package's root.
fn sources(dir: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pending = vec![root.join(dir)];
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(entries(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).expect("a source can be read");
            let path = path.strip_prefix(root).expect("it lies below").display().to_string();
            found.push(Source { path, text });
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory can be listed");
    entries
        .map(|entry| entry.expect("it was listed").path())
        .filter(|path| path.file_name().is_none_or(|name| name != "target"))
        .collect()
}
