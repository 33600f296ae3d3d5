//! Finds the route of a request by its method and path.

use axum::http::Method;

use crate::http::problem::{Code, Problem};
use crate::http::query::unescaped;
use crate::http::tokens::Role;

/// Store that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreRequirement {
    /// Store of workflows. The call waits until the engine is open.
    Engine,
    /// Another store, or that of workflows only in some cases. The handler opens it.
    Other,
    Nothing,
}

/// Method and path of one operation, and the checks before its handler is called.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// Names in braces stand for one part of the path.
    pub(crate) template: &'static str,
    /// The role that a caller must have. `None` if no token is needed.
    pub(crate) role: Option<Role>,
    pub(crate) needs: StoreRequirement,
    /// Whether the handler reads parameters of the query. If not, the call may have none.
    pub(crate) has_parameters: bool,
}

/// Route of a request, and the parts of its path that stand for names.
#[derive(Debug)]
pub(crate) struct MatchedRoute<'a> {
    pub(crate) route: &'static Route,
    /// The index of the route in its table.
    pub(crate) index: usize,
    names: [&'a str; 2],
}

impl MatchedRoute<'_> {
    /// Returns the part of the path that stands for the name with this position.
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

/// Finds the route of a request in a table.
///
/// # Errors
/// No route has this path, or none has this method.
pub(crate) fn find<'a>(
    routes: &'static [Route],
    method: &Method,
    path: &'a str,
) -> Result<MatchedRoute<'a>, Problem> {
    let mut allowed: Vec<&str> = Vec::new();
    // A HEAD request is answered like GET, and the connection leaves the body out.
    let method = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    for (at, route) in routes.iter().enumerate() {
        let Some(names) = match_template(route.template, path) else {
            continue;
        };
        if route.method == *method {
            return Ok(MatchedRoute {
                route,
                index: at,
                names,
            });
        }
        if !allowed.contains(&route.method.as_str()) {
            allowed.push(route.method.as_str());
        }
    }
    Err(unknown_action(routes, method, path).unwrap_or_else(|| no_route(method, path, &allowed)))
}

/// Problem of a path that does not exist, or that has only the methods `allowed`.
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

/// Problem of an action that the noun of the path does not have, such as `:cancle`.
fn unknown_action(routes: &[Route], method: &Method, path: &str) -> Option<Problem> {
    let (noun, action) = path
        .rsplit_once(':')
        .filter(|(_, action)| method == Method::POST && !action.contains('/'))?;
    let actions = routes.iter().filter_map(|route| {
        let (template, action) = route.template.rsplit_once("}:")?;
        match_template(&format!("{template}}}"), noun).map(|_| format!(":{action}"))
    });
    let actions: Vec<String> = actions.collect();
    let shown: String = action.chars().take(200).collect();
    let detail = format!(
        "there is no action :{shown} here; the actions are {}",
        actions.join(", ")
    );
    (!actions.is_empty()).then(|| Problem::new(Code::NotFound, detail))
}

/// Returns the parts of a path that stand for the names of a template, if the path matches it.
fn match_template<'a>(template: &str, path: &'a str) -> Option<[&'a str; 2]> {
    let mut names = [""; 2];
    let mut position = 0;
    let mut parts = path.split('/');
    for template_part in template.split('/') {
        let part = parts.next()?;
        let Some((_, verb)) = template_part
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
        else {
            if part != template_part {
                return None;
            }
            continue;
        };
        // Names may have colons. The verb follows the last one.
        let name = if verb.is_empty() {
            part
        } else {
            part.strip_suffix(verb)?
        };
        if name.is_empty() {
            return None;
        }
        names[position] = name;
        position += 1;
    }
    parts.next().is_none().then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::ROUTES;

    #[test]
    fn paths_lead_to_routes_with_their_names() {
        let check = |method: Method, path: &str, template: &str, names: [&str; 2]| {
            let found = find(ROUTES, &method, path).unwrap();
            assert_eq!(
                (found.route.template, found.names),
                (template, names),
                "{path}"
            );
            let served = if method == Method::HEAD {
                Method::GET
            } else {
                method
            };
            assert_eq!(found.route.method, served, "{path}");
        };
        let get = || Method::GET;
        let post = || Method::POST;
        let workflows = "/v1/workflows";
        check(post(), workflows, workflows, ["", ""]);
        check(Method::HEAD, workflows, workflows, ["", ""]);
        check(
            get(),
            "/v1/workflows/a:b",
            "/v1/workflows/{id}",
            ["a:b", ""],
        );
        let start = "/v1/workflows/{id}:start";
        check(post(), "/v1/workflows/a:start", start, ["a", ""]);
        let job = "/v1/workflows/{id}/jobs/{name}";
        check(get(), "/v1/workflows/a/jobs/x:skip", job, ["a", "x:skip"]);
        let log = "/v1/workflows/{id}/jobs/{name}/log";
        check(get(), "/v1/workflows/a/jobs/log/log", log, ["a", "log"]);
        let retry = "/v1/workflows/{id}/jobs/{name}:retry";
        check(
            post(),
            "/v1/workflows/a/jobs/x:skip:retry",
            retry,
            ["a", "x:skip"],
        );
        let by_key = "/v1/workflows:byKey";
        check(get(), by_key, by_key, ["", ""]);
        let pause = "/v1/queues/{name}:pause";
        check(post(), "/v1/queues/q:pause", pause, ["q", ""]);
    }

    #[test]
    fn an_unknown_action_lists_the_known_ones() {
        let check = |path: &str, detail: &str| {
            let problem = find(ROUTES, &Method::POST, path).unwrap_err();
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
            assert_eq!(
                find(ROUTES, &method, path).unwrap_err().code,
                code,
                "{path}"
            );
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
