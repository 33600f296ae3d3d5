//! What is said of each route: its name, what it takes, what it answers, and which problems it can have.

use tidegate_workflow::Paused;

use crate::edge::problem::Code::{self, *};
use crate::edge::route::{Call, Form, JobAction, TermsOf, WorkflowAction};
use crate::workers::Draining;

/// What an answer has in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    /// JSON of this schema.
    Json(&'static str),
    /// Text of this media type.
    Text(&'static str),
    /// A JSON object that this document does not describe.
    Object,
    Nothing,
}

/// The description of one route.
#[derive(Debug)]
pub(super) struct Operation {
    /// Generated clients name their functions by it, so it never changes.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// The schema of the body, and whether there must be one.
    pub(super) body: Option<(&'static str, bool)>,
    pub(super) answers: Vec<(u16, &'static str, Content)>,
    /// Problems besides those that every route of its kind can have.
    pub(super) problems: &'static [Code],
}

/// A parameter of a query, or a header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: &'static str,
    pub(super) description: &'static str,
    pub(super) schema: Kind,
}

/// What a parameter may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    RequiredText,
    Prefix,
    Span,
    Time,
    Flag,
    Number(u64, u64, u64),
    Words(&'static [&'static str]),
}

const fn query(name: &'static str, description: &'static str, schema: Kind) -> Parameter {
    Parameter {
        name,
        place: "query",
        description,
        schema,
    }
}

const fn header(name: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        place: "header",
        description,
        schema: Kind::Text,
    }
}

const STATUS: Parameter = query(
    "status",
    "With one of these statuses, separated by commas.",
    Kind::Text,
);
const NAME: Parameter = query("name", "Of this name.", Kind::Text);
const TAG: Parameter = query("tag", "With this tag.", Kind::Text);
const AFTER: Parameter = query("created_after", "Created then or later.", Kind::Time);
const BEFORE: Parameter = query("created_before", "Created before then.", Kind::Time);
const PREFIX: Parameter = query(
    "id_prefix",
    "With an id that begins with these characters.",
    Kind::Prefix,
);
const LIMIT: Parameter = query(
    "limit",
    "How many items at most.",
    Kind::Number(1, 1_000, 100),
);
const LIMIT_OF_WORKERS: Parameter = query(
    "limit",
    "How many items at most.",
    Kind::Number(1, 100, 100),
);
const LIMIT_OF_KEYS: Parameter =
    query("limit", "How many items at most.", Kind::Number(1, 100, 20));
const ONLY_QUEUE: Parameter = query("queue", "Only of this queue.", Kind::Text);
const CURSOR: Parameter = query(
    "cursor",
    "The `next_cursor` of the page before.",
    Kind::Text,
);
const LOG_AFTER: Parameter = query(
    "after",
    "The `next` of an earlier page: what follows it.",
    Kind::Text,
);
const LOG_LIMIT: Parameter = query(
    "limit",
    "How many lines at most.",
    Kind::Number(1, 1_000, 1_000),
);
const ORDER: Parameter = query(
    "order",
    "By creation; `newest` first if left out.",
    Kind::Words(&["newest", "oldest"]),
);
const BY: Parameter = query("by", "Count for each name, too.", Kind::Words(&["name"]));
const NAMES: Parameter = query(
    "limit",
    "With `by=name`: how many names at most.",
    Kind::Number(1, 1_000, 100),
);
const NAMES_CURSOR: Parameter = query(
    "cursor",
    "With `by=name`: the `next_cursor` of the names before.",
    Kind::Text,
);
const VIEW: Parameter = query(
    "view",
    "How much of it; `summary` if left out. `full` has params, outputs and errors of jobs.",
    Kind::Words(&["summary", "jobs", "full"]),
);
const WAIT: Parameter = query(
    "wait",
    "Wait until it is over, at most so long: up to 60s.",
    Kind::Span,
);
const UPTIME: Parameter = query(
    "uptime",
    "How long the worker has run, as in its claims.",
    Kind::Span,
);
const STATE: Parameter = query(
    "state",
    "In one of these states, separated by commas.",
    Kind::Text,
);
const KEY: Parameter = query("key", "The idempotency key: any text.", Kind::RequiredText);
const WIDTH: Parameter = query("width", "Columns.", Kind::Number(20, 10_000, 120));
const ASCII: Parameter = query("ascii", "Use only ASCII characters.", Kind::Flag);
const COLOUR: Parameter = query("colour", "Colour it for a terminal.", Kind::Flag);
const OVERRIDE_RULE: Parameter = query("rule", "All keys of this limit.", Kind::Text);
const OVERRIDE_DOMAIN: Parameter = query(
    "domain",
    "One key of this domain, with `entries`.",
    Kind::Text,
);
const OVERRIDE_ENTRIES: Parameter = query(
    "entries",
    "Pairs of a key and a value in JSON, such as `[[\"tenant\",\"acme\"]]`.",
    Kind::Text,
);
const OVERRIDE_EFFECT: Parameter = query(
    "effect",
    "Only what does this; all if left out.",
    Kind::Words(&["paused", "throttled", "scaled"]),
);
const CONFIGURED_DOMAIN: Parameter = query("domain", "The descriptors of this domain.", Kind::Text);
const CONFIGURED_ENTRIES: Parameter = query(
    "entries",
    "With `domain`: the descriptors below the one that these keys and values lead to, in JSON, such as `[[\"tenant\",\"acme\"],[\"path\"]]`.",
    Kind::Text,
);
const FIND: Parameter = query(
    "find",
    "The descriptors of all domains whose key or value contains this text.",
    Kind::Text,
);
const LIMIT_OF_DESCRIPTORS: Parameter = query(
    "limit",
    "How many domains and descriptors at most.",
    Kind::Number(1, 1_000, 100),
);
const IDEMPOTENCY: Parameter = header("Idempotency-Key", "The same as the field idempotency_key.");
const TRACEPARENT: Parameter = header(
    "traceparent",
    "Where the caller is in a trace, as W3C Trace Context writes it. Without `$trace` in the globals, it is kept there.",
);
const TRACESTATE: Parameter = header("tracestate", "What vendors add to it.");
const LAST_EVENT: Parameter = header(
    "Last-Event-ID",
    "The id of the last event that the reader has.",
);

const WATCH: Parameter = query(
    "watch",
    "`overview`, `workflow:ID` or `workflow:ID@VERSION`; several are separated by commas.",
    Kind::RequiredText,
);
const PAGE: Parameter = header(
    "Tidegate-Page",
    "Any text: pages of other sites cannot send it.",
);

const DEFINITION: [Code; 5] = [
    GraphCycle,
    UnknownDependency,
    DuplicateJobName,
    InvalidDefinition,
    IdempotencyMismatch,
];

fn operation(id: &'static str, summary: &'static str, answer: Content) -> Operation {
    let answers = vec![(200, "Done.", answer)];
    Operation {
        id,
        summary,
        description: "",
        parameters: &[],
        body: None,
        answers,
        problems: &[],
    }
}

impl Operation {
    fn describe(self, description: &'static str) -> Self {
        Self {
            description,
            ..self
        }
    }

    fn with(self, parameters: &'static [Parameter]) -> Self {
        Self { parameters, ..self }
    }

    fn takes(self, schema: &'static str) -> Self {
        Self {
            body: Some((schema, true)),
            ..self
        }
    }

    fn problems(self, problems: &'static [Code]) -> Self {
        Self { problems, ..self }
    }
}

/// The description of a call.
pub(super) fn of(call: Call) -> Operation {
    use Content::{Json, Text};
    match call {
        Call::Claim => operation("claimJobs", "Take ready jobs on lease", Json("ClaimResult"))
            .takes("Claim")
            .problems(&[MigrationNeeded]),
        Call::Report => operation("reportJobs", "Report how attempts ended, and take more jobs", Json("ReportResult"))
            .takes("ReportRequest")
            .describe(
                "Each report has a status of its own. Jobs that became ready by the reports come first. Notes are kept before the reports are \
                 taken, and each has a status of its own, too.",
            ),
        Call::Extend => operation("extendLeases", "Keep jobs longer", Json("ExtendResult"))
            .takes("Extend")
            .describe("Each lease has a status of its own, and so has each note."),
        Call::List => operation("listWorkflows", "List workflows", Json("WorkflowPage"))
            .with(&[STATUS, NAME, TAG, AFTER, BEFORE, PREFIX, ORDER, LIMIT, CURSOR])
            .problems(&[InvalidCursor]),
        Call::Count => operation("countWorkflows", "Count workflows by status", Json("WorkflowCount"))
            .with(&[STATUS, NAME, TAG, AFTER, BEFORE, PREFIX, BY, NAMES, NAMES_CURSOR])
            .problems(&[InvalidCursor]),
        Call::Create | Call::CreateBatch | Call::Bulk => of_many(call),
        Call::Jobs | Call::Job | Call::JobLog | Call::JobAct(_) => of_jobs(call),
        Call::Queues | Call::SetQueue(_) => of_queues(call),
        Call::ShowTerms(of) => of_terms(of, ["showQueueLimits", "showQueueWeights", "showHandlerLimits"], Do::Show),
        Call::SetTerms(of) => of_terms(of, ["setQueueLimits", "setQueueWeights", "setHandlerLimits"], Do::Set),
        Call::RemoveTerms(of) => {
            of_terms(of, ["removeQueueLimits", "removeQueueWeights", "removeHandlerLimits"], Do::Remove)
        }
        Call::Workers | Call::WorkerEvents | Call::Drain(_) => of_workers(call),
        Call::WaitingKeys
        | Call::Overrides
        | Call::SetOverride
        | Call::RemoveOverride
        | Call::CheckLimits
        | Call::TopKeys
        | Call::Configuration => of_limits(call),
        Call::Graph(form) => of_graph(form),
        Call::AdvanceClock => operation("advanceClock", "Move the clock of a server for tests", Json("TestClock"))
            .takes("Advance")
            .describe(
                "Only where TIDEGATE_TEST_CLOCK is true; `not_found` elsewhere. Takes either field. All that became due is done before the \
                 answer.",
            )
            .problems(&[NotFound]),
        Call::Overview | Call::Live | Call::Session | Call::SignIn | Call::SignOut => of_page(call),
        Call::Version => operation("showVersion", "Show the version of the server", Json("Version")),
        Call::Status => operation("showStatus", "Show what works and what does not", Json("ServerStatus")),
        Call::OpenApi => operation("describeApi", "Get this description", Content::Object),
        Call::Healthz => operation("isAlive", "Check that the process is alive", Text("text/plain")),
        Call::Readyz => Operation {
            answers: vec![(200, "Ready.", Text("text/plain")), (503, "Not ready.", Text("text/plain"))],
            ..operation("isReady", "Check that the server can take requests", Text("text/plain"))
        },
        _ => of_workflow(call),
    }
}

fn of_page(call: Call) -> Operation {
    use Content::{Json, Text};
    match call {
        Call::Overview => operation("showOverview", "Show rates of the last hour at this server", Json("Overview")),
        Call::Live => operation("watchAll", "Follow several things at once", Text("text/event-stream"))
            .with(&[WATCH])
            .describe(
                "Server-sent events with JSON as data. `of` has an OfEvent and says what the events are about that follow it. About a workflow \
                 they are those of `watchWorkflow`, about the overview there is an `overview` with an OverviewEvent each second.",
            ),
        Call::Session => operation("showSession", "Show who asks, and what they may do", Json("Session")).problems(&[Forbidden]),
        Call::SignIn => operation("signIn", "Keep a token in a cookie of this browser", Json("Session"))
            .with(&[PAGE])
            .takes("SignIn")
            .problems(&[Unauthorized, Forbidden, InvalidField, InvalidJson]),
        _ => Operation {
            answers: vec![(204, "The cookie is removed.", Content::Nothing)],
            ..operation("signOut", "Remove the cookie", Content::Nothing).with(&[PAGE]).problems(&[Forbidden])
        },
    }
}

fn of_many(call: Call) -> Operation {
    use Content::Json;
    match call {
        Call::Create => Operation {
            answers: vec![
                (201, "It was created.", Json("Created")),
                (
                    200,
                    "It was created before, with the same key.",
                    Json("Created"),
                ),
            ],
            ..operation(
                "createWorkflow",
                "Create a workflow, and start it",
                Json("Created"),
            )
            .with(&[IDEMPOTENCY, TRACEPARENT, TRACESTATE])
            .takes("Definition")
            .problems(&DEFINITION)
        },
        Call::CreateBatch => operation(
            "createWorkflows",
            "Create many workflows",
            Json("BatchResult"),
        )
        .with(&[IDEMPOTENCY, TRACEPARENT, TRACESTATE])
        .takes("Batch")
        .describe("Each workflow has a status of its own: those without mistakes are created."),
        _ => operation(
            "actOnWorkflows",
            "Do the same to many workflows",
            Json("BulkResult"),
        )
        .takes("Bulk")
        .problems(&[InvalidCursor]),
    }
}

fn of_workflow(call: Call) -> Operation {
    let done = |id, summary| operation(id, summary, Content::Json("Done"));
    let none = &[WorkflowNotFound];
    let conflict = &[WorkflowNotFound, StateConflict];
    match call {
        Call::ByKey => operation("findWorkflow", "Find a workflow by its idempotency key", Content::Json("Workflow"))
            .with(&[KEY])
            .problems(none),
        Call::Show => operation("showWorkflow", "Show a workflow", Content::Json("Workflow"))
            .with(&[VIEW, WAIT])
            .problems(&[WorkflowNotFound, PayloadTooLarge]),
        Call::Events => operation("watchWorkflow", "Follow a workflow", Content::Text("text/event-stream"))
            .with(&[LAST_EVENT])
            .problems(none)
            .describe(
                "Server-sent events with JSON as data. `job` has a JobEvent, for each job that does something else. `workflow` has a \
                 Workflow and an id; it comes first, and after the jobs of each change. `removed` has a RemovedEvent and is the last. \
                 Changes within a quarter of a second come together.",
            ),
        Call::Delete => Operation {
            answers: vec![(204, "It is removed.", Content::Nothing)],
            ..done("deleteWorkflow", "Remove a workflow that is over or was never started").problems(conflict)
        },
        Call::Restart => done("restartJobs", "Run jobs again that have ended")
            .takes("Restart")
            .problems(&[WorkflowNotFound, JobNotFound, StateConflict]),
        Call::Expire => done("expireWorkflow", "Change how long a workflow is kept").takes("Expire").problems(conflict),
        Call::Act(WorkflowAction::Start) => {
            done("startWorkflow", "Start a workflow").problems(&[WorkflowNotFound, AlreadyStarted])
        }
        Call::Act(WorkflowAction::Cancel) => done("cancelWorkflow", "Cancel all jobs that have not ended").problems(conflict),
        Call::Act(WorkflowAction::Pause) => done("pauseWorkflow", "Hand out no more jobs of a workflow").problems(conflict),
        Call::Act(WorkflowAction::Resume) => done("resumeWorkflow", "Hand out jobs of a workflow again").problems(conflict),
        _ => Operation {
            body: Some(("Retry", false)),
            ..done("retryWorkflow", "Run all jobs again that failed or were cancelled").problems(conflict)
        },
    }
}

fn of_graph(form: Form) -> Operation {
    use Content::{Json, Text};
    let (id, summary, answer) = match form {
        Form::Json => (
            "layOutGraph",
            "Get the places of all boxes and lines of a picture",
            Json("GraphLayout"),
        ),
        Form::Svg => ("drawSvg", "Draw the graph as SVG", Text("image/svg+xml")),
        Form::Dot => (
            "drawDot",
            "Draw the graph for Graphviz",
            Text("text/vnd.graphviz"),
        ),
        Form::Mermaid => (
            "drawMermaid",
            "Draw the graph for Mermaid",
            Text("text/vnd.mermaid"),
        ),
        Form::Text => (
            "drawText",
            "Draw the graph for a terminal",
            Text("text/plain"),
        ),
    };
    let parameters: &[Parameter] = if form == Form::Text {
        &[WIDTH, ASCII, COLOUR]
    } else {
        &[]
    };
    operation(id, summary, answer)
        .with(parameters)
        .problems(&[WorkflowNotFound, PayloadTooLarge])
}

fn of_jobs(call: Call) -> Operation {
    let act = |id, summary| {
        let done = operation(id, summary, Content::Json("Done"));
        done.problems(&[WorkflowNotFound, JobNotFound, StateConflict])
    };
    match call {
        Call::Jobs => operation("listJobs", "List the jobs of a workflow", Content::Json("JobPage"))
            .with(&[STATE, LIMIT, CURSOR])
            .problems(&[WorkflowNotFound, InvalidCursor]),
        Call::Job => operation("showJob", "Show a job, with its params, output and errors", Content::Json("Job"))
            .problems(&[WorkflowNotFound, JobNotFound]),
        Call::JobLog => operation("readJobLog", "Read what workers wrote to the log of a job", Content::Json("LogPage"))
            .with(&[LOG_AFTER, LOG_LIMIT])
            .describe("The oldest lines first. To follow it, ask again with `next` as `after`. Lines may be lost when the store fails.")
            .problems(&[WorkflowNotFound, JobNotFound, InvalidCursor]),
        Call::JobAct(JobAction::MarkSucceeded) => {
            Operation { body: Some(("MarkSucceeded", false)), ..act("markJobSucceeded", "Count a job as succeeded") }
        }
        Call::JobAct(JobAction::Skip) => act("skipJob", "Skip a job"),
        Call::JobAct(JobAction::Cancel) => act("cancelJob", "Cancel a job"),
        _ => Operation {
            body: Some(("Retry", false)),
            ..act("retryJob", "Run a job again that failed or was cancelled")
        },
    }
}

fn of_workers(call: Call) -> Operation {
    let set = |id, summary| operation(id, summary, Content::Json("WorkerDraining"));
    match call {
        Call::Drain(Draining::Begin) => set("drainWorker", "Give a worker no more jobs, on all servers of the store")
            .problems(&[StateConflict])
            .describe("It learns of that with its next call, or from its events. What it has, it may finish."),
        Call::Drain(Draining::End) => set("undrainWorker", "Give a worker jobs again"),
        Call::WorkerEvents => operation("watchWorker", "Follow what a worker should know at once", Content::Text("text/event-stream"))
            .with(&[UPTIME])
            .describe(
                "Server-sent events with JSON as data. `drain` has a DrainEvent; it comes first, and when that changes. `lease_lost` has a \
                 LeaseLostEvent for each lease that is over before the worker has reported, within a second.",
            ),
        _ => operation("listWorkers", "List workers by name, and what they run", Content::Json("WorkerPage"))
            .with(&[LIMIT_OF_WORKERS, CURSOR])
            .describe("Workers of all servers of the store. What other servers say of theirs is at most 5 s old."),
    }
}

fn of_queues(call: Call) -> Operation {
    let set = |id, summary| operation(id, summary, Content::Json("QueuePaused"));
    match call {
        Call::SetQueue(Paused::Yes) => set("pauseQueue", "Hand out no jobs of a queue, on all servers of the store"),
        Call::SetQueue(Paused::No) => set("resumeQueue", "Hand out jobs of a queue again").problems(&[QueueNotFound]),
        _ => operation("listQueues", "List queues by name", Content::Json("QueuePage"))
            .with(&[LIMIT, CURSOR])
            .describe(
                "A queue exists from the first job that names it. It is forgotten some hours after the last workflow that can have such a job is removed, unless it is paused.",
            )
            .problems(&[InvalidCursor]),
    }
}

fn of_limits(call: Call) -> Operation {
    use Content::Json;
    match call {
        Call::WaitingKeys => operation("listLimits", "List the limits that jobs wait under", Json("WaitingKeyPage"))
            .with(&[ONLY_QUEUE, LIMIT_OF_KEYS, CURSOR])
            .describe("By queue and handler, with what is used of each limit and who has its places.")
            .problems(&[InvalidCursor]),
        Call::Overrides => {
            operation("listOverrides", "List limits and keys that are paused, throttled or scaled", Json("OverrideList"))
        }
        Call::SetOverride => operation("setOverride", "Pause or scale a limit or a key for a while", Json("LimitOverride"))
            .takes("OverrideDefinition")
            .describe(
                "It holds at this server at once, and within a second at all that share the Redis of its counters. It replaces an earlier one \
                 of the same effect. Without that Redis, it holds at this server until it stops.",
            )
            .problems(&[TooManyOverrides]),
        Call::RemoveOverride => Operation {
            answers: vec![(204, "It is removed.", Content::Nothing)],
            ..operation("removeOverride", "Resume a limit or a key", Content::Nothing)
                .with(&[OVERRIDE_RULE, OVERRIDE_DOMAIN, OVERRIDE_ENTRIES, OVERRIDE_EFFECT])
                .problems(&[OverrideNotFound])
        },
        Call::CheckLimits => operation("checkLimits", "Ask what a request would be answered", Json("LimitAnswer"))
            .takes("LimitCheck")
            .describe("Nothing is charged. What is paused for jobs alone is answered as if it were not.")
            .problems(&[NoConfiguration]),
        Call::Configuration => {
            operation("showConfiguration", "Show the configuration of rate limits, with the hits of each limit", Json("LimitConfiguration"))
                .with(&[CONFIGURED_DOMAIN, CONFIGURED_ENTRIES, FIND, LIMIT_OF_DESCRIPTORS, CURSOR])
                .describe(
                    "Of this server. Without a domain: all domains, where the configuration comes from, and the mistakes of the latest load when it \
                     was refused. With one: a level of its descriptors. Items have what is below them when there is room for all of it.",
                )
                .problems(&[DescriptorNotFound, InvalidCursor])
        }
        _ => operation("showTopKeys", "Show the keys with the most hits, and the latest refusals", Json("TopKeys"))
            .describe("Of this server alone."),
    }
}

/// What is done to limits and weights of queues and handlers.
enum Do {
    Show,
    Set,
    Remove,
}

fn of_terms(of: TermsOf, ids: [&'static str; 3], what: Do) -> Operation {
    let (id, noun, body, shown) = match of {
        TermsOf::QueueLimits => (ids[0], 0, "LimitsDefinition", "LimitsOf"),
        TermsOf::QueueWeights => (ids[1], 1, "WeightsDefinition", "WeightsOf"),
        TermsOf::HandlerLimits => (ids[2], 2, "LimitsDefinition", "LimitsOf"),
    };
    match what {
        Do::Show => {
            let summaries = [
                "Show the limits of a queue",
                "Show the weights of a queue",
                "Show the limits of a handler",
            ];
            operation(id, summaries[noun], Content::Json(shown))
        }
        Do::Set => {
            let summaries = [
                "Give all jobs of a queue limits",
                "Give keys of a queue weights",
                "Give all jobs of a handler limits",
            ];
            let description = match of {
                TermsOf::QueueWeights => "They hold at once, on all servers of the store.",
                _ => {
                    "Workflows that are created from now on have them in front of each job's own limits."
                }
            };
            operation(id, summaries[noun], Content::Json(shown))
                .takes(body)
                .describe(description)
                .problems(&[InvalidDefinition])
        }
        Do::Remove => {
            let summaries = [
                "Remove the limits of a queue",
                "Remove the weights of a queue",
                "Remove the limits of a handler",
            ];
            let answers = vec![(204, "There are none any more.", Content::Nothing)];
            Operation {
                answers,
                ..operation(id, summaries[noun], Content::Nothing).problems(&[InvalidDefinition])
            }
        }
    }
}
