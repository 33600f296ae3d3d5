//! `make install`: the links to the program, by whose names it is the programs of the reference.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, ask, await_that, channel, get, repository, request};
use crate::workflows::redis;

const NAMES: [&str; 3] = ["ratelimit", "ratelimit_client", "ratelimit_config_check"];

/// Runs `make install LINKS=yes` into this folder. The program was built already, so what takes the place of `cargo install` only puts it there.
fn install(prefix: &Path) -> Output {
    let tools = tempfile::tempdir().unwrap();
    let cargo = tools.path().join("cargo");
    let (program, prefix) = (env!("CARGO_BIN_EXE_tidegate"), prefix.display());
    let expected = format!("install --locked --path crates/server --root {prefix}");
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = '{expected}' ] || exit 3\nmkdir -p {prefix}/bin && ln -sf {program} {prefix}/bin/tidegate\n"
    );
    std::fs::write(&cargo, script).unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut make = Command::new("make");
    make.current_dir(repository())
        .args(["install", "LINKS=yes", &format!("PREFIX={prefix}")]);
    make.arg(format!("CARGO={}", cargo.display()))
        .output()
        .unwrap()
}

fn installed() -> TempDir {
    let prefix = tempfile::tempdir().unwrap();
    let output = install(prefix.path());
    assert!(output.status.success(), "{output:?}");
    prefix
}

#[test]
fn links_have_the_names_of_the_references_programs() {
    let prefix = installed();
    for name in NAMES {
        let link = prefix.path().join("bin").join(name);
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("tidegate"));
        let help = Command::new(link)
            .arg("--help")
            .env_clear()
            .output()
            .unwrap();
        let text = String::from_utf8([help.stdout, help.stderr].concat()).unwrap();
        let own = if name == "ratelimit" {
            "Usage: "
        } else {
            &format!("Usage of {name}:")
        };
        assert!(help.status.success() && text.contains(own), "{text}");
    }
    assert!(install(prefix.path()).status.success(), "again");
}

/// The reference's own program has the same name.
#[test]
fn a_program_of_the_same_name_is_not_replaced() {
    let prefix = tempfile::tempdir().unwrap();
    std::fs::create_dir(prefix.path().join("bin")).unwrap();
    let theirs = prefix.path().join("bin/ratelimit");
    std::fs::write(&theirs, "theirs").unwrap();
    let output = install(prefix.path());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && told.contains("bin/ratelimit is another program"),
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(theirs).unwrap(), "theirs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_link_drains_when_it_is_told_to_end() {
    let prefix = installed();
    let (redis, limits) = (
        tokio::task::spawn_blocking(redis).await.unwrap(),
        Limits::new(LIMITS),
    );
    let url = redis.address().to_string();
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("USE_STATSD", "false"),
        ("RUNTIME_ROOT", limits.root()),
        ("TIDEGATE_DRAIN_DELAY", "2s"),
    ];
    let server = Process::start_by(Command::new(prefix.path().join("bin/ratelimit")), &settings);
    let (http, grpc) = (server.address("HTTP"), server.address("gRPC"));
    let channel = channel(grpc).await;
    assert_eq!(get(http, "/healthcheck").body, "OK");
    server.signal("TERM");
    await_that("it says that it ends", || {
        get(http, "/healthcheck").status == 500
    });
    assert!(TcpStream::connect(grpc).is_ok(), "it still accepts");
    let answer = ask(&channel, request("shop", &[&[("user", "ada")]]))
        .await
        .unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 2, "and answers");
    let (code, log) = tokio::task::spawn_blocking(|| server.end()).await.unwrap();
    assert_eq!(code, Some(0), "{log}");
}
