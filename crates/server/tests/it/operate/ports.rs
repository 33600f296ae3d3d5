//! Ports that another process has.

use std::net::TcpListener;
use std::process::Command;

use tidegate::settings::Settings;
use tidegate_pipeline::test_util::free_port;

use super::process::Process;
use crate::support::{Server, await_that, get, variables};
use crate::workflows::{ask, redis};

/// The log of a server that does not start.
#[track_caller]
fn refused(more: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.env_clear().envs(variables(more)).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{log}");
    log
}

/// Servers with a Redis were told of "counters without REDIS_URL", and nobody was told which variable to set.
#[test]
fn who_does_not_get_a_port_is_told_which_variable_to_set() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, address) = (
        taken.local_addr().unwrap().port().to_string(),
        taken.local_addr().unwrap().to_string(),
    );
    let redis = redis();
    let url = redis.address().to_string();
    let prometheus = [
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", address.as_str()),
    ];
    for (variable, more) in [
        ("GRPC_PORT", &[("GRPC_PORT", port.as_str())][..]),
        ("PORT", &[("PORT", port.as_str())]),
        ("PROMETHEUS_ADDR", &prometheus),
        (
            "TIDEGATE_HTTP_ADDR",
            &[("TIDEGATE_HTTP_ADDR", address.as_str())],
        ),
    ] {
        let advice = format!(
            "address already in use; stop the other process, or set {variable} to another port"
        );
        let log = refused(more);
        assert!(
            log.contains(&advice) && log.contains("Counters in memory"),
            "{log}"
        );
        let log = refused(&[more, &[("REDIS_URL", &url)]].concat());
        assert!(log.contains(&advice) && !log.contains("REDIS_URL"), "{log}");
    }
}

#[test]
fn who_does_not_get_a_unix_socket_is_told_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket").display().to_string();
    let _first = Server::start(&[("GRPC_UDS", &path)]);
    let log = refused(&[("GRPC_UDS", &path)]);
    assert!(
        log.contains(&format!(
            "{path}.lock, has it: stop it, or set GRPC_UDS to another path"
        )),
        "{log}"
    );
    let file = folder.path().join("file").display().to_string();
    std::fs::write(&file, "").unwrap();
    let log = refused(&[("GRPC_UDS", &file)]);
    assert!(
        log.contains("there is a file that is not a socket; move it away"),
        "{log}"
    );
}

/// It was logged as an error, in the words of those that end the start.
#[test]
fn without_its_debug_port_a_server_warns_of_what_is_missing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Process::start(&[(
        "DEBUG_PORT",
        &taken.local_addr().unwrap().port().to_string(),
    )]);
    assert_eq!(get(server.address("HTTP"), "/healthcheck").status, 200);
    server.signal("TERM");
    let (_, log) = server.end();
    let expected = "set DEBUG_PORT to another port. Counters in memory and workflows in a file are those of one process, so two share a \
                    port only with REDIS_URL. The server goes on without /metrics, /rlconfig and /stats";
    assert!(
        log.contains("WARN") && log.contains(expected) && !log.contains("ERROR"),
        "{log}"
    );
}

/// The successor was a server without workflows for the rest of its life.
#[test]
fn workflows_begin_as_soon_as_the_default_port_is_free() {
    let redis = redis();
    let url = redis.address().to_string();
    let start = |port: u16| {
        let mut variables = variables(&[("REDIS_URL", &url), ("REDIS_SOCKET_TYPE", "tcp")]);
        variables.retain(|(name, _)| name != "TIDEGATE_HTTP_ADDR");
        let mut settings = Settings::parse(&variables.into_iter().collect()).unwrap();
        // Nobody asked for it by name. The port itself may be taken on this machine.
        settings.workflows.as_mut().unwrap().address.port = port;
        Server::start_with(settings)
    };
    let first = start(0);
    let api = first.started.addresses.api.unwrap();
    let second = start(api.port());
    assert_eq!(
        (second.started.addresses.api, &second.started.workflows),
        (None, &None)
    );
    first.stop();
    await_that("the second has the port", || {
        std::net::TcpStream::connect(api).is_ok()
    });
    assert_eq!(ask(api, "GET", "/v1/workflows", &[], "").status, 200);
    assert!(
        get(second.debug(), "/metrics")
            .body
            .contains("tidegate_api_requests")
    );
    second.stop();
}

/// Who names the address of the API, as everybody does who wants to reach it from elsewhere, could not take over.
#[test]
fn a_second_server_on_the_same_redis_takes_over_a_port_of_the_api_that_was_asked_for() {
    let redis = redis();
    let url = redis.address().to_string();
    let address = format!("127.0.0.1:{}", free_port());
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("TIDEGATE_HTTP_ADDR", &address),
    ];
    let (first, second) = (Process::start(&settings), Process::start(&settings));
    let api = second.address("API");
    assert_eq!(first.address("API"), api);
    first.signal("TERM");
    assert_eq!(first.end().0, Some(0));
    assert_eq!(ask(api, "GET", "/v1/workflows", &[], "").status, 200);
}
