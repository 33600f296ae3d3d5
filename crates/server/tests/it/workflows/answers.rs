//! What a client reads of an answer: its head, why it is refused, and what the log says of it.

mod log;

use super::{Flows, workflow};

const NOBODY: &str = "01M7Z85C8H08RJZ5Q5JGPKMY04";

#[test]
fn who_sends_too_much_can_read_why() {
    // A client that writes first and reads then must not find the connection reset.
    let flows = Flows::start(&[("TIDEGATE_MAX_BODY", "1000000")]);
    let api = flows.api();
    let mut stream = std::net::TcpStream::connect(api).unwrap();
    let body = vec![b'x'; 7_000_000];
    let head = format!(
        "POST /v1/workflows HTTP/1.1\r\nhost: {api}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    std::io::Write::write_all(&mut stream, &body).unwrap();
    let mut answer = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[test]
fn a_head_is_answered_as_a_get_without_the_body() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    for (path, status) in [
        (format!("/v1/workflows/{id}"), 200),
        (format!("/v1/workflows/{NOBODY}"), 404),
    ] {
        let answer = flows.ask("HEAD", &path, &[], "");
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (status, ""),
            "{path}"
        );
        assert_ne!(answer.header("content-length"), Some("0"), "{path}");
    }
}
