//! The unit of systemd.

use std::process::Command;
use std::time::Duration;

use super::{deploy, longest_end, succeed};
use crate::operate::process::Process;
use crate::support::LIMITS;

fn unit() -> String {
    std::fs::read_to_string(deploy("systemd/tidegate.service")).unwrap()
}

/// The values of a directive, in order.
fn values<'u>(unit: &'u str, name: &str) -> Vec<&'u str> {
    unit.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        .collect()
}

/// The unit with the binary of this build, in a folder of its own.
fn installed() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.service");
    std::fs::write(
        &path,
        unit().replace("/usr/local/bin/tidegate", env!("CARGO_BIN_EXE_tidegate")),
    )
    .unwrap();
    (folder, path)
}

#[test]
fn systemd_accepts_the_unit_and_finds_it_safe() {
    let (_folder, path) = installed();
    let told = succeed(
        Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path),
    );
    assert_eq!(told, "", "nothing to complain of");
    // The threshold is in tenths. A unit without hardening has 96, and one for a server of the network cannot have 0.
    succeed(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--threshold=15"])
            .arg(&path),
    );
}

#[test]
fn the_unit_leaves_time_to_drain() {
    let unit = unit();
    let stop = Duration::from_secs(values(&unit, "TimeoutStopSec")[0].parse().unwrap());
    assert!(stop > longest_end(), "{stop:?} and {:?}", longest_end());
}

#[test]
fn the_server_starts_with_the_variables_of_the_unit() {
    let (root, unit) = (tempfile::tempdir().unwrap(), unit());
    let place = root.path().to_str().unwrap();
    std::fs::create_dir_all(root.path().join("etc/tidegate/config")).unwrap();
    std::fs::write(root.path().join("etc/tidegate/config/limits.yaml"), LIMITS).unwrap();
    let set = values(&unit, "Environment")
        .into_iter()
        .map(|pair| pair.split_once('=').unwrap());
    let placed: Vec<(&str, String)> = set
        .map(|(name, value)| {
            (
                name,
                if value.starts_with('/') {
                    format!("{place}{value}")
                } else {
                    value.to_owned()
                },
            )
        })
        .collect();
    assert_eq!(placed.len(), 3, "{placed:?}");
    let settings: Vec<(&str, &str)> = placed
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let server =
        Process::start(&[&settings[..], &[("TIDEGATE_HTTP_ADDR", "127.0.0.1:0")]].concat());
    assert!(
        server
            .banner
            .contains(&format!("configuration  {place}/etc/tidegate/config")),
        "{}",
        server.banner
    );
    assert!(
        server.banner.contains(&format!("{place}/var/lib/tidegate")),
        "{}",
        server.banner
    );
    assert!(
        values(&unit, "StateDirectory") == ["tidegate"] && values(&unit, "DynamicUser") == ["yes"]
    );
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
}
