//! What a service manager and a container's health check hear of the server.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use super::process::Process;
use crate::support::{LIMITS, Limits, PATIENCE, Server, await_that};

/// The first line of the next notification.
fn heard(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 256];
    let length = manager.recv(&mut bytes).unwrap();
    let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
    text.lines().next().unwrap().to_owned()
}

#[test]
fn the_service_manager_is_told_of_start_reload_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let limits = Limits::new(LIMITS);
    let server = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("NOTIFY_SOCKET", socket.to_str().unwrap()),
    ]);
    assert_eq!(heard(&manager), "READY=1");
    server.signal("HUP");
    assert_eq!(
        (heard(&manager), heard(&manager)),
        ("RELOADING=1".to_owned(), "READY=1".to_owned())
    );
    // A configuration that is refused ends the reload, too.
    limits.write("limits.yaml", "domain: ''\n");
    server.signal("HUP");
    assert_eq!(
        (heard(&manager), heard(&manager)),
        ("RELOADING=1".to_owned(), "READY=1".to_owned())
    );
    server.signal("TERM");
    assert_eq!(heard(&manager), "STOPPING=1");
    assert_eq!(server.end().0, Some(0));
}

/// `tidegate health` with these settings: its exit code, and what it printed.
fn health(settings: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command
        .env_clear()
        .arg("health")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
    )
}

#[test]
fn the_health_command_ends_as_the_server_is() {
    let server = Server::start(&[]);
    let port = server.http().port().to_string();
    assert_eq!(health(&[("PORT", &port)]), (Some(0), "OK\n".to_owned()));
    assert_eq!(
        health(&[("PORT", &port), ("HOST", "127.0.0.1")]),
        (Some(0), "OK\n".to_owned())
    );
    let debug = server.debug().port().to_string();
    let (code, told) = health(&[("PORT", &debug)]);
    assert!(
        code == Some(69) && told.contains("is no Tidegate server"),
        "{code:?} {told}"
    );
    server.stop();
    let (code, told) = health(&[("PORT", &port)]);
    assert!(
        code == Some(69) && told.contains(&format!("http://127.0.0.1:{port}/healthcheck")),
        "{code:?} {told}"
    );
    assert_eq!(health(&[("PORT", "eighty")]).0, Some(64));

    let limits = Limits::new("domain: ''\n");
    let ill = Server::start_bare(&[
        ("RUNTIME_ROOT", limits.root()),
        ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
    ]);
    let port = ill.http().port().to_string();
    await_that("it says what is not healthy", || {
        let (code, told) = health(&[("PORT", &port)]);
        code == Some(1) && told.starts_with("not healthy: no limits are loaded")
    });
}
