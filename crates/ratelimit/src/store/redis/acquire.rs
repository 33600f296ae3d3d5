//! Acquires units of jobs: as many as a counter has room for.

use std::time::Instant;

use tidegate_pipeline::{Arg, Batch, CommandError, Outcome, Reply};

use super::{PerClient, RedisStore, count, count_after_incrby, next_outcome, push_charge};
use crate::store::{BulkCharge, Charge, Grant, GrantBound, StoreError};

/// Adds hits to a counter as far as its limit allows, and returns their number and the new count.
///
/// KEYS: the counter. ARGV: hits, limit, divisor of the hits, seconds to live. Redis has no command
/// that adds up to a bound, and another charge could run between two commands. Without a grant
/// nothing is written. Limits have 32 bits and numbers of Lua 53, so a rounded count is far over
/// its limit.
const ACQUIRE_SCRIPT: &str = "\
local count = redis.call('GET', KEYS[1]) or '0'
count = tonumber(count)
if not count then
  return redis.error_reply('ERR value is not an integer or out of range')
end
local hits = math.min(ARGV[1], ARGV[2] - count)
hits = hits - hits % ARGV[3]
if count < 0 or hits <= 0 then
  return {0, math.min(count, 2 ^ 53)}
end
count = redis.call('INCRBY', KEYS[1], hits)
redis.call('EXPIRE', KEYS[1], ARGV[4])
return {hits, count}";

impl RedisStore {
    pub(crate) async fn acquire(
        &self,
        requests: &[BulkCharge<'_>],
        deadline: Instant,
    ) -> Vec<Result<Grant, StoreError>> {
        let mut batches = PerClient::<Batch>::default();
        for request in requests {
            push(self.for_charge(&request.charge, &mut batches), request);
        }
        let mut outcomes = self.send(batches, deadline).await.map(Vec::into_iter);
        let grant = |request: &BulkCharge<'_>| {
            let outcomes = self.for_charge(&request.charge, &mut outcomes);
            match request.bound {
                GrantBound::UpToLimit { .. } => granted(&next_outcome(outcomes)),
                GrantBound::Unbounded => charged(
                    &request.charge,
                    [next_outcome(outcomes), next_outcome(outcomes)],
                ),
            }
        };
        requests.iter().map(grant).collect()
    }
}

fn push(batch: &mut Batch, request: &BulkCharge<'_>) {
    let charge = &request.charge;
    let GrantBound::UpToLimit { step } = request.bound else {
        return push_charge(batch, charge);
    };
    let limit = i64::from(charge.requests_per_unit);
    // A step that has more than 63 bits is larger than any limit.
    let numbers = [
        charge.hits.min(limit),
        limit,
        i64::try_from(step).unwrap_or(i64::MAX),
        charge.time_to_live.into(),
    ];
    let [hits, limit, step, time_to_live] = numbers.map(Arg::Integer);
    let script = Arg::Bytes(ACQUIRE_SCRIPT.as_bytes());
    let args = [
        script,
        Arg::Integer(1),
        Arg::Key(charge.key),
        hits,
        limit,
        step,
        time_to_live,
    ];
    batch.unit().command("EVAL", &args);
}

/// Parses the reply of the script.
fn granted(outcome: &Outcome) -> Result<Grant, StoreError> {
    let reply = outcome.reply()?;
    if let Reply::Array(numbers) = reply
        && let [Ok(Reply::Integer(hits)), Ok(Reply::Integer(total))] = numbers[..]
    {
        return Ok(Grant {
            hits: count(hits)?,
            total: count(total)?,
        });
    }
    Err(CommandError::UnexpectedReply {
        expected: "an array of two integers",
        reply: reply.clone(),
    }
    .into())
}

/// Returns the grant of a charge in full.
fn charged(charge: &Charge<'_>, [adding, expiring]: [Outcome; 2]) -> Result<Grant, StoreError> {
    let total = count_after_incrby(&adding)?;
    expiring.reply()?;
    Ok(Grant {
        hits: charge.hits.unsigned_abs(),
        total,
    })
}
