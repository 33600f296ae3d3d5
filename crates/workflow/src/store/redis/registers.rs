//! The registers in Redis. The entries of a register are a hash. Its names are also in a sorted set
//! with one score, so that they can be read in pages. A second hash has the times at which they
//! were registered.
//!
//! In the sorted set, `n` and a name stand for the name, `p` and a name for a name whose value is
//! `paused`. `!` marks that the set is complete.
//!
//! The policies of queues and handlers are a hash, too.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tidegate_pipeline::{Arg, Batch, Outcome};

use super::read::reply::{self, answer, reason, unavailable};
use super::{RedisStore, key_arg, text_arg};
use crate::codec::StoreError;
use crate::model::Timestamp;
use crate::store::{PAUSED, Register, RegisteredName};

/// The registers, in the order of their numbers.
pub(super) const REGISTERS: [Register; 2] = [Register::Queues, Register::Names];

/// The script that removes names.
const REMOVE_SCRIPT: &[u8] = include_bytes!("registers/forget.lua");

/// The row that marks a complete sorted set.
const COMPLETE_ROW: &[u8] = b"!";
const NAME_ROW: u8 = b'n';
const PAUSED_ROW: u8 = b'p';

/// Names that one command writes.
const NAMES_PER_COMMAND: usize = 1_024;

fn row(kind: u8, name: &str) -> Vec<u8> {
    [&[kind], name.as_bytes()].concat()
}

/// The rows of entries.
fn rows_of(entries: &[(String, String)]) -> Vec<Vec<u8>> {
    let paused = entries
        .iter()
        .filter(|(_, value)| value == PAUSED)
        .map(|(name, _)| row(PAUSED_ROW, name));
    entries
        .iter()
        .map(|(name, _)| row(NAME_ROW, name))
        .chain(paused)
        .collect()
}

/// Rows with their score, which is 0 for all.
fn scored(rows: &[Vec<u8>]) -> impl Iterator<Item = Arg<'_>> {
    rows.iter()
        .flat_map(|row| [Arg::Integer(0), Arg::Bytes(row)])
}

/// A command with a key and further arguments.
fn args<'a>(key: &'a str, others: impl IntoIterator<Item = Arg<'a>>) -> Vec<Arg<'a>> {
    let key = key_arg(key);
    [key].into_iter().chain(others).collect()
}

/// The arguments of a range of the sorted set, with an optional limit.
fn range<'a>(key: &'a str, bounds: &'a [Vec<u8>; 2], limit: &'a [Arg<'a>]) -> Vec<Arg<'a>> {
    let [from, to] = bounds.each_ref().map(|bound| Arg::Bytes(bound));
    args(
        key,
        [from, to, Arg::Bytes(b"BYLEX")]
            .into_iter()
            .chain(limit.iter().copied()),
    )
}

/// The bounds of the rows of a kind that follow a name.
fn after(kind: u8, name: Option<&str>) -> [Vec<u8>; 2] {
    [
        [&b"("[..], &row(kind, name.unwrap_or_default())].concat(),
        vec![b'(', kind + 1],
    ]
}

fn names_of(outcome: &Outcome) -> Result<Vec<String>, StoreError> {
    let rows = reply::strings(answer(outcome)?)?;
    Ok(rows
        .iter()
        .map(|row| String::from_utf8_lossy(&row[1..]).into_owned())
        .collect())
}

impl RedisStore {
    /// The values of names in a hash.
    async fn values(&self, key: &str, names: &[String]) -> Result<Vec<Option<String>>, StoreError> {
        let names = names.iter().map(|name| text_arg(name));
        let found = self.command("HMGET", &args(key, names)).await;
        let values = reply::array(answer(&found)?)?.into_iter();
        values.map(reply::text).collect()
    }

    /// Whether the names of a register can be read in order.
    fn is_ordered(&self, register: Register) -> bool {
        self.identity.ordered[register as usize].load(Relaxed)
    }

    /// Requests the number of names of a register, in the hash and in the sorted set.
    pub(super) fn request_sizes(&self, batch: &mut Batch, register: Register) {
        let key = self.keys.register(register);
        let [index, _] = self.keys.register_indexes(register);
        batch.unit().repeatable("HLEN", &[key_arg(&key)]);
        batch.unit().repeatable(
            "ZLEXCOUNT",
            &args(&index, [b"[!".as_slice(), b"(o"].map(Arg::Bytes)),
        );
    }

    /// Repairs sorted sets that lack names, and records losses. Returns the number of names of each
    /// register. A number that cannot be read counts as the maximum, because the permissions of the
    /// Redis user may date from an older version.
    pub(super) async fn verify_registers(&self, sizes: &[Outcome]) -> [u64; 2] {
        let count = |outcome: &Outcome| answer(outcome).and_then(reply::count);
        let mut names = [u64::MAX; 2];
        for (at, pair) in sizes.chunks_exact(2).enumerate() {
            let Ok(size) = count(&pair[0]) else { continue };
            names[at] = size;
            let Ok(ordered) = count(&pair[1]) else {
                continue;
            };
            let was_ordered = &self.identity.ordered[at];
            if ordered == 0 && was_ordered.load(Relaxed) {
                self.identity.losses.fetch_add(1, Relaxed);
            }
            // If the repair fails, the next verification tries it again.
            let in_order = ordered == size + 1 || self.repair_order(REGISTERS[at]).await.is_ok();
            was_ordered.store(in_order, Relaxed);
        }
        names
    }

    /// Makes the hash and the sorted set have the same names: those that are in either of them.
    async fn repair_order(&self, register: Register) -> Result<(), StoreError> {
        let key = self.keys.register(register);
        let [index, _] = self.keys.register_indexes(register);
        let mut batch = Batch::new();
        batch.unit().repeatable("HGETALL", &[key_arg(&key)]);
        for kind in [NAME_ROW, PAUSED_ROW] {
            batch
                .unit()
                .repeatable("ZRANGE", &range(&index, &after(kind, None), &[]));
        }
        let outcomes = self.send(batch).await;
        let entries = reply::entries(answer(&outcomes[0])?)?;
        let ordered = names_of(&outcomes[1])?;
        let paused = names_of(&outcomes[2])?;
        for batch_entries in entries.chunks(NAMES_PER_COMMAND) {
            let rows = rows_of(batch_entries);
            let added = self.command("ZADD", &args(&index, scored(&rows))).await;
            all_succeeded(&[added])?;
        }
        for batch_entries in ordered.chunks(NAMES_PER_COMMAND) {
            let mut batch = Batch::new();
            let mut unit = batch.unit();
            for name in batch_entries {
                let value = if paused.contains(name) { PAUSED } else { "" };
                unit = unit.repeatable(
                    "HSETNX",
                    &args(&key, [name.as_bytes(), value.as_bytes()].map(Arg::Bytes)),
                );
            }
            all_succeeded(&self.send(batch).await)?;
        }
        let complete = args(&index, [Arg::Integer(0), Arg::Bytes(COMPLETE_ROW)]);
        all_succeeded(&[self.command("ZADD", &complete).await])
    }

    pub(crate) async fn register_page(
        &self,
        register: Register,
        name: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let key = self.keys.register(register);
        let [index, _] = self.keys.register_indexes(register);
        if !self.is_ordered(register) {
            let found = self.command("HGETALL", &[key_arg(&key)]).await;
            let mut all = reply::entries(answer(&found)?)?;
            let from = name.map_or(0, |name| {
                all.partition_point(|(known, _)| known.as_str() <= name)
            });
            all.truncate(from.saturating_add(limit));
            return Ok(all.split_off(from));
        }
        // Paused names up to the limit are enough for the page.
        let limit = [
            Arg::Bytes(b"LIMIT"),
            Arg::Integer(0),
            Arg::Integer(i64::try_from(limit).unwrap_or(i64::MAX)),
        ];
        let mut batch = Batch::new();
        for kind in [NAME_ROW, PAUSED_ROW] {
            batch
                .unit()
                .repeatable("ZRANGE", &range(&index, &after(kind, name), &limit));
        }
        let outcomes = self.send(batch).await;
        let names = names_of(&outcomes[0])?;
        let paused = names_of(&outcomes[1])?;
        let entry = |name: String| {
            let is_paused = paused.binary_search(&name).is_ok();
            (name, if is_paused { PAUSED } else { "" }.to_owned())
        };
        Ok(names.into_iter().map(entry).collect())
    }

    pub(crate) async fn registered(
        &self,
        register: Register,
        names: &[String],
    ) -> Result<Vec<Option<String>>, StoreError> {
        let key = self.keys.register(register);
        self.values(&key, names).await
    }

    pub(crate) async fn paused_queues(&self) -> Result<Vec<String>, StoreError> {
        if !self.is_ordered(Register::Queues) {
            let all = self
                .register_page(Register::Queues, None, usize::MAX)
                .await?;
            return Ok(all
                .into_iter()
                .filter(|(_, value)| value == PAUSED)
                .map(|(name, _)| name)
                .collect());
        }
        let [index, _] = self.keys.register_indexes(Register::Queues);
        let bounds = after(PAUSED_ROW, None);
        names_of(&self.command("ZRANGE", &range(&index, &bounds, &[])).await)
    }

    pub(crate) async fn set_entry(
        &self,
        register: Register,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        let key = self.keys.register(register);
        let [index, _] = self.keys.register_indexes(register);
        let [named, paused] = [NAME_ROW, PAUSED_ROW].map(|kind| row(kind, name));
        let name = text_arg(name);
        let put = |row| args(&index, [Arg::Integer(0), Arg::Bytes(row)]);
        let remove = |row| args(&index, [Arg::Bytes(row)]);
        let mut batch = Batch::new();
        let unit = batch.unit();
        let unit = match value {
            Some(_) => unit.repeatable("ZADD", &put(&named)),
            None => unit.repeatable("ZREM", &remove(&named)),
        };
        let unit = match value {
            Some(PAUSED) => unit.repeatable("ZADD", &put(&paused)),
            _ => unit.repeatable("ZREM", &remove(&paused)),
        };
        self.wait_for_replicas(match value {
            Some(value) => unit.repeatable("HSET", &args(&key, [name, text_arg(value)])),
            None => unit.repeatable("HDEL", &args(&key, [name])),
        });
        self.send_write(batch).await
    }

    pub(crate) async fn add_entries(
        &self,
        register: Register,
        entries: &[(String, String)],
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let key = self.keys.register(register);
        let [index, times] = self.keys.register_indexes(register);
        let at = Arg::Integer(i64::try_from(at.micros()).unwrap_or(i64::MAX));
        if entries.is_empty() {
            return Ok(());
        }
        let rows = rows_of(entries);
        let names = entries.iter().flat_map(|(name, _)| [text_arg(name), at]);
        let mut batch = Batch::new();
        // The times first: a server that is about to remove a name sees by them that it is used.
        let unit = batch.unit().repeatable("HSET", &args(&times, names));
        let mut unit = unit.repeatable("ZADD", &args(&index, scored(&rows)));
        for (name, value) in entries {
            unit = unit.repeatable(
                "HSETNX",
                &args(&key, [name.as_bytes(), value.as_bytes()].map(Arg::Bytes)),
            );
        }
        self.wait_for_replicas(unit);
        self.send_write(batch).await
    }

    pub(crate) async fn registered_at(
        &self,
        register: Register,
        names: &[String],
    ) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let [_, times] = self.keys.register_indexes(register);
        let found = self.values(&times, names).await?;
        let moment = |text: Option<String>| text?.parse().ok().map(Timestamp::from_micros);
        Ok(found.into_iter().map(moment).collect())
    }

    pub(crate) async fn remove_unused(
        &self,
        register: Register,
        names: &[RegisteredName],
    ) -> Result<u64, StoreError> {
        let key = self.keys.register(register);
        let [index, times] = self.keys.register_indexes(register);
        let moment =
            |at: &Option<Timestamp>| at.map_or_else(String::new, |at| at.micros().to_string());
        let texts: Vec<(&String, String)> =
            names.iter().map(|(name, at)| (name, moment(at))).collect();
        let mut all = vec![Arg::Bytes(REMOVE_SCRIPT), Arg::Integer(3)];
        all.extend([&key, &index, &times].map(|key| key_arg(key)));
        all.extend(
            texts
                .iter()
                .flat_map(|(name, at)| [text_arg(name), text_arg(at)]),
        );
        reply::count(answer(&self.command("EVAL", &all).await)?)
    }

    pub(crate) async fn policy_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        let key = self.keys.policies();
        let found = self.command("HGETALL", &[key_arg(&key)]).await;
        reply::entries(answer(&found)?)
    }

    pub(crate) async fn set_policy_row(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        let key = self.keys.policies();
        let mut batch = Batch::new();
        let key = key_arg(&key);
        let name = text_arg(name);
        self.wait_for_replicas(match value {
            Some(value) => batch
                .unit()
                .repeatable("HSET", &[key, name, text_arg(value)]),
            None => batch.unit().repeatable("HDEL", &[key, name]),
        });
        self.send_write(batch).await
    }

    /// Sends a batch of one unit that ends with the wait for replicas.
    pub(super) async fn send_write(&self, batch: Batch) -> Result<(), StoreError> {
        let (outcomes, replicated) = self
            .send_to_replicas(batch, Instant::now() + self.timeout)
            .await;
        all_succeeded(&outcomes).and(replicated)
    }
}

/// Whether all commands succeeded.
fn all_succeeded(outcomes: &[Outcome]) -> Result<(), StoreError> {
    match outcomes.iter().find(|outcome| outcome.reply().is_err()) {
        None => Ok(()),
        Some(lost @ Outcome::Unknown(_)) => Err(StoreError::unknown(reason(lost))),
        Some(other) => Err(unavailable(other)),
    }
}
