//! Servers that accept connections and say nothing, and streams that end again and again.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};

use super::hostile::{ID, asked, flow};
use super::*;
use crate::support::PATIENCE;

/// What a server does with a connection.
enum Deed {
    Answer(String),
    /// It promises more than it says.
    CutOff(String),
    Silence,
}

/// A server that does this with a request for a path that it was asked for so often before. It tells of each silence.
fn server(deed: impl Fn(&str, usize) -> Deed + Send + 'static) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, told) = sync_channel(100);
    std::thread::spawn(move || {
        let (mut paths, mut silent) = (Vec::new(), Vec::new());
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let path = path(&stream);
            let count = paths.iter().filter(|&known| *known == path).count();
            let (body, more) = match deed(&path, count) {
                Deed::Answer(body) => (body, 0),
                Deed::CutOff(body) => (body, 1),
                Deed::Silence => {
                    silent.push(stream);
                    tell.send(()).unwrap();
                    continue;
                }
            };
            paths.push(path);
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len() + more
            );
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    (address, told)
}

fn path(stream: &TcpStream) -> String {
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    head[0].split(' ').nth(1).unwrap().to_owned()
}

fn workflow_that(status: &str) -> String {
    let mut workflow = flow("x", 1);
    (workflow["id"], workflow["status"]) = (ID.into(), status.into());
    workflow.to_string()
}

fn event(status: &str) -> String {
    format!("event: workflow\r\ndata: {}\r\n\r\n", workflow_that(status))
}

/// Starts a command, interrupts it when the server has become silent, and returns how it ended.
fn interrupted(command: &mut Command, silence: &Receiver<()>) -> Ended {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    silence.recv_timeout(PATIENCE).unwrap();
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let (mut out, mut error) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut error)
        .unwrap();
    Ended {
        code: child.wait().unwrap().code(),
        out,
        error,
    }
}

#[test]
fn a_server_that_never_answers_is_left_at_the_timeout_and_at_an_interrupt() {
    let (server, silence) = server(|_, _| Deed::Silence);
    let files = Files::new(&[("a.yaml", "name: n\njobs:\n- {name: a, handler: h}\n")]);
    let file = files.text("a.yaml");
    for (verb, what) in [
        ("wait", ID),
        ("wait", "key:k"),
        ("watch", ID),
        ("watch", "name:n"),
        ("run", &file),
    ] {
        let command = ["workflow", verb, what];
        let late = run(&mut asked(
            &server,
            &[&command[..], &["--timeout", "100ms"]].concat(),
        ))
        .expect(TIMED_OUT);
        silence.recv_timeout(PATIENCE).unwrap();
        assert!(
            late.error.contains("did not answer within --timeout"),
            "{late:?}"
        );
        let ended = interrupted(&mut asked(&server, &command), &silence).expect(INTERRUPTED);
        assert!(
            ended.error.contains("interrupted: ") && ended.error.contains("had not answered"),
            "{ended:?}"
        );
        assert_eq!((late.out, ended.out), (String::new(), String::new()));
        assert_eq!(
            ended.error.contains("may or may not have been created"),
            verb == "run",
            "{}",
            ended.error
        );
    }
}

#[test]
fn a_server_that_becomes_silent_is_left_at_the_timeout_and_at_an_interrupt() {
    let (server, silence) = server(|path, _| match path {
        path if path.ends_with("/events") => Deed::Silence,
        _ => Deed::Answer(workflow_that("running")),
    });
    for verb in ["wait", "watch"] {
        let command = ["workflow", verb, ID];
        let late = run(&mut asked(
            &server,
            &[&command[..], &["--timeout", "2s"]].concat(),
        ))
        .expect(TIMED_OUT);
        silence.recv_timeout(PATIENCE).unwrap();
        assert_eq!(
            (&late.json()["status"], late.error.as_str()),
            (&"running".into(), ""),
            "{verb}"
        );
        interrupted(&mut asked(&server, &command), &silence)
            .expect(INTERRUPTED)
            .says(&format!(
                "workflow {ID} continues; `tidegate workflow watch {ID}` follows it again"
            ));
    }
}

#[test]
fn streams_that_end_are_not_told_of_when_the_next_one_comes_at_once() {
    let (server, _) = server(|path, count| match path {
        path if path.contains("/jobs") => {
            Deed::Answer("{\"items\": [], \"next_cursor\": null}".to_owned())
        }
        path if !path.ends_with("/events") => Deed::Answer(workflow_that("running")),
        _ => match count {
            0 => Deed::Answer(event("running")),
            1 => Deed::CutOff(event("running")),
            _ => Deed::Answer(event("succeeded")),
        },
    });
    let ended = run(&mut asked(&server, &["workflow", "watch", ID])).expect(DONE);
    assert_eq!(
        (ended.out.lines().count(), ended.error.as_str()),
        (2, ""),
        "{ended:?}"
    );
}
