//! The workflows of README.md, and the worker of examples/workflows.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{ROOT, Worker, blocks, read};
use crate::support::{Answer, PATIENCE, Server, http_with};

/// The calls of a shell block: paths and bodies.
fn calls(block: &str) -> Vec<(&str, &str)> {
    let call = |rest| {
        let (path, rest) = str::split_once(rest, " -d '").unwrap();
        (path, rest.split_once('\'').unwrap().0)
    };
    block
        .split("curl -s localhost:7070")
        .skip(1)
        .map(call)
        .collect()
}

/// Runs a command of a shell block.
fn command(line: &str, address: &str) -> Command {
    let mut words = line.split_whitespace();
    let program = match words.next().unwrap() {
        "tidegate" => env!("CARGO_BIN_EXE_tidegate"),
        other => other,
    };
    let mut command = Command::new(program);
    command
        .current_dir(ROOT)
        .args(words)
        .env("TIDEGATE_SERVER", address);
    command
}

fn ask(api: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    http_with(api, method, path, &[("host", "localhost")], body.as_bytes())
}

#[test]
fn the_readmes_workflows_succeed_in_the_order_in_which_they_are_shown() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let server = Server::start_bare(&[
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data),
    ]);
    let api = server.started.addresses.api.unwrap();
    let address = format!("http://{api}");
    let readme = read("README.md");
    let section = readme
        .split("\n## Workflows\n")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    let shown = blocks(section, "sh");

    let mut lease = String::new();
    for (path, body) in calls(shown[0]) {
        let answer = ask(api, "POST", path, &body.replace("<lease>", &lease));
        assert!(answer.status < 300, "{path}: {}", answer.body);
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        if let Some(claimed) = answer["jobs"][0]["lease"].as_str() {
            lease = claimed.to_owned();
        }
    }
    let _worker = Worker(
        command(shown[1].trim(), &address)
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    for line in shown[2].lines() {
        let output = command(line, &address).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {text}");
    }
    let succeeded: Value =
        serde_json::from_str(&ask(api, "GET", "/v1/workflows?status=succeeded", "").body).unwrap();
    assert_eq!(
        succeeded["items"].as_array().unwrap().len(),
        2,
        "{succeeded}"
    );
}

/// Reads one request and returns its body.
fn request(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the request ends early: {text}");
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            return body.to_owned();
        }
    }
}

/// The worker ended with a traceback when the server was stopped.
#[test]
fn the_example_of_a_worker_outlives_a_server() {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut worker = command("python3 examples/workflows/worker.py", &address);
    let mut worker = Worker(worker.stderr(Stdio::piped()).spawn().unwrap());
    let accept = || listener.accept().unwrap().0;
    // A server that dies, one that is about to stop, and one that works.
    request(&mut accept());
    for (status, body) in [
        ("503 Service Unavailable", "{}"),
        (
            "200 OK",
            r#"{"jobs": [{"lease": "l", "handler": "fetch", "params": {"day": "friday"}, "inputs": []}]}"#,
        ),
    ] {
        let mut stream = accept();
        request(&mut stream);
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .unwrap();
    }
    let report: Value = serde_json::from_str(&request(&mut accept())).unwrap();
    assert_eq!(report["reports"][0]["output"]["day"], "friday", "{report}");

    worker.0.kill().unwrap();
    let mut log = String::new();
    worker
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    assert!(
        log.lines().count() >= 2 && log.lines().all(|line| line.starts_with("worker: ")),
        "{log}"
    );
}
