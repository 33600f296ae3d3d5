//! Schemas of all requests and answers, from their types.

use serde_json::{Map, Value, json};
use tidegate_workflow::{JobState, Status};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use crate::http::problem::{self, Code};
use crate::jobs::{JobPage, MarkSucceededBody, claims, leases, log, notes, reports};
use crate::limits::{check, configuration, overrides, refusals, series, top, waiting};
use crate::page::{search, session};
use crate::state::feeds::frames::{JobEvent, RemovedEvent};
use crate::status::test_clock;
use crate::views::workflow;
use crate::workers::events::{DrainEvent, LeaseLostEvent};
use crate::workers::queues::{QueuePage, QueuePaused};
use crate::workers::{WorkerDraining, WorkerPage, policies};
use crate::workflows::{act, bulk, create, definition, failures, layout, list, warnings};

type Schemas = Vec<(String, RefOr<Schema>)>;

fn add<T: ToSchema>(schemas: &mut Schemas) {
    T::schemas(schemas);
    schemas.push((T::name().into_owned(), T::schema()));
}

/// Schemas of requests. Unknown fields are refused.
fn requests() -> Schemas {
    let mut schemas = Schemas::new();
    add::<definition::DefinitionBody<'_>>(&mut schemas);
    add::<create::BatchBody<'_>>(&mut schemas);
    add::<act::RestartBody>(&mut schemas);
    add::<act::RetryBody>(&mut schemas);
    add::<act::ExpireBody>(&mut schemas);
    add::<bulk::BulkBody>(&mut schemas);
    add::<MarkSucceededBody<'_>>(&mut schemas);
    add::<claims::ClaimBody>(&mut schemas);
    add::<reports::ReportsBody<'_>>(&mut schemas);
    add::<leases::ExtendBody<'_>>(&mut schemas);
    add::<notes::NoteBody>(&mut schemas);
    add::<policies::LimitsBody>(&mut schemas);
    add::<policies::WeightsBody>(&mut schemas);
    add::<overrides::OverrideBody>(&mut schemas);
    add::<check::CheckBody>(&mut schemas);
    add::<test_clock::AdvanceBody>(&mut schemas);
    add::<session::SignInBody>(&mut schemas);
    schemas
}

/// Schemas of answers. Fields and words may be added.
fn answers() -> Schemas {
    let mut schemas = Schemas::new();
    add::<problem::ProblemBody<'_>>(&mut schemas);
    add::<workflow::Workflow<'_>>(&mut schemas);
    add::<list::WorkflowPage<'_>>(&mut schemas);
    add::<list::CountAnswer>(&mut schemas);
    add::<failures::Failures>(&mut schemas);
    add::<search::SearchResults>(&mut schemas);
    add::<create::CreatedBody<'_>>(&mut schemas);
    add::<create::BatchAnswer<'_>>(&mut schemas);
    add::<act::ActionAnswer>(&mut schemas);
    add::<bulk::BulkResult<'_>>(&mut schemas);
    add::<layout::GraphLayout<'_>>(&mut schemas);
    add::<JobPage<'_>>(&mut schemas);
    add::<JobEvent<'_>>(&mut schemas);
    add::<RemovedEvent>(&mut schemas);
    add::<WorkerPage>(&mut schemas);
    add::<WorkerDraining<'_>>(&mut schemas);
    add::<LeaseLostEvent<'_>>(&mut schemas);
    add::<DrainEvent>(&mut schemas);
    add::<claims::ClaimResult<'_>>(&mut schemas);
    add::<reports::ReportResult<'_>>(&mut schemas);
    add::<leases::ExtendResult<'_>>(&mut schemas);
    add::<log::LogPage<'_>>(&mut schemas);
    add::<QueuePage<'_>>(&mut schemas);
    add::<QueuePaused<'_>>(&mut schemas);
    add::<policies::LimitsShown<'_>>(&mut schemas);
    add::<policies::WeightsShown<'_>>(&mut schemas);
    add::<overrides::OverrideShown<'_>>(&mut schemas);
    add::<overrides::OverrideList<'_>>(&mut schemas);
    add::<check::CheckAnswer<'_>>(&mut schemas);
    add::<top::TopKeysShown<'_>>(&mut schemas);
    add::<refusals::RefusedKeysShown<'_>>(&mut schemas);
    add::<series::SeriesShown<'_>>(&mut schemas);
    add::<configuration::ConfigurationShown<'_>>(&mut schemas);
    add::<waiting::WaitingKeyPage<'_>>(&mut schemas);
    add::<test_clock::TestClock>(&mut schemas);
    add::<session::Session>(&mut schemas);
    add::<crate::status::overview::Overview>(&mut schemas);
    add::<crate::events::live::OfEvent>(&mut schemas);
    add::<crate::status::readiness::Version>(&mut schemas);
    add::<crate::status::readiness::ServerStatus<'_>>(&mut schemas);
    schemas
}

/// Returns all schemas by name.
pub(super) fn all() -> Map<String, Value> {
    let mut all = Map::new();
    let requests = requests()
        .into_iter()
        .map(|(name, schema)| (name, serde_json::to_value(schema).unwrap()));
    let answers = answers().into_iter().map(|(name, schema)| {
        let mut schema = serde_json::to_value(schema).unwrap();
        without_needless_nulls(&mut schema);
        (name, schema)
    });
    for (name, mut schema) in requests.chain(answers) {
        open_objects(&mut schema);
        all.insert(name, schema);
    }
    describe_words(&mut all);
    // It has its own name, so that generators of clients do not make up a name for each field.
    for (schema, field) in [("Definition", "globals"), ("JobDefinition", "params")] {
        let field = &mut all[schema]["properties"][field];
        let reference =
            json!({"$ref": "#/components/schemas/Params", "description": field["description"]});
        *field = json!({"oneOf": [reference, {"type": "null"}]});
    }
    all.insert(
        "Params".to_owned(),
        json!({"description": "Any object.", "type": "object", "additionalProperties": true}),
    );
    all["Names"] = json!({
        "description": "One name, or a list of names.",
        "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    });
    all["WorkflowId"]["pattern"] = json!("^[0-7][0-9A-HJKMNP-TV-Z]{25}$");
    all
}

/// Removes null from the fields of answers that are not required: they are left out, and never
/// null. In requests both mean absence.
fn without_needless_nulls(schema: &mut Value) {
    let required = schema["required"].clone();
    let is_required = |name: &str| {
        required
            .as_array()
            .is_some_and(|names| names.iter().any(|known| known == name))
    };
    let not_null = |choice: &&Value| choice["type"] != "null";
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (_, property) in properties.iter_mut().filter(|(name, _)| !is_required(name)) {
        if let Some(kinds) = property["type"].as_array() {
            property["type"] = kinds[0].clone();
        } else if let Some(choice) = property["oneOf"]
            .as_array()
            .and_then(|choices| choices.iter().find(not_null))
            .cloned()
        {
            *property = choice;
        }
    }
}

/// Lets objects without described fields have any entries.
fn open_objects(schema: &mut Value) {
    let Some(entries) = schema.as_object_mut() else {
        return;
    };
    if entries.get("type").is_some_and(is_object) && !entries.contains_key("properties") {
        entries.entry("additionalProperties").or_insert(json!(true));
    }
    entries.values_mut().for_each(open_objects);
}

/// Whether a type is an object, or an object and null.
fn is_object(kind: &Value) -> bool {
    kind == "object"
        || kind
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
}

/// Reasons for which a job does not run yet.
const WAIT_REASONS: [&str; 11] = [
    "not_started",
    "workflow_paused",
    "waits_for",
    "doomed",
    "blocked_by",
    "until",
    "queue_paused",
    "limit",
    "no_worker",
    "no_handler",
    "in_queue",
];
/// Rules for which outcomes of the jobs before it let a job run.
const TRIGGER_RULES: [&str; 5] = [
    "all_success",
    "all_done",
    "any_success",
    "any_failed",
    "none_failed",
];
/// Reasons for which a lease was lost.
const LOSS_REASONS: [&str; 8] = [
    "expired",
    "timed_out",
    "cancelled",
    "ended_by_hand",
    "restarted",
    "taken_over",
    "reported",
    "unknown",
];

/// Sets of words in answers grow, so a schema lists the known words but allows others.
fn describe_words(all: &mut Map<String, Value>) {
    describe(&mut all["Status"], &Status::ALL.map(Status::word));
    describe(&mut all["JobState"], &JobState::WORDS);
    describe(&mut all["RuleShown"], &TRIGGER_RULES);
    describe(&mut all["OnFailureShown"], &["continue", "fail_fast"]);
    describe(
        &mut all["Problem"]["properties"]["code"],
        &Code::ALL.iter().map(|code| code.word()).collect::<Vec<_>>(),
    );
    describe(&mut all["Problem"]["properties"]["reason"], &LOSS_REASONS);
    describe(
        &mut all["WhyNotRunning"]["properties"]["reason"],
        &WAIT_REASONS,
    );
    describe(
        &mut all["CreationWarning"]["properties"]["code"],
        &warnings::CODES,
    );
    describe(
        &mut all["Limit"]["properties"]["of"],
        &["workflow", "queue", "all"],
    );
    describe(
        &mut all["LimitOverride"]["properties"]["effect"],
        &overrides::EFFECTS,
    );
    describe(&mut all["LimitAnswer"]["properties"]["code"], &check::CODES);
    describe(&mut all["LimitStatus"]["properties"]["code"], &check::CODES);
    for refusal in ["LimitRefusal", "RefusedKey"] {
        describe(&mut all[refusal]["properties"]["caller"], &top::CALLERS);
    }
    describe(
        &mut all["ConfigurationLoad"]["properties"]["source"],
        &configuration::SOURCES,
    );
}

fn describe(schema: &mut Value, words: &[&str]) {
    let words_shown = words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let before = schema["description"]
        .as_str()
        .map(|text| format!("{text} "))
        .unwrap_or_default();
    schema["description"] = json!(format!(
        "{before}One of {words_shown}. More words may be added."
    ));
    schema["x-extensible-enum"] = json!(words);
}
