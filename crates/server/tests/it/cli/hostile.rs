//! Servers that answer with anything.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use super::*;

pub(super) const ID: &str = "01M80N3E29M4V4D07KAVEE8P07";
const STEERS: &str = "x\u{1b}]0;title\u{7}\u{9b}2J\u{202e}\u{61c}\u{200b}\u{7f}\nforged";

/// A server that gives an answer for each path, and how often it was asked before.
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
    let head: Vec<String> = reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    let length = head.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    reader.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
    let body = answer(head[0].split(' ').nth(1).unwrap()).to_string();
    let length = body.len();
    write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
}

pub(super) fn asked(server: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = binary(arguments);
    command.env("TIDEGATE_SERVER", server);
    command
}

pub(super) fn flow(text: &str, number: u64) -> Value {
    let counts = json!({ "total": number, "succeeded": number, "failed": number, "running": number });
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
    run(&mut asked(&server, &["workflow", "show", ID, "-o", "table", "--no-graph"])).expect(DONE);
    run(&mut asked(&server, &["workflow", "cancel", "--status", "running,paused", "--dry-run"])).expect(DONE);
}

#[test]
fn pages_without_end_are_not_read_for_ever() {
    let server = server(|path, count| match path {
        path if path.contains(":count") => json!({ "total": 5, "by_status": { "running": 5 } }),
        path if path.contains(":bulk") => {
            json!({ "matched": 0, "done": 0, "failed": [], "next_cursor": count.to_string() })
        }
        _ => json!({ "items": [], "next_cursor": "same" }),
    });
    run(&mut asked(&server, &["workflow", "cancel", "--status", "running", "--yes"])).expect(DONE);
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
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").unwrap();
            // Until the client has enough of it.
            while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
        }
    });
    run(&mut asked(&address, &["queue", "list"]))
        .expect(UNAVAILABLE)
        .says(&format!("the answer of http://{address} is larger than 64 MiB"));
}

#[test]
fn a_server_cannot_steer_the_terminal() {
    let server = server(|path, _| match path {
        path if path.contains("/jobs/") => flow(STEERS, 1)["jobs"][0].clone(),
        _ => flow(STEERS, 1),
    });
    for arguments in [
        &["workflow", "cancel", ID][..],
        &["workflow", "cancel", ID, "-o", "json"],
        &["workflow", "show", ID],
        &["job", "show", ID, "a"],
        &["job", "show", ID, "a", "-o", "json"],
    ] {
        let (_, text) = on_terminal(&mut asked(&server, arguments), 200);
        assert!(text.contains("title"), "{arguments:?}: {text:?}");
        let steers = ["\u{1b}]", "\u{7}", "\u{9b}", "\u{202e}", "\u{61c}", "\u{200b}", "\u{7f}"];
        assert!(!steers.iter().any(|steers| text.contains(steers)), "{arguments:?}: {text:?}");
        // Only a table has lines for the lines of a name.
        let is_line = text.lines().any(|line| line.starts_with("forged"));
        assert!(!is_line || arguments.starts_with(&["workflow", "show"]), "{arguments:?}: {text:?}");
    }
}
