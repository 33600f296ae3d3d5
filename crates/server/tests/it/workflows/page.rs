//! The page: its files, signing in, the overview, and one stream for all that a browser watches.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::watch::Events;
use super::{Flows, on_each_store, problem, workflow};
use crate::support::{PATIENCE, await_that, post};

/// A server with a token for each role. One has all characters that mean something in a cookie.
fn with_tokens() -> (Flows, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "read ui r-secret\nwork sdk w;=\"%\nadmin ada a-secret\n",
    )
    .unwrap();
    let flows = Flows::start(&[("TIDEGATE_TOKENS_FILE", file.path().to_str().unwrap())]);
    (flows, file)
}

/// Signs in. Returns the cookie as a browser sends it.
fn signed_in(flows: &Flows, token: &str) -> String {
    let answer = flows.ask(
        "POST",
        "/v1/session",
        &[("tidegate-page", "1")],
        &json!({ "token": token }).to_string(),
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict") && !answer.body.contains("secret"),
        "{answer:?}"
    );
    cookie.split(';').next().unwrap().to_owned()
}

#[test]
fn its_files_are_served_and_kept_until_they_change() {
    let flows = Flows::start(&[]);
    for (path, media) in [
        ("/", "text/html; charset=utf-8"),
        ("/?theme=dark", "text/html; charset=utf-8"),
        ("/assets/app.js", "text/javascript; charset=utf-8"),
        ("/assets/live.js", "text/javascript; charset=utf-8"),
        ("/assets/app.css", "text/css; charset=utf-8"),
        ("/assets/icon.svg", "image/svg+xml"),
        ("/assets/licenses.txt", "text/plain; charset=utf-8"),
    ] {
        let answer = flows.ask("GET", path, &[], "");
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some(media)),
            "{path}"
        );
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.contains("script-src 'self';") && !policy.contains("unsafe"),
            "{policy}"
        );
        let tag = answer.header("etag").unwrap();
        let again = flows.ask("GET", path, &[("if-none-match", tag)], "");
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{path}");
    }
    for path in [
        "/assets/",
        "/assets/index.html",
        "/assets/..%2Fapp.js",
        "/assets/app.js/x",
    ] {
        assert_eq!(flows.ask("GET", path, &[], "").status, 404, "{path}");
    }
}

#[test]
fn its_files_are_compressed_for_who_takes_that() {
    let flows = Flows::start(&[]);
    let ask = |accepts: &str| {
        let mut stream = TcpStream::connect(flows.server.started.addresses.api.unwrap()).unwrap();
        let about = format!("host: localhost\r\naccept-encoding: {accepts}\r\nconnection: close");
        write!(stream, "GET /assets/app.js HTTP/1.1\r\n{about}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        (
            String::from_utf8(answer[..end].to_vec()).unwrap(),
            answer[end + 4..].to_vec(),
        )
    };
    let (_, whole) = ask("identity");
    for accepts in ["gzip", "br, GZIP;q=0.5", "deflate , gzip"] {
        let (head, body) = ask(accepts);
        assert!(
            head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"),
            "{accepts}: {head}"
        );
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*body)
            .read_to_end(&mut unpacked)
            .unwrap();
        assert!(
            unpacked == whole && body.len() < whole.len() / 2,
            "{accepts}: {} bytes",
            body.len()
        );
    }
    for accepts in ["", "br", "gzip;q=0", "gzip; q=0.0", "notgzip"] {
        let (head, body) = ask(accepts);
        assert!(
            !head.contains("content-encoding") && body == whole,
            "{accepts}: {head}"
        );
    }
}

#[test]
fn a_browser_signs_in_with_a_token_that_scripts_cannot_read() {
    let (flows, _file) = with_tokens();
    let show = |headers: &[(&str, &str)]| -> Value {
        serde_json::from_str(&flows.ask("GET", "/v1/session", headers, "").body).unwrap()
    };
    assert_eq!(
        show(&[]),
        json!({"sign_in": true, "role": null, "name": null, "version": null})
    );
    let refused = flows.ask(
        "POST",
        "/v1/session",
        &[("tidegate-page", "1")],
        r#"{"token":"x-secret"}"#,
    );
    assert_eq!(
        (problem(&refused).1.as_str(), refused.header("set-cookie")),
        ("unauthorized", None)
    );
    assert!(!refused.body.contains("x-secret"));
    // A page of another site cannot sign its reader in, and so not under its own name.
    let forged = flows.ask("POST", "/v1/session", &[], r#"{"token":"a-secret"}"#);
    assert_eq!(problem(&forged).0, 403);
    // Whatever characters a token has.
    let cookie = signed_in(&flows, "w;=\"%");
    assert_eq!(
        (
            &show(&[("cookie", &cookie)])["role"],
            &show(&[("cookie", &cookie)])["name"]
        ),
        (&json!("work"), &json!("sdk"))
    );
    let cookie = signed_in(&flows, " a-secret ");
    let many = format!("a=b; {cookie}; theme=dark");
    assert_eq!(show(&[("cookie", &many)])["role"], "admin");
    let over_tls = [
        ("tidegate-page", "1"),
        ("origin", "https://ops.example"),
        ("host", "ops.example"),
    ];
    let answer = flows.ask("POST", "/v1/session", &over_tls, r#"{"token":"a-secret"}"#);
    assert!(answer.header("set-cookie").unwrap().ends_with("; Secure"));
    let out = flows.ask(
        "DELETE",
        "/v1/session",
        &[("cookie", &cookie), ("tidegate-page", "1")],
        "",
    );
    assert_eq!(
        (out.status, out.header("set-cookie")),
        (204, Some("tidegate=; HttpOnly; SameSite=Strict; Max-Age=0"))
    );
}

#[test]
fn without_tokens_everybody_on_this_machine_is_admin() {
    let flows = Flows::start(&[]);
    let session = flows.get("/v1/session");
    assert_eq!(
        (&session["sign_in"], &session["role"]),
        (&json!(false), &json!("admin"))
    );
    let stranger = flows.ask("GET", "/v1/session", &[("host", "evil.example")], "");
    assert_eq!(problem(&stranger).0, 403);
}

/// Each route of the description: what a cookie may do is what its token may do, and only with the header of the page.
#[test]
fn a_cookie_changes_nothing_without_the_header_of_the_page() {
    let (flows, _file) = with_tokens();
    let (admin, reader) = (signed_in(&flows, "a-secret"), signed_in(&flows, "r-secret"));
    let description: Value = serde_json::from_str(
        &flows
            .ask("GET", "/v1/openapi.json", &[("cookie", &reader)], "")
            .body,
    )
    .unwrap();
    let mut routes = 0;
    for (path, operations) in description["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if operation.get("security").is_none() {
                continue;
            }
            routes += 1;
            let (method, about) = (
                method.to_uppercase(),
                operation["description"].as_str().unwrap(),
            );
            let path = path
                .replace("{id}", "01M85NP2YQ8XCYNT3A18F6YK00")
                .replace("{name}", "x")
                .replace("{worker}", "x");
            // Streams do not end, and are tried elsewhere.
            if path.ends_with("/events") || path == "/v1/live" {
                continue;
            }
            assert_eq!(
                flows.ask(&method, &path, &[], "").status,
                401,
                "{method} {path}"
            );
            let by_page = [("cookie", reader.as_str()), ("tidegate-page", "1")];
            let read = status(&flows, &method, &path, &by_page);
            assert_eq!(
                read == 403,
                !about.contains("Role: read."),
                "{method} {path}: {read}"
            );
            let bare = status(&flows, &method, &path, &[("cookie", &admin)]);
            assert_eq!(bare == 403, method != "GET", "{method} {path}: {bare}");
        }
    }
    assert!(routes > 50, "{routes}");
}

fn status(flows: &Flows, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    flows.ask(method, path, headers, "").status
}

#[test]
fn the_overview_has_rates_of_the_last_hour_and_of_now() {
    on_each_store(|flows| {
        let overview = flows.get("/v1/overview");
        assert_eq!(overview["step_ms"], 10_000);
        let names: Vec<&String> = overview["series"].as_object().unwrap().keys().collect();
        assert_eq!(
            names,
            overview["now"]["values"]
                .as_object()
                .unwrap()
                .keys()
                .collect::<Vec<_>>()
        );
        let body =
            r#"{"domain":"sample","descriptors":[{"entries":[{"key":"client","value":"me"}]}]}"#;
        flows.create(workflow("w", "a"));
        let values = || flows.get("/v1/overview")["now"]["values"].clone();
        let is_seen = |name: &str| values()[name].as_f64().is_some_and(|number| number > 0.0);
        flows.create(workflow("w", "a"));
        await_that("workflows are seen", || is_seen("workflows_created"));
        await_that("calls and their times are seen", || {
            post(flows.server.http(), "/json", body);
            is_seen("calls") && is_seen("decision_p50_ms")
        });
        await_that("workflows are counted", || {
            flows.get("/v1/overview")["now"]["workflows"]["running"] == 2
        });
        await_that("the last seconds are seen", || {
            let seconds = flows.get("/v1/overview?range=5m");
            assert_eq!(seconds["step_ms"], 1_000);
            let last = |name: &str| {
                let points = seconds["series"][name].as_array().unwrap();
                points.last().and_then(|point| point.as_f64())
            };
            last("workflows_running") == Some(2.0) && last("calls").is_some()
        });
        for wrong in ["range=2h", "range=5M", "range=1h&range=1h", "of=1h"] {
            let path = format!("/v1/overview?{wrong}");
            assert_eq!(flows.ask("GET", &path, &[], "").status, 422, "{wrong}");
        }
    });
}

#[test]
fn one_stream_tells_of_all_that_a_browser_watches() {
    on_each_store(|flows| {
        let (one, two) = (
            flows.create(workflow("one", "a")),
            flows.create(workflow("two", "b")),
        );
        let gone = one.replace(|character: char| character.is_ascii_digit(), "0");
        let watch =
            format!("/v1/live?watch=overview,workflow:{one},workflow:{two}@0,workflow:{gone}");
        let mut events = Events::of_path(flows.api(), &watch);
        let mut about = Value::Null;
        let mut found = std::collections::BTreeSet::new();
        let begin = std::time::Instant::now();
        while found.len() < 4 && begin.elapsed() < PATIENCE {
            let (name, data) = events.next().unwrap();
            match name.as_str() {
                "of" => about = data["workflow"].clone(),
                "overview" => {
                    assert!(
                        about.is_null()
                            && data["values"]["calls"].is_number()
                                | data["values"]["calls"].is_null()
                    );
                    found.insert("overview".to_owned());
                }
                "workflow" | "removed" => {
                    assert_eq!(data["id"], about, "{name}");
                    found.insert(format!("{name} {}", data["id"].as_str().unwrap()));
                }
                _ => {}
            }
        }
        let expected = [
            format!("workflow {one}"),
            format!("workflow {two}"),
            format!("removed {gone}"),
            "overview".into(),
        ];
        assert_eq!(found, expected.into_iter().collect());
        flows.post(&format!("/v1/workflows/{two}:cancel"), json!({}));
        loop {
            let (name, data) = events.next().expect("the stream goes on");
            if name == "of" {
                about = data["workflow"].clone();
            }
            if name == "workflow" && about == json!(two) && data["status"] == "cancelled" {
                break;
            }
        }
    });
}

#[test]
fn what_cannot_be_watched_is_told() {
    let flows = Flows::start(&[]);
    for query in [
        "",
        "?watch=",
        "?watch=all",
        "?watch=workflow:nobody",
        "?what=overview",
        "?watch=overview&watch=overview",
    ] {
        let answer = flows.ask("GET", &format!("/v1/live{query}"), &[], "");
        assert_eq!(problem(&answer).1, "invalid_field", "{query}: {answer:?}");
    }
}
