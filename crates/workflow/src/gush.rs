//! Takes over what Ruby's Gush left in its Redis, of both layouts: with indexes and stored lists of classes (since version 3.1), and
//! without. Nothing there is changed.

mod layout;

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use thiserror::Error;
use tidegate_pipeline::{Arg, Batch, Client, CommandError, Outcome};

use crate::engine::{Engine, EngineError};
use crate::graph::GraphError;
use crate::time::Timestamp;
use layout::{GushJob, GushWorkflow};

/// Keys that one SCAN looks at.
const SCAN: i64 = 1_000;
/// Workflows that are read and created together.
const BATCH: usize = 200;

/// What an import took and what it left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GushReport {
    /// Workflows created here.
    pub created: u64,
    /// Workflows that an earlier import created.
    pub existing: u64,
    /// Jobs of the workflows created.
    pub jobs: u64,
    /// Jobs that Gush had handed to a worker and that have not ended: they are ready here, and must not run there any more.
    pub unfinished: u64,
    /// What was not taken: the key, and why.
    pub left: Vec<(String, String)>,
}

/// Why an import stopped. What was created before is there; another import goes on.
#[derive(Debug, Error)]
pub enum GushError {
    /// Gush's Redis did not answer.
    #[error("reading Gush's data: {0}")]
    Redis(#[from] CommandError),
    /// The workflows could not be created here.
    #[error("creating the workflows: {0}")]
    Engine(#[from] EngineError),
}

/// Keys of interest, by workflow.
#[derive(Debug, Default)]
struct Found {
    workflows: Vec<String>,
    /// Classes of the job hashes of a workflow.
    classes: HashMap<String, Vec<String>>,
}

/// Creates every workflow of Gush's Redis here, in the state in which Gush has it. A workflow is found again by the idempotency key
/// `gush:<its id>`, so a second import creates nothing.
///
/// # Errors
/// Either store did not answer.
pub async fn import_gush(
    source: &Client,
    engine: &Engine,
    timeout: Duration,
    now: Timestamp,
) -> Result<GushReport, GushError> {
    let source = Source { client: source, timeout };
    let mut report = GushReport::default();
    let found = source.scan(&mut report).await?;
    for ids in found.workflows.chunks(BATCH) {
        let mut new = Vec::with_capacity(ids.len());
        for (id, read) in ids.iter().zip(source.read(ids, &found.classes).await?) {
            match read.and_then(|read| layout::converted(id, &read, now).map_err(unsound)) {
                Ok(workflow) => new.push(workflow),
                Err(reason) => report.left.push((format!("gush.workflows.{id}"), reason)),
            }
        }
        let sizes: Vec<(u64, u64)> = new.iter().map(layout::sizes).collect();
        for ((jobs, unfinished), created) in sizes.into_iter().zip(engine.create(new, now).await) {
            match created {
                Ok(created) if created.existing => report.existing += 1,
                // An import that finds the workflow in another form than before leaves it as it is.
                Err(EngineError::KeyMismatch { .. }) => report.existing += 1,
                Ok(_) => {
                    report.created += 1;
                    report.jobs += jobs;
                    report.unfinished += unfinished;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(report)
}

fn unsound(error: GraphError) -> String {
    format!("it is not a graph: {error}")
}

/// Gush's Redis.
struct Source<'a> {
    client: &'a Client,
    timeout: Duration,
}

/// What Gush stores of one workflow.
#[derive(Debug)]
struct Read {
    workflow: GushWorkflow,
    jobs: Vec<GushJob>,
    created_at: Option<Timestamp>,
    expires_at: Option<f64>,
    /// Seconds that a time to live of Redis leaves, if there is one.
    time_to_live: Option<i64>,
}

impl Source<'_> {
    async fn send(&self, batch: Batch) -> Vec<Outcome> {
        // Only this import decides how long it waits; no caller's clock is involved.
        self.client.send(batch, Instant::now() + self.timeout).await
    }

    /// Finds all keys in one pass: data of the older layout do not say which job hashes a workflow has.
    async fn scan(&self, report: &mut GushReport) -> Result<Found, GushError> {
        let mut found = Found::default();
        let mut cursor = b"0".to_vec();
        loop {
            let mut batch = Batch::new();
            let arguments = [
                Arg::Bytes(&cursor),
                Arg::Bytes(b"MATCH"),
                Arg::Bytes(b"gush*"),
                Arg::Bytes(b"COUNT"),
                Arg::Integer(SCAN),
            ];
            batch.unit().repeatable("SCAN", &arguments);
            let outcomes = self.send(batch).await;
            let (next, keys) = layout::scan_reply(outcomes[0].reply()?);
            keys.into_iter().for_each(|key| found.sort(key, report));
            if next == b"0" {
                break;
            }
            cursor = next;
        }
        // A SCAN may name a key twice.
        found.workflows.sort_unstable();
        found.workflows.dedup();
        for classes in found.classes.values_mut() {
            classes.sort_unstable();
            classes.dedup();
        }
        let known = |id: &&String| found.workflows.binary_search(id).is_err();
        let mut orphans: Vec<&String> = found.classes.keys().filter(known).collect();
        orphans.sort_unstable();
        report.left.extend(orphans.iter().map(|id| (format!("gush.jobs.{id}.*"), "its workflow is gone".to_owned())));
        Ok(found)
    }

    /// Reads workflows with two round trips: what the first tells names the keys of the second.
    async fn read(
        &self,
        ids: &[String],
        classes: &HashMap<String, Vec<String>>,
    ) -> Result<Vec<Result<Read, String>>, GushError> {
        let mut batch = Batch::new();
        let none = Vec::new();
        for id in ids {
            let key = format!("gush.workflows.{id}");
            batch.unit().repeatable("GET", &[Arg::Key(key.as_bytes())]);
            batch.unit().repeatable("TTL", &[Arg::Key(key.as_bytes())]);
            for index in ["created_at", "expires_at"] {
                let index = format!("gush.idx.workflows.{index}");
                batch.unit().repeatable("ZSCORE", &[Arg::Key(index.as_bytes()), Arg::Bytes(id.as_bytes())]);
            }
            for class in classes.get(id).unwrap_or(&none) {
                let key = format!("gush.jobs.{id}.{class}");
                batch.unit().repeatable("HVALS", &[Arg::Key(key.as_bytes())]);
            }
        }
        let mut outcomes = self.send(batch).await.into_iter();
        let mut next = || outcomes.next().expect("the engine answers every command");
        let mut read = Vec::with_capacity(ids.len());
        for id in ids {
            let head = [next(), next(), next(), next()];
            let hashes: Vec<Outcome> = classes.get(id).unwrap_or(&none).iter().map(|_| next()).collect();
            read.push(one(&head, &hashes)?);
        }
        Ok(read)
    }
}

fn one(head: &[Outcome; 4], hashes: &[Outcome]) -> Result<Result<Read, String>, CommandError> {
    let [workflow, time_to_live, created_at, expires_at] = head;
    let score = |outcome: &Outcome| -> Result<Option<f64>, CommandError> {
        Ok(outcome.bytes()?.and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok()))
    };
    let created_at = score(created_at)?.map(layout::seconds);
    let expires_at = score(expires_at)?;
    let time_to_live = Some(time_to_live.integer()?).filter(|&seconds| seconds > 0);
    let Some(workflow) = workflow.bytes()? else { return Ok(Err("it is gone".to_owned())) };
    let workflow: GushWorkflow = match serde_json::from_slice(workflow) {
        Ok(workflow) => workflow,
        Err(error) => return Ok(Err(format!("its JSON cannot be read: {error}"))),
    };
    let mut jobs = Vec::new();
    for hash in hashes {
        for value in layout::items(hash.reply()?) {
            match serde_json::from_slice(value) {
                Ok(job) => jobs.push(job),
                Err(error) => return Ok(Err(format!("the JSON of a job cannot be read: {error}"))),
            }
        }
    }
    Ok(Ok(Read { workflow, jobs, created_at, expires_at, time_to_live }))
}

impl Found {
    fn sort(&mut self, key: Vec<u8>, report: &mut GushReport) {
        let Ok(key) = String::from_utf8(key) else { return };
        if let Some(id) = key.strip_prefix("gush.workflows.") {
            self.workflows.push(id.to_owned());
        } else if let Some((id, class)) = key.strip_prefix("gush.jobs.").and_then(|rest| rest.split_once('.')) {
            self.classes.entry_ref(id).or_default().push(class.to_owned());
        } else if !key.starts_with("gush.idx.") {
            report.left.push((key, "it is not a workflow: a lock, or a record of migrations".to_owned()));
        }
    }
}
