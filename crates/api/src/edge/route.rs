//! Every path of the API, what is done there, and who may.

use axum::http::Method;
use tidegate_workflow::Paused;

use super::problem::{Code, Problem};
use super::query::unescaped;
use super::tokens::Role;
use crate::workers::Draining;

/// What is done at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Claim,
    Report,
    Extend,
    Create,
    CreateBatch,
    List,
    Count,
    Bulk,
    ByKey,
    Show,
    Delete,
    Act(WorkflowAction),
    Restart,
    Expire,
    Graph(Form),
    Events,
    Jobs,
    Job,
    JobLog,
    JobAct(JobAction),
    Queues,
    SetQueue(Paused),
    ShowTerms(TermsOf),
    SetTerms(TermsOf),
    RemoveTerms(TermsOf),
    Workers,
    WorkerEvents,
    Drain(Draining),
    Overrides,
    SetOverride,
    RemoveOverride,
    CheckLimits,
    TopKeys,
    Configuration,
    WaitingKeys,
    AdvanceClock,
    Version,
    Status,
    OpenApi,
    Healthz,
    Readyz,
    Session,
    SignIn,
    SignOut,
    Overview,
    Live,
    Page,
    Asset,
}

/// What is done to a workflow without more words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkflowAction {
    Start,
    Cancel,
    Pause,
    Resume,
    Retry,
}

/// What is done to one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobAction {
    Skip,
    MarkSucceeded,
    Cancel,
    Retry,
}

/// What queues and handlers give their jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TermsOf {
    QueueLimits,
    QueueWeights,
    HandlerLimits,
}

/// How a graph is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Svg,
    Dot,
    Mermaid,
    Text,
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// Names in braces stand for one part of the path.
    pub(crate) template: &'static str,
    /// Who may; none: everybody, without a token.
    pub(crate) role: Option<Role>,
    pub(crate) call: Call,
}

const fn route(method: Method, template: &'static str, role: Role, call: Call) -> Route {
    Route {
        method,
        template,
        role: Some(role),
        call,
    }
}

const fn open(method: Method, template: &'static str, call: Call) -> Route {
    Route {
        method,
        template,
        role: None,
        call,
    }
}

use Role::{Admin, Read, Work};

/// All routes; those of workers first, since they are asked most.
#[rustfmt::skip] // one route a line, so that the table reads as one
pub(crate) static ROUTES: &[Route] = &[
    route(Method::POST, "/v1/jobs/report", Work, Call::Report),
    route(Method::POST, "/v1/jobs/claim", Work, Call::Claim),
    route(Method::POST, "/v1/jobs/extend", Work, Call::Extend),
    route(Method::POST, "/v1/workflows", Work, Call::Create),
    route(Method::GET, "/v1/workflows", Read, Call::List),
    route(Method::POST, "/v1/workflows:batch", Work, Call::CreateBatch),
    route(Method::GET, "/v1/workflows:count", Read, Call::Count),
    route(Method::POST, "/v1/workflows:bulk", Admin, Call::Bulk),
    route(Method::GET, "/v1/workflows:byKey", Read, Call::ByKey),
    route(Method::GET, "/v1/workflows/{id}", Read, Call::Show),
    route(Method::DELETE, "/v1/workflows/{id}", Admin, Call::Delete),
    route(Method::POST, "/v1/workflows/{id}:start", Work, Call::Act(WorkflowAction::Start)),
    route(Method::POST, "/v1/workflows/{id}:cancel", Admin, Call::Act(WorkflowAction::Cancel)),
    route(Method::POST, "/v1/workflows/{id}:pause", Admin, Call::Act(WorkflowAction::Pause)),
    route(Method::POST, "/v1/workflows/{id}:resume", Admin, Call::Act(WorkflowAction::Resume)),
    route(Method::POST, "/v1/workflows/{id}:retry", Admin, Call::Act(WorkflowAction::Retry)),
    route(Method::POST, "/v1/workflows/{id}:restart", Admin, Call::Restart),
    route(Method::POST, "/v1/workflows/{id}:expire", Admin, Call::Expire),
    route(Method::GET, "/v1/workflows/{id}/graph.json", Read, Call::Graph(Form::Json)),
    route(Method::GET, "/v1/workflows/{id}/graph.svg", Read, Call::Graph(Form::Svg)),
    route(Method::GET, "/v1/workflows/{id}/graph.dot", Read, Call::Graph(Form::Dot)),
    route(Method::GET, "/v1/workflows/{id}/graph.mmd", Read, Call::Graph(Form::Mermaid)),
    route(Method::GET, "/v1/workflows/{id}/graph.txt", Read, Call::Graph(Form::Text)),
    route(Method::GET, "/v1/workflows/{id}/events", Read, Call::Events),
    route(Method::GET, "/v1/workflows/{id}/jobs", Read, Call::Jobs),
    route(Method::GET, "/v1/workflows/{id}/jobs/{name}", Read, Call::Job),
    route(Method::GET, "/v1/workflows/{id}/jobs/{name}/log", Read, Call::JobLog),
    route(Method::POST, "/v1/workflows/{id}/jobs/{name}:skip", Admin, Call::JobAct(JobAction::Skip)),
    route(Method::POST, "/v1/workflows/{id}/jobs/{name}:mark_succeeded", Admin, Call::JobAct(JobAction::MarkSucceeded)),
    route(Method::POST, "/v1/workflows/{id}/jobs/{name}:cancel", Admin, Call::JobAct(JobAction::Cancel)),
    route(Method::POST, "/v1/workflows/{id}/jobs/{name}:retry", Admin, Call::JobAct(JobAction::Retry)),
    route(Method::GET, "/v1/queues", Read, Call::Queues),
    route(Method::POST, "/v1/queues/{name}:pause", Admin, Call::SetQueue(Paused::Yes)),
    route(Method::POST, "/v1/queues/{name}:resume", Admin, Call::SetQueue(Paused::No)),
    route(Method::GET, "/v1/queues/{name}/limits", Read, Call::ShowTerms(TermsOf::QueueLimits)),
    route(Method::PUT, "/v1/queues/{name}/limits", Admin, Call::SetTerms(TermsOf::QueueLimits)),
    route(Method::DELETE, "/v1/queues/{name}/limits", Admin, Call::RemoveTerms(TermsOf::QueueLimits)),
    route(Method::GET, "/v1/queues/{name}/weights", Read, Call::ShowTerms(TermsOf::QueueWeights)),
    route(Method::PUT, "/v1/queues/{name}/weights", Admin, Call::SetTerms(TermsOf::QueueWeights)),
    route(Method::DELETE, "/v1/queues/{name}/weights", Admin, Call::RemoveTerms(TermsOf::QueueWeights)),
    route(Method::GET, "/v1/handlers/{name}/limits", Read, Call::ShowTerms(TermsOf::HandlerLimits)),
    route(Method::PUT, "/v1/handlers/{name}/limits", Admin, Call::SetTerms(TermsOf::HandlerLimits)),
    route(Method::DELETE, "/v1/handlers/{name}/limits", Admin, Call::RemoveTerms(TermsOf::HandlerLimits)),
    route(Method::GET, "/v1/workers", Read, Call::Workers),
    route(Method::GET, "/v1/workers/{worker}/events", Work, Call::WorkerEvents),
    route(Method::POST, "/v1/workers/{worker}:drain", Admin, Call::Drain(Draining::Begin)),
    route(Method::POST, "/v1/workers/{worker}:undrain", Admin, Call::Drain(Draining::End)),
    route(Method::GET, "/v1/limits", Read, Call::WaitingKeys),
    route(Method::GET, "/v1/limits/overrides", Read, Call::Overrides),
    route(Method::PUT, "/v1/limits/overrides", Admin, Call::SetOverride),
    route(Method::DELETE, "/v1/limits/overrides", Admin, Call::RemoveOverride),
    route(Method::POST, "/v1/limits/check", Read, Call::CheckLimits),
    route(Method::GET, "/v1/limits/top", Read, Call::TopKeys),
    route(Method::GET, "/v1/limits/configuration", Read, Call::Configuration),
    route(Method::POST, "/v1/test/clock:advance", Admin, Call::AdvanceClock),
    route(Method::GET, "/v1/version", Read, Call::Version),
    route(Method::GET, "/v1/status", Read, Call::Status),
    route(Method::GET, "/v1/openapi.json", Read, Call::OpenApi),
    route(Method::GET, "/v1/overview", Read, Call::Overview),
    route(Method::GET, "/v1/live", Read, Call::Live),
    open(Method::GET, "/v1/session", Call::Session),
    open(Method::POST, "/v1/session", Call::SignIn),
    open(Method::DELETE, "/v1/session", Call::SignOut),
    open(Method::GET, "/healthz", Call::Healthz),
    open(Method::GET, "/readyz", Call::Readyz),
    open(Method::GET, "/", Call::Page),
    open(Method::GET, "/assets/{name}", Call::Asset),
];

/// A route, and what the path has in the place of its names.
#[derive(Debug)]
pub(crate) struct Matched<'a> {
    pub(crate) route: &'static Route,
    names: [&'a str; 2],
}

impl Matched<'_> {
    /// What stands for the name at that place.
    pub(crate) fn name(&self, place: usize) -> Result<String, Problem> {
        let text = self.names[place];
        unescaped(text).ok_or_else(|| {
            Problem::new(
                Code::NotFound,
                format!("after decoding its %-escapes, '{text}' is not UTF-8"),
            )
        })
    }
}

/// Finds the route of a request.
///
/// # Errors
/// There is none with this path, or none with this method.
pub(crate) fn find<'a>(method: &Method, path: &'a str) -> Result<Matched<'a>, Problem> {
    let mut allowed: Vec<&str> = Vec::new();
    // What is asked with HEAD is answered as with GET, and the connection leaves the body out.
    let method = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    for route in ROUTES {
        let Some(names) = names(route.template, path) else {
            continue;
        };
        if route.method == *method {
            return Ok(Matched { route, names });
        }
        if !allowed.contains(&route.method.as_str()) {
            allowed.push(route.method.as_str());
        }
    }
    Err(unknown_action(method, path).unwrap_or_else(|| no_route(method, path, &allowed)))
}

/// A path that does not exist, or that has only the methods `allowed`.
fn no_route(method: &Method, path: &str, allowed: &[&str]) -> Problem {
    if allowed.is_empty() {
        let shown: String = path.chars().take(200).collect();
        let detail = format!("the path {shown} does not exist; /v1/openapi.json lists all paths");
        return Problem::new(Code::NotFound, detail);
    }
    let allowed = allowed.join(", ");
    let detail = format!("the path does not have the method {method}; it has {allowed}");
    Problem::new(Code::MethodNotAllowed, detail).allowing(allowed)
}

/// A call of an action that the noun of the path does not have, such as `:cancle`.
fn unknown_action(method: &Method, path: &str) -> Option<Problem> {
    let (noun, action) = path
        .rsplit_once(':')
        .filter(|(_, action)| method == Method::POST && !action.contains('/'))?;
    let actions = ROUTES.iter().filter_map(|route| {
        let (template, action) = route.template.rsplit_once("}:")?;
        names(&format!("{template}}}"), noun).map(|_| format!(":{action}"))
    });
    let actions: Vec<String> = actions.collect();
    let shown: String = action.chars().take(200).collect();
    let detail = format!(
        "there is no action :{shown} here; the actions are {}",
        actions.join(", ")
    );
    (!actions.is_empty()).then(|| Problem::new(Code::NotFound, detail))
}

/// What the path has in the place of the template's names, if it is of its form.
fn names<'a>(template: &str, path: &'a str) -> Option<[&'a str; 2]> {
    let mut names = [""; 2];
    let mut place = 0;
    let mut parts = path.split('/');
    for wanted in template.split('/') {
        let part = parts.next()?;
        let Some((_, verb)) = wanted
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
        else {
            if part != wanted {
                return None;
            }
            continue;
        };
        // Names may have colons; the verb follows the last one.
        let name = if verb.is_empty() {
            part
        } else {
            part.strip_suffix(verb)?
        };
        if name.is_empty() {
            return None;
        }
        names[place] = name;
        place += 1;
    }
    parts.next().is_none().then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_calls_with_their_names() {
        let check = |method: Method, path: &str, call: Call, names: [&str; 2]| {
            let found = find(&method, path).unwrap();
            assert_eq!((found.route.call, found.names), (call, names), "{path}");
        };
        check(Method::POST, "/v1/workflows", Call::Create, ["", ""]);
        check(Method::HEAD, "/v1/workflows", Call::List, ["", ""]);
        check(Method::GET, "/v1/workflows/a:b", Call::Show, ["a:b", ""]);
        check(
            Method::POST,
            "/v1/workflows/a:start",
            Call::Act(WorkflowAction::Start),
            ["a", ""],
        );
        check(
            Method::GET,
            "/v1/workflows/a/jobs/x:skip",
            Call::Job,
            ["a", "x:skip"],
        );
        check(
            Method::GET,
            "/v1/workflows/a/jobs/log/log",
            Call::JobLog,
            ["a", "log"],
        );
        check(
            Method::POST,
            "/v1/workflows/a/jobs/x:skip:retry",
            Call::JobAct(JobAction::Retry),
            ["a", "x:skip"],
        );
        check(Method::GET, "/v1/workflows:byKey", Call::ByKey, ["", ""]);
        check(
            Method::POST,
            "/v1/queues/q:pause",
            Call::SetQueue(Paused::Yes),
            ["q", ""],
        );
    }

    #[test]
    fn an_unknown_action_is_told_which_there_are() {
        let check = |path: &str, detail: &str| {
            let problem = find(&Method::POST, path).unwrap_err();
            assert_eq!(
                (problem.code, problem.detail()),
                (Code::NotFound, detail),
                "{path}"
            );
        };
        let workflow = "there is no action :nope here; the actions are :start, :cancel, :pause, :resume, :retry, :restart, :expire";
        check("/v1/workflows/a:nope", workflow);
        check("/v1/workflows/a:cancel:nope", workflow);
        let job = "there is no action :nope here; the actions are :skip, :mark_succeeded, :cancel, :retry";
        check("/v1/workflows/a/jobs/x:nope", job);
        check(
            "/v1/queues/q:nope",
            "there is no action :nope here; the actions are :pause, :resume",
        );
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        let check = |method: Method, path: &str, code: Code| {
            assert_eq!(find(&method, path).unwrap_err().code, code, "{path}");
        };
        for path in [
            "/v1",
            "/v1/",
            "/v1/workflows/",
            "/v1/workflows/a/b",
            "/v2/workflows",
            "/v1/queues/:pause",
        ] {
            check(Method::POST, path, Code::NotFound);
        }
        check(Method::PUT, "/v1/workflows", Code::MethodNotAllowed);
        check(Method::POST, "/v1/workflows/a", Code::MethodNotAllowed);
        check(Method::GET, "/v1/jobs/claim", Code::MethodNotAllowed);
    }
}
