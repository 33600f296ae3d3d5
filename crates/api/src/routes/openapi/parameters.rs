//! Query parameters and headers of operations.

use crate::state::history::HistoryRange;

/// A parameter of a query, or a header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) place: &'static str,
    pub(crate) description: &'static str,
    pub(crate) schema: ParameterKind,
}

/// Type of a parameter's value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParameterKind {
    Text,
    RequiredText,
    /// Texts of a parameter that appears once for each, and their largest number.
    RequiredTexts(u64),
    Prefix,
    Span,
    Time,
    Flag,
    Number(u64, u64, u64),
    Words(&'static [&'static str]),
}

const fn query(name: &'static str, description: &'static str, schema: ParameterKind) -> Parameter {
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
        schema: ParameterKind::Text,
    }
}

pub(crate) const STATUS: Parameter = query(
    "status",
    "With one of these statuses, separated by commas.",
    ParameterKind::Text,
);
pub(crate) const WORKFLOW_NAME: Parameter = query("name", "Of this name.", ParameterKind::Text);
pub(crate) const TAG: Parameter = query("tag", "With this tag.", ParameterKind::Text);
pub(crate) const FAILED_WITH: Parameter = query(
    "error",
    "With a failed job that has this kind of error; only with the status `failed`.",
    ParameterKind::Text,
);
pub(crate) const FAILED_HANDLER: Parameter = query(
    "handler",
    "With a failed job of this handler, and of that `error` if there is one; only with the status `failed`.",
    ParameterKind::Text,
);
pub(crate) const CREATED_AFTER: Parameter = query(
    "created_after",
    "Created then or later.",
    ParameterKind::Time,
);
pub(crate) const CREATED_BEFORE: Parameter = query(
    "created_before",
    "Created before then.",
    ParameterKind::Time,
);
pub(crate) const CREATED_RANGE: Parameter = query(
    "range",
    "Created at most so long ago, such as `15m`.",
    ParameterKind::Span,
);
pub(crate) const IDS: Parameter = query(
    "ids",
    "With one of these ids, separated by commas; at most 1,000.",
    ParameterKind::Text,
);
pub(crate) const TEXT: Parameter = query(
    "q",
    "With this text in the name, a tag, or a failed job and its error; or as the idempotency key or the beginning of the id. In upper or lower case.",
    ParameterKind::Text,
);
pub(crate) const SEARCH_TEXT: Parameter = query(
    "q",
    "The text; at most 200 characters.",
    ParameterKind::RequiredText,
);
pub(crate) const PREFIX: Parameter = query(
    "id_prefix",
    "With an id that begins with these characters.",
    ParameterKind::Prefix,
);
pub(crate) const LIMIT: Parameter = query(
    "limit",
    "How many items at most.",
    ParameterKind::Number(1, 1_000, 100),
);
pub(crate) const LIMIT_OF_WORKERS: Parameter = query(
    "limit",
    "How many items at most.",
    ParameterKind::Number(1, 100, 100),
);
pub(crate) const LIMIT_OF_KEYS: Parameter = query(
    "limit",
    "How many items at most.",
    ParameterKind::Number(1, 100, 20),
);
pub(crate) const ONLY_QUEUE: Parameter = query("queue", "Only of this queue.", ParameterKind::Text);
pub(crate) const CURSOR: Parameter = query(
    "cursor",
    "The `next_cursor` of the page before.",
    ParameterKind::Text,
);
pub(crate) const LOG_AFTER: Parameter = query(
    "after",
    "The `next` of an earlier page: what follows it.",
    ParameterKind::Text,
);
pub(crate) const LOG_LIMIT: Parameter = query(
    "limit",
    "How many lines at most.",
    ParameterKind::Number(1, 1_000, 1_000),
);
pub(crate) const ORDER: Parameter = query(
    "order",
    "By creation; `newest` first if left out.",
    ParameterKind::Words(&["newest", "oldest"]),
);
pub(crate) const BY: Parameter = query(
    "by",
    "Count for each name, too.",
    ParameterKind::Words(&["name"]),
);
pub(crate) const NAME_LIMIT: Parameter = query(
    "limit",
    "With `by=name`: how many names at most.",
    ParameterKind::Number(1, 1_000, 100),
);
pub(crate) const NAME_CURSOR: Parameter = query(
    "cursor",
    "With `by=name`, `error` or `handler`: the `next_cursor` of the page before.",
    ParameterKind::Text,
);
pub(crate) const VIEW: Parameter = query(
    "view",
    "How much of it; `summary` if left out. `full` has params, outputs and errors of jobs.",
    ParameterKind::Words(&["summary", "jobs", "full"]),
);
pub(crate) const WAIT: Parameter = query(
    "wait",
    "Wait until it is over, at most so long: up to 60s.",
    ParameterKind::Span,
);
pub(crate) const UPTIME: Parameter = query(
    "uptime",
    "How long the worker has run, as in its claims.",
    ParameterKind::Span,
);
pub(crate) const STATE: Parameter = query(
    "state",
    "In one of these states, separated by commas. `limited`, `blocked` and `retrying` are some of those that are ready, waiting and scheduled.",
    ParameterKind::Text,
);
pub(crate) const JOB_TEXT: Parameter = query(
    "q",
    "With this text in the name, in upper or lower case.",
    ParameterKind::Text,
);
pub(crate) const JOB_HANDLER: Parameter = query("handler", "Of this handler.", ParameterKind::Text);
pub(crate) const JOB_ORDER: Parameter = query(
    "order",
    "As in the definition if left out; `attention`: those that failed, run, are retried, limited, ready, scheduled, waiting, blocked, and then the others.",
    ParameterKind::Words(&["definition", "attention"]),
);
pub(crate) const KEY: Parameter = query(
    "key",
    "The idempotency key: any text.",
    ParameterKind::RequiredText,
);
pub(crate) const WIDTH: Parameter =
    query("width", "Columns.", ParameterKind::Number(20, 10_000, 120));
pub(crate) const ASCII: Parameter =
    query("ascii", "Use only ASCII characters.", ParameterKind::Flag);
pub(crate) const COLOUR: Parameter =
    query("colour", "Colour it for a terminal.", ParameterKind::Flag);
pub(crate) const RANGE: Parameter = query(
    "range",
    "The time up to now; `1h` if left out.",
    ParameterKind::Words(&HistoryRange::WORDS),
);
pub(crate) const REFUSED_RULE: Parameter = query(
    "rule",
    "Only keys of the limit with this path in the configuration.",
    ParameterKind::Text,
);
pub(crate) const SERIES_RULES: Parameter = query(
    "rule",
    "The paths of limits in the configuration, each in a parameter of its own.",
    ParameterKind::RequiredTexts(50),
);
pub(crate) const OVERRIDE_RULE: Parameter =
    query("rule", "All keys of this limit.", ParameterKind::Text);
pub(crate) const OVERRIDE_DOMAIN: Parameter = query(
    "domain",
    "One key of this domain, with `entries`.",
    ParameterKind::Text,
);
pub(crate) const OVERRIDE_ENTRIES: Parameter = query(
    "entries",
    "Pairs of a key and a value in JSON, such as `[[\"tenant\",\"acme\"]]`.",
    ParameterKind::Text,
);
pub(crate) const OVERRIDE_EFFECT: Parameter = query(
    "effect",
    "Only what does this; all if left out.",
    ParameterKind::Words(&["paused", "throttled", "scaled"]),
);
pub(crate) const CONFIGURED_DOMAIN: Parameter = query(
    "domain",
    "The descriptors of this domain.",
    ParameterKind::Text,
);
pub(crate) const CONFIGURED_ENTRIES: Parameter = query(
    "entries",
    "With `domain`: the descriptors below the one that these keys and values lead to, in JSON, such as `[[\"tenant\",\"acme\"],[\"path\"]]`.",
    ParameterKind::Text,
);
pub(crate) const FIND: Parameter = query(
    "find",
    "The descriptors of all domains whose key or value contains this text.",
    ParameterKind::Text,
);
pub(crate) const LIMIT_OF_DESCRIPTORS: Parameter = query(
    "limit",
    "How many domains and descriptors at most.",
    ParameterKind::Number(1, 1_000, 100),
);
pub(crate) const IDEMPOTENCY: Parameter =
    header("Idempotency-Key", "The same as the field idempotency_key.");
pub(crate) const TRACEPARENT: Parameter = header(
    "traceparent",
    "Where the caller is in a trace, as W3C Trace Context writes it. Without `$trace` in the globals, it is kept there.",
);
pub(crate) const TRACESTATE: Parameter = header("tracestate", "What vendors add to it.");
pub(crate) const LAST_EVENT: Parameter = header(
    "Last-Event-ID",
    "The id of the last event that the reader has.",
);

pub(crate) const WATCH: Parameter = query(
    "watch",
    "`overview`, `workflow:ID` or `workflow:ID@VERSION`; several are separated by commas.",
    ParameterKind::RequiredText,
);
pub(crate) const PAGE: Parameter = header(
    "Tidegate-Page",
    "Any text: pages of other sites cannot send it.",
);

/// Any parameter: the URLs of probes and of the page accept every query.
pub(crate) const ANY: Parameter = query("", "", ParameterKind::Text);
