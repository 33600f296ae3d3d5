//! The store in Redis. One script applies changes, so that each is written completely or not at
//! all. All other calls are reads of one round trip each.

mod call;
mod chunked;
pub(crate) mod durability;
mod excerpts;
mod identity;
mod keys;
mod lane_scan;
mod notes;
mod open;
mod permits;
mod probe;
mod read;
mod replicas;
mod reply;
mod servers;
mod shared_tables;
pub(crate) mod subscription;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_pipeline::{Batch, Client, Outcome};

use self::call::ScriptCall;
pub(crate) use self::chunked::LARGE;
use self::identity::Identity;
use self::keys::{Keys, Set};
use self::replicas::Replicas;
use self::reply::{answer, reason, unavailable};
use self::subscription::publish_support::PublishSupport;
use super::change_notice::Notifier;
use super::error::StoreError;
use crate::codec::change::{Applied, Change};
use crate::codec::format::{Format, Schema};
use crate::id::Partition;

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
    holders_digest: Arc<OnceLock<Arc<[u8]>>>,
    identity: Arc<Identity>,
    /// `None` if a write is acknowledged as soon as the primary has it.
    replicas: Option<Replicas>,
    /// Whether and how this server can publish messages to other servers.
    voice: Arc<PublishSupport>,
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
    pub(crate) fn again(&self) -> Self {
        let replicas = self.replicas.as_ref().map(Replicas::again);
        Self {
            client: self.client.for_new_thread(),
            replicas,
            ..self.clone()
        }
    }

    /// The clients that own the store's connections.
    pub(crate) fn clients(&self) -> Vec<Client> {
        let replicas = self.replicas.as_ref().map(Replicas::client);
        [Some(&self.client), replicas]
            .into_iter()
            .flatten()
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

    pub(crate) async fn apply(
        &self,
        partition: Partition,
        changes: &[Change],
        announcer: Option<&Notifier>,
    ) -> Result<Vec<Applied>, StoreError> {
        self.must_fit()?;
        let Written {
            applied,
            suspicious,
        } = if changes.iter().any(chunked::is_large) {
            self.write_in_pieces(partition, changes, announcer).await?
        } else {
            self.write(partition, changes, announcer).await?
        };
        let gone = |(change, applied): (&Change, &Applied)| {
            change.expected.is_some() && *applied == Applied::Conflict(None)
        };
        // An expected workflow does not exist: another server may have removed it, or Redis has
        // lost all data. The identity of the store shows which.
        if suspicious || changes.iter().zip(&applied).any(gone) {
            self.look_at_once()
                .await
                .map_err(|error| StoreError::Unknown {
                    reason: error.to_string(),
                })?;
        }
        Ok(applied)
    }

    async fn write(
        &self,
        partition: Partition,
        changes: &[Change],
        announcer: Option<&Notifier>,
    ) -> Result<Written, StoreError> {
        let mut calls = call::calls(&self.keys, changes);
        if let Some(announcer) = announcer {
            self.announce(partition, changes, announcer, &mut calls);
        }
        let lengthened = self.identity.lacks_long_row(partition)
            && calls.iter_mut().any(ScriptCall::lengthen_timers);
        let sets = Set::ALL.map(|set| self.keys.set(partition, set));
        let Ran {
            outcomes,
            restarted,
            enough,
        } = self.run(&calls, &sets, Instant::now() + self.timeout).await;
        let applied = applied(&calls, &outcomes)?;
        if !applied.iter().all(|applied| {
            matches!(
                applied,
                Applied::Conflict(_) | Applied::Behind(_) | Applied::Elsewhere
            )
        }) {
            enough?;
        }
        if lengthened && applied.iter().all(|applied| *applied == Applied::Done) {
            self.identity.note_long_row(partition, true);
        }
        if outcomes.iter().any(call::was_not_told) {
            self.voice.doubt();
        }
        // An acknowledged write must be in the store that other servers use.
        let emptied = announcer.is_some() && outcomes.iter().any(call::was_empty);
        if emptied && !lengthened {
            self.identity.note_long_row(partition, false);
        }
        Ok(Written {
            applied,
            suspicious: restarted || emptied,
        })
    }

    /// Runs calls of the script.
    async fn run(
        &self,
        calls: &[ScriptCall<'_>],
        sets: &[String; Set::ALL.len()],
        deadline: Instant,
    ) -> Ran {
        let mut batch = Batch::new();
        let mut unit = batch.unit();
        for call in calls {
            unit = call.append(unit, "EVALSHA", &self.digest, sets);
        }
        self.wait(unit);
        let (mut outcomes, mut enough) = self.send_to_replicas(batch, deadline).await;
        let forgotten: Vec<usize> = (0..outcomes.len())
            .filter(|&at| is_forgotten(&outcomes[at]))
            .collect();
        let restarted = !forgotten.is_empty();
        if restarted {
            // EVAL with the text also makes Redis cache the script.
            let mut batch = Batch::new();
            let mut unit = batch.unit();
            for &at in &forgotten {
                unit = calls[at].append(unit, "EVAL", call::SCRIPT.as_bytes(), sets);
            }
            self.wait(unit);
            let (again, enough_of_these) = self.send_to_replicas(batch, deadline).await;
            enough = enough.and(enough_of_these);
            forgotten
                .into_iter()
                .zip(again)
                .for_each(|(at, outcome)| outcomes[at] = outcome);
        }
        Ran {
            outcomes,
            restarted,
            enough,
        }
    }
}

/// The outcomes of calls of the script.
struct Ran {
    outcomes: Vec<Outcome>,
    /// Whether Redis did not have the script.
    restarted: bool,
    /// Whether enough replicas have the writes.
    enough: Result<(), StoreError>,
}

/// The outcomes of changes.
struct Written {
    applied: Vec<Applied>,
    /// Whether Redis may have lost its data: it was restarted, or workflows were created in a
    /// partition that had none.
    suspicious: bool,
}

/// Whether Redis does not have the script, because it was restarted or replaced.
fn is_forgotten(outcome: &Outcome) -> bool {
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
                Some(stopped) => StoreError::Torn {
                    reason: with_advice(reason(stopped)),
                },
                None => StoreError::Unknown {
                    reason: reason(failed),
                },
            })
        }
        None => {
            let mut all = Vec::new();
            for (call, outcome) in calls.iter().zip(outcomes) {
                all.extend(call.answer(answer(outcome)?)?);
            }
            all.sort_unstable_by_key(|&(place, _)| place);
            Ok(all.into_iter().map(|(_, applied)| applied).collect())
        }
    }
}
