//! `make check` runs where nothing is installed.

use std::fs;

use super::ROOT;
use super::parity::sources;

/// Names of what starts Redis or memcached for a test.
const PEERS: [&str; 4] = [
    "RedisServer::start",
    "RedisCluster::start",
    "RedisSentinels::start",
    "MemcachedServer::start",
];

/// `make check` leaves out modules of this name.
#[test]
fn unit_tests_that_start_redis_are_in_modules_called_with_redis() {
    let mut found = 0;
    for file in sources() {
        let path = file.to_str().unwrap();
        let Some((krate, inside)) = path.split_once("/src/") else {
            continue;
        };
        if krate.ends_with("bench") || inside.starts_with("test_util") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let mut module = inside.strip_suffix(".rs").unwrap();
        for line in text.lines() {
            module = line
                .strip_prefix("mod ")
                .and_then(|rest| rest.strip_suffix(" {"))
                .unwrap_or(module);
            let is_code = !line.trim_start().starts_with("//");
            if is_code && PEERS.iter().any(|peer| line.contains(peer)) {
                assert!(module.ends_with("with_redis"), "{path}: {line}");
                found += 1;
            }
        }
    }
    assert!(found > 5, "only {found} were found: the test shows nothing");
}

/// `make check` runs the integration tests of crates that call them so.
#[test]
fn crates_with_standalone_tests_have_nothing_that_starts_a_server() {
    let mut found = 0;
    for krate in fs::read_dir(format!("{ROOT}/crates")).unwrap() {
        let path = krate.unwrap().path();
        // A folder without one was left behind by another version.
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
        if manifest.contains("name = \"standalone\"") {
            let starts_peers = |line: &str| {
                let peers = ["tidegate-pipeline", "tidegate-memcache"];
                line.contains("test-util") && peers.iter().any(|peer| line.starts_with(peer))
            };
            assert!(!manifest.lines().any(starts_peers), "{path:?}");
            found += 1;
        }
    }
    assert_eq!(found, 3, "api, cli and yaml");
}
