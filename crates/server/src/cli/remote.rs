//! A client of a server's API: one connection, opened when it is needed.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::exit::{Exit, Failure};
use super::screen::{Format, Screen};
use super::wire::Problem;
use crate::settings::Client;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest wait for an answer to what the server does at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest answer: a workflow of the largest size, in full, is some 100 MB.
const LARGEST: usize = 1 << 30;

/// Which server, and how its answers are shown.
#[derive(Debug, Clone, Args)]
pub(super) struct Options {
    /// The server to ask [default: TIDEGATE_SERVER, or http://127.0.0.1:7070]
    #[arg(long, global = true, help_heading = "Server and output", value_name = "URL")]
    server: Option<String>,
    /// File that has the token in it; TIDEGATE_TOKEN has the token itself
    #[arg(long, global = true, help_heading = "Server and output", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How to print [default: table on a terminal, json elsewhere]
    #[arg(long, short, global = true, help_heading = "Server and output", value_name = "FORMAT")]
    output: Option<Format>,
}

/// A server.
#[derive(Debug)]
pub(super) struct Remote {
    target: Target,
    token: Option<HeaderValue>,
    connection: Option<Connection>,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
    /// What comes before the paths of the API.
    prefix: String,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Something to ask a server.
#[derive(Debug)]
pub(super) struct Ask {
    method: Method,
    path: String,
    body: Bytes,
    patience: Duration,
}

impl Ask {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new(), patience: PATIENCE }
    }

    pub(super) fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    pub(super) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(path) }
    }

    /// Waits longer for the answer, because it was asked to come later.
    pub(super) fn waiting(self, more: Duration) -> Self {
        Self { patience: PATIENCE + more, ..self }
    }
}

impl Options {
    /// The server and the screen that these options and the environment say.
    pub(super) fn open(&self) -> Result<(Remote, Screen), Failure> {
        let settings = Client::from_environment();
        let screen = Screen::new(self.output, settings.locale);
        let token = match &self.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                Some(text.map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))?)
            }
            None => settings.token,
        };
        let secret = |token: &String| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        let token = token
            .as_ref()
            .map(|token| secret(token).ok_or_else(|| Failure::usage("the token has characters that no token has")));
        let target = Target::parse(self.server.as_ref().unwrap_or(&settings.server)).map_err(Failure::usage)?;
        Ok((Remote { target, token: token.transpose()?, connection: None }, screen))
    }

    /// The screen alone.
    pub(super) fn screen(&self) -> Screen {
        Screen::new(self.output, Client::from_environment().locale)
    }
}

impl Target {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = |reason: &str| format!("the server '{text}': {reason}");
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().map_err(|_| wrong("expected an address such as http://127.0.0.1:7070"))?;
        // What the parser takes for no port at all is one that cannot be read.
        let colon =
            uri.authority().is_some_and(|authority| !authority.as_str().ends_with(uri.host().unwrap_or_default()));
        match (uri.scheme_str(), uri.host(), uri.port_u16()) {
            (Some("http"), Some(host), port) if !host.is_empty() && colon == port.is_some() => Ok(Self {
                host: host.to_owned(),
                port: port.unwrap_or(80),
                prefix: uri.path().trim_end_matches('/').to_owned(),
            }),
            (Some("https"), ..) => {
                Err(wrong("this client does not speak TLS; ask through a tunnel or a proxy beside it"))
            }
            _ => Err(wrong("expected an address such as http://127.0.0.1:7070")),
        }
    }

    fn shown(&self) -> String {
        format!("http://{}:{}{}", self.host, self.port, self.prefix)
    }
}

impl Remote {
    /// Asks, and returns the text of the answer. When the future is dropped, the server may do it all the same.
    pub(super) async fn text(&mut self, ask: &Ask) -> Result<String, Failure> {
        let shown = self.target.shown();
        let answer = async {
            let response = self.send(ask, "application/json").await?;
            whole(response, &shown).await
        };
        let late = || Failure::unavailable(format!("{shown} did not answer within {} s", ask.patience.as_secs()));
        timeout(ask.patience, answer).await.map_err(|_| late())?
    }

    /// Asks, and reads the answer.
    pub(super) async fn read<T: DeserializeOwned>(&mut self, ask: &Ask) -> Result<T, Failure> {
        let text = self.text(ask).await?;
        self.parse(&text)
    }

    /// Reads an answer, or a part of it.
    pub(super) fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| {
            let shown = self.target.shown();
            Failure::unavailable(format!("what answers at {shown} is not a tidegate server of this version: {error}"))
        })
    }

    /// Asks for events, which come as long as the answer is read.
    pub(super) async fn stream(&mut self, path: &str) -> Result<Incoming, Failure> {
        let shown = self.target.shown();
        let response = timeout(PATIENCE, self.send(&Ask::get(path), "text/event-stream")).await;
        let late = |_| Failure::unavailable(format!("{shown} did not answer within {} s", PATIENCE.as_secs()));
        let response = response.map_err(late)??;
        // The connection belongs to the events from here on, and the answer keeps it at work.
        if response.status().is_success() { Ok(response.into_body()) } else { Err(refusal(response, &shown).await) }
    }

    async fn send(&mut self, ask: &Ask, accept: &'static str) -> Result<Response<Incoming>, Failure> {
        let target = self.target.clone();
        let lost = |error: hyper::Error| {
            let doubt = if ask.method == Method::GET { "" } else { "; it may or may not have done what was asked" };
            Failure::unavailable(format!("{} went away: {error}{doubt}", target.shown()))
        };
        let request = self.request(ask, accept)?;
        self.sender().await?.send_request(request).await.map_err(lost)
    }

    /// The open connection, or a new one.
    async fn sender(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, Failure> {
        let usable = match &mut self.connection {
            Some(connection) => connection.sender.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            self.connection = Some(self.connect().await?);
        }
        Ok(&mut self.connection.as_mut().expect("it was just opened").sender)
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let Target { host, port, .. } = &self.target;
        let nobody = |reason: &dyn std::fmt::Display| {
            let shown = self.target.shown();
            Failure::unavailable(format!(
                "no server answers at {shown}: is it running? `tidegate` starts one\n  ({reason})"
            ))
        };
        let address = (host.trim_start_matches('[').trim_end_matches(']'), *port);
        let stream = timeout(CONNECT, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_| nobody(&"it did not accept within 5 s"))?.map_err(|error| nobody(&error))?;
        // It only delays small requests when it fails.
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| nobody(&error))?;
        let task = tokio::spawn(async {
            // What goes wrong, the one who asks hears too.
            let _ = connection.await;
        });
        Ok(Connection { sender, task })
    }

    fn request(&self, ask: &Ask, accept: &'static str) -> Result<Request<Full<Bytes>>, Failure> {
        let Target { host, port, prefix } = &self.target;
        let request = Request::builder().method(ask.method.clone()).uri(format!("{prefix}{}", ask.path));
        let mut request = request.header(HOST, format!("{host}:{port}")).header(ACCEPT, accept);
        if !ask.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let wrong = |error: http::Error| Failure::usage(format!("it cannot be asked for: {error}"));
        request.body(Full::new(ask.body.clone())).map_err(wrong)
    }
}

async fn whole(response: Response<Incoming>, shown: &str) -> Result<String, Failure> {
    if !response.status().is_success() {
        return Err(refusal(response, shown).await);
    }
    let bytes = Limited::new(response.into_body(), LARGEST).collect().await;
    let broken =
        |error: &dyn std::fmt::Display| Failure::unavailable(format!("the answer of {shown} broke off: {error}"));
    let bytes = bytes.map_err(|error| broken(&error))?.to_bytes();
    String::from_utf8(bytes.into()).map_err(|error| broken(&error))
}

/// What the server says instead of an answer.
async fn refusal(response: Response<Incoming>, shown: &str) -> Failure {
    // Longest text that is of any use to a person.
    const LONGEST: usize = 64 << 10;
    let status = response.status();
    let bytes =
        Limited::new(response.into_body(), LONGEST).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let exit = match status {
        StatusCode::NOT_FOUND => Exit::NotFound,
        status if status.is_client_error() => Exit::Refused,
        _ => Exit::Unavailable,
    };
    match serde_json::from_slice::<Problem>(&bytes) {
        Ok(Problem { title, detail, code, path }) if code.is_some() => {
            let text = if detail.is_empty() { title } else { detail };
            let text = match status {
                StatusCode::UNAUTHORIZED => format!("{text}: give one with TIDEGATE_TOKEN or --token-file"),
                _ => text,
            };
            Failure::new(exit, text).by_server(code, path)
        }
        _ => Failure::unavailable(format!("what answers at {shown} is not a tidegate server: it says {status}")),
    }
}

/// A name as a part of a path.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("a string takes any text"),
        }
    }
    out
}

/// The part of an address after the question mark.
#[derive(Debug, Default, Clone)]
pub(super) struct Query(String);

impl Query {
    /// Adds a pair, when there is a value.
    pub(super) fn with(mut self, name: &str, value: Option<impl AsRef<str>>) -> Self {
        if let Some(value) = value {
            let mark = if self.0.is_empty() { '?' } else { '&' };
            write!(self.0, "{mark}{name}={}", escaped(value.as_ref())).expect("a string takes any text");
        }
        self
    }

    /// `path` and the pairs.
    pub(super) fn of(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_url_or_by_host_and_port() {
        let check = |text: &str, shown: Option<&str>| {
            assert_eq!(Target::parse(text).map(|target| target.shown()).ok().as_deref(), shown, "{text}");
        };
        check("http://127.0.0.1:7070", Some("http://127.0.0.1:7070"));
        check("http://[::1]:7070/", Some("http://[::1]:7070"));
        check("box:1", Some("http://box:1"));
        check("http://box/tidegate/", Some("http://box:80/tidegate"));
        for text in ["", "https://box", "redis://box:1", "http://", "http://box:x"] {
            check(text, None);
        }
    }

    #[test]
    fn names_are_escaped_in_addresses() {
        assert_eq!(escaped("a/b c:é%"), "a%2Fb%20c%3A%C3%A9%25");
        let query = Query::default().with("a", Some("1&2")).with("b", None::<&str>).with("c", Some("x"));
        assert_eq!(query.of("/p"), "/p?a=1%262&c=x");
    }
}
