//! A question to one partition: are reads, removals and writes answered? What it writes is gone when it is answered.

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Outcome};

use super::call::ScriptCall;
use super::keys::{META, Set};
use super::reply::{answer, reason};
use super::{Ran, RedisStore, with_advice};
use crate::id::Partition;
use crate::store::error::StoreError;
use crate::store::probe::Probe;

/// How long an answer may take. What is asked costs Redis some microseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many of the commands remove.
const REMOVALS: usize = 2;
/// How many of the commands only read.
const READS: usize = 8;

impl RedisStore {
    pub(crate) async fn probe(&self, partition: Partition) -> Probe {
        let sets = Set::ALL.map(|set| self.keys.set(partition, set));
        let scratch = self.keys.scratch(partition);
        // Replicas are waited for as long as by any write.
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

/// Every command that reads, then those that remove, then one that only writes need. Memory that is full does not stop them, as it does the script.
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
        // What large states are staged with. There is no such key.
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
