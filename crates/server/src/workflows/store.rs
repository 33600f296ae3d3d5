//! Opening of the workflow store. An existing store is opened at the start; otherwise the first
//! call creates it.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_api::{Api, ApiMetrics, Scope};
use tidegate_pipeline::{Client, Config, Parallelism};
use tidegate_workflow::{
    Durability, Engine, EngineOptions, EngineThread, RedisOptions, RedisStore, SqliteOptions,
    SqliteStore, Store, StoreError,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::clock::StoreClock;
use super::store_probe::log_new_risks;
use super::units::UnitCounters;
use crate::rls::store::redis::{SENTINEL_PREFIX, kind_advice, login_advice};
use crate::settings::{RedisServer, WorkflowSettings as Settings};
use crate::telemetry::traces::Traces;

/// Name of the database in the data folder.
const FILE_NAME: &str = "workflows.db";
/// Default prefix of keys.
const DEFAULT_PREFIX: &str = "tg:";
/// Interval between two checks whether another server created the store, and between two attempts
/// to open one in Redis. A server without calls of the API must not load Redis noticeably.
const OPEN_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two attempts to open a file, which another process may lock until it ends.
const FILE_OPEN_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of calls and of the start for one attempt to open the store. A slow disk or Redis must
/// not delay limits.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Location of a store that may not exist yet.
#[derive(Debug)]
pub(crate) enum StoreLocation {
    Memory(SqliteOptions),
    File {
        path: PathBuf,
        options: SqliteOptions,
    },
    Redis {
        client: Client,
        options: RedisOptions,
        replicas: Option<(NonZeroU16, Client)>,
    },
}

impl StoreLocation {
    /// The location in the settings.
    ///
    /// # Errors
    /// The settings of Redis are invalid.
    pub(crate) fn new(settings: &Settings) -> Result<Self, StoreError> {
        let (partitions, valid) = (
            settings.partitions,
            "settings bound partitions and the prefix",
        );
        let Some(server) = &settings.redis else {
            let options = SqliteOptions::new(partitions).expect(valid);
            return Ok(if settings.in_process {
                Self::Memory(options)
            } else {
                Self::File {
                    path: file(settings),
                    options,
                }
            });
        };
        let client = |config| Client::new(config).map_err(|error| unavailable(error.to_string()));
        let replicas = match NonZeroU16::new(settings.replicas) {
            Some(number) => Some((number, client(waiting_config(server))?)),
            None => None,
        };
        Ok(Self::Redis {
            client: client(engine_config(server))?,
            options: RedisOptions::new(&*settings.prefix, partitions, server.timeout).expect(valid),
            replicas,
        })
    }

    /// Whether the store exists.
    pub(crate) async fn exists(&self) -> Result<bool, StoreError> {
        match self {
            Self::Memory(_) => Ok(true),
            Self::File { path, .. } => {
                let owned = path.clone();
                run_blocking(move || owned.try_exists())
                    .await?
                    .map_err(|error| unavailable(format!("{}: {error}", path.display())))
            }
            Self::Redis {
                client, options, ..
            } => RedisStore::exists(client, options).await,
        }
    }

    /// Opens the store, or creates it.
    ///
    /// # Errors
    /// The store cannot be reached, or the location holds other data.
    pub(crate) async fn open(&self) -> Result<Store, StoreError> {
        match self {
            Self::Memory(options) => SqliteStore::in_memory(options).map(Store::Sqlite),
            Self::File { path, options } => {
                let path = path.clone();
                let options = options.clone();
                run_blocking(move || SqliteStore::open(&path, &options))
                    .await?
                    .map(Store::Sqlite)
            }
            Self::Redis {
                client,
                options,
                replicas,
            } => {
                let store = RedisStore::open(client.clone(), options.clone()).await?;
                Ok(Store::Redis(match replicas {
                    Some((number, client)) => store.acknowledged_by(*number, client.clone()),
                    None => store,
                }))
            }
        }
    }

    /// Durability of a store at this location. None if it is not in Redis, or Redis does not
    /// answer.
    async fn durability(&self) -> Option<Durability> {
        let Self::Redis {
            client, options, ..
        } = self
        else {
            return None;
        };
        RedisStore::durability_at(client, options).await.ok()
    }

    fn pause(&self) -> Duration {
        match self {
            Self::Memory(_) | Self::File { .. } => FILE_OPEN_INTERVAL,
            Self::Redis { .. } => OPEN_INTERVAL,
        }
    }
}

/// Closes an engine and its store.
pub(crate) async fn close(engine: &Engine) {
    engine.close().await;
    if let Store::Sqlite(store) = engine.store() {
        store.close().await;
    }
}

/// Runs work that may wait for a disk on a blocking thread, so that calls are served meanwhile.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    spawn_blocking(work)
        .await
        .map_err(|error| unavailable(error.to_string()))
}

fn unavailable(reason: String) -> StoreError {
    StoreError::Unavailable { reason }
}

/// Path of the SQLite file.
pub(crate) fn file(settings: &Settings) -> PathBuf {
    settings.data_dir.join(FILE_NAME)
}

/// Location of a store in memory, for people.
const MEMORY_TEXT: &str = "memory of this process, lost when it ends";

/// Location of the workflows for people, without credentials.
pub(crate) fn location_text(settings: &Settings) -> String {
    match &settings.redis {
        _ if settings.scope == Scope::LimitsReadOnly => "off; the page shows limits".to_owned(),
        None if settings.test_clock => format!("{MEMORY_TEXT}; tests move its clock"),
        None if settings.in_process => MEMORY_TEXT.to_owned(),
        // The default prefix is not shown.
        Some(server) if settings.prefix != DEFAULT_PREFIX => {
            format!("redis at {}, prefix {}", server.shown, settings.prefix)
        }
        Some(server) => format!("redis at {}", server.shown),
        None => file(settings).display().to_string(),
    }
}

/// Configuration of the engine's Redis client. It uses the addresses and credentials of the
/// settings, but not their parallelism. The reference's default of one node at a time would make
/// lists and sweeps wait for node after node.
fn engine_config(server: &RedisServer) -> Config {
    let mut config = server.config.clone();
    config.parallelism = Parallelism::UNBOUNDED;
    config
}

/// Configuration of a Redis client for writes that wait for replicas.
fn waiting_config(server: &RedisServer) -> Config {
    /// Limit of concurrent writes that wait for one node; further writes wait for a connection.
    const MAX_WAITING_CONNECTIONS: usize = 32;
    let mut config = engine_config(server);
    config.in_flight_commands = 1;
    config.max_connections = MAX_WAITING_CONNECTIONS;
    config
}

/// Opens the store of the settings, and reports failures to the API until then.
pub(super) struct Opener<'a> {
    context: OpenContext<'a>,
    /// Whether the risks of losing work were logged. Once there is a store,
    /// `store_probe::follow_durability` logs them.
    risks_logged: bool,
    /// Notified if the first attempt succeeds; dropped if it fails or takes long.
    first_attempt: Option<oneshot::Sender<()>>,
    /// Latest problem in the log. Empty if there is none.
    reported: String,
    clock: StoreClock,
}

/// Context for opening a store.
#[derive(Clone)]
pub(super) struct OpenContext<'a> {
    pub(super) settings: &'a Settings,
    pub(super) counters: UnitCounters,
    /// None if attempts are not traced.
    pub(super) traces: Option<Traces>,
    pub(super) api: &'a Api,
    pub(super) activity: &'a ApiMetrics,
}

impl<'a> Opener<'a> {
    pub(super) fn new(
        context: OpenContext<'a>,
        first_attempt: Option<oneshot::Sender<()>>,
        clock: StoreClock,
    ) -> Self {
        Self {
            context,
            risks_logged: false,
            first_attempt,
            reported: String::new(),
            clock,
        }
    }

    /// Opens an existing store, or else creates it on the first call of the API, for an engine on
    /// `runtimes`. Until it is open, calls are refused with the reason.
    ///
    /// # Cancellation
    /// If the future is dropped, an empty store may have been created.
    pub(super) async fn open(mut self, runtimes: &[Handle]) -> Engine {
        let mut called = false;
        let mut location = None;
        loop {
            match self.attempt(&mut location, called, runtimes).await {
                Ok(Some(engine)) => {
                    if !self.reported.is_empty() {
                        info!("the store of workflows is open");
                    }
                    return engine;
                }
                Ok(None) => {
                    self.log_risks(location.as_ref()).await;
                    called = timeout(OPEN_INTERVAL, self.context.api.await_call())
                        .await
                        .is_ok();
                }
                Err(error) => {
                    self.report(&error);
                    sleep(
                        location
                            .as_ref()
                            .map_or(OPEN_INTERVAL, StoreLocation::pause),
                    )
                    .await;
                }
            }
        }
    }

    /// Logs the durability risks of a store that is not created yet, once: people read the log when
    /// a server starts.
    async fn log_risks(&mut self, location: Option<&StoreLocation>) {
        if std::mem::replace(&mut self.risks_logged, true) {
            return;
        }
        if let Some(location) = location
            && let Ok(Some(found)) = timeout(OPEN_TIMEOUT, location.durability()).await
        {
            log_new_risks(
                &found,
                self.context.settings.replicas,
                self.context.activity,
            );
        }
    }

    /// Makes one attempt, however long it takes. None if there is no store, and no call needs one.
    async fn attempt(
        &mut self,
        location: &mut Option<StoreLocation>,
        called: bool,
        runtimes: &[Handle],
    ) -> Result<Option<Engine>, StoreError> {
        let context = self.context.clone();
        let clock = self.clock.clone();
        let mut attempt = pin!(open_store(&context, &clock, runtimes, location, called));
        let found = match timeout(OPEN_TIMEOUT, attempt.as_mut()).await {
            Ok(found) => found,
            Err(_) => {
                self.report(&unavailable(format!(
                    "it has not answered for {} s, and is waited for",
                    OPEN_TIMEOUT.as_secs()
                )));
                attempt.await
            }
        };
        if let (Ok(_), Some(first_attempt)) = (&found, self.first_attempt.take()) {
            // The receiver may have been dropped after its timeout.
            let _ = first_attempt.send(());
        }
        found
    }

    /// Reports a failure to callers, and logs it if it is new.
    fn report(&mut self, error: &StoreError) {
        self.first_attempt = None;
        let store = location_text(self.context.settings);
        let reason = match error {
            StoreError::Unavailable { reason } => reason.clone(),
            error => error.to_string(),
        };
        // Redis ends its messages with a full stop.
        let reason = reason.trim_end_matches('.').to_owned();
        let reason = if reason.contains(&store) {
            reason
        } else {
            format!("{store}: {reason}")
        };
        self.context
            .api
            .refuse(format!("workflows are not available: {reason}"));
        if self.reported != reason {
            let advice = advice(self.context.settings, &reason);
            warn!(
                "workflows are not available: {reason}. Limits are served, calls of /v1 are answered with 503, and it is tried again. \
                 {advice}To turn workflows off, set TIDEGATE_HTTP_ADDR to an empty value"
            );
            self.reported = reason;
        }
    }
}

/// Advice on a store that cannot be opened, unless the reason contains it: sentences with a space
/// after each. Empty without advice.
pub(crate) fn advice(settings: &Settings, reason: &str) -> String {
    match &settings.redis {
        None if !reason.contains("TIDEGATE_DATA_DIR") => {
            "Set TIDEGATE_DATA_DIR to a folder that this server can write and no other uses. "
                .to_owned()
        }
        None => String::new(),
        Some(server) if reason.contains("NOPERM") && !reason.contains(SENTINEL_PREFIX) => format!(
            "Allow its user the commands of workflows (docs/redis-keys.md), see {} and `ACL GETUSER`, with the keys and channels `~{prefix}* \
             &{prefix}*`. ",
            server.origin.auth,
            prefix = settings.prefix
        ),
        Some(server) => login_advice(reason, &server.origin)
            .or_else(|| kind_advice(reason, &server.origin))
            .map(|advice| format!("About this Redis: {advice}. "))
            .unwrap_or_default(),
    }
}

/// Engine threads with the store, each with its own connections on its runtime.
fn engine_threads(
    store: &Store,
    runtimes: &[Handle],
    counters: &UnitCounters,
) -> Vec<EngineThread> {
    let on = |(at, runtime): (usize, &Handle)| {
        let _entered = runtime.enter();
        // The first runtime is the one that opened the store.
        let store = if at == 0 {
            store.clone()
        } else {
            store.for_new_thread()
        };
        EngineThread::new(store, runtime.clone()).with_units(Arc::new(counters()))
    };
    runtimes.iter().enumerate().map(on).collect()
}

/// Opens the store if it exists, or if `called` is set because a call needs it.
async fn open_store(
    context: &OpenContext<'_>,
    clock: &StoreClock,
    runtimes: &[Handle],
    location: &mut Option<StoreLocation>,
    called: bool,
) -> Result<Option<Engine>, StoreError> {
    let location = match location {
        Some(location) => location,
        None => location.insert(StoreLocation::new(context.settings)?),
    };
    if !called && !location.exists().await? {
        return Ok(None);
    }
    let store = location.open().await?;
    clock.start(&store).await;
    let options = EngineOptions {
        retention: context.settings.retention,
        memory_bytes: context.settings.memory,
        attempt_observer: context.traces.as_ref().map(Traces::attempt_exporter),
    };
    Engine::start_on_threads(engine_threads(&store, runtimes, &context.counters), options)
        .await
        .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SettingsOrigin;

    #[test]
    fn workflows_talk_to_all_nodes_at_once_whatever_rate_limits_do() {
        let mut config = Config::single("127.0.0.1:1".parse().unwrap());
        config.parallelism = Parallelism::SERIAL;
        config.database = 3;
        let server = RedisServer {
            config,
            shown: String::new(),
            origin: SettingsOrigin {
                url: "REDIS_URL",
                kind: "REDIS_TYPE",
                auth: String::new(),
                sentinel_auth: "",
            },
            timeout: Duration::from_secs(1),
        };
        let config = engine_config(&server);
        assert_eq!(config.parallelism, Parallelism::UNBOUNDED);
        assert_eq!(config.database, 3);
    }
}
