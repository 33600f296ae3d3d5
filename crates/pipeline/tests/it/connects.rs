//! One function of the product opens TCP connections.

use std::path::{Path, PathBuf};

/// The host of these is one address, so that there is nothing to choose from: a name server, and this server itself.
const DIAL_ONE_ADDRESS: [&str; 2] = [
    "server/src/rls/store/memcache/resolver.rs",
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
