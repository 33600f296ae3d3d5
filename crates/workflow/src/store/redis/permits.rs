//! Permits in Redis. The permits of a limit are on the node of the partition that the limit's name
//! decides. One script changes them there, by the clock of that node. A call for many limits is one
//! round trip to each node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tidegate_pipeline::{Arg, Batch, Outcome, Reply, UnitBuilder};

use super::call::piece::ScriptArg;
use super::reply::{self, array, count, reason, unavailable, unexpected};
use super::{RedisStore, is_forgotten, wrote_nothing};
use crate::codec::lease::LeaseRef;
use crate::id::Partition;
use crate::store::change_notice::{Audience, ServerId};
use crate::store::error::StoreError;
use crate::store::permits::{Extended, PermitCount, PermitHolders, PermitRequest, term};
use crate::store::release::Release;
use crate::time::Timestamp;

const SCRIPT: &[u8] = include_bytes!("permits.lua");

/// The longest time for which a permit is held, in milliseconds: 270 years. Redis accepts somewhat
/// more.
const LONGEST: u64 = 1 << 43;

/// A script call for one limit.
struct Ask<'a> {
    set: &'a str,
    word: &'static [u8],
    pieces: Vec<ScriptArg<'a>>,
}

impl<'a> Ask<'a> {
    fn new(
        word: &'static [u8],
        set: &'a str,
        how: impl IntoIterator<Item = ScriptArg<'a>>,
        leases: impl IntoIterator<Item = LeaseRef>,
    ) -> Self {
        let leases = leases
            .into_iter()
            .map(|lease| ScriptArg::Text(lease.text()));
        Self {
            set,
            word,
            pieces: how.into_iter().chain(leases).collect(),
        }
    }
}

/// The script, by its digest or its text.
#[derive(Clone, Copy)]
struct Script<'a> {
    command: &'static str,
    text: &'a [u8],
}

/// Parameters that all script calls of a request share.
#[derive(Clone, Copy)]
struct CallTerms {
    now: Timestamp,
    safe: Safe,
    deadline: Instant,
}

/// Whether an answer counts only when replicas have the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Safe {
    Yes,
    No,
}

/// The answers of script calls, each with its own error.
type Answers = Vec<Result<Reply, StoreError>>;

/// Positions of the permits of each limit.
fn by_set<'a>(places: &[(&'a str, LeaseRef)]) -> BTreeMap<&'a str, Vec<usize>> {
    let mut sets: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, (set, _)) in places.iter().enumerate() {
        sets.entry(set).or_default().push(at);
    }
    sets
}

/// Distributes the answer of each limit to its permits.
fn of_each<T: Copy>(
    places: usize,
    sets: &BTreeMap<&str, Vec<usize>>,
    answers: impl Iterator<Item = Result<T, StoreError>>,
) -> Vec<Result<T, StoreError>> {
    let mut each = vec![None; places];
    for (numbers, answer) in sets.values().zip(answers) {
        numbers
            .iter()
            .for_each(|&at| each[at] = Some(answer.clone()));
    }
    each.into_iter()
        .map(|one| one.expect("each place has a set"))
        .collect()
}

fn millis(time: Duration) -> ScriptArg<'static> {
    ScriptArg::Integer(
        u64::try_from(time.as_millis())
            .unwrap_or(LONGEST)
            .min(LONGEST),
    )
}

/// The reply of Redis, or an error.
fn answered(outcome: &Outcome) -> Result<Reply, StoreError> {
    match outcome {
        Outcome::Reply(reply) => Ok(reply.clone()),
        Outcome::ServerError(error)
            if error.message.starts_with("NOPERM") || error.message.contains("can't run this") =>
        {
            let reason = format!(
                "{}; limits of jobs at work need GET, SET, UNLINK, PEXPIRE, ZADD, ZCARD, ZRANGE, ZREM, ZREMRANGEBYSCORE and ZSCORE",
                reason(outcome)
            );
            Err(StoreError::Unknown { reason })
        }
        failed if wrote_nothing(failed) => Err(unavailable(failed)),
        failed => Err(StoreError::Unknown {
            reason: reason(failed),
        }),
    }
}

/// A number of holders.
fn number(reply: &Reply) -> Result<u32, StoreError> {
    Ok(u32::try_from(count(reply)?).unwrap_or(u32::MAX))
}

fn standing(reply: &Reply) -> Result<PermitCount, StoreError> {
    let [granted, taken, Reply::Integer(next)] = array(reply)?[..] else {
        return Err(unexpected("places that were given", reply));
    };
    let next = u64::try_from(*next).ok().map(Duration::from_millis);
    Ok(PermitCount {
        granted: count(granted)? as usize,
        number: number(taken)?,
        next,
    })
}

fn extended(reply: &Reply, number: usize) -> Result<Vec<Extended>, StoreError> {
    let places = array(reply)?;
    if places.len() != number {
        return Err(unexpected("which places last longer", reply));
    }
    let one = |place: &Reply| {
        Ok(if count(place)? > 0 {
            Extended::Yes
        } else {
            Extended::Gone
        })
    };
    places.iter().map(|place| one(place)).collect()
}

fn holders(reply: &Reply) -> Result<PermitHolders, StoreError> {
    let [taken, first] = array(reply)?[..] else {
        return Err(unexpected("who has places", reply));
    };
    let holder = |(name, until): &(String, String)| {
        // Redis 7.2 and later may write large scores with an exponent.
        let until: Option<f64> = until.parse().ok();
        name.parse()
            .ok()
            .zip(until)
            .map(|(lease, until)| (lease, Timestamp::from_micros(until as u64 * 1_000)))
    };
    let read = |pair| holder(pair).ok_or_else(|| unexpected("leases and their times", reply));
    let mut first = reply::entries(first)?
        .iter()
        .map(read)
        .collect::<Result<Vec<(LeaseRef, Timestamp)>, _>>()?;
    first.sort_by_key(|(_, until)| *until);
    Ok(PermitHolders {
        number: number(taken)?,
        first,
    })
}

impl RedisStore {
    fn partition_of_set(&self, set: &str) -> Partition {
        Partition::of_text(set, self.partitions())
    }

    pub(crate) async fn hold(
        &self,
        holds: &[PermitRequest<'_>],
        by: ServerId,
        now: Timestamp,
        lease: Duration,
    ) -> Vec<Result<PermitCount, StoreError>> {
        let asks = holds.iter().map(|hold| {
            let how = [
                ScriptArg::Integer(hold.most.into()),
                millis(term(lease)),
                ScriptArg::Text(by.to_string()),
            ];
            Ask::new(b"hold", hold.set, how, hold.leases.iter().copied())
        });
        let answers = self.ask(&asks.collect::<Vec<_>>(), now, Safe::Yes).await;
        answers
            .into_iter()
            .map(|answer| standing(&answer?))
            .collect()
    }

    pub(crate) async fn extend_holds(
        &self,
        places: &[(&str, LeaseRef)],
        now: Timestamp,
        lease: Duration,
    ) -> Vec<Result<Extended, StoreError>> {
        let sets = by_set(places);
        let asks = sets.iter().map(|(set, numbers)| {
            Ask::new(
                b"extend",
                set,
                [millis(term(lease))],
                numbers.iter().map(|&at| places[at].1),
            )
        });
        let answers = self.ask(&asks.collect::<Vec<_>>(), now, Safe::Yes).await;
        let mut each: Vec<Result<Extended, StoreError>> = vec![Ok(Extended::Gone); places.len()];
        for (numbers, answer) in sets.values().zip(answers) {
            let found = answer.and_then(|answer| extended(&answer, numbers.len()));
            for (place, &at) in numbers.iter().enumerate() {
                each[at] = found
                    .as_ref()
                    .map(|found| found[place])
                    .map_err(StoreError::clone);
            }
        }
        each
    }

    pub(crate) async fn release(
        &self,
        places: &[(&str, LeaseRef)],
        by: ServerId,
        now: Timestamp,
    ) -> Vec<Result<u32, StoreError>> {
        let sets = by_set(places);
        let command = self.publish_command().unwrap_or_default().as_bytes();
        let asks = sets.iter().map(|(set, numbers)| {
            let channel = self
                .keys
                .channel(self.partition_of_set(set), Audience::Waiting);
            let message = ScriptArg::Packed(Release::write(by, set));
            let how = [
                ScriptArg::Text(by.to_string()),
                ScriptArg::Bytes(command),
                ScriptArg::Text(channel),
                message,
            ];
            Ask::new(b"release", set, how, numbers.iter().map(|&at| places[at].1))
        });
        // It does not wait for replicas: a permit that a failover restores expires by itself.
        let answers = self.ask(&asks.collect::<Vec<_>>(), now, Safe::No).await;
        let left = |answer: Result<Reply, StoreError>| {
            let answer = answer?;
            let [taken, deaf] = array(&answer)?[..] else {
                return Err(unexpected("places that are taken", &answer));
            };
            if count(deaf)? > 0 {
                self.voice.doubt();
            }
            number(taken)
        };
        of_each(places.len(), &sets, answers.into_iter().map(left))
    }

    pub(crate) async fn holders(
        &self,
        sets: &[&str],
        now: Timestamp,
        limit: usize,
    ) -> Vec<Result<PermitHolders, StoreError>> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let asks = sets
            .iter()
            .map(|set| Ask::new(b"list", set, [ScriptArg::Integer(limit.into())], []));
        let answers = self.ask(&asks.collect::<Vec<_>>(), now, Safe::No).await;
        answers
            .into_iter()
            .map(|answer| holders(&answer?))
            .collect()
    }

    /// Calls the script once for each limit.
    async fn ask(&self, asks: &[Ask<'_>], now: Timestamp, safe: Safe) -> Answers {
        if let Err(error) = self.must_fit() {
            return asks.iter().map(|_| Err(error.clone())).collect();
        }
        let deadline = Instant::now() + self.timeout;
        let all: Vec<usize> = (0..asks.len()).collect();
        let digest = self.digest_of_holders(deadline).await;
        let terms = CallTerms {
            now,
            safe,
            deadline,
        };
        let whole = Script {
            command: "EVAL",
            text: SCRIPT,
        };
        let script = digest.as_deref().map_or(whole, |digest| Script {
            command: "EVALSHA",
            text: digest,
        });
        let mut outcomes = self.run_asks(asks, &all, script, terms).await;
        let forgotten: Vec<usize> = all
            .into_iter()
            .filter(|&at| is_forgotten(&outcomes[at].0))
            .collect();
        if !forgotten.is_empty() {
            // EVAL with the text also makes Redis cache the script.
            let again = self.run_asks(asks, &forgotten, whole, terms).await;
            forgotten
                .into_iter()
                .zip(again)
                .for_each(|(at, outcome)| outcomes[at] = outcome);
        }
        outcomes
            .into_iter()
            .map(|(outcome, enough)| answered(&outcome).and_then(|reply| enough.map(|()| reply)))
            .collect()
    }

    /// Runs the chosen calls. Returns the outcome of each, and whether enough replicas have its
    /// writes.
    async fn run_asks(
        &self,
        asks: &[Ask<'_>],
        chosen: &[usize],
        script: Script<'_>,
        terms: CallTerms,
    ) -> Vec<(Outcome, Result<(), StoreError>)> {
        let CallTerms {
            now,
            safe,
            deadline,
        } = terms;
        let mut partitions: BTreeMap<Partition, Vec<usize>> = BTreeMap::new();
        for (place, &at) in chosen.iter().enumerate() {
            partitions
                .entry(self.partition_of_set(asks[at].set))
                .or_default()
                .push(place);
        }
        let add = |batch: &mut Batch, places: &[usize]| {
            let asks = places.iter().map(|&place| &asks[chosen[place]]);
            let unit = self.append_asks(batch.unit(), asks, script, now);
            if safe == Safe::Yes {
                self.wait(unit);
            }
        };
        let found: Vec<(Outcome, Result<(), StoreError>)> =
            if safe == Safe::Yes && self.replicas() > 0 {
                // On one connection the waits would come one after the other.
                let sent = partitions.values().map(|places| {
                    let mut batch = Batch::new();
                    add(&mut batch, places);
                    self.send_to_replicas(batch, deadline)
                });
                let each = join_all(sent).await.into_iter();
                each.flat_map(|(outcomes, enough)| {
                    outcomes.into_iter().map(move |one| (one, enough.clone()))
                })
                .collect()
            } else {
                let mut batch = Batch::new();
                partitions
                    .values()
                    .for_each(|places| add(&mut batch, places));
                self.client
                    .send(batch, deadline)
                    .await
                    .into_iter()
                    .map(|outcome| (outcome, Ok(())))
                    .collect()
            };
        let mut found: Vec<_> = partitions.into_values().flatten().zip(found).collect();
        found.sort_unstable_by_key(|&(place, _)| place);
        found.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Adds calls of one partition.
    fn append_asks<'u, 'a>(
        &self,
        mut unit: UnitBuilder<'u>,
        asks: impl Iterator<Item = &'a Ask<'a>>,
        script: Script<'_>,
        now: Timestamp,
    ) -> UnitBuilder<'u> {
        for ask in asks {
            let keys = self.keys.holders(self.partition_of_set(ask.set), ask.set);
            let mut args = vec![Arg::Bytes(script.text), Arg::Integer(keys.len() as i64)];
            args.extend(keys.iter().map(|key| Arg::Key(key.as_bytes())));
            args.extend([
                Arg::Bytes(ask.word),
                Arg::Integer(i64::try_from(now.millis()).unwrap_or(i64::MAX)),
            ]);
            args.extend(ask.pieces.iter().map(ScriptArg::arg));
            unit = unit.repeatable(script.command, &args);
        }
        unit
    }

    /// The digest of the script. `None` if Redis does not return it.
    async fn digest_of_holders(&self, deadline: Instant) -> Option<Arc<[u8]>> {
        if let Some(known) = self.holders_digest.get() {
            return Some(Arc::clone(known));
        }
        let mut batch = Batch::new();
        batch
            .unit()
            .repeatable("SCRIPT", &[Arg::Bytes(b"LOAD"), Arg::Bytes(SCRIPT)]);
        let outcome = self.client.send(batch, deadline).await.pop()?;
        let digest: Arc<[u8]> = reply::bytes(outcome.reply().ok()?).ok()??.as_ref().into();
        Some(Arc::clone(self.holders_digest.get_or_init(|| digest)))
    }
}
