//! Servers that answer with anything.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use super::*;

pub(super) const ID: &str = "01M80N3E29M4V4D07KAVEE8P07";
const STEERS: &str = "x\u{1b}]0;title\u{7}\u{9b}2J\u{202e}\u{61c}\u{200b}\u{7f}\nforged";

/// A server that gives an answer for each path, and how often it was asked before. Null is no answer; a text is cut off.
fn server(answer: impl Fn(&str, usize) -> Value + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (count, stream) in listener.incoming().enumerate() {
            respond(&mut stream.unwrap(), |path| answer(path, count));
        }
    });
    address
}

fn respond(stream: &mut TcpStream, answer: impl Fn(&str) -> Value) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let head: Vec<String> = reader
        .by_ref()
        .lines()
        .map(Result::unwrap)
        .take_while(|line| !line.is_empty())
        .collect();
    let length = head.iter().find_map(|line| {
        line.to_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    });
    reader
        .read_exact(&mut vec![0; length.unwrap_or(0)])
        .unwrap();
    let body = match answer(head[0].split(' ').nth(1).unwrap()) {
        Value::Null => return,
        body => body.to_string(),
    };
    let length = body.len() + if body.starts_with('"') { 100 } else { 0 };
    let status = if body.contains("urn:tidegate:problem:store") {
        "503 Service Unavailable"
    } else {
        "200 OK"
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
}

pub(super) fn asked(server: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = binary(&in_json(arguments));
    command.env("TIDEGATE_SERVER", server);
    command
}

pub(super) fn flow(text: &str, number: u64) -> Value {
    let counts =
        json!({ "total": number, "succeeded": number, "failed": number, "running": number });
    let job = json!({ "name": text, "handler": text, "queue": text, "state": text, "attempt": number, "lost": number,
        "retries": number });
    json!({ "id": text, "name": text, "status": text, "created_at": "2026-11-22T03:31:14Z", "job_counts": counts,
        "jobs": [job] })
}

#[test]
fn numbers_of_any_size_are_shown() {
    let server = server(|path, _| match path {
        path if path.contains(":count") => {
            json!({ "total": u64::MAX, "by_status": { "running": u64::MAX, "paused": u64::MAX } })
        }
        path if path.contains('?') && !path.contains(ID) => {
            json!({ "items": [flow("x", u64::MAX)], "next_cursor": null })
        }
        _ => flow("x", u64::MAX),
    });
    run(&mut asked(&server, &["workflow", "list", "-o", "table"])).expect(DONE);
    run(&mut asked(
        &server,
        &["workflow", "show", ID, "-o", "table", "--no-graph"],
    ))
    .expect(DONE);
    run(&mut asked(
        &server,
        &[
            "workflow",
            "cancel",
            "--status",
            "running,paused",
            "--dry-run",
        ],
    ))
    .expect(DONE);
}

#[test]
fn pages_without_end_are_not_read_for_ever() {
    let server = server(|path, count| match path {
        path if path.contains(":count") => json!({ "total": 5, "by_status": { "running": 5 } }),
        path if path.contains(":bulk") => {
            json!({ "matched": 0, "done": 0, "failed": [], "next_cursor": count.to_string() })
        }
        path if path.contains("status=") => {
            json!({ "items": [], "next_cursor": count.to_string() })
        }
        _ => json!({ "items": [], "next_cursor": "same" }),
    });
    let endless = "1000 pages without items";
    run(&mut asked(
        &server,
        &["workflow", "cancel", "--status", "running", "--yes"],
    ))
    .expect(UNAVAILABLE)
    .says(endless);
    run(&mut asked(
        &server,
        &["workflow", "list", "--status", "running"],
    ))
    .expect(UNAVAILABLE)
    .says(endless);
    run(&mut asked(&server, &["workflow", "list"])).expect(DONE);
}

#[test]
fn an_answer_without_end_is_not_held() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
                .unwrap();
            // Until the client has enough of it.
            while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
        }
    });
    run(&mut asked(&address, &["queue", "list"]))
        .expect(UNAVAILABLE)
        .says(&format!(
            "the answer of http://{address} is larger than 64 MiB"
        ));
}

#[test]
fn a_few_pages_without_items_are_usual() {
    let server = server(|path, count| match (path.contains(":count"), count) {
        (true, _) => json!({ "total": 1, "by_status": { "running": 1 } }),
        (_, ..20) => {
            json!({ "matched": 0, "done": 0, "failed": [], "next_cursor": count.to_string() })
        }
        _ => json!({ "matched": 1, "done": 1, "failed": [], "next_cursor": null }),
    });
    let done = run(&mut asked(
        &server,
        &["workflow", "cancel", "--name", "n", "--tag", "x", "--yes"],
    ))
    .expect(DONE)
    .json();
    assert_eq!((&done["matched"], &done["done"]), (&1.into(), &1.into()));
}

const DOUBT: &str = "The request may have been carried out: look before you repeat it";
const NO_DOUBT: &str = "with its idempotency key it can be repeated safely";

#[test]
fn a_write_without_an_answer_may_have_been_done() {
    let files = Files::new(&[("a.yaml", "name: n\njobs:\n- {handler: h}\n")]);
    let file = files.text("a.yaml");
    for answer in [Value::Null, "cut off".into()] {
        let server = server(move |_, _| answer.clone());
        let failed = |arguments: &[&str]| run(&mut asked(&server, arguments)).expect(UNAVAILABLE);
        for arguments in [
            &["workflow", "cancel", ID][..],
            &["workflow", "rm", ID],
            &["workflow", "create", &file],
        ] {
            failed(arguments).says(DOUBT);
        }
        failed(&["workflow", "create", &file, "--key", "k"]).says(NO_DOUBT);
        for arguments in [&["workflow", "show", ID][..], &["queue", "list"]] {
            let failed = failed(arguments);
            assert!(!failed.error.contains("carried out"), "{failed:?}");
        }
    }
}

#[test]
fn a_write_that_the_store_refused_was_not_done() {
    let problem = |nothing_done: bool| {
        json!({ "type": "urn:tidegate:problem:store_unavailable", "code": "store_unavailable", "detail": "OOM",
            "nothing_done": nothing_done })
    };
    for (nothing_done, told) in [(true, "Nothing was done: repeat it"), (false, DOUBT)] {
        let server = server(move |_, _| problem(nothing_done));
        let refused = |arguments: &[&str]| run(&mut asked(&server, arguments)).expect(UNAVAILABLE);
        let written = refused(&["workflow", "cancel", ID]).says("OOM").says(told);
        assert!(
            !nothing_done || !written.error.contains("may have been"),
            "{written:?}"
        );
        assert!(!refused(&["workflow", "show", ID]).error.contains("done"));
    }
}

#[test]
fn what_was_done_before_an_action_broke_off_is_told() {
    let server = server(|path, count| match (path.contains(":count"), count) {
        (true, _) => json!({ "total": 2_500, "by_status": { "running": 2_500 } }),
        (_, 1) => {
            let error = json!({ "code": "state_conflict", "detail": "it is over" });
            let failed = [json!({ "id": ID, "status": 409, "error": error })];
            json!({ "matched": 1_000, "done": 999, "failed": failed, "next_cursor": "1" })
        }
        _ => Value::Null,
    });
    let cancel = ["workflow", "cancel", "--status", "running", "--yes"];
    let ended = run(&mut asked(&server, &cancel))
        .expect(UNAVAILABLE)
        .says(DOUBT)
        .says("it is over");
    let told = ended.json();
    assert_eq!(
        (&told["matched"], &told["done"], &told["failed"][0]["id"]),
        (&2_500.into(), &999.into(), &ID.into())
    );
}

/// A server whose one workflow is answered with this status.
fn refusing(status: u16) -> String {
    server(move |path, _| match path.contains(":count") {
        true => json!({ "total": 1, "by_status": { "failed": 1 } }),
        _ => {
            let error = json!({ "code": "code", "detail": STEERS });
            let failed = [json!({ "id": STEERS, "status": status, "error": error })];
            json!({ "matched": 1, "done": 0, "failed": failed, "next_cursor": null })
        }
    })
}

#[test]
fn a_fault_of_the_server_is_no_refusal() {
    let end = |status: u16, verb: &str, code: i32| {
        let server = refusing(status);
        let ended = run(&mut asked(
            &server,
            &["workflow", verb, "--status", "failed", "--yes"],
        ))
        .expect(code);
        assert!(
            !ended.error.lines().any(|line| line.starts_with("forged")),
            "{ended:?}"
        );
        ended
    };
    end(503, "retry", UNAVAILABLE)
        .says("1 of 1 workflow failed, 1 of them by a fault of the server");
    end(409, "retry", REFUSED).says("1 of 1 workflow refused");
    end(404, "retry", REFUSED);
    // Somebody else removed it meanwhile.
    let removed = end(404, "rm", DONE).json();
    assert_eq!(
        (&removed["done"], &removed["failed"]),
        (&1.into(), &json!([]))
    );
}

#[test]
fn a_server_cannot_steer_the_terminal() {
    let server = server(|path, _| match path {
        path if path.contains("/jobs/") => flow(STEERS, 1)["jobs"][0].clone(),
        path if path.contains("order=") => {
            json!({ "items": [flow(STEERS, 1)], "next_cursor": null })
        }
        _ => flow(STEERS, 1),
    });
    for arguments in [
        &["workflow", "cancel", ID][..],
        &["workflow", "cancel", ID, "-o", "json"],
        &["workflow", "show", ID],
        &["workflow", "show", ID, "-o", "wide"],
        &["workflow", "list"],
        &["job", "show", ID, "a"],
        &["job", "show", ID, "a", "-o", "json"],
    ] {
        let (_, text) = on_terminal(&mut asked(&server, arguments), 200);
        assert!(text.contains("title"), "{arguments:?}: {text:?}");
        let steers = [
            "\u{1b}]", "\u{7}", "\u{9b}", "\u{202e}", "\u{61c}", "\u{200b}", "\u{7f}",
        ];
        assert!(
            !steers.iter().any(|steers| text.contains(steers)),
            "{arguments:?}: {text:?}"
        );
        // A name with a line break in it must not look like two rows.
        assert!(
            !text.lines().any(|line| line.starts_with("forged")),
            "{arguments:?}: {text:?}"
        );
    }
}

#[test]
fn the_worker_of_the_examples_reports_again_what_the_store_did_not_take() {
    let (sender, seen) = std::sync::mpsc::channel();
    let claims = std::sync::atomic::AtomicUsize::new(0);
    let server = server(move |path, count| {
        let first = path.ends_with("claim")
            && claims.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        let job = json!({ "lease": "the-lease", "handler": "fetch", "params": { "day": "monday" }, "inputs": [] });
        let status = if count < 3 { 503 } else { 200 };
        sender.send(path.to_owned()).unwrap();
        json!({ "jobs": if first { json!([job]) } else { json!([]) }, "reports": [{ "status": status }] })
    });
    let mut worker = std::process::Command::new("python3");
    worker
        .arg(crate::support::repository().join("examples/workflows/worker.py"))
        .env("TIDEGATE_SERVER", format!("http://{server}"));
    let mut worker = worker.stderr(Stdio::null()).spawn().unwrap();
    let next = || {
        seen.recv_timeout(std::time::Duration::from_secs(30))
            .unwrap_or_default()
    };
    let paths: Vec<String> = (0..5).map(|_| next()).collect();
    worker.kill().unwrap();
    worker.wait().unwrap();
    let [claim, report] = ["/v1/jobs/claim", "/v1/jobs/report"];
    assert_eq!(paths, [claim, report, report, report, claim]);
}
