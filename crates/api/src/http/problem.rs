//! Problems of requests in the form of RFC 9457. Codes are stable; texts are for people.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_workflow::{EngineError, GraphError, MAX_TAGS, Refusal, StoreError, WorkflowId};
#[cfg(test)]
use utoipa::ToSchema;

mod code;

pub(crate) use self::code::Code;
use super::json::{self, Id};
use super::request_id::RequestId;

/// Most characters of a detail, which may repeat parts of the request.
const MAX_DETAIL_CHARS: usize = 1_000;
/// Most characters of a path.
const MAX_PATH_CHARS: usize = 200;

/// Shortens a text to `max_chars` characters by leaving out its middle.
fn truncate_middle(text: String, max_chars: usize) -> String {
    if text.len() <= max_chars || text.chars().count() <= max_chars {
        return text;
    }
    let start: String = text.chars().take(max_chars / 2).collect();
    let end: Vec<char> = text.chars().rev().take(max_chars / 2).collect();
    start + "…" + &end.into_iter().rev().collect::<String>()
}

/// One problem.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    detail: String,
    /// Where in the request.
    path: Option<String>,
    /// Extension member of RFC 9457. It is boxed because few problems have one.
    extension: Option<Box<ExtensionMember>>,
}

/// Problem of a request, in the form of RFC 9457. Programs can rely on `code`.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Problem))]
pub(crate) struct ProblemBody<'a> {
    /// A URN that ends with the code.
    r#type: String,
    /// Meaning of the code.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// Explanation of this occurrence of the problem.
    detail: &'a str,
    /// A stable word for what is wrong.
    code: &'static str,
    /// Where in the request it is, such as `jobs[3].after[0]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    /// The workflow that the idempotency key belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_id: Option<Id>,
    /// Names of jobs that wait for each other, each before the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    cycle: Option<&'a [String]>,
    /// With `lease_lost`: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// With `store_unavailable`: true when nothing was done. Else the request may have been carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing_done: Option<bool>,
    /// Seconds after which it may be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    /// The id of the request, as in the header X-Request-Id.
    request_id: &'a str,
}

/// Extension members for programs.
#[derive(Debug)]
enum ExtensionMember {
    Workflow(WorkflowId),
    Cycle(Vec<String>),
    /// Why a lease was lost.
    Reason(&'static str),
    /// Methods that the path has.
    Allow(String),
    /// The store refused, and nothing was done.
    NothingDone,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: truncate_middle(detail.into(), MAX_DETAIL_CHARS),
            path: None,
            extension: None,
        }
    }

    /// A cursor that is not the `next_cursor` of `page`.
    pub(crate) fn invalid_cursor(page: &str) -> Self {
        let detail = format!("the cursor must be the next_cursor of {page}");
        Self::new(Code::InvalidCursor, detail)
    }

    /// A field of the request that is wrong.
    pub(crate) fn field(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidField, detail).at(path)
    }

    pub(crate) fn at(self, path: impl Into<String>) -> Self {
        Self {
            path: Some(truncate_middle(path.into(), MAX_PATH_CHARS)),
            ..self
        }
    }

    /// Moves the path below `prefix`, the part of the request that the problem is in.
    pub(crate) fn under_prefix(self, prefix: &str) -> Self {
        let path = self.path.as_ref().map(|path| match path.as_str() {
            "" => prefix.trim_end_matches('.').to_owned(),
            path => format!("{prefix}{path}"),
        });
        Self { path, ..self }
    }

    pub(crate) fn allowing(self, methods: String) -> Self {
        self.with_extension(ExtensionMember::Allow(methods))
    }

    /// The store is not available, and nothing was done.
    pub(crate) fn without_store(detail: impl Into<String>) -> Self {
        Self::new(Code::StoreUnavailable, detail).with_extension(ExtensionMember::NothingDone)
    }

    fn with_extension(self, extension: ExtensionMember) -> Self {
        Self {
            extension: Some(Box::new(extension)),
            ..self
        }
    }

    /// Seconds after which the request may be tried again.
    fn retry_after(&self) -> Option<u64> {
        matches!(
            self.code,
            Code::Overloaded | Code::StoreUnavailable | Code::NoConfiguration | Code::ShuttingDown
        )
        .then_some(1)
    }

    /// Returns the status of the answer, or of the item, that has this problem.
    pub(crate) fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// Returns the stable word of the code.
    pub(crate) fn word(&self) -> &'static str {
        self.code.word()
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the JSON body, as the answer to a request or for one of its items.
    pub(crate) fn body<'a>(&'a self, request_id: &'a RequestId) -> ProblemBody<'a> {
        let code = self.word();
        let mut body = ProblemBody {
            r#type: format!("urn:tidegate:problem:{code}"),
            title: self.code.title(),
            status: self.status().as_u16(),
            detail: &self.detail,
            code,
            path: self.path(),
            workflow_id: None,
            cycle: None,
            reason: None,
            nothing_done: None,
            retry_after: self.retry_after(),
            request_id: request_id.text(),
        };
        match self.extension.as_deref() {
            Some(ExtensionMember::Workflow(id)) => body.workflow_id = Some(Id(*id)),
            Some(ExtensionMember::Cycle(names)) => body.cycle = Some(names),
            Some(ExtensionMember::Reason(word)) => body.reason = Some(*word),
            Some(ExtensionMember::NothingDone) => body.nothing_done = Some(true),
            Some(ExtensionMember::Allow(_)) | None => {}
        }
        body
    }

    /// The answer to the request that has this problem.
    pub(crate) fn response(&self, request_id: &RequestId) -> Response {
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response =
            (self.status(), kind, json::text(&self.body(request_id))).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthorized {
            headers.insert(
                header::WWW_AUTHENTICATE,
                header::HeaderValue::from_static("Bearer"),
            );
        }
        if let Some(ExtensionMember::Allow(methods)) = self.extension.as_deref()
            && let Ok(methods) = methods.parse()
        {
            headers.insert(header::ALLOW, methods);
        }
        response
    }
}

/// Takes the valid items out. What is left tells which items were valid.
pub(crate) fn split_valid<T>(items: Vec<Result<T, Problem>>) -> (Vec<T>, Vec<Result<(), Problem>>) {
    let mut valid = Vec::with_capacity(items.len());
    let checks = items
        .into_iter()
        .map(|item| item.map(|item| valid.push(item)))
        .collect();
    (valid, checks)
}

/// Returns the results of all items in their order: those of `results` are for the valid ones.
pub(crate) fn merge_results<T>(
    checks: Vec<Result<(), Problem>>,
    results: Vec<Result<T, EngineError>>,
) -> Vec<Result<T, Problem>> {
    let mut results = results.into_iter();
    let result = |check: Result<(), Problem>| {
        check?;
        Ok(results.next().expect("one result for each valid item")?)
    };
    checks.into_iter().map(result).collect()
}

/// Returns the status that a call for one item alone would have got.
pub(crate) fn item_status<T>(result: &Result<T, Problem>) -> u16 {
    let status = result.as_ref().err().map(Problem::status);
    status.unwrap_or(StatusCode::OK).as_u16()
}

/// Returns the problems among the results of items.
pub(crate) fn problems<'a, T: 'a>(
    results: impl IntoIterator<Item = &'a Result<T, Problem>>,
) -> impl Iterator<Item = &'a Problem> {
    let results = results.into_iter();
    results.filter_map(|result| result.as_ref().err())
}

/// Returns the problem of an item, if it has one.
pub(crate) fn item_error<'a, T>(
    result: &'a Result<T, Problem>,
    request_id: &'a RequestId,
) -> Option<ProblemBody<'a>> {
    result
        .as_ref()
        .err()
        .map(|problem| problem.body(request_id))
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let problem = Self::new(engine_code(&error), error.to_string());
        match error {
            EngineError::InvalidPolicies(error) => error.into(),
            EngineError::KeyMismatch { workflow, .. } => {
                problem.with_extension(ExtensionMember::Workflow(workflow))
            }
            EngineError::TooManyToCount { .. } => problem.at("tag"),
            EngineError::Refused(Refusal::LeaseLost { reason, .. }) => {
                problem.with_extension(ExtensionMember::Reason(reason))
            }
            EngineError::Store(StoreError::Unavailable { .. }) => {
                problem.with_extension(ExtensionMember::NothingDone)
            }
            _ => problem,
        }
    }
}

/// Returns the code of an error of the engine.
fn engine_code(error: &EngineError) -> Code {
    match error {
        EngineError::NoWorkflow { .. } => Code::WorkflowNotFound,
        EngineError::NoJob { .. } => Code::JobNotFound,
        EngineError::Refused(Refusal::LeaseLost { .. }) => Code::LeaseLost,
        EngineError::Refused(Refusal::WrongStatus { verb: "start", .. }) => Code::AlreadyStarted,
        EngineError::Refused(_) => Code::StateConflict,
        EngineError::KeyMismatch { .. } => Code::IdempotencyMismatch,
        EngineError::TooManyPolicies { .. } | EngineError::InvalidPolicies(_) => {
            Code::InvalidDefinition
        }
        EngineError::TooManyToCount { .. } => Code::InvalidField,
        EngineError::Overloaded | EngineError::Contended { .. } => Code::Overloaded,
        EngineError::Closed => Code::ShuttingDown,
        EngineError::Store(error) => store_code(error),
    }
}

const fn store_code(error: &StoreError) -> Code {
    match error {
        StoreError::Unavailable { .. }
        | StoreError::Unknown { .. }
        | StoreError::PartialWrite { .. } => Code::StoreUnavailable,
        _ => Code::Internal,
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<GraphError> for Problem {
    fn from(error: GraphError) -> Self {
        let text = error.to_string();
        let (code, path) = match error {
            GraphError::TooManyTags { count } => {
                let detail = format!("there are {count} tags, more than {MAX_TAGS}");
                return Self::new(Code::InvalidDefinition, detail).at("tags");
            }
            GraphError::DuplicateName { name, second, .. } => {
                let detail = format!(
                    "'{name}' is also the name of an earlier job: give each job a name of its own"
                );
                let path = format!("jobs[{second}].name");
                return Self::new(Code::DuplicateJobName, detail).at(path);
            }
            GraphError::Cycle { cycle } => {
                let cycle = ExtensionMember::Cycle(cycle);
                return Self::at_path(Code::GraphCycle, "jobs", &text).with_extension(cycle);
            }
            GraphError::NoJobs | GraphError::TooManyJobs { .. } => {
                (Code::InvalidDefinition, "jobs".to_owned())
            }
            GraphError::InvalidName { path, .. }
            | GraphError::Limit { path, .. }
            | GraphError::Policy { path, .. }
            | GraphError::Weight { path, .. } => (Code::InvalidDefinition, path),
            GraphError::NotAnObject { path }
            | GraphError::NoTime { path }
            | GraphError::TooManyRetries { path, .. }
            | GraphError::Backoff { path, .. } => (Code::InvalidField, path),
            GraphError::UnknownJob { path, .. } => (Code::UnknownDependency, path),
        };
        Self::at_path(code, &path, &text)
    }
}

impl Problem {
    /// Makes the problem of a definition, which may be one of many: `text` without the path in
    /// front. Only `path` says where it is in the request.
    fn at_path(code: Code, path: &str, text: &str) -> Self {
        let detail = text.strip_prefix(&format!("{path}: ")).unwrap_or(text);
        Self::new(code, detail).at(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_does_not_repeat_a_long_request() {
        let long = "é".repeat(100_000);
        let problem = Problem::field(
            long.clone(),
            format!("unknown field `{long}`, expected `name`"),
        );
        assert_eq!(
            problem.path().map(|path| path.chars().count()),
            Some(MAX_PATH_CHARS + 1)
        );
        assert_eq!(problem.detail().chars().count(), MAX_DETAIL_CHARS + 1);
        assert!(
            problem.detail().starts_with("unknown field `éé")
                && problem.detail().ends_with("`, expected `name`")
        );
        assert_eq!(
            truncate_middle("é".repeat(MAX_PATH_CHARS), MAX_PATH_CHARS),
            "é".repeat(MAX_PATH_CHARS)
        );
    }
}
