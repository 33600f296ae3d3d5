//! The rooms of the crate import downward only.

use std::path::{Path, PathBuf};

/// Highest first, as in ARCHITECTURE.md.
const ROOMS: [&str; 11] = [
    "subscriber",
    "client",
    "cluster",
    "node",
    "link",
    "call",
    "batch",
    "config",
    "outcome",
    "stats",
    "wire",
];

#[test]
fn a_room_imports_only_rooms_below_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut imports = 0;
    for file in files(&source) {
        let path = file.strip_prefix(&source).unwrap().with_extension("");
        let room = path.iter().next().unwrap().to_str().unwrap();
        // What only tests need may be above: the models of a node route batches. lib.rs and test_util are in no room.
        let is_test = ["model", "tests"].iter().any(|name| path.ends_with(name));
        let Some(own) = ROOMS
            .iter()
            .position(|other| *other == room)
            .filter(|_| !is_test)
        else {
            continue;
        };
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for import in code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(imported)
        {
            let used = ROOMS.iter().position(|other| *other == import);
            assert!(
                used.is_none_or(|used| used >= own),
                "{} imports {import}, which is above it",
                file.display()
            );
            imports += usize::from(used.is_some());
        }
    }
    assert!(
        imports > 100,
        "only {imports} imports were found: the test shows nothing"
    );
}

/// The host of these is one address, so that there is nothing to choose from: a name server, and this server itself.
const DIAL_ONE_ADDRESS: [&str; 2] = [
    "server/src/rls/memcache/resolver.rs",
    "server/src/commands/health.rs",
];

/// A name with several addresses was never reached when the first did not answer, by whoever did not use the dialler.
#[test]
fn only_the_dialler_opens_tcp_connections() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let product = [
        "api",
        "cli",
        "memcache",
        "pipeline",
        "ratelimit",
        "server",
        "workflow",
    ];
    let mut connects = Vec::new();
    for file in product
        .iter()
        .flat_map(|name| files(&crates.join(name).join("src")))
    {
        let path = file
            .strip_prefix(crates)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let is_test = path.contains("test_util") || path.ends_with("/tests.rs");
        if !is_test && code.contains("TcpStream::connect") && !DIAL_ONE_ADDRESS.contains(&&*path) {
            connects.push(path);
        }
    }
    assert_eq!(
        connects,
        ["pipeline/src/link/dial.rs"],
        "use tidegate_pipeline::dial or dial_any"
    );
}

/// The rooms that a line names.
fn imported(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).filter_map(|rest| {
        rest.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| self::files(folder));
    files
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
        .chain(below)
        .collect()
}
