//! Permits in Redis. The permits of a limit are on the node of the partition that the limit's name
//! decides. One script changes them there, by the clock of that node. A call for many limits is one
//! round trip to each node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tidegate_pipeline::{Arg, Batch, Outcome, Reply, UnitBuilder};

use super::apply::ScriptArg;
use super::read::reply::{self, array, count, reason, unavailable, unexpected};
use super::{RedisStore, key_arg, lacks_script, wrote_nothing};
use crate::codec::StoreError;
use crate::model::{LeaseRef, Partition, Timestamp};
use crate::store::change_notice::release::Release;
use crate::store::{
    PermitCount, PermitExtension, PermitHolders, PermitRequest, ServerId, permit_duration,
    split_result,
};

const SCRIPT: &[u8] = include_bytes!("permits/permits.lua");

/// The longest time for which a permit is held, in milliseconds: 270 years. Redis accepts somewhat
/// more.
const MAX_PERMIT_MILLIS: u64 = 1 << 43;

/// A script call for one limit.
struct PermitCall<'a> {
    limit: &'a str,
    arguments: Vec<ScriptArg<'a>>,
}

impl<'a> PermitCall<'a> {
    fn new(
        operation: &'static [u8],
        limit: &'a str,
        now: Timestamp,
        how: impl IntoIterator<Item = ScriptArg<'a>>,
        leases: impl IntoIterator<Item = LeaseRef>,
    ) -> Self {
        let mut arguments = vec![
            ScriptArg::Bytes(operation),
            ScriptArg::Integer(now.millis()),
        ];
        arguments.extend(how);
        arguments.extend(
            leases
                .into_iter()
                .map(|lease| ScriptArg::Text(lease.text())),
        );
        Self { limit, arguments }
    }
}

/// Whether an answer counts only when replicas have the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replication {
    Required,
    NotRequired,
}

/// Positions of the permits of each limit.
fn by_limit<'a>(permits: &[(&'a str, LeaseRef)]) -> BTreeMap<&'a str, Vec<usize>> {
    let mut limits: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, (limit, _)) in permits.iter().enumerate() {
        limits.entry(limit).or_default().push(at);
    }
    limits
}

/// Distributes the answers for the permits of each limit to their positions.
fn for_each_permit<T>(
    limits: &BTreeMap<&str, Vec<usize>>,
    answers: impl Iterator<Item = Result<Vec<T>, StoreError>>,
) -> Vec<Result<T, StoreError>> {
    let mut each: Vec<(usize, Result<T, StoreError>)> = Vec::new();
    for (positions, answer) in limits.values().zip(answers) {
        let answers = split_result(positions.len(), answer);
        each.extend(positions.iter().copied().zip(answers));
    }
    each.sort_unstable_by_key(|&(at, _)| at);
    each.into_iter().map(|(_, answer)| answer).collect()
}

fn millis(time: Duration) -> ScriptArg<'static> {
    ScriptArg::Integer(
        u64::try_from(time.as_millis())
            .unwrap_or(MAX_PERMIT_MILLIS)
            .min(MAX_PERMIT_MILLIS),
    )
}

/// The reply of Redis, or an error.
fn reply_or_error(outcome: &Outcome) -> Result<Reply, StoreError> {
    match outcome {
        Outcome::Reply(reply) => Ok(reply.clone()),
        Outcome::ServerError(error)
            if error.message.starts_with("NOPERM") || error.message.contains("can't run this") =>
        {
            let reason = format!(
                "{}; limits of jobs at work need GET, SET, UNLINK, PEXPIRE, ZADD, ZCARD, ZRANGE, ZREM, ZREMRANGEBYSCORE and ZSCORE",
                reason(outcome)
            );
            Err(StoreError::unknown(reason))
        }
        failed if wrote_nothing(failed) => Err(unavailable(failed)),
        failed => Err(StoreError::unknown(reason(failed))),
    }
}

/// A number of holders.
fn parse_number(reply: &Reply) -> Result<u32, StoreError> {
    Ok(u32::try_from(count(reply)?).unwrap_or(u32::MAX))
}

fn parse_count(reply: &Reply) -> Result<PermitCount, StoreError> {
    let [granted, in_use, Reply::Integer(next_expiry)] = array(reply)?[..] else {
        return Err(unexpected("places that were given", reply));
    };
    let next_expiry = u64::try_from(*next_expiry).ok().map(Duration::from_millis);
    Ok(PermitCount {
        granted: count(granted)? as usize,
        in_use: parse_number(in_use)?,
        next_expiry,
    })
}

fn parse_extensions(reply: &Reply, number: usize) -> Result<Vec<PermitExtension>, StoreError> {
    let permits = array(reply)?;
    if permits.len() != number {
        return Err(unexpected("which places last longer", reply));
    }
    let one = |permit: &Reply| {
        Ok(if count(permit)? > 0 {
            PermitExtension::Extended
        } else {
            PermitExtension::Expired
        })
    };
    permits.iter().map(|permit| one(permit)).collect()
}

fn parse_holders(reply: &Reply) -> Result<PermitHolders, StoreError> {
    let [in_use, first] = array(reply)?[..] else {
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
        number: parse_number(in_use)?,
        first,
    })
}

impl RedisStore {
    fn partition_of_limit(&self, limit: &str) -> Partition {
        Partition::for_name(limit, self.partitions())
    }

    pub(crate) async fn acquire_permits(
        &self,
        requests: &[PermitRequest<'_>],
        by: ServerId,
        now: Timestamp,
        lease: Duration,
    ) -> Vec<Result<PermitCount, StoreError>> {
        let calls = requests.iter().map(|request| {
            let how = [
                ScriptArg::Integer(request.permits.into()),
                millis(permit_duration(lease)),
                ScriptArg::Text(by.to_string()),
            ];
            let leases = request.leases.iter().copied();
            PermitCall::new(b"hold", request.limit, now, how, leases)
        });
        let answers = self.call_script(calls, Replication::Required).await;
        answers
            .into_iter()
            .map(|answer| parse_count(&answer?))
            .collect()
    }

    pub(crate) async fn extend_permits(
        &self,
        permits: &[(&str, LeaseRef)],
        now: Timestamp,
        lease: Duration,
    ) -> Vec<Result<PermitExtension, StoreError>> {
        let limits = by_limit(permits);
        let calls = limits.iter().map(|(limit, positions)| {
            PermitCall::new(
                b"extend",
                limit,
                now,
                [millis(permit_duration(lease))],
                positions.iter().map(|&at| permits[at].1),
            )
        });
        let answers = self.call_script(calls, Replication::Required).await;
        let extensions = answers
            .into_iter()
            .zip(limits.values())
            .map(|(answer, positions)| parse_extensions(&answer?, positions.len()));
        for_each_permit(&limits, extensions)
    }

    pub(crate) async fn release_permits(
        &self,
        permits: &[(&str, LeaseRef)],
        by: ServerId,
        now: Timestamp,
    ) -> Vec<Result<u32, StoreError>> {
        let limits = by_limit(permits);
        let command = self.publish_command().unwrap_or_default().as_bytes();
        let calls = limits.iter().map(|(limit, positions)| {
            let channel = self.keys.channel(self.partition_of_limit(limit));
            let message = ScriptArg::Packed(Release::write(by, limit));
            let how = [
                ScriptArg::Text(by.to_string()),
                ScriptArg::Bytes(command),
                ScriptArg::Text(channel),
                message,
            ];
            PermitCall::new(
                b"release",
                limit,
                now,
                how,
                positions.iter().map(|&at| permits[at].1),
            )
        });
        // It does not wait for replicas: a permit that a failover restores expires by itself.
        let answers = self.call_script(calls, Replication::NotRequired).await;
        let answers = answers.into_iter().zip(limits.values());
        let in_use = answers.map(|(answer, positions)| {
            let in_use = self.permits_in_use(&answer?)?;
            Ok(vec![in_use; positions.len()])
        });
        for_each_permit(&limits, in_use)
    }

    /// The number in the answer to a release. Probes publishing if the release was not announced.
    fn permits_in_use(&self, answer: &Reply) -> Result<u32, StoreError> {
        let [in_use, not_announced] = array(answer)?[..] else {
            return Err(unexpected("places that are taken", answer));
        };
        if count(not_announced)? > 0 {
            self.publish_support.request_probe();
        }
        parse_number(in_use)
    }

    pub(crate) async fn permit_holders(
        &self,
        limits: &[&str],
        now: Timestamp,
        limit: usize,
    ) -> Vec<Result<PermitHolders, StoreError>> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let calls = limits.iter().map(|name| {
            PermitCall::new(b"list", name, now, [ScriptArg::Integer(limit.into())], [])
        });
        let answers = self.call_script(calls, Replication::NotRequired).await;
        answers
            .into_iter()
            .map(|answer| parse_holders(&answer?))
            .collect()
    }

    /// Calls the script once for each limit.
    async fn call_script<'a>(
        &self,
        calls: impl Iterator<Item = PermitCall<'a>>,
        replication: Replication,
    ) -> Vec<Result<Reply, StoreError>> {
        let calls: Vec<PermitCall<'_>> = calls.collect();
        if let Err(error) = self.ensure_compatible() {
            return vec![Err(error); calls.len()];
        }
        let deadline = Instant::now() + self.timeout;
        let all: Vec<&PermitCall<'_>> = calls.iter().collect();
        let digest = self.load_permits_digest(deadline).await;
        let digest = digest.as_deref();
        let mut outcomes = self.run_calls(&all, digest, replication, deadline).await;
        let missing: Vec<usize> = (0..all.len())
            .filter(|&at| lacks_script(&outcomes[at].0))
            .collect();
        if !missing.is_empty() {
            let again: Vec<&PermitCall<'_>> = missing.iter().map(|&at| all[at]).collect();
            // EVAL with the text also makes Redis cache the script.
            let retried = self.run_calls(&again, None, replication, deadline).await;
            for (at, outcome) in missing.into_iter().zip(retried) {
                outcomes[at] = outcome;
            }
        }
        outcomes
            .into_iter()
            .map(|(outcome, replicated)| {
                reply_or_error(&outcome).and_then(|reply| replicated.map(|()| reply))
            })
            .collect()
    }

    /// Runs calls of the script, by its digest or its text. Returns the outcome of each,
    /// and whether enough replicas have its writes.
    async fn run_calls(
        &self,
        calls: &[&PermitCall<'_>],
        digest: Option<&[u8]>,
        replication: Replication,
        deadline: Instant,
    ) -> Vec<(Outcome, Result<(), StoreError>)> {
        let mut partitions: BTreeMap<Partition, Vec<usize>> = BTreeMap::new();
        for (index, call) in calls.iter().enumerate() {
            partitions
                .entry(self.partition_of_limit(call.limit))
                .or_default()
                .push(index);
        }
        let add = |batch: &mut Batch, indexes: &[usize]| {
            let calls = indexes.iter().map(|&index| calls[index]);
            let unit = self.append_calls(batch.unit(), calls, digest);
            if replication == Replication::Required {
                self.wait_for_replicas(unit);
            }
        };
        let found: Vec<(Outcome, Result<(), StoreError>)> =
            if replication == Replication::Required && self.replicas() > 0 {
                // On one connection the waits would come one after the other.
                let sent = partitions.values().map(|indexes| {
                    let mut batch = Batch::new();
                    add(&mut batch, indexes);
                    self.send_to_replicas(batch, deadline)
                });
                let each = join_all(sent).await.into_iter();
                each.flat_map(|(outcomes, replicated)| {
                    outcomes
                        .into_iter()
                        .map(move |one| (one, replicated.clone()))
                })
                .collect()
            } else {
                let mut batch = Batch::new();
                partitions
                    .values()
                    .for_each(|indexes| add(&mut batch, indexes));
                self.client
                    .send(batch, deadline)
                    .await
                    .into_iter()
                    .map(|outcome| (outcome, Ok(())))
                    .collect()
            };
        let mut found: Vec<_> = partitions.into_values().flatten().zip(found).collect();
        found.sort_unstable_by_key(|&(index, _)| index);
        found.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Adds calls of one partition.
    fn append_calls<'u, 'a>(
        &self,
        mut unit: UnitBuilder<'u>,
        calls: impl Iterator<Item = &'a PermitCall<'a>>,
        digest: Option<&[u8]>,
    ) -> UnitBuilder<'u> {
        let (command, script) = digest.map_or(("EVAL", SCRIPT), |digest| ("EVALSHA", digest));
        for call in calls {
            let keys = self
                .keys
                .permits(self.partition_of_limit(call.limit), call.limit);
            let mut args = vec![Arg::Bytes(script), Arg::Integer(keys.len() as i64)];
            args.extend(keys.iter().map(|key| key_arg(key)));
            args.extend(call.arguments.iter().map(ScriptArg::arg));
            unit = unit.repeatable(command, &args);
        }
        unit
    }

    /// The digest of the script. `None` if Redis does not return it.
    async fn load_permits_digest(&self, deadline: Instant) -> Option<Arc<[u8]>> {
        if let Some(known) = self.permits_digest.get() {
            return Some(Arc::clone(known));
        }
        let mut batch = Batch::new();
        batch
            .unit()
            .repeatable("SCRIPT", &[Arg::Bytes(b"LOAD"), Arg::Bytes(SCRIPT)]);
        let outcome = self.client.send(batch, deadline).await.pop()?;
        let digest: Arc<[u8]> = reply::bytes(outcome.reply().ok()?).ok()??.as_ref().into();
        Some(Arc::clone(self.permits_digest.get_or_init(|| digest)))
    }
}
