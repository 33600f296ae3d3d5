//! Probes one partition: whether reads, removals and writes succeed. It removes its own writes.

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Outcome};

use super::apply::ScriptCall;
use super::keys::{META, Set};
use super::read::reply::{answer, reason};
use super::{RedisStore, key_arg, with_advice};
use crate::codec::StoreError;
use crate::model::Partition;
use crate::store::query::probe::Probe;

/// The longest wait for an answer. The commands cost Redis some microseconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of commands that remove.
const REMOVE_COMMANDS: usize = 2;
/// Number of commands that only read.
const READ_COMMANDS: usize = 8;

impl RedisStore {
    pub(crate) async fn probe(&self, partition: Partition) -> Probe {
        let sets = Set::ALL.map(|set| self.keys.set(partition, set));
        let scratch = self.keys.scratch(partition);
        // With replicas, a probe may wait for them as long as any write.
        let timeout = if self.replicas() == 0 {
            PROBE_TIMEOUT.min(self.timeout)
        } else {
            self.timeout
        };
        let deadline = Instant::now() + timeout;
        let commands = self.client.send(probe_batch(&sets, &scratch), deadline);
        let calls = [ScriptCall::probe(scratch.clone())];
        let (commands, run) = tokio::join!(commands, self.run(&calls, &sets, deadline));
        let (reads, others) = commands.split_at(READ_COMMANDS);
        let (removals, others) = others.split_at(REMOVE_COMMANDS);
        let writes = all_succeeded(&run.outcomes).and(all_succeeded(others));
        Probe {
            reads: all_succeeded(reads),
            removals: all_succeeded(removals).and(run.replicated.clone()),
            writes: writes.and(run.replicated),
        }
    }
}

/// Every command that reads, then those that remove, then one that only writes need. Full memory
/// does not stop these commands, but it stops the script.
fn probe_batch(sets: &[String; Set::ALL.len()], scratch: &[String; 2]) -> Batch {
    let [ready, index, timers, expiries] = sets.each_ref().map(|key| key_arg(key));
    let [hash, string] = scratch.each_ref().map(|key| key_arg(key));
    let [least, most, by_name, by_score, limit] =
        [b"-".as_slice(), b"+", b"BYLEX", b"BYSCORE", b"LIMIT"].map(Arg::Bytes);
    let zero = Arg::Integer(0);
    let one = Arg::Integer(1);
    let empty_row = Arg::Bytes(b"");
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
        .repeatable("ZREM", &[expiries, empty_row])
        .repeatable("UNLINK", &[string])
        // Large states are staged with PEXPIRE. The key does not exist.
        .repeatable("PEXPIRE", &[string, one]);
    batch
}

fn all_succeeded(outcomes: &[Outcome]) -> Result<(), StoreError> {
    match outcomes.iter().find(|outcome| answer(outcome).is_err()) {
        Some(failed) => Err(StoreError::unavailable(with_advice(reason(failed)))),
        None => Ok(()),
    }
}
