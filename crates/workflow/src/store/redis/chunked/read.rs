//! Reads a large state in pieces. Others may write meanwhile: its trail tells what they change, and that is read again until it is all of
//! one moment.

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::Bytes;
use hashbrown::HashMap;
use tidegate_pipeline::{Arg, Batch, Outcome, UnitBuilder};

use super::trail::{self, TrailChanges};
use crate::codec::change::{NewerState, Stamp, StoredState};
use crate::codec::record::decode;
use crate::id::{JobIndex, WorkflowId};
use crate::state::Meta;
use crate::store::error::StoreError;
use crate::store::redis::RedisStore;
use crate::store::redis::keys::{self, LABEL, META, Part};
use crate::store::redis::reply::{self, stored};

/// The fields that are asked for first, about: a state of fewer is read with one command.
const FIRST: i64 = 512;
/// The jobs of a piece: some 0.5 ms of Redis.
const PIECE: usize = 2_048;
/// Pieces that are asked for together.
const TOGETHER: usize = 4;
/// So many jobs are read again at once.
const AGAIN: usize = 1_024;
/// So many writes are looked for at a time: a server that does nothing else writes less often meanwhile.
const AHEAD: u64 = 16;
/// How often the trail is looked at in a row.
const MAX_TRAIL_READS: usize = 256;
/// How often a state is read in pieces before it is read at once.
const TRIES: usize = 3;

/// What is known of a state that is being read.
struct ChunkedRead<'a> {
    store: &'a RedisStore,
    key: &'a str,
    /// How many jobs it has.
    number: usize,
    /// What the state was when the read began, or when the trail was last followed to its end.
    meta: Vec<u8>,
    /// Until which write the trail was followed.
    stamp: Stamp,
    jobs: HashMap<JobIndex, Vec<u8>>,
    /// The jobs that have changed since they were read, until that write.
    changed: BTreeSet<JobIndex>,
}

/// What a look at a state found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadStep {
    /// There is no state any more.
    Gone,
    /// It is not told what has changed.
    Lost,
    /// The state is the one that was known before.
    Same,
    /// The trail was followed to the write that made the state.
    Current,
    /// There are more writes.
    More,
}

/// Asks for a state if it has few fields. Two replies.
pub(crate) fn query<'u>(unit: UnitBuilder<'u>, key: &str) -> UnitBuilder<'u> {
    let key = Arg::Key(key.as_bytes());
    let piece = [
        key,
        Arg::Integer(0),
        Arg::Bytes(b"COUNT"),
        Arg::Integer(FIRST),
    ];
    unit.repeatable("HGET", &[key, Arg::Bytes(META)])
        .repeatable("HSCAN", &piece)
}

impl RedisStore {
    /// A state, of which the replies to [`ask`] are there already. None: there is none.
    pub(crate) async fn state(
        &self,
        key: &str,
        replies: &[Outcome],
    ) -> Result<Option<StoredState>, StoreError> {
        if reply::is_forbidden(&replies[1]) {
            return self.whole(key).await;
        }
        let (cursor, fields) = reply::piece(stored(&replies[1], key)?)?;
        if cursor == 0 {
            return reply::state_of(key, fields.iter().map(|(field, value)| (field, value)));
        }
        for _ in 0..TRIES {
            let mut batch = Batch::new();
            batch
                .unit()
                .repeatable("HGET", &[Arg::Key(key.as_bytes()), Arg::Bytes(META)]);
            let replies = self.send(batch).await;
            let Some(meta) = reply::bytes(stored(&replies[0], key)?)? else {
                return Ok(None);
            };
            let Ok(known) = decode::<Meta>(meta, String::new) else {
                break;
            };
            let mut reading =
                ChunkedRead::new(self, key, known.counts.total(), meta, known.stamp());
            match reading.all().await? {
                ReadStep::Gone => return Ok(None),
                ReadStep::Lost => {}
                _ => {
                    return Ok(Some(StoredState {
                        owing: reading.marks().await?,
                        ..reading.into_state()
                    }));
                }
            }
        }
        self.whole(key).await
    }

    /// A state, read at once.
    async fn whole(&self, key: &str) -> Result<Option<StoredState>, StoreError> {
        let mut batch = Batch::new();
        batch
            .unit()
            .repeatable("HGETALL", &[Arg::Key(key.as_bytes())]);
        reply::state(key, stored(&self.send(batch).await[0], key)?)
    }

    /// What was written to a large state after a write. None: its trail does not tell, or it is gone.
    pub(crate) async fn later(
        &self,
        id: WorkflowId,
        jobs: usize,
        since: Stamp,
    ) -> Result<Option<NewerState>, StoreError> {
        let key = self.keys.part(id, Part::State);
        let mut reading = ChunkedRead::new(self, &key, jobs, &[], since);
        Ok(match reading.catch_up().await? {
            ReadStep::Same | ReadStep::Current => Some(NewerState {
                stamp: reading.stamp,
                state: reading.into_state(),
            }),
            ReadStep::Gone | ReadStep::Lost | ReadStep::More => None,
        })
    }
}

impl<'a> ChunkedRead<'a> {
    fn new(store: &'a RedisStore, key: &'a str, number: usize, meta: &[u8], stamp: Stamp) -> Self {
        Self {
            store,
            key,
            number,
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
            owing: Vec::new(),
        }
    }

    /// Reads all jobs.
    async fn all(&mut self) -> Result<ReadStep, StoreError> {
        let piece = |at: usize| at..(at + PIECE).min(self.number);
        let pieces: Vec<Range<usize>> = (0..self.number).step_by(PIECE).map(piece).collect();
        for some in pieces.chunks(TOGETHER) {
            let mut look = self.look(some, &[]).await?;
            while look == ReadStep::More {
                look = self.look(&[], &[]).await?;
            }
            if let ReadStep::Gone | ReadStep::Lost = look {
                return Ok(look);
            }
        }
        self.catch_up().await
    }

    /// Reads again what has changed, until nothing has.
    async fn catch_up(&mut self) -> Result<ReadStep, StoreError> {
        for _ in 0..MAX_TRAIL_READS {
            let some: Vec<JobIndex> = self.changed.iter().copied().take(AGAIN).collect();
            match self.look(&[], &some).await? {
                ReadStep::Same | ReadStep::Current if self.changed.is_empty() => {
                    return Ok(ReadStep::Current);
                }
                ReadStep::Same | ReadStep::Current | ReadStep::More => {}
                look => return Ok(look),
            }
        }
        Ok(ReadStep::Lost)
    }

    /// Reads pieces, follows the trail, and reads these jobs, which are in order, at the same moment.
    async fn look(
        &mut self,
        pieces: &[Range<usize>],
        jobs: &[JobIndex],
    ) -> Result<ReadStep, StoreError> {
        let from = self.stamp.version;
        let length = trail::length(self.number);
        let trail: Vec<String> = (from..=from + AHEAD)
            .map(|version| trail::field(version, length))
            .collect();
        let mut batch = Batch::new();
        for piece in pieces {
            self.query(
                &mut batch,
                piece.clone().map(|job| Arg::Integer(job as i64)),
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
        for (piece, reply) in pieces.iter().zip(&replies) {
            self.merge(
                piece.clone().map(|job| JobIndex(job as u32)),
                &values(self.key, reply)?,
            );
        }
        let values = values(self.key, &replies[pieces.len()])?;
        let Some((Some(meta), values)) = values.split_first() else {
            return Ok(ReadStep::Gone);
        };
        let (trail, values) = values.split_at(trail.len());
        jobs.iter().for_each(|job| _ = self.changed.remove(job));
        self.merge(jobs.iter().copied(), values);
        Ok(if **meta == self.meta {
            ReadStep::Same
        } else {
            self.follow(meta, trail, jobs)
        })
    }

    fn query<'b>(&self, batch: &mut Batch, fields: impl Iterator<Item = Arg<'b>>)
    where
        'a: 'b,
    {
        let args: Vec<Arg<'_>> = [Arg::Key(self.key.as_bytes())]
            .into_iter()
            .chain(fields)
            .collect();
        batch.unit().repeatable("HMGET", &args);
    }

    fn merge(&mut self, jobs: impl Iterator<Item = JobIndex>, values: &[Option<&Bytes>]) {
        self.jobs.extend(
            jobs.zip(values)
                .filter_map(|(job, value)| Some((job, value.as_ref()?.to_vec()))),
        );
    }

    /// Follows the trail to the write that made the state, if it leads there. These jobs were read after that write.
    fn follow(&mut self, meta: &[u8], trail: &[Option<&Bytes>], jobs: &[JobIndex]) -> ReadStep {
        let now = decode(meta, String::new).map(|meta: Meta| meta.stamp());
        let followed = trail::read_trail(self.stamp, trail.iter().copied());
        let (Ok(now), Some(TrailChanges { stamp, changed })) = (now, followed) else {
            return ReadStep::Lost;
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
            ReadStep::Lost
        } else {
            ReadStep::More
        }
    }

    /// The writers of states whose ready rows may not be there. Their marks are the only fields whose names are not known, and there is
    /// rarely one: then the fields are as many as are known. A mark that was removed meanwhile does no harm.
    async fn marks(&self) -> Result<Vec<u32>, StoreError> {
        let length = trail::length(self.number);
        let trail: Vec<String> = (0..length)
            .map(|version| trail::field(version, length))
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
        // Counted last: what is added in between makes them more.
        batch
            .unit()
            .repeatable("HLEN", &[Arg::Key(self.key.as_bytes())]);
        let replies = self.store.send(batch).await;
        let known = values(self.key, &replies[0])?.iter().flatten().count() + self.jobs.len();
        let all = reply::count(stored(&replies[1], self.key)?)?;
        if all == known as u64 {
            Ok(Vec::new())
        } else {
            self.find_marks().await
        }
    }

    async fn find_marks(&self) -> Result<Vec<u32>, StoreError> {
        let mut marks = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let from = cursor.to_string();
            let begin = [Arg::Key(self.key.as_bytes()), Arg::Bytes(from.as_bytes())];
            let scan = [b"MATCH".as_slice(), keys::OWING, b"COUNT"].map(Arg::Bytes);
            let mut batch = Batch::new();
            batch.unit().repeatable(
                "HSCAN",
                &[&begin[..], &scan, &[Arg::Integer(PIECE as i64)]].concat(),
            );
            let (next, fields) = reply::piece(stored(&self.store.send(batch).await[0], self.key)?)?;
            marks.extend(fields.iter().filter_map(|(field, _)| keys::owing_of(field)));
            cursor = next;
            if cursor == 0 {
                return Ok(marks);
            }
        }
    }
}

/// The values of an answer to HMGET.
fn values<'r>(key: &str, reply: &'r Outcome) -> Result<Vec<Option<&'r Bytes>>, StoreError> {
    reply::array(stored(reply, key)?)?
        .into_iter()
        .map(reply::bytes)
        .collect()
}
