//! The shape of the code, held by a test: sizes of files and functions, the edges between crates, words that stay out.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use unisono::threads::{Kind, Role};

const MOST_LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// All files below `dir` with this extension, but those of build output.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap()
        .to_string_lossy()
        .into_owned()
}

#[test]
fn no_source_file_is_longer_than_its_bound() {
    for file in files(&root(), "rs") {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(
            lines <= MOST_LINES,
            "{} has {lines} lines: split it",
            relative(&file)
        );
    }
}

#[test]
fn no_module_file_is_called_mod() {
    for file in files(&root(), "rs") {
        assert!(
            !file.ends_with("mod.rs"),
            "{}: use foo.rs and foo/",
            relative(&file)
        );
    }
}

/// A library's name may stand only in files whose path begins with one of these.
fn named_only_under(library: &str, places: &[&str]) {
    for file in files(&root(), "rs") {
        let path = relative(&file);
        if path == "tests/tests/tidy.rs" || places.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let used = text.lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains(&format!("{library}::"))
        });
        assert!(
            !used,
            "{path} names {library}, which belongs under {places:?}"
        );
    }
}

#[test]
fn openraft_is_named_only_in_the_raft_module() {
    named_only_under("openraft", &["replication/src/raft"]);
}

#[test]
fn rdkafka_is_named_only_in_the_kafka_modules() {
    let places = [
        "node/src/kafka/",
        "node/src/publish/sink/kafka",
        "chaos/",
        "tests/",
    ];
    named_only_under("rdkafka", &places);
}

#[test]
fn axum_is_named_only_in_the_api() {
    named_only_under("axum", &["api/"]);
}

#[test]
fn crates_depend_one_way() {
    let allowed: [(&str, &[&str]); 5] = [
        ("node/engine", &[]),
        ("replication", &["unisono-engine"]),
        ("api", &["unisono-engine"]),
        ("chaos", &[]),
        (
            "node",
            &[
                "unisono-engine",
                "unisono-replication",
                "unisono-api",
                "unisono-chaos",
            ],
        ),
    ];
    for (krate, allowed) in allowed {
        let manifest = fs::read_to_string(root().join(krate).join("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("[dependencies]").unwrap();
        for line in dependencies
            .lines()
            .take_while(|line| !line.starts_with('['))
        {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let ours = name.starts_with("unisono");
            assert!(
                !ours || allowed.contains(&name),
                "{krate} must not depend on {name}"
            );
        }
    }
}

#[test]
fn the_architecture_page_names_every_thread_and_task() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = page.split_once("\n## Threads and tasks\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let told: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let row = |role: &Role| {
        let entry = role.entry();
        let kind = match entry.kind {
            Kind::Thread => "thread",
            Kind::Pool => "pool",
            Kind::Task => "task",
            Kind::Foreign => "foreign",
        };
        let (name, does, blocks_on) = (entry.name, entry.does, entry.blocks_on);
        format!(
            "| `{name}` | {kind} | {does} | {blocks_on} | {} |",
            entry.after_panic
        )
    };
    let expected: Vec<String> = Role::ALL.iter().map(row).collect();
    assert_eq!(told, expected, "the table of node/src/threads.rs");
}

#[test]
fn threads_and_tasks_are_started_in_one_place() {
    let starts = [
        "thread::Builder",
        "thread::spawn(",
        "tokio::spawn(",
        "runtime.spawn(",
    ];
    let exempt = ["node/src/threads", "node/src/cli/demo"];
    for file in files(&root().join("node/src"), "rs") {
        let path = relative(&file);
        // Tests may start threads of their own.
        if exempt.iter().any(|place| path.starts_with(place)) || path.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("\nmod tests {").next().unwrap_or_default();
        for start in starts {
            assert!(
                !text.contains(start),
                "{path}: {start}: start it through threads.rs, which names it"
            );
        }
    }
}

/// The modules of `node` right below its root, and which of the others each names.
fn rooms() -> BTreeMap<String, BTreeSet<String>> {
    let src = root().join("node/src");
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files(&src, "rs") {
        let path = file
            .strip_prefix(&src)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let room = path.split('/').next().unwrap().trim_end_matches(".rs");
        let text = fs::read_to_string(&file).unwrap();
        let code = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default());
        let known = rooms.entry(room.to_owned()).or_default();
        for line in code {
            for named in line.split("crate::").skip(1) {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let name: String = named.chars().take_while(|&c| is_part(c)).collect();
                if name != room {
                    known.insert(name);
                }
            }
            assert!(!line.contains("crate::{"), "{path}: name rooms one by one");
        }
    }
    rooms
}

/// Rooms are taken away as long as one knows no other that is left; what remains goes round in circles.
#[test]
fn no_rooms_of_the_node_know_each_other_in_a_circle() {
    let mut rooms = rooms();
    assert!(rooms.len() > 10, "{rooms:?}");
    loop {
        let names: BTreeSet<String> = rooms.keys().cloned().collect();
        let before = rooms.len();
        rooms.retain(|_, known| known.iter().any(|room| names.contains(room)));
        if rooms.len() == before {
            break;
        }
    }
    assert!(rooms.is_empty(), "a circle among {rooms:?}");
}
