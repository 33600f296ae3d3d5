//! A client of a server's API: one connection, opened when it is needed.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::ask::address::Target;
use crate::ask::exit::{Exit, Failure};
use crate::ask::wire::Problem;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest wait for an answer to what the server does at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest answer: a workflow of the largest size, in full, is some 100 MB.
const LARGEST: usize = 1 << 30;

/// A server.
#[derive(Debug)]
pub(crate) struct Remote {
    target: Target,
    token: Option<HeaderValue>,
    connection: Option<Connection>,
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
pub(crate) struct Ask {
    method: Method,
    path: String,
    body: Bytes,
}

impl Ask {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new() }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(path) }
    }
}

impl Remote {
    pub(crate) fn new(target: Target, token: Option<HeaderValue>) -> Self {
        Self { target, token, connection: None }
    }

    /// Asks, and returns the text of the answer. When the future is dropped, the server may do it all the same.
    pub(crate) async fn text(&mut self, ask: &Ask) -> Result<String, Failure> {
        let shown = self.target.to_string();
        let answer = async {
            let response = self.send(ask, "application/json").await?;
            whole(response, &shown).await
        };
        let late = || Failure::unavailable(format!("{shown} did not answer within {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, answer).await.map_err(|_| late())?
    }

    /// Asks, and reads the answer.
    pub(crate) async fn read<T: DeserializeOwned>(&mut self, ask: &Ask) -> Result<T, Failure> {
        let text = self.text(ask).await?;
        self.parse(&text)
    }

    /// Reads an answer, or a part of it.
    pub(crate) fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| {
            let shown = self.target.to_string();
            Failure::unavailable(format!("what answers at {shown} is not a tidegate server of this version: {error}"))
        })
    }

    /// Asks for events, which come as long as the answer is read.
    pub(crate) async fn stream(&mut self, path: &str) -> Result<Incoming, Failure> {
        let shown = self.target.to_string();
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
            Failure::unavailable(format!("{} went away: {error}{doubt}", target))
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
            let shown = self.target.to_string();
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
