//! What went wrong, as RFC 9457 writes it. Codes are stable; texts are for people.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidegate_workflow::{EngineError, GraphError, Refusal, StoreError, WorkflowId};

use super::json::Json;
use super::request_id::RequestId;

/// What kind of problem it is: the part of it that programs may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    WorkflowNotFound,
    JobNotFound,
    QueueNotFound,
    AlreadyStarted,
    StateConflict,
    LeaseLost,
    IdempotencyMismatch,
    InvalidJson,
    InvalidField,
    GraphCycle,
    UnknownDependency,
    DuplicateJobName,
    InvalidDefinition,
    InvalidCursor,
    PayloadTooLarge,
    RequestTimeout,
    Unauthorized,
    Forbidden,
    Overloaded,
    StoreUnavailable,
    ShuttingDown,
    NotFound,
    MethodNotAllowed,
    Internal,
}

impl Code {
    /// The word, the status and the title of each.
    const fn about(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::WorkflowNotFound => ("workflow_not_found", S::NOT_FOUND, "There is no such workflow"),
            Self::JobNotFound => ("job_not_found", S::NOT_FOUND, "The workflow has no such job"),
            Self::QueueNotFound => ("queue_not_found", S::NOT_FOUND, "There is no such queue"),
            Self::AlreadyStarted => ("already_started", S::CONFLICT, "The workflow was started before"),
            Self::StateConflict => ("state_conflict", S::CONFLICT, "The state does not allow it"),
            Self::LeaseLost => ("lease_lost", S::CONFLICT, "The lease was lost"),
            Self::IdempotencyMismatch => ("idempotency_mismatch", S::CONFLICT, "The key belongs to another definition"),
            Self::InvalidJson => ("invalid_json", S::BAD_REQUEST, "The body is not JSON"),
            Self::InvalidField => ("invalid_field", S::UNPROCESSABLE_ENTITY, "A field is wrong"),
            Self::GraphCycle => ("graph_cycle", S::UNPROCESSABLE_ENTITY, "Jobs wait for each other"),
            Self::UnknownDependency => {
                ("unknown_dependency", S::UNPROCESSABLE_ENTITY, "A job names one that is not there")
            }
            Self::DuplicateJobName => ("duplicate_job_name", S::UNPROCESSABLE_ENTITY, "Two jobs have one name"),
            Self::InvalidDefinition => ("invalid_definition", S::UNPROCESSABLE_ENTITY, "The definition is wrong"),
            Self::InvalidCursor => ("invalid_cursor", S::BAD_REQUEST, "The cursor is not one of this list"),
            Self::PayloadTooLarge => ("payload_too_large", S::PAYLOAD_TOO_LARGE, "It is too large"),
            Self::RequestTimeout => ("request_timeout", S::REQUEST_TIMEOUT, "The request took too long"),
            Self::Unauthorized => ("unauthorized", S::UNAUTHORIZED, "A token is needed"),
            Self::Forbidden => ("forbidden", S::FORBIDDEN, "It is not allowed"),
            Self::Overloaded => ("overloaded", S::SERVICE_UNAVAILABLE, "There is too much to do"),
            Self::StoreUnavailable => ("store_unavailable", S::SERVICE_UNAVAILABLE, "The store does not answer"),
            Self::ShuttingDown => ("shutting_down", S::SERVICE_UNAVAILABLE, "The server is shutting down"),
            Self::NotFound => ("not_found", S::NOT_FOUND, "There is nothing at this path"),
            Self::MethodNotAllowed => ("method_not_allowed", S::METHOD_NOT_ALLOWED, "The path has other methods"),
            Self::Internal => ("internal", S::INTERNAL_SERVER_ERROR, "The server is at fault"),
        }
    }
}

/// One problem.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    detail: String,
    /// Where in the request.
    path: Option<String>,
    /// Rare, so it is kept apart.
    more: Option<Box<More>>,
}

/// What programs may want to know besides.
#[derive(Debug)]
enum More {
    Workflow(WorkflowId),
    Cycle(Vec<String>),
    /// Methods that the path has.
    Allow(String),
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), path: None, more: None }
    }

    /// A field of the request that is wrong.
    pub(crate) fn field(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidField, detail).at(path)
    }

    pub(crate) fn at(self, path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..self }
    }

    /// The same, of a part of the request that is at `prefix`.
    pub(crate) fn under(self, prefix: &str) -> Self {
        let path = self.path.as_ref().map(|path| format!("{prefix}{path}"));
        Self { path, ..self }
    }

    pub(crate) fn allowing(self, methods: String) -> Self {
        self.with(More::Allow(methods))
    }

    fn with(self, more: More) -> Self {
        Self { more: Some(Box::new(more)), ..self }
    }

    /// Seconds after which it may be tried again.
    fn retry_after(&self) -> Option<u64> {
        matches!(self.code, Code::Overloaded | Code::StoreUnavailable | Code::ShuttingDown).then_some(1)
    }

    /// The status of an answer, or of an item, that is this problem.
    pub(crate) fn status(&self) -> StatusCode {
        self.code.about().1
    }

    /// The stable word for it.
    pub(crate) fn word(&self) -> &'static str {
        self.code.about().0
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Writes it; as the answer itself with the id of the request, as an item of an answer without.
    pub(crate) fn write(&self, json: &mut Json, request: Option<&RequestId>) {
        let (word, status, title) = self.code.about();
        json.object(|json| {
            json.key("type").plain(format_args!("urn:tidegate:problem:{word}"));
            json.key("title").string(title);
            json.key("status").number(status.as_u16());
            json.key("detail").string(&self.detail);
            json.key("code").plain(word);
            if let Some(path) = &self.path {
                json.key("path").string(path);
            }
            match self.more.as_deref() {
                Some(More::Workflow(id)) => json.key("workflow_id").plain(id),
                Some(More::Cycle(names)) => json.key("cycle").strings(names.iter().map(String::as_str)),
                Some(More::Allow(_)) | None => {}
            }
            if let Some(seconds) = self.retry_after() {
                json.key("retry_after").number(seconds);
            }
            if let Some(request) = request {
                json.key("request_id").string(request.text());
            }
        });
    }

    /// Writes it as an item of an answer: the status, and the problem itself.
    pub(crate) fn write_item(&self, json: &mut Json) {
        json.object(|json| {
            json.key("status").number(self.status().as_u16());
            self.write(json.key("error"), None);
        });
    }

    /// The answer to the request that has this problem.
    pub(crate) fn response(&self, request: &RequestId) -> Response {
        let mut json = Json::default();
        self.write(&mut json, Some(request));
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status(), kind, json.text()).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        if let Some(More::Allow(methods)) = self.more.as_deref()
            && let Ok(methods) = methods.parse()
        {
            headers.insert(header::ALLOW, methods);
        }
        response
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let code = match &error {
            EngineError::NoWorkflow { .. } => Code::WorkflowNotFound,
            EngineError::NoJob { .. } => Code::JobNotFound,
            EngineError::Refused(Refusal::LeaseLost { .. }) => Code::LeaseLost,
            EngineError::Refused(Refusal::WrongStatus { verb: "start", .. }) => Code::AlreadyStarted,
            EngineError::Refused(_) => Code::StateConflict,
            EngineError::KeyMismatch { .. } => Code::IdempotencyMismatch,
            EngineError::Overloaded | EngineError::Contended { .. } => Code::Overloaded,
            EngineError::Closed => Code::ShuttingDown,
            EngineError::Store(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) => Code::StoreUnavailable,
            EngineError::Store(_) => Code::Internal,
        };
        let problem = Self::new(code, error.to_string());
        match error {
            EngineError::KeyMismatch { workflow, .. } => problem.with(More::Workflow(workflow)),
            _ => problem,
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<GraphError> for Problem {
    fn from(error: GraphError) -> Self {
        let detail = error.to_string();
        let of = |code| Self::new(code, detail);
        match error {
            GraphError::NoJobs | GraphError::TooManyJobs { .. } => of(Code::InvalidDefinition).at("jobs"),
            GraphError::TooManyTags { .. } => of(Code::InvalidDefinition).at("tags"),
            GraphError::InvalidName { path, .. } => of(Code::InvalidDefinition).at(path),
            GraphError::NotAnObject { path } => of(Code::InvalidField).at(path),
            GraphError::DuplicateName { second, .. } => of(Code::DuplicateJobName).at(format!("jobs[{second}].name")),
            GraphError::UnknownJob { path, .. } => of(Code::UnknownDependency).at(path),
            GraphError::Cycle { cycle } => of(Code::GraphCycle).at("jobs").with(More::Cycle(cycle)),
        }
    }
}
