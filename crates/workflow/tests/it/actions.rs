//! What each action answers, by the state that it finds: the same over every store, and as docs/workflows.md says.

use std::path::Path;
use std::time::Duration;

use tidegate_workflow::{
    Action, ActionResult, Claimed, Condition, Definition, Engine, EngineError, Rerun, RestartScope,
    Retention, StartMode, Status, Store, TriggerRule, WorkflowId,
};

use crate::support::{
    at, create_of, definition, failure, redis, report, server, simulated, sqlite, state, succeed,
    take,
};

const PAGE: &str = "../../docs/workflows.md";
const HEAD: &str = "<!-- table actions, by make gen -->\n";
const TAIL: &str = "<!-- end -->\n";

const STATUSES: [&str; 6] = [
    "pending",
    "running",
    "paused",
    "succeeded",
    "failed",
    "cancelled",
];

const JOB_STATES: [&str; 12] = [
    "not started",
    "waiting",
    "doomed",
    "blocked",
    "scheduled",
    "ready",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "skipped",
    SKIPPED_BY_RULE,
];

const SKIPPED_BY_RULE: &str = "skipped by its rule";

fn of_workflow() -> [(&'static str, Action); 7] {
    [
        ("start", Action::Start),
        ("pause", Action::Pause),
        ("resume", Action::Resume),
        ("cancel", Action::Cancel),
        ("retry", Action::RetryFailed),
        ("expire", Action::Keep(Retention::Forever)),
        ("remove", Action::Delete),
    ]
}

fn of_job() -> [(&'static str, Action); 5] {
    let job = || "x".to_owned();
    [
        ("skip", Action::SkipJob(job())),
        (
            "mark_succeeded",
            Action::MarkSucceeded {
                job: job(),
                output: None,
            },
        ),
        ("cancel", Action::CancelJob(job())),
        ("retry", Action::RetryJob(job())),
        (
            "restart",
            Action::Restart {
                jobs: vec![job()],
                scope: RestartScope::Chosen,
            },
        ),
    ]
}

/// Claims all there is; returns what is of this workflow.
async fn claimed(engine: &Engine, id: WorkflowId) -> Vec<Claimed> {
    take(engine, 1)
        .await
        .into_iter()
        .filter(|claimed| claimed.lease.workflow == id)
        .collect()
}

/// Lets the first job of a workflow fail.
async fn fail_first(engine: &Engine, id: WorkflowId) {
    let claimed = claimed(engine, id).await;
    let first = claimed
        .iter()
        .find(|claimed| claimed.lease.job.index() == 0)
        .unwrap();
    report(engine, first.lease, failure(), 2).await.unwrap();
}

async fn with_status(engine: &Engine, status: &str) -> WorkflowId {
    let begin = if status == "pending" {
        StartMode::Later
    } else {
        StartMode::Now
    };
    let id = create_of(engine, definition("x"), begin).await;
    match status {
        "paused" => drop(engine.act(id, Action::Pause, at(1)).await),
        "succeeded" => drop(succeed(engine, claimed(engine, id).await[0].lease, 2).await),
        "failed" => fail_first(engine, id).await,
        "cancelled" => drop(engine.act(id, Action::Cancel, at(1)).await),
        _ => {}
    }
    assert_eq!(engine.show(id).await.unwrap().meta().status.word(), status);
    id
}

fn definition_for(job: &str) -> Definition {
    let mut definition = definition(match job {
        "waiting" | "blocked" => "p x<p",
        "doomed" => "p q x<p,q",
        SKIPPED_BY_RULE => "p x<p",
        _ => "x",
    });
    if job == "scheduled" {
        definition.jobs[0].wait = Duration::from_secs(60);
    }
    if job == SKIPPED_BY_RULE {
        definition.jobs[1].rule = TriggerRule::AnyFailed;
    }
    definition
}

async fn with_job(engine: &Engine, job: &str) -> WorkflowId {
    let begin = if job == "not started" {
        StartMode::Later
    } else {
        StartMode::Now
    };
    let id = create_of(engine, definition_for(job), begin).await;
    match job {
        "doomed" | "blocked" | "failed" => fail_first(engine, id).await,
        "running" => drop(claimed(engine, id).await),
        "succeeded" | SKIPPED_BY_RULE => {
            drop(succeed(engine, claimed(engine, id).await[0].lease, 2).await)
        }
        "cancelled" => drop(
            engine
                .act(id, Action::CancelJob("x".to_owned()), at(2))
                .await,
        ),
        "skipped" => drop(engine.act(id, Action::SkipJob("x".to_owned()), at(2)).await),
        _ => {}
    }
    assert_eq!(state_of_job(engine, id).await, job);
    id
}

async fn state_of_job(engine: &Engine, id: WorkflowId) -> &'static str {
    let snapshot = engine.show(id).await.unwrap();
    let x = snapshot.graph().find("x").unwrap();
    match state(&snapshot, "x") {
        "waiting" if snapshot.meta().status == Status::Pending => "not started",
        "waiting" if snapshot.is_unreachable(x) => "doomed",
        "waiting" if snapshot.is_blocked(x) => "blocked",
        "skipped" if snapshot.job(x).rerun == Rerun::No => SKIPPED_BY_RULE,
        word => word,
    }
}

/// What an action answered, and the state after it.
fn cell(acted: Result<ActionResult, EngineError>, after: &str) -> String {
    match acted {
        Ok(ActionResult {
            already_done: true, ..
        }) => "already".to_owned(),
        Ok(_) => format!("done: {after}"),
        Err(EngineError::Refused(refusal)) => {
            let text = refusal.to_string();
            text.split_once(": ")
                .map_or("refused".to_owned(), |(_, advice)| {
                    format!("refused: {advice}")
                })
        }
        Err(error) => panic!("{error}"),
    }
}

async fn act(
    engine: &Engine,
    id: WorkflowId,
    action: &Action,
) -> Result<ActionResult, EngineError> {
    engine
        .act_if(id, action.clone(), Condition::default(), at(3))
        .await
}

async fn workflow_cell(engine: &Engine, status: &str, action: &Action) -> String {
    let id = with_status(engine, status).await;
    let acted = act(engine, id, action).await;
    let after = engine
        .show(id)
        .await
        .map_or("removed", |snapshot| snapshot.meta().status.word());
    assert!(
        acted.is_ok() || after == status,
        "{status} {action:?}: refused, and changed"
    );
    cell(acted, after)
}

async fn job_cell(engine: &Engine, job: &str, action: &Action) -> String {
    let id = with_job(engine, job).await;
    let acted = act(engine, id, action).await;
    let after = state_of_job(engine, id).await;
    assert!(
        acted.is_ok() || after == job,
        "{job} {action:?}: refused, and changed"
    );
    cell(acted, after)
}

fn head(table: &mut String, noun: &str, actions: &[&str]) {
    let actions: Vec<String> = actions.iter().map(|action| format!("`{action}`")).collect();
    *table += &format!(
        "| {noun} | {} |\n|---|{}\n",
        actions.join(" | "),
        "---|".repeat(actions.len())
    );
}

async fn page(store: &Store) -> String {
    let engine = server(store).await;
    let mut page = HEAD.to_owned();
    head(&mut page, "workflow", &of_workflow().map(|(word, _)| word));
    for status in STATUSES {
        let mut row = format!("| {status} |");
        for (_, action) in of_workflow() {
            row += &format!(" {} |", workflow_cell(&engine, status, &action).await);
        }
        page += &(row + "\n");
    }
    page += "\n";
    head(&mut page, "job", &of_job().map(|(word, _)| word));
    for job in JOB_STATES {
        let mut row = format!("| {job} |");
        for (_, action) in of_job() {
            row += &format!(" {} |", job_cell(&engine, job, &action).await);
        }
        page += &(row + "\n");
    }
    page + TAIL
}

#[expect(
    clippy::disallowed_methods,
    reason = "whether to write the page is up to whoever starts the test"
)]
fn check(tables: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let start = page.find(HEAD).unwrap();
    let end = start + page[start..].find(TAIL).unwrap() + TAIL.len();
    if std::env::var_os("TIDEGATE_GENERATE").is_some() {
        let page = [&page[..start], tables, &page[end..]].concat();
        return std::fs::write(&path, page).unwrap();
    }
    assert_eq!(
        tables,
        &page[start..end],
        "docs/workflows.md is outdated: run `make gen`"
    );
}

#[tokio::test]
async fn the_page_of_actions_is_true_in_a_simulated_store() {
    check(&page(&simulated().await.0).await);
}

#[tokio::test]
async fn the_page_of_actions_is_true_on_sqlite() {
    let (store, _folder) = sqlite().await;
    check(&page(&store).await);
}

#[tokio::test]
async fn the_page_of_actions_is_true_on_redis() {
    let (store, _redis) = redis().await;
    check(&page(&store).await);
}
