//! Large changes in pieces, so that no call keeps Redis from others for long. The jobs of a large change are staged under a key of their own,
//! which nobody reads; the call that compares versions puts that key in the place of the state. Ready rows follow in pieces. Until they are
//! there the state says so, and the workflow has a timer: if the server dies, whoever sees to the timer writes the rows.

pub(super) mod read;
pub(super) mod trail;

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Outcome};

use super::call::{self, Call};
use super::keys::{self, Part, Set};
use super::reply::{answer, count, reason};
use super::{Ran, RedisStore, Written, applied, with_advice};
use crate::id::{Partition, WorkflowId};
use crate::record::change::{Applied, Change, Put, RowChange, Rows, Stamp, Write};
use crate::store::announcement::Announcer;
use crate::store::error::StoreError;

/// Changes of more jobs or rows than this are cut: at 4 us for a job and a row, others wait for 16 ms at most.
pub(crate) const LARGE: usize = 4_096;
/// Arguments of a piece: some 2 ms of Redis.
const PIECE: usize = 2_048;
/// Pieces that are sent together: they wait for one server, and what may wait there is bounded.
const TOGETHER: usize = 16;
/// How long a state stays staged whose server died. A write takes far less.
const STAGED: Duration = Duration::from_secs(600);
/// Adds to a staged state. Redis does not compile a text again that it knows, and beside a piece it is short.
const STAGE: &str = include_str!("pieces/stage.lua");

pub(super) fn is_large(change: &Change) -> bool {
    match &change.write {
        Write::Put(put) => {
            put.whole.is_some() || put.rows == Rows::Follow || put.ready.remove.len() > LARGE
        }
        Write::Delete(_) => false,
    }
}

/// A partition, and who tells others what is written there.
type Place<'a> = (Partition, Option<&'a Announcer>);

impl RedisStore {
    /// Writes changes of which some are large, one after the other.
    pub(super) async fn write_in_pieces(
        &self,
        partition: Partition,
        changes: &[Change],
        announcer: Option<&Announcer>,
    ) -> Result<Written, StoreError> {
        let mut all = Written {
            applied: Vec::with_capacity(changes.len()),
            suspicious: false,
        };
        for change in changes {
            let written = match &change.write {
                Write::Put(put) if is_large(change) => {
                    self.write_large((partition, announcer), change, put).await
                }
                _ => {
                    self.write(partition, std::slice::from_ref(change), announcer)
                        .await
                }
            };
            // Those before this one were written.
            let doubt = |error| match error {
                StoreError::Unavailable { reason } if !all.applied.is_empty() => {
                    StoreError::Unknown { reason }
                }
                error => error,
            };
            let written = written.map_err(doubt)?;
            all.applied.extend(written.applied);
            all.suspicious |= written.suspicious;
        }
        Ok(all)
    }

    async fn write_large(
        &self,
        (partition, announcer): Place<'_>,
        change: &Change,
        put: &Put,
    ) -> Result<Written, StoreError> {
        if let (Some(label), Some(trail)) = (&put.whole, put.trail) {
            self.stage(change.workflow, put, (label, trail.stamp))
                .await?;
        }
        let follows = put.rows == Rows::Follow || put.ready.remove.len() > LARGE;
        // Rows that are added later are guarded by a mark of the state, which there is only when all of them follow.
        let add = if put.rows == Rows::Follow {
            Vec::new()
        } else {
            put.ready.add.clone()
        };
        let first = RowChange {
            add,
            remove: Vec::new(),
        };
        let ready = if follows { &first } else { &put.ready };
        match self
            .take_place((partition, announcer), change, put, ready)
            .await
        {
            // Whether rows must follow is not known, so all are written again if it was done.
            Err(StoreError::Unknown { reason }) if follows => Err(StoreError::Torn { reason }),
            Ok(written) if written.applied != [Applied::Done] => {
                self.unstage(change.workflow, put).await;
                Ok(written)
            }
            Ok(written) if follows => {
                self.follow((partition, announcer), change, put).await?;
                Ok(written)
            }
            written => written,
        }
    }

    /// Writes all of a change but what was staged, and of the ready rows these.
    async fn take_place(
        &self,
        (partition, announcer): Place<'_>,
        change: &Change,
        put: &Put,
        ready: &RowChange,
    ) -> Result<Written, StoreError> {
        let short = Put {
            meta: put.meta.clone(),
            birth: put.birth.clone(),
            // Where none are staged there are few: only rows are many.
            jobs: if put.whole.is_some() {
                Vec::new()
            } else {
                put.jobs.clone()
            },
            results: put.results.clone(),
            dropped_results: put.dropped_results.clone(),
            ready: ready.clone(),
            index: put.index.clone(),
            timer: put.timer,
            expiry: put.expiry,
            was: put.was,
            trail: put.trail,
            whole: put.whole.clone(),
            rows: put.rows,
            settled: put.settled.clone(),
        };
        let (workflow, expected) = (change.workflow, change.expected.clone());
        let short = Change {
            workflow,
            expected,
            small: change.small,
            write: Write::Put(Box::new(short)),
        };
        self.write(partition, std::slice::from_ref(&short), announcer)
            .await
    }

    /// Puts all fields of a state under the key that only this write names.
    async fn stage(
        &self,
        id: WorkflowId,
        put: &Put,
        (label, stamp): (&[u8], Stamp),
    ) -> Result<(), StoreError> {
        let key = self.keys.staged(id, stamp.writer);
        let key = Arg::Key(key.as_bytes());
        let fields = call::state_fields(put);
        let mut args: Vec<Arg<'_>> = keys::label_fields(label)
            .flat_map(|(name, value)| [Arg::Bytes(name), Arg::Bytes(value)])
            .collect();
        args.extend(fields.iter().map(call::Piece::arg));
        // The first one alone: the others add only to what is there.
        let (first, others) = args.split_at(PIECE.min(args.len()));
        let parts = std::iter::once(first).chain(others.chunks(PIECE * TOGETHER));
        for (at, part) in parts.enumerate() {
            let mut batch = Batch::new();
            for piece in part.chunks(PIECE) {
                let head = [
                    Arg::Bytes(STAGE.as_bytes()),
                    Arg::Integer(1),
                    key,
                    Arg::Integer(STAGED.as_millis() as i64),
                ];
                let head = head.into_iter().chain([Arg::Integer((at == 0).into())]);
                batch.unit().repeatable(
                    "EVAL",
                    &head.chain(piece.iter().copied()).collect::<Vec<_>>(),
                );
            }
            self.send(batch).await.iter().try_for_each(staged)?;
        }
        Ok(())
    }

    /// Removes a state that is not to take its place. If that fails, it expires.
    async fn unstage(&self, id: WorkflowId, put: &Put) {
        if let (Some(_), Some(trail)) = (&put.whole, put.trail) {
            let key = self.keys.staged(id, trail.stamp.writer);
            let mut batch = Batch::new();
            batch
                .unit()
                .repeatable("UNLINK", &[Arg::Key(key.as_bytes())]);
            let _expires = self.send(batch).await;
        }
    }

    /// Writes the rows of a state that is written, and then that they are there.
    async fn follow(
        &self,
        (partition, announcer): Place<'_>,
        change: &Change,
        put: &Put,
    ) -> Result<(), StoreError> {
        let state = self.keys.part(change.workflow, Part::State);
        let mark = put
            .trail
            .filter(|_| put.rows == Rows::Follow)
            .map(|trail| keys::owing_field(trail.stamp.writer));
        let scratch = self.keys.scratch(partition)[0].clone();
        let add = |rows, mark| Call::of_rows((&state, mark), Set::Ready, (rows, &[]));
        let added = mark.iter().flat_map(|mark| {
            put.ready
                .add
                .chunks(PIECE / 2)
                .map(move |rows| add(rows, mark))
        });
        let removed = put
            .ready
            .remove
            .chunks(PIECE)
            .map(|rows| Call::of_rows((&scratch, ""), Set::Ready, (&[], rows)));
        let mut calls: Vec<Call<'_>> = added.chain(removed).collect();
        if let (Some(announcer), Some(last)) = (announcer, calls.last_mut()) {
            // When all rows are there, others may come for them.
            self.announce(
                partition,
                std::slice::from_ref(change),
                announcer,
                std::slice::from_mut(last),
            );
        }
        let sets = Set::ALL.map(|set| self.keys.set(partition, set));
        for some in calls.chunks(TOGETHER) {
            let Ran {
                outcomes, enough, ..
            } = self.run(some, &sets, Instant::now() + self.timeout).await;
            if let Some(failed) = outcomes.iter().find(|outcome| outcome.reply().is_err()) {
                return Err(StoreError::Torn {
                    reason: reason(failed),
                });
            }
            enough?;
            if applied(some, &outcomes)?
                .iter()
                .any(|applied| *applied != Applied::Done)
            {
                // This server was away for so long that another one has seen to the rows.
                return Ok(());
            }
        }
        if let Some(mark) = &mark {
            let mut batch = Batch::new();
            batch.unit().repeatable(
                "HDEL",
                &[Arg::Key(state.as_bytes()), Arg::Bytes(mark.as_bytes())],
            );
            // If the mark stays, rows that are there are written again.
            let _told = self.send(batch).await;
        }
        Ok(())
    }
}

/// What became of a piece.
fn staged(outcome: &Outcome) -> Result<(), StoreError> {
    let there = answer(outcome).map_err(|_| StoreError::Unavailable {
        reason: with_advice(reason(outcome)),
    })?;
    match count(there)? {
        0 => Err(StoreError::Unavailable {
            reason: "a state that is written in pieces took too long".to_owned(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod with_redis {
    use std::sync::Arc;

    use tidegate_pipeline::Client;
    use tidegate_pipeline::test_util::RedisServer;

    use super::super::RedisOptions;
    use super::*;
    use crate::engine::claim::Claim;
    use crate::engine::desk::request::Action;
    use crate::engine::{Engine, EngineOptions};
    use crate::graph::Graph;
    use crate::graph::definition::{Definition, JobDefinition};
    use crate::state::{RetentionDefaults, Status};
    use crate::store::Store;
    use crate::time::Timestamp;
    use crate::transition::event::Event;
    use crate::transition::transition;
    use crate::workflow::Workflow;

    const JOBS: usize = 3 * LARGE;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros((1_795_000_000 + seconds) * 1_000_000)
    }

    async fn open() -> (RedisStore, Engine, RedisServer) {
        let server = RedisServer::start().await;
        let options = RedisOptions::new("t:", 1, Duration::from_secs(5)).unwrap();
        let store = RedisStore::open(Client::new(server.config()).unwrap(), options)
            .await
            .unwrap();
        let engine = Engine::start(Store::Redis(store.clone()), EngineOptions::default())
            .await
            .unwrap();
        (store, engine, server)
    }

    /// A workflow of many jobs that starts, and the change that writes it.
    fn started() -> (WorkflowId, Change) {
        let jobs = (0..JOBS)
            .map(|at| JobDefinition::new(at.to_string(), "handler"))
            .collect();
        let graph = Graph::build(Definition {
            name: "w".to_owned(),
            jobs,
            ..Definition::default()
        })
        .unwrap();
        let id = WorkflowId::new(at(0), Partition(0), 7);
        let mut workflow = Workflow::new(id, Arc::new(graph), at(0));
        transition(
            &mut workflow,
            &Event::Start,
            RetentionDefaults::default(),
            at(0),
        )
        .unwrap();
        let style = crate::workflow::write::Style {
            format: crate::record::format::Format::LATEST,
            most: LARGE,
        };
        let change = workflow.change(5, style, at(0)).unwrap();
        (id, change)
    }

    fn put(change: &Change) -> &Put {
        let Write::Put(put) = &change.write else {
            panic!("it removes")
        };
        put
    }

    fn rows(server: &RedisServer) -> usize {
        server
            .raw("ZCARD t:{cv}:rq")
            .trim_start_matches(':')
            .trim()
            .parse()
            .unwrap()
    }

    #[tokio::test]
    async fn what_is_staged_is_not_seen_and_goes() {
        let (store, engine, server) = open().await;
        let (id, change) = started();
        let put = put(&change);
        store
            .stage(
                id,
                put,
                (put.whole.as_deref().unwrap(), put.trail.unwrap().stamp),
            )
            .await
            .unwrap();
        assert!(engine.show(id).await.is_err());
        assert_eq!(rows(&server), 0);
        let left = server.raw(&format!("PTTL t:{{cv}}:n:{id}:00000005"));
        let left: u64 = left.trim_start_matches(':').trim().parse().unwrap();
        assert!(left > 0 && left <= STAGED.as_millis() as u64, "{left}");
        // Somebody creates it after all.
        assert_eq!(
            store
                .apply(Partition(0), std::slice::from_ref(&change), None)
                .await,
            Ok(vec![Applied::Done])
        );
        assert_eq!(rows(&server), JOBS);
        assert_eq!(
            server.raw(&format!("PTTL t:{{cv}}:w:{id}")).trim(),
            ":-1",
            "the state itself stays"
        );
        assert_eq!(
            server
                .raw(&format!("EXISTS t:{{cv}}:n:{id}:00000005"))
                .trim(),
            ":0"
        );
        assert_eq!(
            server
                .raw(&format!("HEXISTS t:{{cv}}:w:{id} x00000005"))
                .trim(),
            ":0"
        );
        assert_eq!(
            engine.show(id).await.unwrap().meta().counts.of("ready"),
            JOBS as u32
        );
        // Once more: it is there.
        let again = store
            .apply(Partition(0), std::slice::from_ref(&change), None)
            .await
            .unwrap();
        assert_eq!(again, [Applied::Elsewhere]);
        assert_eq!(
            server.raw("KEYS t:{cv}:n:*").trim(),
            "*0",
            "what is refused leaves nothing"
        );
    }

    /// A server that dies or is kept from going on at any moment leaves nothing that stays.
    #[tokio::test]
    async fn what_is_staged_expires_from_its_first_piece_on() {
        let (store, _engine, server) = open().await;
        let (id, change) = started();
        let put = put(&change);
        let stage = || {
            store.stage(
                id,
                put,
                (put.whole.as_deref().unwrap(), put.trail.unwrap().stamp),
            )
        };
        let _ = server.raw("ACL SETUSER default -pexpire");
        assert!(stage().await.unwrap_err().to_string().contains("PEXPIRE"));
        assert_eq!(
            server.raw("KEYS t:{cv}:n:*").trim(),
            "*0",
            "nothing is written that would not expire"
        );
        let _ = server.raw("ACL SETUSER default +pexpire");
        // One that has expired does not come into being again without its first fields.
        let key = store.keys.staged(id, 5);
        let later = [b"600000".as_slice(), b"0", b"1", b"x"].map(Arg::Bytes);
        let mut batch = Batch::new();
        let head = [
            Arg::Bytes(STAGE.as_bytes()),
            Arg::Integer(1),
            Arg::Key(key.as_bytes()),
        ];
        batch
            .unit()
            .repeatable("EVAL", &head.into_iter().chain(later).collect::<Vec<_>>());
        assert!(staged(&store.send(batch).await[0]).is_err());
        assert_eq!(server.raw("KEYS t:{cv}:n:*").trim(), "*0");
    }

    /// The creator was frozen, another server wrote the rows, and the jobs were done. Then it woke up.
    #[tokio::test]
    async fn rows_that_come_too_late_are_not_written() {
        let (store, engine, server) = open().await;
        let (id, change) = started();
        let put = put(&change);
        let place = (Partition(0), None);
        let begin = async || {
            store
                .stage(
                    id,
                    put,
                    (put.whole.as_deref().unwrap(), put.trail.unwrap().stamp),
                )
                .await
                .unwrap();
            let written = store
                .take_place(place, &change, put, &RowChange::default())
                .await
                .unwrap();
            assert_eq!(written.applied, [Applied::Done]);
        };
        begin().await;
        engine.sweep(at(11)).await.unwrap();
        assert_eq!(rows(&server), JOBS);
        let _ = server.raw("DEL t:{cv}:rq");
        store.follow(place, &change, put).await.unwrap();
        assert_eq!(rows(&server), 0, "another server has written the rows");
        engine.act(id, Action::Cancel, at(12)).await.unwrap();
        engine.act(id, Action::Delete, at(13)).await.unwrap();
        // It is cancelled before anybody has written all of its rows.
        begin().await;
        engine.act(id, Action::Cancel, at(12)).await.unwrap();
        store.follow(place, &change, put).await.unwrap();
        assert_eq!(rows(&server), 0, "nothing is ready");
    }

    #[tokio::test]
    async fn rows_that_did_not_follow_their_state_are_written_when_they_are_due() {
        let (store, engine, server) = open().await;
        let (id, change) = started();
        let put = put(&change);
        store
            .stage(
                id,
                put,
                (put.whole.as_deref().unwrap(), put.trail.unwrap().stamp),
            )
            .await
            .unwrap();
        let some = RowChange {
            add: put.ready.add[..100].to_vec(),
            remove: Vec::new(),
        };
        assert_eq!(
            store
                .take_place((Partition(0), None), &change, put, &some)
                .await
                .unwrap()
                .applied,
            [Applied::Done]
        );
        // Whoever works on it before that does not take it for settled.
        let claim = Claim {
            queues: vec!["default".to_owned()],
            handlers: None,
            worker: "w".to_owned(),
            limit: 10,
            lease: Duration::from_secs(300),
        };
        assert_eq!(engine.claim(&claim, at(1)).await.unwrap().len(), 10);
        assert_eq!(rows(&server), 90);
        engine.sweep(at(11)).await.unwrap();
        assert_eq!(rows(&server), JOBS - 10);
        assert_eq!(
            server
                .raw(&format!("HEXISTS t:{{cv}}:w:{id} x00000005"))
                .trim(),
            ":0"
        );
        let mut known = 10;
        while known < JOBS {
            let claimed = engine
                .claim(
                    &Claim {
                        limit: 1_000,
                        ..claim.clone()
                    },
                    at(12),
                )
                .await
                .unwrap()
                .len();
            assert!(claimed > 0, "{known} of {JOBS} jobs were claimed");
            known += claimed;
        }
        assert_eq!(
            engine.show(id).await.unwrap().meta().status,
            Status::Running
        );
        assert_eq!(rows(&server), 0);
    }
}
