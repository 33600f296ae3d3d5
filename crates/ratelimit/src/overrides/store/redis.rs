//! Overrides in one hash of Redis.

use std::sync::Arc;
use std::time::Instant;

use tidegate_pipeline::{Arg, Batch, Client, CommandError, Outcome, Reply};

use crate::model::Timestamp;
use crate::overrides::{LimitOverride, OverrideError, Overrides, record};
use crate::store::StoreError;

/// Key of the hash after the prefix of counter keys. Counter keys end with a number, so none is
/// equal to it.
const OVERRIDES_KEY: &str = "tidegate:overrides";
/// Field whose value differs after each change. All other fields begin with `[`.
const VERSION_FIELD: &[u8] = b"version";
/// Microseconds for which an override stays after its end, so that a server whose clock is ahead
/// does not remove overrides that others still need.
const REMOVAL_DELAY_MICROS: u64 = 5_000_000;

/// Writes a field, unless the hash is full and the field is new, or the stored override ends later.
///
/// KEYS: the hash. ARGV: field, value, maximum number of fields without the version, new version,
/// and the end of the override in microseconds if the latest end holds, otherwise an empty text.
/// Returns 1, or 0 if the hash is full. With separate commands, another server could fill the hash
/// or write a later end between them.
const PUT_SCRIPT: &str = "\
local known = redis.call('HGET', KEYS[1], ARGV[1])
if not known and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[3]) then
  return 0
end
if known and ARGV[5] ~= '' then
  local is_json, record = pcall(cjson.decode, known)
  if is_json and type(record) == 'table' and (tonumber(record['until']) or math.huge) > tonumber(ARGV[5]) then
    return 1
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], 'version', ARGV[4])
return 1";

/// Removes fields that have not changed since they were read.
///
/// KEYS: the hash. ARGV: field and value, any number of times. With separate commands, an override
/// that another server renews could be lost.
const REMOVE_UNCHANGED_SCRIPT: &str = "\
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return 0";

/// Overrides in one hash of Redis, shared by all servers that use it.
#[derive(Debug, Clone)]
pub struct RedisOverrides {
    client: Client,
    key: Arc<[u8]>,
}

/// An override in the form of Redis.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverrideRecord<'r> {
    pub(super) field: &'r str,
    pub(super) value: &'r str,
    /// End of the override if a stored one with a later end must stay.
    pub(super) until: Option<Timestamp>,
}

/// All fields of the hash.
#[derive(Debug, Default)]
struct StoredOverrides {
    overrides: Overrides,
    /// Fields and values of overrides that ended long enough ago to be removed.
    ended: Vec<Vec<u8>>,
}

impl RedisOverrides {
    pub(super) fn new(client: Client, key_prefix: &str) -> Self {
        Self {
            client,
            key: format!("{key_prefix}{OVERRIDES_KEY}").into_bytes().into(),
        }
    }

    pub(super) async fn read(
        &self,
        known: &Arc<Overrides>,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Arc<Overrides>, StoreError> {
        let version = self
            .run_command(
                "HGET",
                &[Arg::Key(&self.key), Arg::Bytes(VERSION_FIELD)],
                deadline,
            )
            .await;
        let is_known = version.bytes()? == known.version.as_deref();
        if is_known && !known.all.iter().any(|each| is_removable(each, now)) {
            return Ok(known.clone());
        }
        Ok(Arc::new(self.read_all(now, deadline).await?))
    }

    pub(super) async fn put(
        &self,
        record: &OverrideRecord<'_>,
        most: usize,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<(), OverrideError> {
        if self.put_once(record, most, deadline).await? {
            return Ok(());
        }
        // Reading removes ended overrides.
        self.read_all(now, deadline).await?;
        let is_kept = self.put_once(record, most, deadline).await?;
        if is_kept {
            Ok(())
        } else {
            Err(OverrideError::TooMany { most })
        }
    }

    pub(super) async fn remove(&self, field: &str, deadline: Instant) -> Result<bool, StoreError> {
        let mut batch = Batch::new();
        let version = new_version();
        let key = Arg::Key(&self.key);
        let version = Arg::Bytes(version.as_bytes());
        let unit = batch
            .unit()
            .command("HDEL", &[key, Arg::Bytes(field.as_bytes())]);
        unit.repeatable("HSET", &[key, Arg::Bytes(VERSION_FIELD), version]);
        let outcomes = self.client.send(batch, deadline).await;
        for outcome in &outcomes {
            outcome.reply()?;
        }
        Ok(outcomes[0].integer()? > 0)
    }

    async fn put_once(
        &self,
        record: &OverrideRecord<'_>,
        most: usize,
        deadline: Instant,
    ) -> Result<bool, StoreError> {
        let version = new_version();
        let most = i64::try_from(most).expect("a small number");
        let until = record
            .until
            .map_or_else(String::new, |until| until.0.to_string());
        let [script, field, value, version, until] =
            [PUT_SCRIPT, record.field, record.value, &version, &until]
                .map(|text| Arg::Bytes(text.as_bytes()));
        let args = [
            script,
            Arg::Integer(1),
            Arg::Key(&self.key),
            field,
            value,
            Arg::Integer(most),
            version,
            until,
        ];
        Ok(self.run_command("EVAL", &args, deadline).await.integer()? == 1)
    }

    async fn read_all(&self, now: Timestamp, deadline: Instant) -> Result<Overrides, StoreError> {
        let StoredOverrides { overrides, ended } = parse_stored(
            &self
                .run_command("HGETALL", &[Arg::Key(&self.key)], deadline)
                .await,
            now,
        )?;
        if !ended.is_empty() {
            let mut args = vec![
                Arg::Bytes(REMOVE_UNCHANGED_SCRIPT.as_bytes()),
                Arg::Integer(1),
                Arg::Key(&self.key),
            ];
            args.extend(ended.iter().map(|bytes| Arg::Bytes(bytes)));
            self.run_command("EVAL", &args, deadline).await.reply()?;
        }
        Ok(overrides)
    }

    /// Sends a command that may run twice without harm.
    async fn run_command(
        &self,
        name: &'static str,
        args: &[Arg<'_>],
        deadline: Instant,
    ) -> Outcome {
        let mut batch = Batch::new();
        batch.unit().repeatable(name, args);
        let mut outcomes = self.client.send(batch, deadline).await;
        outcomes.pop().expect("the engine answers every command")
    }
}

/// Parses the reply of HGETALL.
fn parse_stored(outcome: &Outcome, now: Timestamp) -> Result<StoredOverrides, StoreError> {
    let reply = outcome.reply()?;
    let unexpected = || CommandError::UnexpectedReply {
        expected: "fields and values",
        reply: reply.clone(),
    };
    let Reply::Array(elements) = reply else {
        return Err(unexpected().into());
    };
    let mut all = Vec::new();
    let mut stored = StoredOverrides::default();
    let mut version = None;
    let mut unreadable = 0;
    for pair in elements.chunks_exact(2) {
        let [Ok(Reply::Bulk(field)), Ok(Reply::Bulk(value))] = pair else {
            return Err(unexpected().into());
        };
        if **field == *VERSION_FIELD {
            version = Some(Box::from(&**value));
            continue;
        }
        match record::read(field, value) {
            Some(limit_override) if is_removable(&limit_override, now) => {
                stored.ended.extend([field.to_vec(), value.to_vec()])
            }
            Some(limit_override) => all.push(limit_override),
            None => unreadable += 1,
        }
    }
    stored.overrides = Overrides::new(all);
    stored.overrides.version = version;
    stored.overrides.unreadable = unreadable;
    Ok(stored)
}

fn is_removable(limit_override: &LimitOverride, now: Timestamp) -> bool {
    limit_override
        .until
        .is_some_and(|until| until.0.saturating_add(REMOVAL_DELAY_MICROS) <= now.0)
}

fn new_version() -> String {
    format!("{:016x}", fastrand::u64(..))
}
