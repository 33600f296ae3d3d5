//! Reads a large state in chunks. Other servers may write during the read: the trail of the state
//! names the jobs that they change. These jobs are read again until all of the state is of one
//! moment.

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::Bytes;
use hashbrown::HashMap;
use tidegate_pipeline::{Arg, Batch, Outcome, UnitBuilder};

use super::trail::{self, TrailChanges};
use crate::codec::{NewerState, Stamp, StoreError, StoredState, decode};
use crate::model::{JobIndex, Meta, WorkflowId};
use crate::store::redis::keys::{self, LABEL, META, WorkflowKey};
use crate::store::redis::read::reply::{self, stored};
use crate::store::redis::{RedisStore, key_arg, text_arg};

/// Fields that the first HSCAN returns, about. A state with fewer fields is read with one command.
const FIRST_SCAN_FIELDS: i64 = 512;
/// Jobs of a chunk: some 0.5 ms of Redis.
const CHUNK_JOBS: usize = 2_048;
/// Chunks that are requested in one batch.
const BATCH_CHUNKS: usize = 4;
/// Changed jobs that are read again in one batch.
const REREAD_JOBS: usize = 1_024;
/// Writes of the trail that one read covers: more than a server makes between two reads, even if it
/// only writes.
const TRAIL_WINDOW: u64 = 16;
/// Consecutive reads of the trail before the read in chunks is given up.
const MAX_TRAIL_READS: usize = 256;
/// Attempts to read a state in chunks before it is read with one command.
const MAX_CHUNKED_READS: usize = 3;

/// A state that is being read.
struct ChunkedRead<'a> {
    store: &'a RedisStore,
    key: &'a str,
    /// Number of jobs of the workflow.
    job_count: usize,
    /// The meta when the read began, or when the trail was last read to its end.
    meta: Vec<u8>,
    /// The latest write of the trail that is included.
    stamp: Stamp,
    jobs: HashMap<JobIndex, Vec<u8>>,
    /// Jobs that changed after they were read, up to `stamp`.
    changed: BTreeSet<JobIndex>,
}

/// The result of one read of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadStep {
    /// The state does not exist any more.
    Gone,
    /// The trail does not show what has changed.
    TrailTooShort,
    /// The state has not changed.
    Unchanged,
    /// The trail was read up to the write that made the state.
    Current,
    /// The trail has further writes.
    More,
}

/// Requests a state if it has few fields. The answer has two replies.
pub(crate) fn query<'u>(unit: UnitBuilder<'u>, key: &str) -> UnitBuilder<'u> {
    let key = key_arg(key);
    let scan = [
        key,
        Arg::Integer(0),
        Arg::Bytes(b"COUNT"),
        Arg::Integer(FIRST_SCAN_FIELDS),
    ];
    unit.repeatable("HGET", &[key, Arg::Bytes(META)])
        .repeatable("HSCAN", &scan)
}

impl RedisStore {
    /// Completes the read of a state whose replies to [`query`] are given. `None` if the state does
    /// not exist.
    pub(crate) async fn state_from_replies(
        &self,
        key: &str,
        replies: &[Outcome],
    ) -> Result<Option<StoredState>, StoreError> {
        if reply::is_forbidden(&replies[1]) {
            return self.read_whole(key).await;
        }
        let (cursor, fields) = reply::scan_page(stored(&replies[1], key)?)?;
        if cursor == 0 {
            return reply::state_of(key, fields.iter().map(|(field, value)| (field, value)));
        }
        for _ in 0..MAX_CHUNKED_READS {
            let args = [key_arg(key), Arg::Bytes(META)];
            let found = self.command("HGET", &args).await;
            let Some(meta) = reply::bytes(stored(&found, key)?)? else {
                return Ok(None);
            };
            let Ok(known) = decode::<Meta>(meta, String::new) else {
                break;
            };
            let mut reading =
                ChunkedRead::new(self, key, known.counts.total(), meta, known.stamp());
            match reading.read_all().await? {
                ReadStep::Gone => return Ok(None),
                ReadStep::TrailTooShort => {}
                _ => {
                    return Ok(Some(StoredState {
                        pending_row_writers: reading.missing_rows_writers().await?,
                        ..reading.into_state()
                    }));
                }
            }
        }
        self.read_whole(key).await
    }

    /// Reads a state with one command.
    async fn read_whole(&self, key: &str) -> Result<Option<StoredState>, StoreError> {
        let found = self.command("HGETALL", &[key_arg(key)]).await;
        reply::state(key, stored(&found, key)?)
    }

    /// The changes of a large state after the write `since`. `None` if its trail does not show them
    /// or the state does not exist.
    pub(crate) async fn newer_state(
        &self,
        id: WorkflowId,
        jobs: usize,
        since: Stamp,
    ) -> Result<Option<NewerState>, StoreError> {
        let key = self.keys.workflow_key(id, WorkflowKey::State);
        let mut reading = ChunkedRead::new(self, &key, jobs, &[], since);
        Ok(match reading.catch_up().await? {
            ReadStep::Unchanged | ReadStep::Current => Some(NewerState {
                stamp: reading.stamp,
                state: reading.into_state(),
            }),
            ReadStep::Gone | ReadStep::TrailTooShort | ReadStep::More => None,
        })
    }
}

impl<'a> ChunkedRead<'a> {
    fn new(
        store: &'a RedisStore,
        key: &'a str,
        job_count: usize,
        meta: &[u8],
        stamp: Stamp,
    ) -> Self {
        Self {
            store,
            key,
            job_count,
            meta: meta.to_vec(),
            stamp,
            jobs: HashMap::new(),
            changed: BTreeSet::new(),
        }
    }

    fn into_state(self) -> StoredState {
        StoredState {
            meta: self.meta,
            jobs: self.jobs.into_iter().collect(),
            pending_row_writers: Vec::new(),
        }
    }

    /// Reads all jobs.
    async fn read_all(&mut self) -> Result<ReadStep, StoreError> {
        let chunk = |at: usize| at..(at + CHUNK_JOBS).min(self.job_count);
        let chunks: Vec<Range<usize>> =
            (0..self.job_count).step_by(CHUNK_JOBS).map(chunk).collect();
        for batch in chunks.chunks(BATCH_CHUNKS) {
            let mut step = self.read_step(batch, &[]).await?;
            while step == ReadStep::More {
                step = self.read_step(&[], &[]).await?;
            }
            if let ReadStep::Gone | ReadStep::TrailTooShort = step {
                return Ok(step);
            }
        }
        self.catch_up().await
    }

    /// Reads changed jobs again until none has changed.
    async fn catch_up(&mut self) -> Result<ReadStep, StoreError> {
        for _ in 0..MAX_TRAIL_READS {
            let jobs: Vec<JobIndex> = self.changed.iter().copied().take(REREAD_JOBS).collect();
            match self.read_step(&[], &jobs).await? {
                ReadStep::Unchanged | ReadStep::Current if self.changed.is_empty() => {
                    return Ok(ReadStep::Current);
                }
                ReadStep::Unchanged | ReadStep::Current | ReadStep::More => {}
                step => return Ok(step),
            }
        }
        Ok(ReadStep::TrailTooShort)
    }

    /// Reads chunks, then at one moment the trail and the given jobs, which must be sorted.
    async fn read_step(
        &mut self,
        chunks: &[Range<usize>],
        jobs: &[JobIndex],
    ) -> Result<ReadStep, StoreError> {
        let from = self.stamp.version;
        let length = trail::trail_length(self.job_count);
        let trail: Vec<String> = (from..=from + TRAIL_WINDOW)
            .map(|version| trail::field_name(version, length))
            .collect();
        let mut batch = Batch::new();
        for chunk in chunks {
            self.query(
                &mut batch,
                chunk.clone().map(|job| Arg::Integer(job as i64)),
            );
        }
        let fields = [META]
            .into_iter()
            .chain(trail.iter().map(String::as_bytes))
            .map(Arg::Bytes);
        self.query(
            &mut batch,
            fields.chain(jobs.iter().map(|job| Arg::Integer(job.0.into()))),
        );
        let replies = self.store.send(batch).await;
        for (chunk, reply) in chunks.iter().zip(&replies) {
            self.merge(
                chunk.clone().map(|job| JobIndex(job as u32)),
                &values(self.key, reply)?,
            );
        }
        let values = values(self.key, &replies[chunks.len()])?;
        let Some((Some(meta), values)) = values.split_first() else {
            return Ok(ReadStep::Gone);
        };
        let (trail, values) = values.split_at(trail.len());
        jobs.iter().for_each(|job| _ = self.changed.remove(job));
        self.merge(jobs.iter().copied(), values);
        Ok(if **meta == self.meta {
            ReadStep::Unchanged
        } else {
            self.follow(meta, trail, jobs)
        })
    }

    fn query<'b>(&self, batch: &mut Batch, fields: impl Iterator<Item = Arg<'b>>)
    where
        'a: 'b,
    {
        let mut args = vec![key_arg(self.key)];
        args.extend(fields);
        batch.unit().repeatable("HMGET", &args);
    }

    fn merge(&mut self, jobs: impl Iterator<Item = JobIndex>, values: &[Option<&Bytes>]) {
        self.jobs.extend(
            jobs.zip(values)
                .filter_map(|(job, value)| Some((job, value.as_ref()?.to_vec()))),
        );
    }

    /// Follows the trail towards the write that made the state. `jobs` were read after that write.
    fn follow(&mut self, meta: &[u8], trail: &[Option<&Bytes>], jobs: &[JobIndex]) -> ReadStep {
        let now = decode(meta, String::new).map(|meta: Meta| meta.stamp());
        let followed = trail::read_trail(self.stamp, trail.iter().copied());
        let (Ok(now), Some(TrailChanges { stamp, changed })) = (now, followed) else {
            return ReadStep::TrailTooShort;
        };
        let known = std::mem::replace(&mut self.stamp, stamp);
        self.changed.extend(
            changed
                .into_iter()
                .filter(|job| jobs.binary_search(job).is_err()),
        );
        if stamp == now {
            self.meta = meta.to_vec();
            ReadStep::Current
        } else if stamp == known {
            ReadStep::TrailTooShort
        } else {
            ReadStep::More
        }
    }

    /// The writers of states whose ready rows may be missing. Their marks are the only fields with
    /// unknown names, and marks are rare. If the state has no more fields than the known ones, it
    /// has no mark. A mark that is removed during the read does no harm.
    async fn missing_rows_writers(&self) -> Result<Vec<u32>, StoreError> {
        let length = trail::trail_length(self.job_count);
        let trail: Vec<String> = (0..length)
            .map(|version| trail::field_name(version, length))
            .collect();
        let mut batch = Batch::new();
        self.query(
            &mut batch,
            [META]
                .into_iter()
                .chain(LABEL)
                .chain(trail.iter().map(String::as_bytes))
                .map(Arg::Bytes),
        );
        // Counted last: fields that are added during the read increase the count.
        batch.unit().repeatable("HLEN", &[key_arg(self.key)]);
        let replies = self.store.send(batch).await;
        let known = values(self.key, &replies[0])?.iter().flatten().count() + self.jobs.len();
        let all = reply::count(stored(&replies[1], self.key)?)?;
        if all == known as u64 {
            Ok(Vec::new())
        } else {
            self.scan_missing_rows_writers().await
        }
    }

    async fn scan_missing_rows_writers(&self) -> Result<Vec<u32>, StoreError> {
        let mut marks = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let from = cursor.to_string();
            let begin = [key_arg(self.key), text_arg(&from)];
            let scan = [b"MATCH".as_slice(), keys::MISSING_ROWS_PATTERN, b"COUNT"].map(Arg::Bytes);
            let args = [&begin[..], &scan, &[Arg::Integer(CHUNK_JOBS as i64)]].concat();
            let page = self.store.command("HSCAN", &args).await;
            let (next, fields) = reply::scan_page(stored(&page, self.key)?)?;
            marks.extend(
                fields
                    .iter()
                    .filter_map(|(field, _)| keys::missing_rows_writer(field)),
            );
            cursor = next;
            if cursor == 0 {
                return Ok(marks);
            }
        }
    }
}

fn values<'r>(key: &str, reply: &'r Outcome) -> Result<Vec<Option<&'r Bytes>>, StoreError> {
    reply::values(stored(reply, key)?)
}
