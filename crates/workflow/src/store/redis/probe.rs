//! Probes one partition: whether reads, removals and writes succeed. It removes its own writes.

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Outcome};

use super::call::ScriptCall;
use super::keys::{META, Set};
use super::reply::{answer, reason};
use super::{Ran, RedisStore, with_advice};
use crate::id::Partition;
use crate::store::error::StoreError;
use crate::store::probe::Probe;

/// The longest wait for an answer. The commands cost Redis some microseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of commands that remove.
const REMOVALS: usize = 2;
/// Number of commands that only read.
const READS: usize = 8;

impl RedisStore {
    pub(crate) async fn probe(&self, partition: Partition) -> Probe {
        let sets = Set::ALL.map(|set| self.keys.set(partition, set));
        let scratch = self.keys.scratch(partition);
        // With replicas, a probe may wait for them as long as any write.
        let patience = if self.replicas() == 0 {
            PATIENCE.min(self.timeout)
        } else {
            self.timeout
        };
        let deadline = Instant::now() + patience;
        let asked = self.client.send(question(&sets, &scratch), deadline);
        let calls = [ScriptCall::probe(scratch.clone())];
        let (
            asked,
            Ran {
                outcomes, enough, ..
            },
        ) = tokio::join!(asked, self.run(&calls, &sets, deadline));
        let (reads, others) = asked.split_at(READS);
        let (removals, others) = others.split_at(REMOVALS);
        let writes = all(&outcomes).and(all(others)).and(enough.clone());
        Probe {
            reads: all(reads),
            removals: all(removals).and(enough),
            writes,
        }
    }
}

/// Every command that reads, then those that remove, then one that only writes need. Full memory
/// does not stop these commands, but it stops the script.
fn question(sets: &[String; Set::ALL.len()], scratch: &[String; 2]) -> Batch {
    let [ready, index, timers, expiries] = sets.each_ref().map(|key| Arg::Key(key.as_bytes()));
    let [hash, string] = scratch.each_ref().map(|key| Arg::Key(key.as_bytes()));
    let [least, most, by_name, by_score, limit] =
        [b"-".as_slice(), b"+", b"BYLEX", b"BYSCORE", b"LIMIT"].map(Arg::Bytes);
    let zero = Arg::Integer(0);
    let one = Arg::Integer(1);
    let nobody = Arg::Bytes(b"");
    let mut batch = Batch::new();
    batch
        .unit()
        .repeatable("HGETALL", &[hash])
        .repeatable("HMGET", &[hash, Arg::Bytes(META)])
        .repeatable("HLEN", &[hash])
        .repeatable("GET", &[string])
        .repeatable("ZRANGE", &[ready, least, most, by_name, limit, zero, one])
        .repeatable("ZLEXCOUNT", &[index, least, least])
        .repeatable("ZRANGE", &[timers, zero, zero, by_score, limit, zero, one])
        .repeatable(
            "ZRANGE",
            &[expiries, zero, zero, by_score, limit, zero, one],
        )
        // No row is empty, so nothing is removed.
        .repeatable("ZREM", &[expiries, nobody])
        .repeatable("UNLINK", &[string])
        // Large states are staged with PEXPIRE. The key does not exist.
        .repeatable("PEXPIRE", &[string, one]);
    batch
}

fn all(outcomes: &[Outcome]) -> Result<(), StoreError> {
    match outcomes.iter().find(|outcome| answer(outcome).is_err()) {
        Some(failed) => Err(StoreError::Unavailable {
            reason: with_advice(reason(failed)),
        }),
        None => Ok(()),
    }
}
