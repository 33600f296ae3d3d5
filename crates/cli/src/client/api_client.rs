//! HTTP client of a server's API: requests, limits of answers, and failures.

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

use crate::client::address::ServerAddress;
use crate::client::connect::{self, Connections};
use crate::client::model::Problem;
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::printable::printable;

/// Timeout of a request whose answer does not depend on other events.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Size limit of an answer in bytes. A drawing has at most 32 MiB, and a page less.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Size limit of an answer with all details: the largest workflow in full has some 100 MB.
const MAX_FULL_ANSWER_BYTES: usize = 256 << 20;

const NO_TOKEN_FILE_TEXT: &str =
    "The context has no token file: tidegate context set NAME --server URL --token-file FILE";

/// Client of the API of one server.
#[derive(Debug)]
pub(crate) struct ApiClient {
    target: ServerAddress,
    token: Token,
    client: Connections,
}

/// The token of requests.
#[derive(Debug, Default)]
pub(crate) struct Token {
    pub(crate) header: Option<HeaderValue>,
    pub(crate) source: TokenSource,
}

/// Where a token is from if no option names a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenSource {
    #[default]
    Environment,
    /// The context of the server.
    Context,
}

impl TokenSource {
    /// The remedy for a request without a token.
    const fn missing_hint(self) -> &'static str {
        match self {
            Self::Environment => "Give a token with TIDEGATE_TOKEN or --token-file",
            Self::Context => NO_TOKEN_FILE_TEXT,
        }
    }

    /// The options and variables that name a token.
    const fn names(self) -> &'static str {
        match self {
            Self::Environment => "TIDEGATE_TOKEN or --token-file",
            Self::Context => "--token-file",
        }
    }
}

/// A request to the API.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    method: Method,
    path: String,
    body: Bytes,
    /// Size limit of the answer in bytes.
    max_answer_bytes: usize,
    effect: Effect,
}

/// Effect of a request whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The request only reads.
    Read,
    /// The request may have been carried out.
    Write,
    /// The request may have been carried out; it has an idempotency key, so a repetition changes
    /// nothing.
    Repeatable,
}

impl Effect {
    /// Advice for a request of which the server knows that it changed nothing, as a line of its
    /// own.
    const fn unchanged_hint(self) -> &'static str {
        match self {
            Self::Read => "",
            Self::Write | Self::Repeatable => {
                "\n  Nothing was done: repeat it when the store is available"
            }
        }
    }

    /// Advice for a request whose outcome is unknown, as a line of its own.
    const fn unknown_outcome_hint(self) -> &'static str {
        match self {
            Self::Read => "",
            Self::Write => "\n  The request may have been carried out: look before you repeat it",
            Self::Repeatable => {
                "\n  The request may have been carried out; with its idempotency key it can be repeated safely"
            }
        }
    }

    /// Advice for a request that failed with this problem.
    fn hint(self, problem: &Problem) -> &'static str {
        match problem.code.as_deref() {
            Some("store_unavailable") if problem.nothing_done => self.unchanged_hint(),
            // A store that did not answer may have written.
            Some("store_unavailable" | "internal") => self.unknown_outcome_hint(),
            _ => "",
        }
    }
}

impl ApiRequest {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            body: Bytes::new(),
            max_answer_bytes: MAX_ANSWER_BYTES,
            effect: Effect::Read,
        }
    }

    /// Request for a workflow with all of its jobs, or a job with all of its errors.
    pub(crate) fn get_full(path: impl Into<String>) -> Self {
        Self {
            max_answer_bytes: MAX_FULL_ANSWER_BYTES,
            ..Self::get(path)
        }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self {
            method: Method::DELETE,
            effect: Effect::Write,
            ..Self::get(path)
        }
    }

    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::POST,
            body: body.into(),
            effect: Effect::Write,
            ..Self::get(path)
        }
    }

    pub(crate) fn put(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::PUT,
            ..Self::post(path, body)
        }
    }

    /// Marks a request with an idempotency key in its body: it can be repeated safely.
    pub(crate) fn with_key(self) -> Self {
        Self {
            effect: Effect::Repeatable,
            ..self
        }
    }

    /// Marks a POST request that only reads.
    pub(crate) fn without_effect(self) -> Self {
        Self {
            effect: Effect::Read,
            ..self
        }
    }

    /// The failure of a request whose outcome is unknown.
    fn unknown_outcome(&self, text: &str) -> Failure {
        Failure::unavailable(format!("{text}{}", self.effect.unknown_outcome_hint()))
    }
}

impl ApiClient {
    /// Creates a client that trusts `authorities` besides those of the system.
    pub(crate) fn new(
        target: ServerAddress,
        token: Token,
        authorities: Option<&Path>,
    ) -> CommandResult<Self> {
        let client = connect::connections(&target, authorities)?;
        Ok(Self {
            target,
            token,
            client,
        })
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> &ServerAddress {
        &self.target
    }

    /// Sends a request, and returns the text of the answer. If the future is dropped, the server
    /// may still carry out the request.
    pub(crate) async fn text(&self, api_request: &ApiRequest) -> CommandResult<String> {
        let answer = async {
            let body = self.send(api_request, "application/json").await?;
            self.read_body(api_request, body).await
        };
        self.with_timeout(api_request, answer).await
    }

    /// Reads an object, and returns its text.
    pub(crate) async fn get(&self, path: impl Into<String>) -> CommandResult<String> {
        self.text(&ApiRequest::get(path)).await
    }

    /// Reads an object, and parses it.
    pub(crate) async fn get_json<T: DeserializeOwned>(
        &self,
        path: impl Into<String>,
    ) -> CommandResult<T> {
        self.read(&ApiRequest::get(path)).await
    }

    /// Sends a request, and parses the answer.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        api_request: &ApiRequest,
    ) -> CommandResult<T> {
        let text = self.text(api_request).await?;
        self.parse(&text)
            .map_err(|failure| api_request.unknown_outcome(&failure.text))
    }

    /// Parses an answer, or a part of it.
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&self, text: &'a str) -> CommandResult<T> {
        serde_json::from_str(text).map_err(|error| {
            let shown = self.target.to_string();
            Failure::unavailable(format!(
                "what answers at {shown} is not a Tidegate server of this version: {error}"
            ))
        })
    }

    /// Opens a stream of events, which lasts as long as the answer is read.
    pub(crate) async fn stream(&self, path: &str) -> CommandResult<Incoming> {
        let api_request = ApiRequest::get(path);
        // The body of the answer owns the connection from here on.
        let opened = self.send(&api_request, "text/event-stream");
        self.with_timeout(&api_request, opened).await
    }

    async fn with_timeout<T>(
        &self,
        api_request: &ApiRequest,
        answer: impl Future<Output = CommandResult<T>>,
    ) -> CommandResult<T> {
        let late = |_| {
            api_request.unknown_outcome(&format!(
                "{} did not answer within {} s",
                self.target,
                ANSWER_TIMEOUT.as_secs()
            ))
        };
        timeout(ANSWER_TIMEOUT, answer).await.map_err(late)?
    }

    /// The HTTP request to this server, with its token.
    fn http_request(
        &self,
        api_request: &ApiRequest,
        accept: &'static str,
    ) -> CommandResult<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(api_request.method.clone())
            .uri(format!("{}{}", self.target, api_request.path))
            .header(ACCEPT, accept);
        if !api_request.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token.header {
            request = request.header(AUTHORIZATION, token);
        }
        request
            .body(Full::new(api_request.body.clone()))
            .map_err(|error| Failure::usage(format!("the request is not valid HTTP: {error}")))
    }

    /// Sends a request, and returns the body of an answer that is a success.
    async fn send(
        &self,
        api_request: &ApiRequest,
        accept: &'static str,
    ) -> CommandResult<Incoming> {
        let request = self.http_request(api_request, accept)?;
        let response = self.client.request(request).await.map_err(|error| {
            let text = connect::explain_failure(&self.target, &error);
            if error.is_connect() {
                Failure::unavailable(text)
            } else {
                api_request.unknown_outcome(&text)
            }
        })?;
        if response.status().is_success() {
            Ok(response.into_body())
        } else {
            Err(self.read_problem(api_request, response).await)
        }
    }

    async fn read_body(&self, api_request: &ApiRequest, body: Incoming) -> CommandResult<String> {
        let bytes = Limited::new(body, api_request.max_answer_bytes)
            .collect()
            .await;
        let bytes = bytes.map_err(|error| {
            if error.is::<LengthLimitError>() {
                format!(
                    "is larger than {} MiB, and no more is read",
                    api_request.max_answer_bytes >> 20
                )
            } else {
                format!("was cut off: {}", connect::reason(&*error))
            }
        });
        let text = bytes.and_then(|bytes| {
            String::from_utf8(bytes.to_bytes().into())
                .map_err(|error| format!("is not text: {error}"))
        });
        text.map_err(|reason| {
            api_request.unknown_outcome(&format!("the answer of {} {reason}", self.target))
        })
    }

    /// The failure of an answer that no Tidegate server gives.
    fn other_server(&self, api_request: &ApiRequest, status: StatusCode) -> Failure {
        let text = format!(
            "what answers at {} is not a Tidegate server: it says {status}",
            self.target
        );
        // A proxy reports a timeout of the server in its own words.
        if status.is_server_error() {
            api_request.unknown_outcome(&text)
        } else {
            Failure::unavailable(text)
        }
    }

    /// Reads the problem document of an answer that is not a success.
    async fn read_problem(
        &self,
        api_request: &ApiRequest,
        response: Response<Incoming>,
    ) -> Failure {
        // Size limit of an error text in bytes; no person reads more.
        const MAX_ERROR_BYTES: usize = 64 << 10;
        let status = response.status();
        let bytes = Limited::new(response.into_body(), MAX_ERROR_BYTES)
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let Some(problem) = serde_json::from_slice::<Problem>(&bytes)
            .ok()
            .filter(|problem| problem.code.is_some())
        else {
            return self.other_server(api_request, status);
        };
        let text = self.reason(status, &problem) + api_request.effect.hint(&problem);
        let exit = exit(status);
        let request = problem.request_id.filter(|_| exit == Exit::Unavailable);
        Failure {
            code: problem.code,
            path: problem.path,
            request,
            ..Failure::new(exit, text)
        }
    }

    /// The reason in one line, whatever names it contains.
    fn reason(&self, status: StatusCode, Problem { title, detail, .. }: &Problem) -> String {
        let text = printable(if detail.is_empty() { title } else { detail });
        let source = self.token.source;
        match (status, &self.token.header) {
            (StatusCode::UNAUTHORIZED, None) => format!("{text}. {}", source.missing_hint()),
            (StatusCode::UNAUTHORIZED, Some(_)) => format!(
                "the server does not know the token that was given; {} names another",
                source.names()
            ),
            _ => text,
        }
    }
}

/// Exit code of a status, by the rule of docs/cli.md: 64 for wrong input, 5 for a state or a token
/// that does not allow the request, 4 for an unknown object.
fn exit(status: StatusCode) -> Exit {
    match status {
        StatusCode::NOT_FOUND => Exit::NotFound,
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => Exit::Usage,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::CONFLICT => Exit::Refused,
        _ => Exit::Unavailable,
    }
}
