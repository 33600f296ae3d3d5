//! Table of all operations. The macro in `routes.rs` describes its form.

use axum::http::Method;
use tidegate_workflow::{Action, Paused, PolicyTarget};

use super::openapi;
#[cfg(test)]
use super::openapi::operations::Answers::*;
#[cfg(test)]
use super::openapi::operations::Description;
#[cfg(test)]
use super::openapi::parameters::*;
use crate::events::live;
#[cfg(test)]
use crate::http::problem::Code;
use crate::http::route::{Route, StoreRequirement};
use crate::http::tokens::Role;
use crate::jobs::{self, claims, leases, reports};
use crate::limits::{check, configuration, overrides, refusals, series, top, waiting};
use crate::page::{files, search, session};
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::status::{overview, readiness, test_clock};
use crate::workers::{Draining, policies, queues};
use crate::workflows::graph::GraphFormat;
use crate::workflows::{act, bulk, create, failures, graph, list, show};
use crate::{events, workers};

const READ: Option<Role> = Some(Role::Read);
const WORK: Option<Role> = Some(Role::Work);
const ADMIN: Option<Role> = Some(Role::Admin);
/// Role of operations that need no token.
const OPEN: Option<Role> = None;

routes! {
    /// Report how attempts ended, and take more jobs.
    ///
    /// Each report has a status of its own. Jobs that became ready by the reports come first. Notes
    /// are kept before the reports are taken, and each has a status of its own, too.
    ReportJobs: POST "/v1/jobs/report" ("ReportRequest") -> Json("ReportResult"),
        WORK, Engine, [], [] => reports::report;
    /// Take ready jobs on lease.
    ClaimJobs: POST "/v1/jobs/claim" ("Claim") -> Json("ClaimResult"),
        WORK, Engine, [], [MigrationNeeded] => claims::claim;
    /// Keep jobs longer.
    ///
    /// Each lease has a status of its own, and so has each note.
    ExtendLeases: POST "/v1/jobs/extend" ("Extend") -> Json("ExtendResult"),
        WORK, Engine, [], [] => leases::extend;
    /// Create a workflow, and start it.
    CreateWorkflow: POST "/v1/workflows" ("Definition") -> Created("Created"),
        WORK, Engine, [; IDEMPOTENCY, TRACEPARENT, TRACESTATE],
        [GraphCycle, UnknownDependency, DuplicateJobName, InvalidDefinition, IdempotencyMismatch]
        => create::create;
    /// List workflows.
    ///
    /// With `q`, a call reads at most 10,000 workflows for the text; `older` says that there are
    /// more. Names with the text, the tag, ids and keys are found without reading, however old.
    ListWorkflows: GET "/v1/workflows" () -> Json("WorkflowPage"),
        READ, Engine, [STATUS, WORKFLOW_NAME, TAG, FAILED_WITH, FAILED_HANDLER, CREATED_AFTER, CREATED_BEFORE, CREATED_RANGE, PREFIX, IDS, TEXT, ORDER, LIMIT, CURSOR],
        [InvalidCursor]
        => list::list;
    /// Create many workflows.
    ///
    /// Each workflow has a status of its own: those without mistakes are created.
    CreateWorkflows: POST "/v1/workflows:batch" ("Batch") -> Json("BatchResult"),
        WORK, Engine, [; IDEMPOTENCY, TRACEPARENT, TRACESTATE], [] => create::create_batch;
    /// Count workflows by status.
    CountWorkflows: GET "/v1/workflows:count" () -> Json("WorkflowCount"),
        READ, Engine, [STATUS, WORKFLOW_NAME, TAG, FAILED_WITH, FAILED_HANDLER, CREATED_AFTER, CREATED_BEFORE, CREATED_RANGE, PREFIX, IDS, TEXT, BY, NAME_LIMIT, NAME_CURSOR],
        [InvalidCursor]
        => list::count;
    /// Find workflows, names, tags, limits, queues, workers and handlers by a text.
    ///
    /// At most 20 of them, those first that have exactly this text, and then those that begin with
    /// it. Upper and lower case are the same.
    Search: GET "/v1/search" () -> Json("SearchResults"),
        READ, Other, [SEARCH_TEXT], [] => search::show;
    /// List failures by handler and kind of error.
    ///
    /// It looks at the failed workflows that were created last, at most 1,000, and
    /// counts each failed job of the range.
    ListFailures: GET "/v1/failures" () -> Json("Failures"),
        READ, Engine, [RANGE], [] => failures::show;
    /// Do the same to many workflows.
    ActOnWorkflows: POST "/v1/workflows:bulk" ("Bulk") -> Json("BulkResult"),
        ADMIN, Engine, [], [InvalidCursor] => bulk::bulk;
    /// Find a workflow by its idempotency key.
    FindWorkflow: GET "/v1/workflows:byKey" () -> Json("Workflow"),
        READ, Engine, [KEY], [WorkflowNotFound] => show::by_key;
    /// Show a workflow.
    ShowWorkflow: GET "/v1/workflows/{id}" () -> Json("Workflow"),
        READ, Engine, [VIEW, WAIT], [WorkflowNotFound, PayloadTooLarge] => show::show;
    /// Remove a workflow that is over or was never started.
    DeleteWorkflow: DELETE "/v1/workflows/{id}" () -> NoContent("It is removed."),
        ADMIN, Engine, [], [WorkflowNotFound, StateConflict] => act::delete;
    /// Start a workflow.
    StartWorkflow: POST "/v1/workflows/{id}:start" () -> Json("Done"),
        WORK, Engine, [], [WorkflowNotFound, AlreadyStarted] => act::act(Action::Start);
    /// Cancel all jobs that have not ended.
    CancelWorkflow: POST "/v1/workflows/{id}:cancel" () -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, StateConflict] => act::act(Action::Cancel);
    /// Hand out no more jobs of a workflow.
    PauseWorkflow: POST "/v1/workflows/{id}:pause" () -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, StateConflict] => act::act(Action::Pause);
    /// Hand out jobs of a workflow again.
    ResumeWorkflow: POST "/v1/workflows/{id}:resume" () -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, StateConflict] => act::act(Action::Resume);
    /// Run all jobs again that failed or were cancelled.
    RetryWorkflow: POST "/v1/workflows/{id}:retry" ("Retry?") -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, StateConflict] => act::retry;
    /// Run jobs again that have ended.
    RestartJobs: POST "/v1/workflows/{id}:restart" ("Restart") -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, JobNotFound, StateConflict] => act::restart;
    /// Change how long a workflow is kept.
    ExpireWorkflow: POST "/v1/workflows/{id}:expire" ("Expire") -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, StateConflict] => act::expire;
    /// Get the places of all boxes and lines of a picture.
    LayOutGraph: GET "/v1/workflows/{id}/graph.json" () -> Json("GraphLayout"),
        READ, Engine, [], [WorkflowNotFound, PayloadTooLarge] => graph::graph(GraphFormat::Json);
    /// Draw the graph as SVG.
    DrawSvg: GET "/v1/workflows/{id}/graph.svg" () -> Text("image/svg+xml"),
        READ, Engine, [], [WorkflowNotFound, PayloadTooLarge] => graph::graph(GraphFormat::Svg);
    /// Draw the graph for Graphviz.
    DrawDot: GET "/v1/workflows/{id}/graph.dot" () -> Text("text/vnd.graphviz"),
        READ, Engine, [], [WorkflowNotFound, PayloadTooLarge] => graph::graph(GraphFormat::Dot);
    /// Draw the graph for Mermaid.
    DrawMermaid: GET "/v1/workflows/{id}/graph.mmd" () -> Text("text/vnd.mermaid"),
        READ, Engine, [], [WorkflowNotFound, PayloadTooLarge] => graph::graph(GraphFormat::Mermaid);
    /// Draw the graph for a terminal.
    DrawText: GET "/v1/workflows/{id}/graph.txt" () -> Text("text/plain"),
        READ, Engine, [WIDTH, ASCII, COLOUR], [WorkflowNotFound, PayloadTooLarge]
        => graph::graph(GraphFormat::Text);
    /// Follow a workflow.
    ///
    /// Server-sent events with JSON as data. `job` has a JobEvent, for each job that does something
    /// else. `workflow` has a Workflow and an id; it comes first, and after the jobs of each
    /// change. `removed` has a RemovedEvent and is the last. Changes within a quarter of a second
    /// come together.
    WatchWorkflow: GET "/v1/workflows/{id}/events" () -> Text("text/event-stream"),
        READ, Engine, [; LAST_EVENT], [WorkflowNotFound] => events::events;
    /// List the jobs of a workflow.
    ListJobs: GET "/v1/workflows/{id}/jobs" () -> Json("JobPage"),
        READ, Engine, [STATE, JOB_TEXT, JOB_HANDLER, JOB_ORDER, LIMIT, CURSOR],
        [WorkflowNotFound, InvalidCursor]
        => jobs::list;
    /// Show a job, with its params, output and errors.
    ShowJob: GET "/v1/workflows/{id}/jobs/{name}" () -> Json("Job"),
        READ, Engine, [], [WorkflowNotFound, JobNotFound] => jobs::show;
    /// Read what workers wrote to the log of a job.
    ///
    /// The oldest lines first. To follow it, ask again with `next` as `after`. Lines may be lost
    /// when the store fails.
    ReadJobLog: GET "/v1/workflows/{id}/jobs/{name}/log" () -> Json("LogPage"),
        READ, Engine, [LOG_AFTER, LOG_LIMIT], [WorkflowNotFound, JobNotFound, InvalidCursor]
        => jobs::log::log;
    /// Skip a job.
    SkipJob: POST "/v1/workflows/{id}/jobs/{name}:skip" () -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, JobNotFound, StateConflict]
        => jobs::act(Action::SkipJob);
    /// Count a job as succeeded.
    MarkJobSucceeded: POST "/v1/workflows/{id}/jobs/{name}:mark_succeeded" ("MarkSucceeded?") -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, JobNotFound, StateConflict] => jobs::mark_succeeded;
    /// Cancel a job.
    CancelJob: POST "/v1/workflows/{id}/jobs/{name}:cancel" () -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, JobNotFound, StateConflict]
        => jobs::act(Action::CancelJob);
    /// Run a job again that failed or was cancelled.
    RetryJob: POST "/v1/workflows/{id}/jobs/{name}:retry" ("Retry?") -> Json("Done"),
        ADMIN, Engine, [], [WorkflowNotFound, JobNotFound, StateConflict] => jobs::retry;
    /// List queues by name.
    ///
    /// A queue exists from the first job that names it. It is forgotten some hours after the last
    /// workflow that can have such a job is removed, unless it is paused.
    ListQueues: GET "/v1/queues" () -> Json("QueuePage"),
        READ, Engine, [LIMIT, CURSOR], [InvalidCursor] => queues::list;
    /// Hand out no jobs of a queue, on all servers of the store.
    PauseQueue: POST "/v1/queues/{name}:pause" () -> Json("QueuePaused"),
        ADMIN, Engine, [], [] => queues::set(Paused::Yes);
    /// Hand out jobs of a queue again.
    ResumeQueue: POST "/v1/queues/{name}:resume" () -> Json("QueuePaused"),
        ADMIN, Engine, [], [QueueNotFound] => queues::set(Paused::No);
    /// Show the limits of a queue.
    ShowQueueLimits: GET "/v1/queues/{name}/limits" () -> Json("LimitsOf"),
        READ, Engine, [], [] => policies::show_limits(PolicyTarget::Queue);
    /// Give all jobs of a queue limits.
    ///
    /// Workflows that are created from now on have them in front of each job's own limits.
    SetQueueLimits: PUT "/v1/queues/{name}/limits" ("LimitsDefinition") -> Json("LimitsOf"),
        ADMIN, Engine, [], [InvalidDefinition] => policies::set_limits(PolicyTarget::Queue);
    /// Remove the limits of a queue.
    RemoveQueueLimits: DELETE "/v1/queues/{name}/limits" () -> NoContent("There are none any more."),
        ADMIN, Engine, [], [InvalidDefinition] => policies::remove_limits(PolicyTarget::Queue);
    /// Show the weights of a queue.
    ShowQueueWeights: GET "/v1/queues/{name}/weights" () -> Json("WeightsOf"),
        READ, Engine, [], [] => policies::show_weights;
    /// Give keys of a queue weights.
    ///
    /// They hold at once, on all servers of the store.
    SetQueueWeights: PUT "/v1/queues/{name}/weights" ("WeightsDefinition") -> Json("WeightsOf"),
        ADMIN, Engine, [], [InvalidDefinition] => policies::set_weights;
    /// Remove the weights of a queue.
    RemoveQueueWeights: DELETE "/v1/queues/{name}/weights" () -> NoContent("There are none any more."),
        ADMIN, Engine, [], [InvalidDefinition] => policies::remove_weights;
    /// Show the limits of a handler.
    ShowHandlerLimits: GET "/v1/handlers/{name}/limits" () -> Json("LimitsOf"),
        READ, Engine, [], [] => policies::show_limits(PolicyTarget::Handler);
    /// Give all jobs of a handler limits.
    ///
    /// Workflows that are created from now on have them in front of each job's own limits.
    SetHandlerLimits: PUT "/v1/handlers/{name}/limits" ("LimitsDefinition") -> Json("LimitsOf"),
        ADMIN, Engine, [], [InvalidDefinition] => policies::set_limits(PolicyTarget::Handler);
    /// Remove the limits of a handler.
    RemoveHandlerLimits: DELETE "/v1/handlers/{name}/limits" () -> NoContent("There are none any more."),
        ADMIN, Engine, [], [InvalidDefinition] => policies::remove_limits(PolicyTarget::Handler);
    /// List workers by name, and what they run.
    ///
    /// Workers of all servers of the store. What other servers say of theirs is at most 5 s old.
    ListWorkers: GET "/v1/workers" () -> Json("WorkerPage"),
        READ, Engine, [LIMIT_OF_WORKERS, CURSOR], [] => workers::list;
    /// Follow what a worker should know at once.
    ///
    /// Server-sent events with JSON as data. `drain` has a DrainEvent; it comes first, and when
    /// that changes. `lease_lost` has a LeaseLostEvent for each lease that is over before the
    /// worker has reported, within a second.
    WatchWorker: GET "/v1/workers/{worker}/events" () -> Text("text/event-stream"),
        WORK, Engine, [UPTIME], [] => workers::events::events;
    /// Give a worker no more jobs, on all servers of the store.
    ///
    /// It learns of that with its next call, or from its events. What it has, it may finish.
    DrainWorker: POST "/v1/workers/{worker}:drain" () -> Json("WorkerDraining"),
        ADMIN, Engine, [], [StateConflict] => workers::set(Draining::Begin);
    /// Give a worker jobs again.
    UndrainWorker: POST "/v1/workers/{worker}:undrain" () -> Json("WorkerDraining"),
        ADMIN, Engine, [], [] => workers::set(Draining::End);
    /// List the limits that jobs wait under.
    ///
    /// By queue and handler, with what is used of each limit and who has its places.
    ListLimits: GET "/v1/limits" () -> Json("WaitingKeyPage"),
        READ, Engine, [ONLY_QUEUE, LIMIT_OF_KEYS, CURSOR], [InvalidCursor] => waiting::list;
    /// List limits and keys that are paused, throttled or scaled.
    ListOverrides: GET "/v1/limits/overrides" () -> Json("OverrideList"),
        READ, Other, [], [] => overrides::list;
    /// Pause or scale a limit or a key for a while.
    ///
    /// It holds at this server at once, and within a second at all that share the Redis of its
    /// counters. It replaces an earlier one of the same effect. Without that Redis, it holds at
    /// this server until it stops.
    SetOverride: PUT "/v1/limits/overrides" ("OverrideDefinition") -> Json("LimitOverride"),
        ADMIN, Other, [], [TooManyOverrides] => overrides::set;
    /// Resume a limit or a key.
    RemoveOverride: DELETE "/v1/limits/overrides" () -> NoContent("It is removed."),
        ADMIN, Other, [OVERRIDE_RULE, OVERRIDE_DOMAIN, OVERRIDE_ENTRIES, OVERRIDE_EFFECT],
        [OverrideNotFound]
        => overrides::remove;
    /// Ask what a request would be answered.
    ///
    /// Nothing is charged. What is paused for jobs alone is answered as if it were not.
    CheckLimits: POST "/v1/limits/check" ("LimitCheck") -> Json("LimitAnswer"),
        READ, Other, [], [NoConfiguration] => check::check;
    /// Show the keys with the most hits, and the latest refusals.
    ///
    /// Of this server alone.
    ShowTopKeys: GET "/v1/limits/top" () -> Json("TopKeys"),
        READ, Nothing, [], [] => top::show;
    /// List the keys that were refused.
    ///
    /// Of this server alone, since it started.
    ListRefusals: GET "/v1/limits/refusals" () -> Json("RefusedKeys"),
        READ, Nothing, [RANGE, REFUSED_RULE], [] => refusals::show;
    /// Show the rates of limits over a range.
    ///
    /// Of this server alone, since it started.
    ShowLimitSeries: GET "/v1/limits/series" () -> Json("LimitSeriesList"),
        READ, Nothing, [SERIES_RULES, RANGE], [] => series::show;
    /// Show the configuration of rate limits, with the hits of each limit.
    ///
    /// Of this server. Without a domain: all domains, where the configuration comes from, and the
    /// mistakes of the latest load when it was refused. With one: a level of its descriptors. Items
    /// have what is below them when there is room for all of it.
    ShowConfiguration: GET "/v1/limits/configuration" () -> Json("LimitConfiguration"),
        READ, Nothing, [CONFIGURED_DOMAIN, CONFIGURED_ENTRIES, FIND, LIMIT_OF_DESCRIPTORS, CURSOR],
        [DescriptorNotFound, InvalidCursor]
        => configuration::show;
    /// Move the clock of a server for tests.
    ///
    /// Only where TIDEGATE_TEST_CLOCK is true; `not_found` elsewhere. Takes either field. All that
    /// became due is done before the answer.
    AdvanceClock: POST "/v1/test/clock:advance" ("Advance") -> Json("TestClock"),
        ADMIN, Other, [], [NotFound] => test_clock::advance;
    /// Show the version of the server.
    ShowVersion: GET "/v1/version" () -> Json("Version"),
        READ, Nothing, [], [] => readiness::version;
    /// Show what works and what does not.
    ShowStatus: GET "/v1/status" () -> Json("ServerStatus"),
        READ, Nothing, [], [] => readiness::status;
    /// Get this description.
    DescribeApi: GET "/v1/openapi.json" () -> Object,
        READ, Nothing, [], [] => openapi::page;
    /// Show rates of the last hour, or of another range, at this server.
    ShowOverview: GET "/v1/overview" () -> Json("Overview"),
        READ, Nothing, [RANGE], [] => overview::show;
    /// Follow several things at once.
    ///
    /// Server-sent events with JSON as data. `of` has an OfEvent and says what the events are about
    /// that follow it. About a workflow they are those of `watchWorkflow`, about the overview there
    /// is an `overview` with an OverviewEvent each second.
    WatchAll: GET "/v1/live" () -> Text("text/event-stream"),
        READ, Other, [WATCH], [] => live::live;
    /// Show who asks, and what they may do.
    ShowSession: GET "/v1/session" () -> Json("Session"),
        OPEN, Nothing, [], [Forbidden] => session::show;
    /// Keep a token in a cookie of this browser.
    SignIn: POST "/v1/session" ("SignIn") -> Json("Session"),
        OPEN, Nothing, [; PAGE], [Unauthorized, Forbidden, InvalidField, InvalidJson]
        => session::sign_in;
    /// Remove the cookie.
    SignOut: DELETE "/v1/session" () -> NoContent("The cookie is removed."),
        OPEN, Nothing, [; PAGE], [Forbidden] => session::sign_out;
    /// Check that the process is alive.
    IsAlive: GET "/healthz" () -> Text("text/plain"),
        OPEN, Nothing, [ANY], [] => readiness::healthz;
    /// Check that the server can take requests.
    IsReady: GET "/readyz" () -> Readiness,
        OPEN, Nothing, [ANY], [] => readiness::readyz;
    /// Show the page.
    ShowPage: GET "/" () -> Unlisted,
        OPEN, Nothing, [ANY], [] => files::page;
    /// Get a file of the page.
    ShowAsset: GET "/assets/{name}" () -> Unlisted,
        OPEN, Nothing, [ANY], [] => files::asset;
}
