//! Definitions of workflows as callers send them, with all optional fields.

pub(crate) mod mistakes;

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_workflow::{
    DEFAULT_MAX_LOST, DEFAULT_QUEUE, Definition, Graph, JobDefinition, Json, MAX_PARAMS,
    NewWorkflow, OnFailure, Policies, Retention, Retry, StartMode, TriggerRule,
};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::body::{self, NameList, TimeSpan, TimeSpanVisitor};
use crate::http::duration_text;
use crate::http::problem::{Code, Problem};
use crate::state::traces::CreationSpan;
use crate::views::workflow_limits::LimitBody;

/// Mistake in a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionMistake {
    /// The stable code that the server would answer with, such as `unknown_dependency`.
    pub code: &'static str,
    /// Path of the mistake, such as `jobs[3].after[0]`. `None` if the text is not JSON.
    pub path: Option<String>,
    /// Explanation of the mistake, a sentence.
    pub detail: String,
}

/// Checks the JSON of a definition as `POST /v1/workflows` does, up to the first mistake.
fn first_mistake(json: &str) -> Option<DefinitionMistake> {
    let definition: Result<DefinitionBody<'_>, Problem> = body::read(json.as_bytes());
    let checked = definition.and_then(|definition| {
        definition.resolve(None, &Policies::default(), &mut CreationSpan::default())
    });
    checked.err().map(|problem| DefinitionMistake {
        code: problem.word(),
        path: problem.path().map(str::to_owned),
        detail: problem.detail().to_owned(),
    })
}

/// A workflow to create.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Definition))]
pub(crate) struct DefinitionBody<'a> {
    /// Name of workflows of this kind.
    name: String,
    #[serde(borrow, deserialize_with = "body::objects")]
    #[cfg_attr(test, schema(min_items = 1, max_items = 131072))]
    pub(crate) jobs: Vec<JobBody<'a>>,
    /// Every job gets these, too; its own `params` win.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    globals: Option<&'a RawValue>,
    /// Words to find it by.
    #[cfg_attr(test, schema(max_items = 16))]
    tags: Option<Vec<String>>,
    /// Effect of the failure of one job on the others; `continue` if left out.
    #[serde(default, deserialize_with = "body::optional_word")]
    on_failure: Option<OnFailureBody>,
    /// How long it is kept after its end; if left out, the server decides.
    retention: Option<RetentionBody>,
    /// Creating again with this key returns the first workflow. The header Idempotency-Key does the same.
    idempotency_key: Option<String>,
    /// When it starts; `now` if left out.
    #[serde(default, deserialize_with = "body::optional_word")]
    start: Option<Start>,
}

/// A job of a workflow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = JobDefinition))]
pub(crate) struct JobBody<'a> {
    /// Unique in the workflow; the handler if left out.
    name: Option<String>,
    /// Name of the handler that a worker runs.
    handler: String,
    /// Params of the handler, together with the workflow's globals: at most 256 KiB of both.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    params: Option<&'a RawValue>,
    /// The queue that workers take it from; `default` if left out.
    queue: Option<String>,
    /// The pause after the jobs before it are done; none if left out.
    wait: Option<TimeSpan>,
    /// Higher first; among equals, the oldest first, to within about two seconds. 0 if left out.
    #[cfg_attr(test, schema(minimum = 0, maximum = 255))]
    priority: Option<u8>,
    /// How often it runs again after a failure; 0 if left out.
    #[cfg_attr(test, schema(minimum = 0, maximum = 65534))]
    retries: Option<u16>,
    /// How many leases in a row may be lost, as when workers die, before it has failed; 3 if left out.
    #[cfg_attr(test, schema(minimum = 0, maximum = 65534))]
    max_lost: Option<u16>,
    /// The pause before the first retry; it doubles each time, up to `backoff_max`. 1s if left out.
    backoff: Option<TimeSpan>,
    /// The longest pause before a retry, not less than `backoff`; 1h, or `backoff` if that is longer, if left out.
    backoff_max: Option<TimeSpan>,
    /// An attempt that takes longer has failed; more than 0.
    timeout: Option<TimeSpan>,
    /// Which outcomes of the jobs before it let it run; `all_success` if left out.
    #[serde(default, deserialize_with = "body::optional_word")]
    rule: Option<Rule>,
    /// Names of jobs that it runs after.
    after: Option<NameList>,
    /// Names of jobs that run after it.
    before: Option<NameList>,
    /// Limits that must all admit the job before it runs.
    #[serde(default, deserialize_with = "body::optional_objects")]
    #[cfg_attr(test, schema(max_items = 4))]
    limits: Option<Vec<LimitBody>>,
}

/// Effect of the failure of one job on the others.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema), schema(as = OnFailure))]
enum OnFailureBody {
    Continue,
    FailFast,
}

/// When a workflow starts: at once, or by a later call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema))]
enum Start {
    Now,
    Manual,
}

/// Which outcomes of the jobs before it let a job run.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema))]
enum Rule {
    AllSuccess,
    AllDone,
    AnySuccess,
    AnyFailed,
    NoneFailed,
}

/// A time span such as `7d`, or `forever`.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(ToSchema), schema(as = Retention, value_type = String))]
pub(crate) struct RetentionBody(pub(crate) Retention);

impl<'de> Deserialize<'de> for RetentionBody {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Some callers say `never` for the time of removal.
        let read = |text: &str| {
            if text == "never" {
                Some(Retention::Forever)
            } else {
                duration_text::retention(text)
            }
        };
        let expected =
            "a time span such as \"7d\" or \"12h\", of at most 36500 days, or \"forever\"";
        deserializer
            .deserialize_any(TimeSpanVisitor { read, expected })
            .map(Self)
    }
}

impl DefinitionBody<'_> {
    /// Validates the definition as an item of a batch. `key` is its idempotency key unless it has
    /// one itself. Its jobs get the limits of their queues and handlers from `policies`.
    ///
    /// # Errors
    /// The definition has a mistake. The path is relative to the definition.
    pub(crate) fn resolve_item(
        self,
        key: Option<String>,
        policies: &Policies,
        creating: &mut CreationSpan,
    ) -> Result<NewWorkflow, Problem> {
        let key = key.filter(|_| self.idempotency_key.is_none());
        self.resolve(key, policies, creating)
    }

    /// Validates the definition. `key` is the idempotency key of the request's header. `creating`
    /// holds the trace of the call.
    ///
    /// # Errors
    /// The definition has a mistake. The path is relative to the definition.
    pub(crate) fn resolve(
        self,
        key: Option<String>,
        policies: &Policies,
        creating: &mut CreationSpan,
    ) -> Result<NewWorkflow, Problem> {
        let longest_params = self.check_sizes()?;
        // The trace is left out if the author's globals and params need its bytes.
        let remaining_bytes = || MAX_PARAMS.saturating_sub(longest_params);
        let traced = creating.globals(self.globals.map(RawValue::get), remaining_bytes);
        let idempotency_key = equal_key(self.idempotency_key, key)?;
        let jobs = self.jobs.into_iter().enumerate();
        let definition = Definition {
            name: self.name,
            jobs: jobs
                .map(|(at, job)| job.resolve(at))
                .collect::<Result<_, _>>()?,
            globals: traced.or_else(|| self.globals.map(checked_json)),
            tags: self.tags.unwrap_or_default(),
            on_failure: match self.on_failure {
                Some(OnFailureBody::FailFast) => OnFailure::FailFast,
                Some(OnFailureBody::Continue) | None => OnFailure::Continue,
            },
            retention: self.retention.map(|retention| retention.0),
            idempotency_key,
        };
        Ok(NewWorkflow {
            graph: Graph::build_with_policies(definition, policies)?,
            start: match self.start {
                Some(Start::Manual) => StartMode::Later,
                _ => StartMode::Now,
            },
            created_at: None,
        })
    }

    /// Checks the depth and the size of the globals and of all params. Returns the bytes of the
    /// longest params.
    fn check_sizes(&self) -> Result<usize, Problem> {
        body::check_depth(self.globals, "globals")?;
        for (at, job) in self.jobs.iter().enumerate() {
            body::check_depth(job.params, format_args!("jobs[{at}].params"))?;
        }
        let size = |text: Option<&RawValue>| text.map_or(0, |text| text.get().len());
        let globals = size(self.globals);
        let mut longest = 0;
        for (at, job) in self.jobs.iter().enumerate() {
            longest = longest.max(size(job.params));
            if longest + globals > MAX_PARAMS {
                let detail = format!(
                    "params and globals together have more than {MAX_PARAMS} bytes; pass a reference instead"
                );
                let path = format!("jobs[{at}].params");
                return Err(Problem::new(Code::PayloadTooLarge, detail).at(path));
            }
        }
        Ok(longest)
    }
}

/// Returns the idempotency key of the field or of the header, which must not differ.
fn equal_key(field: Option<String>, header: Option<String>) -> Result<Option<String>, Problem> {
    match (field, header) {
        (Some(field), Some(header)) if field != header => Err(Problem::field(
            "idempotency_key",
            "the field differs from the header Idempotency-Key",
        )),
        (field, header) => Ok(field.or(header)),
    }
}

impl JobBody<'_> {
    fn resolve(self, at: usize) -> Result<JobDefinition, Problem> {
        let retry = self.retry();
        Ok(JobDefinition {
            name: self.name.unwrap_or_else(|| self.handler.clone()),
            handler: self.handler,
            params: self.params.map(checked_json),
            queue: self.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
            wait: self.wait.map_or(Duration::ZERO, |wait| wait.0),
            priority: self.priority.unwrap_or_default(),
            retry,
            max_lost: self.max_lost.unwrap_or(DEFAULT_MAX_LOST),
            timeout: self.timeout.map(|timeout| timeout.0),
            rule: self.rule.map_or(TriggerRule::default(), Rule::resolve),
            after: self.after.unwrap_or_default().0,
            before: self.before.unwrap_or_default().0,
            limits: LimitBody::resolve_all(
                self.limits.unwrap_or_default(),
                &format_args!("jobs[{at}].limits"),
            )?,
        })
    }

    /// Returns the retries with the defaults of what is left out. The maximum of the back-off is
    /// at least its first pause.
    fn retry(&self) -> Retry {
        let default = Retry::default();
        let backoff = self.backoff.map_or(default.backoff, |pause| pause.0);
        let backoff_max = self
            .backoff_max
            .map_or(default.backoff_max.max(backoff), |pause| pause.0);
        Retry {
            limit: self.retries.unwrap_or(default.limit),
            backoff,
            backoff_max,
        }
    }
}

impl Rule {
    const fn resolve(self) -> TriggerRule {
        match self {
            Self::AllSuccess => TriggerRule::AllSuccess,
            Self::AllDone => TriggerRule::AllDone,
            Self::AnySuccess => TriggerRule::AnySuccess,
            Self::AnyFailed => TriggerRule::AnyFailed,
            Self::NoneFailed => TriggerRule::NoneFailed,
        }
    }
}

/// Returns JSON that the parser has already checked.
pub(crate) fn checked_json(raw: &RawValue) -> Json {
    Json::from_checked(raw.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: Option<(&str, Option<&str>)>) {
        let found = first_mistake(json);
        let found = found
            .as_ref()
            .map(|mistake| (mistake.code, mistake.path.as_deref()));
        assert_eq!(found, expected, "{json}");
    }

    /// Checks fields of a job other than its handler.
    fn check_job(fields: &str, expected: Option<(&str, &str)>) {
        let json = format!(r#"{{"name":"w","jobs":[{{"handler":"a",{fields}}}]}}"#);
        let path = expected.map(|(_, path)| format!("jobs[0].{path}"));
        check(&json, expected.map(|(code, _)| (code, path.as_deref())));
    }

    #[test]
    fn a_definition_is_checked_without_a_server() {
        let field = |path| Some(("invalid_field", Some(path)));
        let one =
            r#"{"name":"w","jobs":[{"handler":"a"},{"handler":"b","after":"a","timeout":"5s"}]}"#;
        check(one, None);
        check("{", Some(("invalid_json", None)));
        for (given, value) in [
            ("on_failure", "5"),
            ("on_failure", r#"{"continue":null}"#),
            ("start", "{}"),
        ] {
            let json = format!(r#"{{"name":"w","jobs":[{{"handler":"a"}}],"{given}":{value}}}"#);
            check(&json, field(given));
        }
        let nulls =
            r#"{"name":"w","jobs":[{"handler":"a","rule":null}],"start":null,"on_failure":null}"#;
        check(nulls, None);
        check(r#"{"name":"w","jobs":[["a","b"]]}"#, field("jobs[0]"));
        check(r#"["w",[{"handler":"a"}]]"#, field(""));
        let half = r#"{"name":5,"jobs":[{"handler":"a"}"#;
        check(half, Some(("invalid_json", None)));
    }

    #[test]
    fn jobs_of_a_definition_are_checked() {
        let field = |path| Some(("invalid_field", path));
        check_job(r#""timeout":"0s""#, field("timeout"));
        check_job(r#""timeout":5"#, field("timeout"));
        check_job(r#""backoff":"2s","backoff_max":"1s""#, field("backoff"));
        check_job(r#""backoff":"2h","timeout":"1us""#, None);
        check_job(r#""rule":true"#, field("rule"));
        check_job(r#""after":["b"]"#, Some(("unknown_dependency", "after[0]")));
    }

    #[test]
    fn limits_of_a_definition_are_checked() {
        let globals = r#"{"name":"w","globals":{"t":"x"},"jobs":[{"handler":"a","limits":[{"domain":"d","entries":[["k","$.t"]]},
                {"concurrency":3,"of":"workflow"}]}]}"#;
        check(globals, None);
        let refused = |limit: &str, code: &str, path: &str| {
            let path = format!("limits[0]{path}");
            check_job(&format!(r#""limits":[{limit}]"#), Some((code, &path)));
        };
        for (limit, path) in [
            ("{}", ""),
            ("[]", ""),
            (r#"{"domain":"d","concurrency":1,"of":"all"}"#, ""),
            (r#"{"domain":"d","of":"all"}"#, ".of"),
            (r#"{"concurrency":1}"#, ".of"),
            (r#"{"concurrency":1,"of":"job"}"#, ".of"),
            (r#"{"concurrency":1,"of":"all","hits":1}"#, ".hits"),
            (r#"{"concurrency":-1,"of":"all"}"#, ".concurrency"),
            (r#"{"domain":"d","entries":{"k":"v"}}"#, ".entries"),
            (r#"{"domain":"d","entries":[["k"]]}"#, ".entries[0]"),
            (r#"{"domain":"d","entries":[["k","v","w"]]}"#, ".entries[0]"),
            (r#"{"domain":"d","entries":[["k",5]]}"#, ".entries[0][1]"),
            (r#"{"domain":"d","entry":[]}"#, ".entry"),
        ] {
            refused(limit, "invalid_field", path);
        }
        let invalid = "invalid_definition";
        refused(r#"{"domain":"d"}"#, invalid, ".entries");
        let unknown = r#"{"domain":"d","entries":[["k","$.t"]]}"#;
        refused(unknown, invalid, ".entries[0]");
        refused(r#"{"concurrency":0,"of":"all"}"#, invalid, ".concurrency");
        let entry =
            r#"{"name":"w","jobs":[{"handler":"a","limits":[{"domain":"d","entries":[["k"]]}]}]}"#;
        let expected = r#"expected a key and a value, such as ["tenant", "$.tenant"]"#;
        assert_eq!(first_mistake(entry).unwrap().detail, expected);
    }

    #[test]
    fn retries_and_lost_leases_have_an_end() {
        let check = |fields: &str| {
            let json = format!(r#"{{"name":"w","jobs":[{{"handler":"a",{fields}}}]}}"#);
            first_mistake(&json).and_then(|mistake| mistake.path)
        };
        // One attempt more than that has no number.
        assert_eq!(
            check(r#""retries":65535"#).as_deref(),
            Some("jobs[0].retries")
        );
        assert_eq!(
            check(r#""max_lost":65535"#).as_deref(),
            Some("jobs[0].max_lost")
        );
        assert_eq!(check(r#""retries":65534,"max_lost":0"#), None);
    }
}
