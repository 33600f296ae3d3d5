//! A client as it should be: what was not answered, or refused for now, is asked again.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde_json::Value;

/// Far above what any answer takes, a failover of Redis included.
const LONGEST: Duration = Duration::from_secs(15);
/// Between two attempts: a server that starts is found soon, and is not swamped.
const PAUSE: Duration = Duration::from_millis(10);

/// One connection, to one server of several.
pub(crate) struct Client {
    servers: Arc<[SocketAddr]>,
    at: usize,
    stream: Option<BufReader<TcpStream>>,
    /// Nobody wants an answer any more.
    over: Arc<AtomicBool>,
}

impl Client {
    /// A client that begins with one of the servers, and changes to the next when it gets no answer.
    pub(crate) fn new(servers: Arc<[SocketAddr]>, first: usize, over: Arc<AtomicBool>) -> Self {
        let at = first % servers.len();
        Self {
            servers,
            at,
            stream: None,
            over,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Asks until it is answered with something else than "not now"; none when the test is over.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Option<(u16, Value)> {
        let request = request(method, path, headers, body);
        while !self.is_over() {
            match self.attempt(&request) {
                Ok((503, _)) => {}
                Ok((status, body)) => {
                    return Some((status, serde_json::from_slice(&body).unwrap()));
                }
                Err(_) => {
                    self.stream = None;
                    self.at = (self.at + 1) % self.servers.len();
                }
            }
            std::thread::park_timeout(PAUSE);
        }
        None
    }

    /// Asks once. None when no answer came; then the next call goes to the next server.
    pub(crate) fn ask_once(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Option<(u16, Value)> {
        match self.attempt(&request(method, path, headers, body)) {
            Ok((status, body)) if body.is_empty() => Some((status, Value::Null)),
            Ok((status, body)) => Some((status, serde_json::from_slice(&body).unwrap())),
            Err(_) => {
                self.stream = None;
                self.at = (self.at + 1) % self.servers.len();
                std::thread::park_timeout(PAUSE);
                None
            }
        }
    }

    /// Asks, and goes away before the answer.
    pub(crate) fn ask_and_leave(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        if let Ok(mut stream) = connect(self.servers[self.at]) {
            // A server that dies does not hear of it.
            let _written = stream.write_all(request(method, path, headers, body).as_bytes());
        }
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Option<(u16, Value)> {
        self.ask("POST", path, "", &body.to_string())
    }

    fn attempt(&mut self, request: &str) -> io::Result<(u16, Vec<u8>)> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(BufReader::new(connect(self.servers[self.at])?)),
        };
        stream.get_mut().write_all(request.as_bytes())?;
        read_answer(stream)
    }
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    // A port that nobody listens on may be given to the very socket that asks for it.
    if stream.local_addr()? == address {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LONGEST))?;
    Ok(stream)
}

/// An answer that came whole; what a dying server left half-said is none.
fn read_answer(stream: &mut impl BufRead) -> io::Result<(u16, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .ok_or(ErrorKind::UnexpectedEof)?;
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            _ if !line.ends_with('\n') => return Err(ErrorKind::UnexpectedEof.into()),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap()
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status, body))
}
