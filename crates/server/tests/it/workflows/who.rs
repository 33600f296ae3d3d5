//! Who may ask for what.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use serde_json::{Value, json};

use super::{Flows, problem, workflow};
use crate::operate::process::Process;
use crate::support::{Answer, await_that, stat, variables};

const TOKENS: &str =
    "# who may what\nread Dashboard-A r-secret\nwork sdk w-secret\nadmin ada a-secret\n";

/// Status of requests without a token, and with one that is a stranger's, of the role read, work and admin. What is allowed may still be
/// refused for another reason.
const ROLES: [(&str, [u16; 5]); 15] = [
    ("GET /healthz", [200, 200, 200, 200, 200]),
    ("GET /readyz", [200, 200, 200, 200, 200]),
    ("GET /v1/version", [401, 401, 200, 200, 200]),
    ("GET /v1/workflows", [401, 401, 200, 200, 200]),
    ("POST /v1/workflows", [401, 401, 403, 201, 201]),
    ("POST /v1/jobs/claim", [401, 401, 403, 400, 400]),
    ("POST /v1/queues/default:pause", [401, 401, 403, 403, 200]),
    ("POST /v1/workflows:bulk", [401, 401, 403, 403, 400]),
    ("GET /v1/limits/overrides", [401, 401, 200, 200, 200]),
    ("PUT /v1/limits/overrides", [401, 401, 403, 403, 400]),
    (
        "DELETE /v1/limits/overrides?rule=a",
        [401, 401, 403, 403, 404],
    ),
    ("POST /v1/limits/check", [401, 401, 400, 400, 400]),
    ("GET /v1/limits/top", [401, 401, 200, 200, 200]),
    ("GET /v1/limits/configuration", [401, 401, 200, 200, 200]),
    ("GET /v1/limits", [401, 401, 200, 200, 200]),
];

/// A server that knows these tokens.
fn guarded() -> (tempfile::NamedTempFile, Flows) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TOKENS).unwrap();
    let flows = Flows::start(&[("TIDEGATE_TOKENS_FILE", file.path().to_str().unwrap())]);
    (file, flows)
}

/// What a request with this header is answered, which has no secret.
fn ask_with(flows: &Flows, request: &str, authorization: Option<&str>) -> Answer {
    let (method, path) = request.split_once(' ').unwrap();
    let body = match request {
        "POST /v1/workflows" => workflow("w", "a").to_string(),
        _ => String::new(),
    };
    let headers = authorization.map(|value| ("authorization", value));
    let answer = flows.ask(method, path, headers.as_slice(), &body);
    assert!(!answer.body.contains("secret"), "{answer:?}");
    answer
}

#[test]
fn roles_allow_what_they_say() {
    let (_file, flows) = guarded();
    let tokens = ["r-secre", "r-secret", "w-secret", "a-secret"];
    let headers = tokens.map(|token| format!("Bearer {token}"));
    for (request, expected) in ROLES {
        let given = headers.iter().map(|header| Some(header.as_str()));
        let status = |header| ask_with(&flows, request, header).status;
        let found: Vec<u16> = [None].into_iter().chain(given).map(status).collect();
        assert_eq!(found, expected, "{request}");
    }
}

#[test]
fn who_is_refused_is_told_what_the_call_needs() {
    let (_file, flows) = guarded();
    let refused = ask_with(&flows, "GET /v1/workflows", None);
    assert_eq!(problem(&refused).1, "unauthorized");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    let told = |token: &str| {
        let answer = ask_with(&flows, "POST /v1/workflows:bulk", Some(token));
        serde_json::from_str::<Value>(&answer.body).unwrap()["detail"].take()
    };
    let needs = "the token of Dashboard-A has the role read; this call needs the role admin";
    assert_eq!(told("Bearer r-secret"), needs);
    let unknown = "the token is not known to this server";
    assert_eq!(told("Bearer r-secre"), unknown);
}

#[test]
fn a_page_of_another_site_that_has_the_token_may_use_it() {
    let (_file, flows) = guarded();
    let page = [
        ("authorization", "Bearer r-secret"),
        ("origin", "http://dash.example"),
        ("host", "flows.example"),
    ];
    assert_eq!(flows.ask("GET", "/v1/workflows", &page, "").status, 200);
}

/// A new token needed a restart of each server.
#[test]
fn tokens_that_change_are_in_force_without_a_restart_and_a_broken_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    std::fs::write(&path, "read old first-secret\n").unwrap();
    let data = folder.path().join("data");
    let mut server = Process::start(&[
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data.to_str().unwrap()),
        ("TIDEGATE_TOKENS_FILE", path.to_str().unwrap()),
    ]);
    let (api, debug) = (server.address("API"), server.address("debug"));
    let status = |token: &str| {
        super::ask(
            api,
            "GET",
            "/v1/version",
            &[("authorization", &format!("Bearer {token}"))],
            "",
        )
        .status
    };
    let failures = || stat(debug, "tidegate.tokens.load_failures");
    assert_eq!(["first-secret", "second-secret"].map(status), [200, 401]);
    for broken in ["root new second-secret\n", ""] {
        let before = failures();
        std::fs::write(&path, broken).unwrap();
        await_that("the broken file is told", || failures() == before + 1);
        assert_eq!(
            ["first-secret", "second-secret"].map(status),
            [200, 401],
            "{broken:?}"
        );
    }
    // As a secret is renewed that is mounted: a file is renamed over it.
    let new = folder.path().join("new");
    std::fs::write(&new, "read new second-secret\n").unwrap();
    std::fs::rename(&new, &path).unwrap();
    await_that("the new token is known", || status("second-secret") == 200);
    assert_eq!(status("first-secret"), 401, "the old one is not any more");
    assert_eq!(failures(), 2);
    server.await_log("changed tokens cannot be used, and the old ones stay: TIDEGATE_TOKENS_FILE=");
    server.signal("TERM");
    let (_, log) = server.end();
    assert!(
        log.contains("the file contains no token") && !log.contains("secret"),
        "{log}"
    );
}

#[test]
fn pages_of_other_sites_are_refused_when_nobody_needs_a_token() {
    let flows = Flows::start(&[]);
    let own = format!("http://{}", flows.api());
    let body = workflow("w", "a").to_string();
    for (header, expected) in [
        (("origin", own.as_str()), 201),
        (("origin", "http://evil.example"), 403),
        (("origin", "null"), 403),
        (("host", "evil.example"), 403),
        (("host", "localhost:7070"), 201),
    ] {
        let answer = flows.ask("POST", "/v1/workflows", &[header], &body);
        assert_eq!(answer.status, expected, "{header:?}");
    }
}

#[test]
fn a_request_names_one_host_of_this_machine_when_nobody_needs_a_token() {
    let flows = Flows::start(&[]);
    for (hosts, expected) in [
        ("", "403"),
        ("Host:\r\n", "403"),
        ("Host: :7070\r\n", "403"),
        ("Host: localhost\r\nHost: evil.example\r\n", "403"),
        ("Host: localhost\r\nHost: localhost\r\n", "403"),
        ("Host: localhost\r\n", "200"),
    ] {
        let mut stream = TcpStream::connect(flows.api()).unwrap();
        let head = format!("GET /v1/workflows HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let expected = format!("HTTP/1.1 {expected}");
        assert!(answer.starts_with(&expected), "{hosts:?}: {answer}");
    }
}

/// Whoever may reach it without a token still has to come from this machine, and not through a page in its browser.
#[test]
fn any_host_is_named_only_where_the_server_listens_for_others() {
    let host = [("host", "flows.example")];
    let anonymous = ("TIDEGATE_ALLOW_ANONYMOUS", "true");
    let open = Flows::start(&[anonymous]);
    assert_eq!(open.ask("GET", "/v1/workflows", &host, "").status, 403);
    let open = Flows::start(&[("TIDEGATE_HTTP_ADDR", "0.0.0.0:0"), anonymous]);
    let address = SocketAddr::from(([127, 0, 0, 1], open.api().port()));
    let answer = super::ask(address, "GET", "/v1/workflows", &host, "");
    assert_eq!(answer.status, 200);
}

#[test]
fn it_listens_for_others_only_when_told_who_may_ask() {
    let fails = |more: &[(&str, &str)], reason: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.env_clear().envs(variables(more)).output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{log}");
        assert!(log.contains(reason) && !log.contains("s3cret"), "{log}");
    };
    let everywhere = ("TIDEGATE_HTTP_ADDR", "0.0.0.0:0");
    fails(
        &[everywhere],
        "say who may use it with TIDEGATE_TOKENS_FILE",
    );
    fails(&[("TIDEGATE_HTTP_ADDR", "7070")], "expected host:port");
    fails(&[("TIDEGATE_PARTITIONS", "12")], "expected a power of two");
    fails(&[("TIDEGATE_RETENTION", "1y")], "succeeded=7d,failed=30d");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "root ada s3cret\n").unwrap();
    fails(
        &[
            everywhere,
            ("TIDEGATE_TOKENS_FILE", file.path().to_str().unwrap()),
        ],
        "line 1: the role must be",
    );
    let open = Flows::start(&[everywhere, ("TIDEGATE_ALLOW_ANONYMOUS", "true")]);
    assert!(open.api().ip().is_unspecified());
    std::fs::write(file.path(), "work ada s3cret\n").unwrap();
    let closed = Flows::start(&[
        everywhere,
        ("TIDEGATE_TOKENS_FILE", file.path().to_str().unwrap()),
    ]);
    let address = SocketAddr::from(([127, 0, 0, 1], closed.api().port()));
    let (status, ..) = problem(&super::ask(
        address,
        "POST",
        "/v1/workflows",
        &[],
        &json!({}).to_string(),
    ));
    assert_eq!(status, 401);
}
