//! Counters in Redis.

mod acquire;

use std::time::Instant;

use tidegate_pipeline::{Arg, Batch, Client, Outcome};

use super::{Charge, CounterChange, MAX_COUNT, StoreError, Totals};
use crate::model::Unit;

/// Subtracts hits from an existing counter, but not below zero, and returns the new count.
///
/// KEYS: the counter. ARGV: hits, seconds to live. Redis has no command that subtracts and stops at
/// zero, and another charge could run between two commands. EXPIRE tests whether the counter
/// exists, so that a refund creates none and needs no other permission.
const REFUND_SCRIPT: &str = "\
if redis.call('EXPIRE', KEYS[1], ARGV[2]) == 0 then
  return 0
end
local after = redis.call('DECRBY', KEYS[1], ARGV[1])
if after < 0 then
  redis.call('SET', KEYS[1], '0', 'EX', ARGV[2])
  after = 0
end
return after";

/// Start of the error with which Redis refuses to let a counter exceed [`MAX_COUNT`].
const OVERFLOW_ERROR: &str = "ERR increment or decrement would overflow";

/// Bytes of an encoded `INCRBY` and `EXPIRE` of a typical key.
const CHARGE_BYTES: usize = 192;

/// Counters in Redis, under the reference's key names.
///
/// Hits are added with `INCRBY` and `EXPIRE`. A refund is one script, and so are the units of jobs
/// of one counter. All commands of a request are sent in one batch.
#[derive(Debug, Clone)]
pub struct RedisStore {
    main: Client,
    per_second: Option<Client>,
}

/// One value for each of the two clients.
#[derive(Debug, Default)]
struct PerClient<T> {
    main: T,
    per_second: T,
}

impl RedisStore {
    /// Creates a store on `main`. Counters of per-second limits are on `per_second`, if there is
    /// one.
    #[must_use]
    pub fn new(main: Client, per_second: Option<Client>) -> Self {
        Self { main, per_second }
    }

    pub(crate) async fn read(
        &self,
        charges: &[Charge<'_>],
        deadline: Instant,
    ) -> Result<Totals, StoreError> {
        let batch = self.batch(charges, 1, |batch, charge| {
            batch.unit().repeatable("GET", &[Arg::Key(charge.key)]);
        });
        let mut outcomes = self.send(batch, deadline).await.map(Vec::into_iter);
        charges
            .iter()
            .map(|charge| stored_count(&next_outcome(self.for_charge(charge, &mut outcomes))))
            .collect()
    }

    pub(crate) async fn add(
        &self,
        charges: &[Charge<'_>],
        deadline: Instant,
    ) -> Result<Totals, StoreError> {
        let batch = self.batch(charges, 2, |batch, charge| match charge.change {
            CounterChange::Add => push_charge(batch, charge),
            CounterChange::Refund => push_refund(batch, charge),
        });
        let mut outcomes = self.send(batch, deadline).await.map(Vec::into_iter);
        let mut totals = Totals::new();
        for charge in charges {
            let outcomes = self.for_charge(charge, &mut outcomes);
            let outcome = next_outcome(outcomes);
            totals.push(match charge.change {
                CounterChange::Add => count_after_incrby(&outcome)?,
                CounterChange::Refund => count(outcome.integer()?)?,
            });
            if charge.change == CounterChange::Add {
                next_outcome(outcomes).reply()?;
            }
        }
        Ok(totals)
    }

    fn batch<'c>(
        &self,
        charges: &[Charge<'c>],
        commands_each: usize,
        mut add: impl FnMut(&mut Batch, &Charge<'c>),
    ) -> PerClient<Batch> {
        let mut batches = PerClient {
            main: Batch::with_capacity(charges.len() * commands_each, charges.len() * CHARGE_BYTES),
            per_second: Batch::new(),
        };
        for charge in charges {
            add(self.for_charge(charge, &mut batches), charge);
        }
        batches
    }

    /// Returns the value for the client that a charge belongs to.
    fn for_charge<'p, T>(&self, charge: &Charge<'_>, both: &'p mut PerClient<T>) -> &'p mut T {
        match (&self.per_second, charge.window.unit) {
            (Some(_), Unit::Second) => &mut both.per_second,
            _ => &mut both.main,
        }
    }

    /// Sends both batches concurrently. An empty one is not sent.
    async fn send(&self, batches: PerClient<Batch>, deadline: Instant) -> PerClient<Vec<Outcome>> {
        let PerClient { main, per_second } = batches;
        match &self.per_second {
            Some(client) if !per_second.is_empty() => {
                let (main, per_second) = tokio::join!(
                    send(&self.main, main, deadline),
                    send(client, per_second, deadline)
                );
                PerClient { main, per_second }
            }
            _ => PerClient {
                main: send(&self.main, main, deadline).await,
                per_second: Vec::new(),
            },
        }
    }
}

impl<T> PerClient<T> {
    fn map<U>(self, f: impl Fn(T) -> U) -> PerClient<U> {
        PerClient {
            main: f(self.main),
            per_second: f(self.per_second),
        }
    }
}

/// Adds the commands of a charge that is added in full.
fn push_charge(batch: &mut Batch, charge: &Charge<'_>) {
    let key = Arg::Key(charge.key);
    let time_to_live = Arg::Integer(charge.time_to_live.into());
    batch
        .unit()
        .command("INCRBY", &[key, Arg::Integer(charge.hits)])
        .repeatable("EXPIRE", &[key, time_to_live]);
}

fn push_refund(batch: &mut Batch, charge: &Charge<'_>) {
    let arguments = [
        Arg::Bytes(REFUND_SCRIPT.as_bytes()),
        Arg::Integer(1),
        Arg::Key(charge.key),
        Arg::Integer(charge.hits),
        Arg::Integer(charge.time_to_live.into()),
    ];
    batch.unit().command("EVAL", &arguments);
}

async fn send(client: &Client, batch: Batch, deadline: Instant) -> Vec<Outcome> {
    if batch.is_empty() {
        Vec::new()
    } else {
        client.send(batch, deadline).await
    }
}

fn next_outcome(outcomes: &mut std::vec::IntoIter<Outcome>) -> Outcome {
    outcomes.next().expect("the engine answers every command")
}

fn count(value: i64) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| StoreError::NotACount {
        value: value.to_string(),
    })
}

/// Returns the count after an INCRBY. A counter without room for the hits is full, which is over
/// every limit: a client must not disable its limit by counting too much.
fn count_after_incrby(outcome: &Outcome) -> Result<u64, StoreError> {
    match outcome {
        Outcome::ServerError(error) if error.message.starts_with(OVERFLOW_ERROR) => Ok(MAX_COUNT),
        outcome => count(outcome.integer()?),
    }
}

/// Returns the count in the reply of a GET.
fn stored_count(outcome: &Outcome) -> Result<u64, StoreError> {
    let Some(bytes) = outcome.bytes()? else {
        return Ok(0);
    };
    let text = String::from_utf8_lossy(bytes);
    let value = text.parse().map_err(|_| StoreError::NotACount {
        value: text.chars().take(40).collect(),
    })?;
    count(value)
}
