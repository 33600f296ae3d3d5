//! Reads the data of Gush. Nothing is changed there.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_pipeline::{Arg, Batch, Client, CommandError, Outcome, Reply};

use crate::model::{Job, JobState, Timestamp};

/// Keys that one SCAN visits.
const SCAN_COUNT: i64 = 1_000;

/// Keys of Gush by workflow.
#[derive(Debug, Default)]
pub(super) struct ScannedKeys {
    /// Ids of workflows, without duplicates.
    pub(super) workflows: Vec<String>,
    /// Classes of the job hashes of a workflow.
    pub(super) classes: HashMap<String, Vec<String>>,
    /// Keys that are not imported, each with a reason.
    pub(super) skipped: Vec<(String, String)>,
}

/// The Redis of Gush.
pub(super) struct Source<'a> {
    pub(super) client: &'a Client,
    /// The timeout of each batch of commands.
    pub(super) timeout: Duration,
}

/// The data of one workflow.
#[derive(Debug)]
pub(super) struct GushRecord {
    pub(super) workflow: GushWorkflow,
    pub(super) jobs: Vec<GushJob>,
    pub(super) created_at: Option<Timestamp>,
    pub(super) expires_at: Option<f64>,
    /// Remaining seconds of the key's time to live in Redis. `None` if it has none.
    pub(super) time_to_live: Option<i64>,
}

impl Source<'_> {
    async fn send(&self, batch: Batch) -> Vec<Outcome> {
        // The timeout is set here, so no clock of a caller is involved.
        self.client.send(batch, Instant::now() + self.timeout).await
    }

    /// Finds all keys in one pass: data of the older layout do not name the job hashes of a
    /// workflow.
    pub(super) async fn scan(&self) -> Result<ScannedKeys, CommandError> {
        let mut found = ScannedKeys::default();
        let mut cursor = b"0".to_vec();
        loop {
            let (next, keys) = self.keys_from(&cursor).await?;
            keys.into_iter().for_each(|key| found.classify(key));
            if next == b"0" {
                break;
            }
            cursor = next;
        }
        found.remove_duplicates();
        found.skip_orphans();
        Ok(found)
    }

    /// One SCAN: the next cursor, and keys.
    async fn keys_from(&self, cursor: &[u8]) -> Result<(Vec<u8>, Vec<Vec<u8>>), CommandError> {
        let options = [
            Arg::Bytes(b"MATCH"),
            Arg::Bytes(b"gush*"),
            Arg::Bytes(b"COUNT"),
            Arg::Integer(SCAN_COUNT),
        ];
        let mut batch = Batch::new();
        batch.unit().repeatable(
            "SCAN",
            &[&[Arg::Bytes(cursor)], options.as_slice()].concat(),
        );
        let outcomes = self.send(batch).await;
        Ok(scan_reply(outcomes[0].reply()?))
    }

    /// Reads workflows with one round trip.
    pub(super) async fn read(
        &self,
        ids: &[String],
        classes: &HashMap<String, Vec<String>>,
    ) -> Result<Vec<Result<GushRecord, String>>, CommandError> {
        let classes = |id: &String| classes.get(id).map_or(&[][..], Vec::as_slice);
        let mut batch = Batch::new();
        ids.iter()
            .for_each(|id| add_commands(&mut batch, id, classes(id)));
        let mut outcomes = self.send(batch).await.into_iter();
        let mut next = || outcomes.next().expect("the engine answers every command");
        let mut read = Vec::with_capacity(ids.len());
        for id in ids {
            let head = [next(), next(), next(), next()];
            let hashes: Vec<Outcome> = classes(id).iter().map(|_| next()).collect();
            read.push(parse_record(&head, &hashes)?);
        }
        Ok(read)
    }
}

/// Adds the commands that read a workflow, in the order in which [`parse_record`] expects the
/// replies.
fn add_commands(batch: &mut Batch, id: &str, classes: &[String]) {
    let key = format!("gush.workflows.{id}");
    for command in ["GET", "TTL"] {
        batch
            .unit()
            .repeatable(command, &[Arg::Key(key.as_bytes())]);
    }
    for index in ["created_at", "expires_at"] {
        let index = format!("gush.idx.workflows.{index}");
        batch.unit().repeatable(
            "ZSCORE",
            &[Arg::Key(index.as_bytes()), Arg::Bytes(id.as_bytes())],
        );
    }
    for class in classes {
        let key = format!("gush.jobs.{id}.{class}");
        batch
            .unit()
            .repeatable("HVALS", &[Arg::Key(key.as_bytes())]);
    }
}

fn parse_record(
    head: &[Outcome; 4],
    hashes: &[Outcome],
) -> Result<Result<GushRecord, String>, CommandError> {
    let [workflow, time_to_live, created_at, expires_at] = head;
    let score = |outcome: &Outcome| -> Result<Option<f64>, CommandError> {
        Ok(outcome
            .bytes()?
            .and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok()))
    };
    let created_at = score(created_at)?.map(seconds);
    let expires_at = score(expires_at)?;
    let time_to_live = Some(time_to_live.integer()?).filter(|&seconds| seconds > 0);
    let Some(workflow) = workflow.bytes()? else {
        return Ok(Err("it is gone".to_owned()));
    };
    let workflow: GushWorkflow = match serde_json::from_slice(workflow) {
        Ok(workflow) => workflow,
        Err(error) => return Ok(Err(format!("its JSON cannot be read: {error}"))),
    };
    Ok(parse_jobs(hashes)?.map(|jobs| GushRecord {
        workflow,
        jobs,
        created_at,
        expires_at,
        time_to_live,
    }))
}

/// Parses the jobs in these hashes, or says why one cannot be read.
fn parse_jobs(hashes: &[Outcome]) -> Result<Result<Vec<GushJob>, String>, CommandError> {
    let mut jobs = Vec::new();
    for hash in hashes {
        for value in items(hash.reply()?) {
            match serde_json::from_slice(value) {
                Ok(job) => jobs.push(job),
                Err(error) => return Ok(Err(format!("the JSON of a job cannot be read: {error}"))),
            }
        }
    }
    Ok(Ok(jobs))
}

impl ScannedKeys {
    /// Classifies a key.
    fn classify(&mut self, key: Vec<u8>) {
        let Ok(key) = String::from_utf8(key) else {
            return;
        };
        if let Some(id) = key.strip_prefix("gush.workflows.") {
            self.workflows.push(id.to_owned());
        } else if let Some((id, class)) = key
            .strip_prefix("gush.jobs.")
            .and_then(|rest| rest.split_once('.'))
        {
            self.classes
                .entry_ref(id)
                .or_default()
                .push(class.to_owned());
        } else if !key.starts_with("gush.idx.") {
            self.skipped.push((
                key,
                "it is not a workflow: a lock, or a record of migrations".to_owned(),
            ));
        }
    }

    /// SCAN may return a key twice.
    fn remove_duplicates(&mut self) {
        self.workflows.sort_unstable();
        self.workflows.dedup();
        for classes in self.classes.values_mut() {
            classes.sort_unstable();
            classes.dedup();
        }
    }

    /// Reports jobs whose workflow does not exist.
    fn skip_orphans(&mut self) {
        let unknown = |id: &&String| self.workflows.binary_search(id).is_err();
        let mut orphans: Vec<&String> = self.classes.keys().filter(unknown).collect();
        orphans.sort_unstable();
        let skipped = |id: &&String| {
            (
                format!("gush.jobs.{id}.*"),
                "its workflow is gone".to_owned(),
            )
        };
        self.skipped.extend(orphans.iter().map(skipped));
    }
}

/// Cursor and keys of a reply to SCAN.
fn scan_reply(reply: &Reply) -> (Vec<u8>, Vec<Vec<u8>>) {
    if let Reply::Array(parts) = reply
        && let [Ok(Reply::Bulk(cursor)), Ok(keys)] = &parts[..]
    {
        return (cursor.to_vec(), items(keys).map(<[u8]>::to_vec).collect());
    }
    (b"0".to_vec(), Vec::new())
}

/// The strings of an array.
fn items(reply: &Reply) -> impl Iterator<Item = &[u8]> {
    let items = match reply {
        Reply::Array(items) => &items[..],
        _ => &[],
    };
    items.iter().filter_map(|item| match item {
        Ok(Reply::Bulk(bytes)) => Some(&bytes[..]),
        _ => None,
    })
}

/// The value of `gush.workflows.<id>`, without fields that follow from the jobs.
#[derive(Debug, Deserialize)]
pub(super) struct GushWorkflow {
    pub(super) klass: String,
    pub(super) globals: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) stopped: bool,
}

/// The value of a job. Times are in seconds.
#[derive(Debug, Deserialize)]
pub(super) struct GushJob {
    pub(super) id: String,
    pub(super) klass: String,
    pub(super) queue: Option<String>,
    #[serde(default)]
    pub(super) incoming: Vec<String>,
    #[serde(default)]
    pub(super) outgoing: Vec<String>,
    pub(super) finished_at: Option<f64>,
    pub(super) enqueued_at: Option<f64>,
    pub(super) started_at: Option<f64>,
    failed_at: Option<f64>,
    pub(super) params: Option<Box<RawValue>>,
    pub(super) output_payload: Option<Box<RawValue>>,
    pub(super) wait: Option<f64>,
}

impl GushJob {
    /// The full name of the job in Gush.
    pub(super) fn name(&self) -> String {
        format!("{}|{}", self.klass, self.id)
    }

    /// The state of the job. Gush clears only the time of a failure when a job starts again, so the
    /// order of these checks matters. A job that started after it finished is running.
    fn state(&self) -> JobState {
        let runs_again = self.started_at > self.finished_at && self.failed_at.is_none();
        if self.failed_at.is_some() {
            JobState::Failed
        } else if self.finished_at.is_some() && !runs_again {
            JobState::Succeeded
        } else if self.enqueued_at.is_none() && self.started_at.is_none() {
            JobState::Waiting
        } else {
            JobState::Ready
        }
    }

    pub(super) fn imported(&self, now: Timestamp) -> Job {
        let state = self.state();
        let moment = |at: Option<f64>| at.map(seconds);
        Job {
            state,
            attempt: u16::from(state.is_over()),
            ready_at: moment(self.enqueued_at)
                .or(moment(self.started_at))
                .or((state == JobState::Ready).then_some(now)),
            started_at: moment(self.started_at).filter(|_| state.is_over()),
            finished_at: moment(self.finished_at).filter(|_| state.is_over()),
            ..Job::default()
        }
    }
}

/// A time in seconds from Gush or Redis.
pub(super) fn seconds(at: f64) -> Timestamp {
    Timestamp::from_micros((at.max(0.0) * 1e6).round() as u64)
}
