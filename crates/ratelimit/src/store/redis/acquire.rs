//! Acquires units of jobs: as many as a counter has room for.

use std::time::Instant;

use tidegate_pipeline::{Arg, Batch, CommandError, Outcome, Reply};

use super::{PerClient, RedisStore, added, count, next, push_charge};
use crate::store::{BulkCharge, Charge, Grant, GrantBound, StoreError};

/// Adds hits to a counter as far as its limit allows, and returns their number and the new count.
///
/// KEYS: the counter. ARGV: hits, limit, divisor of the hits, seconds to live. Redis has no command
/// that adds up to a bound, and another charge could run between two commands. Without a grant
/// nothing is written. Limits have 32 bits and numbers of Lua 53, so a rounded count is far over
/// its limit.
const TAKE: &str = "\
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
    pub(crate) async fn take(
        &self,
        asks: &[BulkCharge<'_>],
        deadline: Instant,
    ) -> Vec<Result<Grant, StoreError>> {
        let mut batches = PerClient::<Batch>::default();
        for ask in asks {
            push(self.of(&ask.charge, &mut batches), ask);
        }
        let mut outcomes = self.send(batches, deadline).await.map(Vec::into_iter);
        let grant = |ask: &BulkCharge<'_>| {
            let outcomes = self.of(&ask.charge, &mut outcomes);
            match ask.room {
                GrantBound::UpToLimit { .. } => granted(&next(outcomes)),
                GrantBound::Unbounded => charged(&ask.charge, [next(outcomes), next(outcomes)]),
            }
        };
        asks.iter().map(grant).collect()
    }
}

fn push(batch: &mut Batch, ask: &BulkCharge<'_>) {
    let charge = &ask.charge;
    let GrantBound::UpToLimit { step } = ask.room else {
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
    let script = Arg::Bytes(TAKE.as_bytes());
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
    let total = added(&adding)?;
    expiring.reply()?;
    Ok(Grant {
        hits: charge.hits.unsigned_abs(),
        total,
    })
}
