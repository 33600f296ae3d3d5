//! Reads the data of Gush. Nothing is changed there.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tidegate_pipeline::{Arg, Batch, Client, CommandError, Outcome, Reply};

use super::job::{GushJob, GushWorkflow, seconds};
use crate::model::Timestamp;

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
    let mut jobs = Vec::new();
    for hash in hashes {
        for value in items(hash.reply()?) {
            match serde_json::from_slice(value) {
                Ok(job) => jobs.push(job),
                Err(error) => return Ok(Err(format!("the JSON of a job cannot be read: {error}"))),
            }
        }
    }
    Ok(Ok(GushRecord {
        workflow,
        jobs,
        created_at,
        expires_at,
        time_to_live,
    }))
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
