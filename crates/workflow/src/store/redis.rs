//! The store in Redis. One script applies changes, so that each is written completely or not at
//! all. All other calls are reads of one round trip each.

mod apply;
pub(crate) mod durability;
mod keys;
mod lane_scan;
pub(crate) mod messaging;
mod notes;
mod open;
mod permits;
mod probe;
mod read;
mod registers;
mod replicas;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_pipeline::{Arg, Batch, Client, Outcome};

use self::apply::ScriptCall;
pub(crate) use self::apply::chunked::MAX_INLINE;
use self::keys::{Keys, Set};
use self::messaging::subscription::publish_support::PublishSupport;
use self::open::identity::OpenedStore;
use self::read::reply::{answer, reason, unavailable};
use self::replicas::Replicas;
use super::{Notifier, StoreError};
use crate::codec::{Applied, Change, Format, Schema};
use crate::model::Partition;

/// Workflows in one Redis, or one Redis Cluster. Clones share the client.
#[derive(Debug, Clone)]
pub struct RedisStore {
    client: Client,
    keys: Arc<Keys>,
    schema: Schema,
    timeout: Duration,
    /// The digest of the script `apply.lua` in Redis.
    digest: Arc<[u8]>,
    /// The digest of the script for permits, once a call has needed it.
    permits_digest: Arc<OnceLock<Arc<[u8]>>>,
    identity: Arc<OpenedStore>,
    /// `None` if a write is acknowledged as soon as the primary has it.
    replicas: Option<Replicas>,
    /// Whether and how this server can publish messages to other servers.
    publish_support: Arc<PublishSupport>,
}

/// Options of a store in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisOptions {
    prefix: String,
    partitions: u16,
    timeout: Duration,
}

/// The reason why options are invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RedisOptionsError {
    /// The number of partitions is not a power of two from 1 to 256.
    #[error("{partitions} partitions: it must be a power of two from 1 to 256")]
    Partitions {
        /// The number of partitions in the options.
        partitions: u16,
    },
    /// The prefix contains braces, which would change the slots of keys.
    #[error("the prefix '{prefix}' of keys must not contain braces")]
    Prefix {
        /// The prefix in the options.
        prefix: String,
    },
}

impl RedisOptions {
    /// Keys begin with `prefix`. A new store has `partitions` partitions, a power of two from 1 to
    /// 256. A call takes at most `timeout`.
    ///
    /// # Errors
    /// `partitions` is no power of two from 1 to 256, or the prefix has braces.
    pub fn new(
        prefix: impl Into<String>,
        partitions: u16,
        timeout: Duration,
    ) -> Result<Self, RedisOptionsError> {
        let prefix = prefix.into();
        if !partitions.is_power_of_two() || partitions > keys::MAX_PARTITIONS {
            return Err(RedisOptionsError::Partitions { partitions });
        }
        if prefix.contains(['{', '}']) {
            return Err(RedisOptionsError::Prefix { prefix });
        }
        Ok(Self {
            prefix,
            partitions,
            timeout,
        })
    }
}

impl Default for RedisOptions {
    /// The prefix `tg:`, 16 partitions and a timeout of 2 s.
    fn default() -> Self {
        Self {
            prefix: "tg:".to_owned(),
            partitions: 16,
            timeout: Duration::from_secs(2),
        }
    }
}

impl RedisStore {
    /// The store with its own connections, on the current runtime.
    pub(crate) fn for_new_thread(&self) -> Self {
        let replicas = self.replicas.as_ref().map(Replicas::for_new_thread);
        Self {
            client: self.client.for_new_thread(),
            replicas,
            ..self.clone()
        }
    }

    /// The clients that own the store's connections.
    pub(crate) fn clients(&self) -> Vec<Client> {
        let replicas = self.replicas.as_ref().map(Replicas::client);
        [&self.client]
            .into_iter()
            .chain(replicas)
            .cloned()
            .collect()
    }

    pub(crate) fn partitions(&self) -> u16 {
        self.keys.partitions()
    }

    pub(crate) fn format(&self) -> Format {
        self.schema.format()
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn send(&self, batch: Batch) -> Vec<Outcome> {
        self.client.send(batch, Instant::now() + self.timeout).await
    }

    /// Sends one command, which may be repeated.
    async fn command(&self, name: &'static str, args: &[Arg<'_>]) -> Outcome {
        let mut batch = Batch::new();
        batch.unit().repeatable(name, args);
        let mut outcomes = self.send(batch).await;
        outcomes.pop().expect("one command has one outcome")
    }

    pub(crate) async fn apply(
        &self,
        partition: Partition,
        changes: &[Change],
        notifier: Option<&Notifier>,
    ) -> Result<Vec<Applied>, StoreError> {
        self.ensure_compatible()?;
        let written = if changes.iter().any(apply::chunked::is_large) {
            self.write_chunked(partition, changes, notifier).await?
        } else {
            self.write(partition, changes, notifier).await?
        };
        let is_missing = |(change, applied): (&Change, &Applied)| {
            change.expected.is_some() && *applied == Applied::Conflict(None)
        };
        // An expected workflow does not exist: another server may have removed it, or Redis has
        // lost all data. The identity of the store shows which.
        if written.may_have_lost_data || changes.iter().zip(&written.applied).any(is_missing) {
            self.verify_now()
                .await
                .map_err(|error| StoreError::unknown(error.to_string()))?;
        }
        Ok(written.applied)
    }

    async fn write(
        &self,
        partition: Partition,
        changes: &[Change],
        notifier: Option<&Notifier>,
    ) -> Result<WriteOutcome, StoreError> {
        let mut calls = apply::calls(&self.keys, changes);
        if let Some(notifier) = notifier {
            self.announce(partition, changes, notifier, &mut calls);
        }
        let adds_long_row = self.identity.lacks_long_row(partition)
            && calls.iter_mut().any(ScriptCall::lengthen_timers);
        let sets = Set::ALL.map(|set| self.keys.set(partition, set));
        let run = self.run(&calls, &sets, Instant::now() + self.timeout).await;
        let applied = applied(&calls, &run.outcomes)?;
        if !applied.iter().all(|applied| {
            matches!(
                applied,
                Applied::Conflict(_) | Applied::Behind(_) | Applied::MustReload
            )
        }) {
            run.replicated?;
        }
        if adds_long_row && applied.iter().all(|applied| *applied == Applied::Done) {
            self.identity.record_long_row(partition, true);
        }
        if run.outcomes.iter().any(apply::was_not_announced) {
            self.publish_support.request_probe();
        }
        // An acknowledged write must be in the store that other servers use.
        let found_empty =
            notifier.is_some() && run.outcomes.iter().any(apply::found_empty_partition);
        if found_empty && !adds_long_row {
            self.identity.record_long_row(partition, false);
        }
        Ok(WriteOutcome {
            applied,
            may_have_lost_data: run.restarted || found_empty,
        })
    }

    /// Runs calls of the script.
    async fn run(
        &self,
        calls: &[ScriptCall<'_>],
        sets: &[String; Set::ALL.len()],
        deadline: Instant,
    ) -> ScriptRun {
        let mut batch = Batch::new();
        let mut unit = batch.unit();
        for call in calls {
            unit = call.append(unit, "EVALSHA", &self.digest, sets);
        }
        self.wait_for_replicas(unit);
        let (mut outcomes, mut replicated) = self.send_to_replicas(batch, deadline).await;
        let missing: Vec<usize> = (0..outcomes.len())
            .filter(|&at| lacks_script(&outcomes[at]))
            .collect();
        let restarted = !missing.is_empty();
        if restarted {
            // EVAL with the text also makes Redis cache the script.
            let mut batch = Batch::new();
            let mut unit = batch.unit();
            for &at in &missing {
                unit = calls[at].append(unit, "EVAL", apply::SCRIPT.as_bytes(), sets);
            }
            self.wait_for_replicas(unit);
            let (retried, replicated_again) = self.send_to_replicas(batch, deadline).await;
            replicated = replicated.and(replicated_again);
            missing
                .into_iter()
                .zip(retried)
                .for_each(|(at, outcome)| outcomes[at] = outcome);
        }
        ScriptRun {
            outcomes,
            restarted,
            replicated,
        }
    }
}

/// A key as an argument.
fn key_arg(key: &str) -> Arg<'_> {
    Arg::Key(key.as_bytes())
}

/// A text as an argument.
fn text_arg(text: &str) -> Arg<'_> {
    Arg::Bytes(text.as_bytes())
}

/// The outcomes of calls of the script.
struct ScriptRun {
    outcomes: Vec<Outcome>,
    /// Whether Redis did not have the script.
    restarted: bool,
    /// Whether enough replicas have the writes.
    replicated: Result<(), StoreError>,
}

/// The outcomes of changes.
pub(crate) struct WriteOutcome {
    applied: Vec<Applied>,
    /// Whether Redis may have lost its data: it was restarted, or workflows were created in a
    /// partition that had none.
    may_have_lost_data: bool,
}

/// Whether Redis does not have the script, because it was restarted or replaced.
fn lacks_script(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::ServerError(error) if error.message.starts_with("NOSCRIPT"))
}

/// Whether it is certain that nothing was written. These errors end a script at its first write or
/// before. Any other error may come after a write, for example a missing permission for a later
/// command.
fn wrote_nothing(outcome: &Outcome) -> bool {
    const BEFORE_WRITES: [&str; 5] = ["NOSCRIPT", "OOM", "MISCONF", "NOREPLICAS", "NOAUTH"];
    match outcome {
        Outcome::NotSent(_) | Outcome::Rejected(_) => true,
        Outcome::ServerError(error) => BEFORE_WRITES
            .iter()
            .any(|code| error.message.starts_with(code)),
        Outcome::Reply(_) | Outcome::Unknown(_) => false,
    }
}

/// Adds advice to a permission error, because Redis does not name the forbidden command.
fn with_advice(reason: String) -> String {
    if !reason.contains("can't run this command") && !reason.contains("NOPERM") {
        return reason;
    }
    format!(
        "{reason}; the script needs GET, MGET, EXISTS, HGET, HLEN, HMGET, HGETALL, HSET, HDEL, SET, MSET, UNLINK, PERSIST, \
         PEXPIRE, RENAME, ZADD and ZREM"
    )
}

/// The outcomes of all changes, if all calls were answered.
fn applied(calls: &[ScriptCall<'_>], outcomes: &[Outcome]) -> Result<Vec<Applied>, StoreError> {
    match outcomes.iter().find(|outcome| outcome.reply().is_err()) {
        Some(failed) if outcomes.iter().all(wrote_nothing) => Err(unavailable(failed)),
        Some(failed) => {
            let stopped = |outcome: &&Outcome| {
                matches!(outcome, Outcome::ServerError(_)) && !wrote_nothing(outcome)
            };
            Err(match outcomes.iter().find(stopped) {
                Some(stopped) => StoreError::PartialWrite {
                    reason: with_advice(reason(stopped)),
                },
                None => StoreError::unknown(reason(failed)),
            })
        }
        None => {
            let mut all = Vec::new();
            for (call, outcome) in calls.iter().zip(outcomes) {
                all.extend(call.outcomes(answer(outcome)?)?);
            }
            all.sort_unstable_by_key(|&(place, _)| place);
            Ok(all.into_iter().map(|(_, applied)| applied).collect())
        }
    }
}
