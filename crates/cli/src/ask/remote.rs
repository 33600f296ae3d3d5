//! A client of a server's API.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::ask::address::Target;
use crate::ask::connect::{self, Connections};
use crate::ask::exit::{Exit, Failure};
use crate::ask::wire::Problem;

/// Longest wait for an answer to what the server does at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest answer that is held. The largest picture has 32 MiB, and a page less.
const LARGEST: usize = 64 << 20;
/// Largest answer that shows all of something: a workflow of the largest size, in full, is some 100 MB.
const LARGEST_WHOLE: usize = 256 << 20;

/// A server.
#[derive(Debug)]
pub(crate) struct Remote {
    target: Target,
    token: Option<HeaderValue>,
    client: Connections,
}

/// Something to ask a server.
#[derive(Debug)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    body: Bytes,
    /// Bytes of the answer.
    most: usize,
}

impl Ask {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new(), most: LARGEST }
    }

    /// A workflow with all of its jobs, or a job with all of its errors.
    pub(crate) fn whole(path: impl Into<String>) -> Self {
        Self { most: LARGEST_WHOLE, ..Self::get(path) }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(path) }
    }
}

impl Remote {
    /// `authorities` are trusted besides the system's.
    pub(crate) fn new(target: Target, token: Option<HeaderValue>, authorities: Option<&Path>) -> Result<Self, Failure> {
        let client = connect::client(&target, authorities)?;
        Ok(Self { target, token, client })
    }

    /// Where it is.
    pub(crate) fn shown(&self) -> &Target {
        &self.target
    }

    /// Asks, and returns the text of the answer. If the future is dropped, the server may still do what was asked.
    pub(crate) async fn text(&self, ask: &Ask) -> Result<String, Failure> {
        let answer = async {
            let response = self.send(ask, "application/json").await?;
            self.received(response, ask.most).await
        };
        self.patiently(answer).await
    }

    /// Asks, and reads the answer.
    pub(crate) async fn read<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Failure> {
        let text = self.text(ask).await?;
        self.parse(&text)
    }

    /// Reads an answer, or a part of it.
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&self, text: &'a str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| {
            let shown = self.target.to_string();
            Failure::unavailable(format!("what answers at {shown} is not a Tidegate server of this version: {error}"))
        })
    }

    /// Asks for events, which come as long as the answer is read.
    pub(crate) async fn stream(&self, path: &str) -> Result<Incoming, Failure> {
        let opened = async {
            let response = self.send(&Ask::get(path), "text/event-stream").await?;
            // The body of the answer owns the connection from here on.
            if response.status().is_success() { Ok(response.into_body()) } else { Err(self.refusal(response).await) }
        };
        self.patiently(opened).await
    }

    async fn patiently<T>(&self, answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let late = |_| Failure::unavailable(format!("{} did not answer within {} s", self.target, PATIENCE.as_secs()));
        timeout(PATIENCE, answer).await.map_err(late)?
    }

    async fn send(&self, ask: &Ask, accept: &'static str) -> Result<Response<Incoming>, Failure> {
        let request = self.request(ask, accept)?;
        self.client.request(request).await.map_err(|error| {
            let doubt = match ask.method {
                Method::GET => "",
                _ if error.is_connect() => "",
                _ => "; it may or may not have done what was asked",
            };
            Failure::unavailable(format!("{}{doubt}", connect::unreached(&self.target, &error)))
        })
    }

    fn request(&self, ask: &Ask, accept: &'static str) -> Result<Request<Full<Bytes>>, Failure> {
        let request = Request::builder().method(ask.method.clone()).uri(format!("{}{}", self.target, ask.path));
        let mut request = request.header(ACCEPT, accept);
        if !ask.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let wrong = |error: http::Error| Failure::usage(format!("the request is not valid HTTP: {error}"));
        request.body(Full::new(ask.body.clone())).map_err(wrong)
    }

    async fn received(&self, response: Response<Incoming>, most: usize) -> Result<String, Failure> {
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let bytes = Limited::new(response.into_body(), most).collect().await;
        let bytes = bytes.map_err(|error| match error.is::<LengthLimitError>() {
            true => format!("is larger than {} MiB, and no more is read", most >> 20),
            false => format!("was cut off: {}", connect::reason(&*error)),
        });
        let text = bytes.and_then(|bytes| {
            String::from_utf8(bytes.to_bytes().into()).map_err(|error| format!("is not text: {error}"))
        });
        text.map_err(|reason| Failure::unavailable(format!("the answer of {} {reason}", self.target)))
    }

    /// What the server says instead of an answer.
    async fn refusal(&self, response: Response<Incoming>) -> Failure {
        // Longest text that is of any use to a person.
        const LONGEST: usize = 64 << 10;
        let status = response.status();
        let bytes =
            Limited::new(response.into_body(), LONGEST).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let Some(problem) = serde_json::from_slice::<Problem>(&bytes).ok().filter(|problem| problem.code.is_some())
        else {
            return Failure::unavailable(format!(
                "what answers at {} is not a Tidegate server: it says {status}",
                self.target
            ));
        };
        let Problem { title, detail, code, path, request_id } = problem;
        let mut text = if detail.is_empty() { title } else { detail };
        if status == StatusCode::UNAUTHORIZED {
            text = match self.token {
                Some(_) => {
                    "the server does not know the token that was given; TIDEGATE_TOKEN or --token-file names another"
                        .into()
                }
                None => text + ". Give a token with TIDEGATE_TOKEN or --token-file",
            };
        }
        let exit = exit(status);
        let request = request_id.filter(|_| exit == Exit::Unavailable);
        Failure { request, ..Failure::new(exit, text).by_server(code, path) }
    }
}

/// The rule of docs/cli.md: 64 for wrong input, 5 for a state or a token that does not allow it, 4 for what does not exist.
fn exit(status: StatusCode) -> Exit {
    match status {
        StatusCode::NOT_FOUND => Exit::NotFound,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => Exit::Usage,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::CONFLICT => Exit::Refused,
        _ => Exit::Unavailable,
    }
}
