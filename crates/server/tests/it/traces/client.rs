//! Spans of `ratelimit_client`.

use std::os::unix::fs::symlink;
use std::process::Command;

use super::calls::traced;
use super::collector::{Answer, Collector, Protocol};
use super::messages::pairs;
use crate::support::Server;

/// Asks `server` once, with these variables; what the client says on standard error.
fn ask(server: &Server, protocol: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ratelimit_client");
    symlink(env!("CARGO_BIN_EXE_tidegate"), &program).unwrap();
    let address = server.grpc().to_string();
    let arguments = [
        "-dial_string",
        &address,
        "-domain=shop",
        "-descriptors=user=ada",
        "-oltp-protocol",
        protocol,
    ];
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn the_client_sends_a_span_to_which_those_of_the_server_belong() {
    for (protocol, of) in [("http", Protocol::Http), ("grpc", Protocol::Grpc)] {
        let (theirs, ours) = (
            Collector::start(of, Answer::Take),
            Collector::start(Protocol::Http, Answer::Take),
        );
        let server = Server::start(&traced(&ours.url()));
        let url = theirs.url();
        assert_eq!(
            ask(&server, protocol, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]),
            (Some(0), String::new())
        );
        let message = theirs.next();
        assert_eq!(
            pairs(&message.resource.attributes)[0],
            "service.name=RateLimitClient"
        );
        let [call] = &message.spans[..] else {
            panic!("{:?}", message.spans)
        };
        assert_eq!(
            (call.kind, &*call.name),
            (
                3,
                "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
            )
        );
        let spans = ours.spans(2);
        let served = spans.iter().find(|span| span.kind == 2).unwrap();
        assert_eq!(
            (&served.trace_id, &served.parent_span_id),
            (&call.trace_id, &call.span_id)
        );
    }
}

#[test]
fn a_collector_that_is_away_changes_nothing_but_a_line_on_standard_error() {
    let server = Server::start(&[]);
    // Nobody listens there.
    let (code, error) = ask(
        &server,
        "http",
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")],
    );
    assert_eq!(code, Some(0));
    assert!(
        error.starts_with("the span of the call was not sent: 127.0.0.1:9: ")
            && error.lines().count() == 1,
        "{error}"
    );
}
