//! Opens or creates a store.

pub(crate) mod identity;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tidegate_pipeline::{Arg, Batch, Client, Outcome, Reply};
use tracing::info;

use self::identity::OpenedStore;
use super::keys::{self, Keys, Set};
use super::read::reply::{self, answer, reason, unavailable, unexpected};
use super::{RedisOptions, RedisStore, apply, key_arg};
use crate::codec::{Format, Schema, StoreError};

/// The fields of the facts about a store.
const SCHEMA_FIELD: &[u8] = b"schema";
const PARTITIONS_FIELD: &[u8] = b"partitions";
/// The schema that a migration started from. It exists while the migration runs.
const MIGRATES_FROM_FIELD: &[u8] = b"migrates_from";

impl RedisStore {
    /// Opens the store, or creates it. An existing store keeps its number of partitions.
    ///
    /// # Errors
    /// Redis does not answer, or the store has a schema that this program does not know.
    ///
    /// # Cancellation
    /// When the future is dropped, an empty store may have been created.
    pub async fn open(client: Client, options: RedisOptions) -> Result<Self, StoreError> {
        let RedisOptions {
            prefix,
            partitions,
            timeout,
        } = options;
        let key = Keys::meta(&prefix);
        let mut facts = StoreFacts::load(&client, &key, Instant::now() + timeout, &[]).await?;
        if facts.schema.is_none() {
            let made = StoreFacts {
                schema: Some(Format::LATEST.schema()),
                partitions: Some(partitions.into()),
                from: None,
            };
            facts = made.create(&client, &key, Instant::now() + timeout).await?;
            info!(partitions, key, "a store of workflows was made");
        }
        let format = facts.format(&key)?;
        let found = facts.partitions(&key)?;
        if found != partitions {
            info!(
                found,
                requested = partitions,
                key,
                "the store keeps the number of partitions it was made with"
            );
        }
        let id = identity::establish(&client, &key, Instant::now() + timeout).await?;
        let keys = Arc::new(Keys::new(prefix, found));
        let identity = Arc::new(OpenedStore::new(facts, id));
        let schema = Schema::new(format, facts.from);
        let mut store = Self {
            client,
            keys,
            schema,
            timeout,
            digest: Arc::default(),
            permits_digest: Arc::default(),
            identity,
            replicas: None,
            publish_support: Arc::default(),
        };
        store.digest = store.load_script().await?;
        store.probe_publish().await;
        Ok(store)
    }

    /// Whether a store of any version exists. One read.
    ///
    /// # Errors
    /// Redis does not answer, or forbids the read.
    pub async fn exists(client: &Client, options: &RedisOptions) -> Result<bool, StoreError> {
        let deadline = Instant::now() + options.timeout;
        let facts = StoreFacts::load(client, &Keys::meta(&options.prefix), deadline, &[]).await?;
        Ok(facts.schema.is_some() || facts.partitions.is_some())
    }

    /// Records in the store the schema that it is migrated from, and writes the latest format from
    /// now on. Other servers notice it when they verify the store.
    pub(crate) async fn begin_migration(&self) -> Result<(), StoreError> {
        let key = Keys::meta(self.keys.prefix());
        let from = self.schema.origin();
        let at = key_arg(&key);
        let mut batch = Batch::new();
        let unit = batch.unit();
        let unit = unit.repeatable(
            "HSETNX",
            &[
                at,
                Arg::Bytes(MIGRATES_FROM_FIELD),
                Arg::Integer(from.into()),
            ],
        );
        unit.repeatable(
            "HSET",
            &[
                at,
                Arg::Bytes(SCHEMA_FIELD),
                Arg::Integer(Format::LATEST.schema().into()),
            ],
        );
        self.send(batch)
            .await
            .iter()
            .try_for_each(|outcome| answer(outcome).map(|_| ()))?;
        StoreFacts::load(&self.client, &key, Instant::now() + self.timeout, &[])
            .await?
            .adopt(&key, &self.schema)
    }

    /// Records that nothing of an earlier format is left.
    pub(crate) async fn end_migration(&self) -> Result<(), StoreError> {
        let key = Keys::meta(self.keys.prefix());
        let args = [key_arg(&key), Arg::Bytes(MIGRATES_FROM_FIELD)];
        answer(&self.command("HDEL", &args).await)?;
        self.schema.set(Format::LATEST, None);
        Ok(())
    }

    /// Loads the script into every node that has a partition. Returns its digest.
    async fn load_script(&self) -> Result<Arc<[u8]>, StoreError> {
        /// Commands for each partition.
        const COMMANDS: usize = 3;
        let [least, most, by_name, limit] =
            [b"-".as_slice(), b"+", b"BYLEX", b"LIMIT"].map(Arg::Bytes);
        let none = Arg::Integer(0);
        let one = Arg::Integer(1);
        let mut batch = Batch::new();
        for partition in self.keys.all() {
            let key = self.keys.set(partition, Set::Index);
            // The key also selects the node of the other commands.
            let unit = batch.unit().repeatable("EXISTS", &[key_arg(&key)]);
            unit.repeatable(
                "SCRIPT",
                &[Arg::Bytes(b"LOAD"), Arg::Bytes(apply::SCRIPT.as_bytes())],
            )
            .repeatable(
                "ZRANGE",
                &[key_arg(&key), least, most, by_name, limit, none, one],
            );
        }
        let outcomes = self.send(batch).await;
        for outcome in outcomes.iter().skip(2).step_by(COMMANDS) {
            check_range_support(outcome)?;
        }
        // A cluster node that is down makes its own partitions unavailable, and no others.
        let mut answers = outcomes.chunks_exact(COMMANDS);
        let Some(answered) = answers.find(|outcomes| answer(&outcomes[0]).is_ok()) else {
            return Err(unavailable(&outcomes[0]));
        };
        let loaded = answer(&answered[1])?;
        Ok(reply::bytes(loaded)?
            .ok_or_else(|| unexpected("the digest of the script", loaded))?
            .as_ref()
            .into())
    }
}

/// Whether a node supports the range reads of lists and queues.
fn check_range_support(outcome: &Outcome) -> Result<(), StoreError> {
    match outcome {
        Outcome::ServerError(error) => {
            let reason = format!(
                "workflows need Redis 6.2 or later, and this one answers ZRANGE BYLEX with: {error}"
            );
            Err(StoreError::unavailable(reason))
        }
        // A node that does not answer is reported by the calls that need it.
        _ => Ok(()),
    }
}

impl fmt::Display for StoreFacts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            schema, partitions, ..
        } = self;
        write!(
            formatter,
            "schema {} and {} partitions",
            schema.unwrap_or_default(),
            partitions.unwrap_or_default()
        )
    }
}

/// The facts that are written about a store when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StoreFacts {
    schema: Option<u32>,
    partitions: Option<u32>,
    /// The schema that it is being migrated from.
    from: Option<u32>,
}

impl StoreFacts {
    pub(super) const FIELDS: [&[u8]; 3] = [SCHEMA_FIELD, PARTITIONS_FIELD, MIGRATES_FROM_FIELD];

    /// The current facts of a store that had these when it was opened.
    pub(super) fn current(self, schema: &Schema) -> Self {
        Self {
            schema: Some(schema.format().schema()),
            ..self
        }
    }

    /// Whether a process that opened a store with these facts can continue with a store that has
    /// the others.
    pub(super) fn is_compatible_with(self, other: Self) -> bool {
        (self.schema, self.partitions) == (other.schema, other.partitions)
    }

    /// Adopts the format that a migration has set.
    ///
    /// # Errors
    /// The store has a schema that this program does not know.
    pub(super) fn adopt(self, key: &str, schema: &Schema) -> Result<(), StoreError> {
        let format = self.format(key)?;
        if format != schema.format() {
            info!(
                schema = format.schema(),
                key, "the store of workflows is migrated"
            );
        }
        schema.set(format, self.from);
        Ok(())
    }

    /// Reads the facts, after writing those of these that are missing. Servers that do so at the
    /// same time read the same facts.
    pub(super) async fn create(
        self,
        client: &Client,
        key: &str,
        deadline: Instant,
    ) -> Result<Self, StoreError> {
        let fields = [
            (PARTITIONS_FIELD, self.partitions.unwrap_or_default()),
            (SCHEMA_FIELD, self.schema.unwrap_or_default()),
        ];
        Self::load(client, key, deadline, &fields).await
    }

    /// Reads the facts, after writing those of `missing` that do not exist.
    async fn load(
        client: &Client,
        key: &str,
        deadline: Instant,
        missing: &[(&'static [u8], u32)],
    ) -> Result<Self, StoreError> {
        let at = key_arg(key);
        let mut batch = Batch::new();
        let mut unit = batch.unit();
        for &(field, value) in missing {
            unit = unit.repeatable(
                "HSETNX",
                &[at, Arg::Bytes(field), Arg::Integer(value.into())],
            );
        }
        let [schema, partitions, from] = Self::FIELDS.map(Arg::Bytes);
        unit.repeatable("HMGET", &[at, schema, partitions, from]);
        let outcomes = client.send(batch, deadline).await;
        let (read, written) = outcomes.split_last().expect("HMGET was sent");
        if let Some(failed) = written.iter().find(|outcome| outcome.reply().is_err()) {
            let reason = format!(
                "redis does not take the first keys of the store: {}",
                reason(failed)
            );
            return Err(StoreError::unavailable(reason));
        }
        Self::read(&reply::array(answer(read)?)?, key)
    }

    /// Decodes the values of [`StoreFacts::FIELDS`].
    pub(super) fn read(values: &[&Reply], key: &str) -> Result<Self, StoreError> {
        let number = |reply: &Reply| {
            let Some(text) = reply::bytes(reply)? else {
                return Ok(None);
            };
            let reason = || format!("'{}' is not a number", text.escape_ascii());
            reply::parse(text)
                .map(Some)
                .ok_or_else(|| StoreError::corrupt(key, reason()))
        };
        match values {
            [schema, partitions, from] => Ok(Self {
                schema: number(schema)?,
                partitions: number(partitions)?,
                from: number(from)?,
            }),
            _ => Err(StoreError::corrupt(key, "three values were expected")),
        }
    }

    /// The format of the store.
    fn format(self, key: &str) -> Result<Format, StoreError> {
        let missing = || StoreError::corrupt(key, "it has no schema version");
        let schema = self.schema.ok_or_else(missing)?;
        Format::from_schema(schema).ok_or_else(|| StoreError::other_schema(schema))
    }

    /// The number of partitions.
    fn partitions(self, key: &str) -> Result<u16, StoreError> {
        let partitions = self.partitions.and_then(|found| u16::try_from(found).ok());
        let valid = |found: &u16| found.is_power_of_two() && *found <= keys::MAX_PARTITIONS;
        partitions.filter(valid).ok_or_else(|| {
            let reason = format!("{:?} is not a number of partitions", self.partitions);
            StoreError::corrupt(key, reason)
        })
    }
}
