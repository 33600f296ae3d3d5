//! Where workflows are kept. A store that exists is opened at the start; where there is none, the first call makes it.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_api::Api;
use tidegate_pipeline::{Client, Config, Grouping, Parallelism};
use tidegate_workflow::{
    Engine, EngineOptions, RedisOptions, RedisStore, SqliteOptions, SqliteStore, Store, StoreError,
};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::settings::{RedisServer, Workflows as Settings};

/// The name of the database in the data folder.
const FILE: &str = "workflows.db";
/// The wait between two looks whether somebody else made the store, and between two attempts to open one in Redis. A server that nobody
/// asks for workflows must not be noticed there.
const LOOK: Duration = Duration::from_secs(10);
/// The wait between two attempts to open a file, which another process holds until it has ended.
const LOOK_AT_FILE: Duration = Duration::from_secs(1);

/// Where a store is, or will be.
#[derive(Debug)]
pub(crate) enum Place {
    File { path: PathBuf, options: SqliteOptions },
    Redis { client: Client, options: RedisOptions },
}

impl Place {
    /// The place that the settings name.
    ///
    /// # Errors
    /// The settings of Redis make no sense.
    pub(crate) fn new(settings: &Settings, redis: Option<&RedisServer>) -> Result<Self, StoreError> {
        let (partitions, valid) = (settings.partitions, "settings bound partitions");
        let Some(server) = redis else {
            return Ok(Self::File { path: file(settings), options: SqliteOptions::new(partitions).expect(valid) });
        };
        let client = Client::new(engine_config(server))
            .map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
        Ok(Self::Redis { client, options: RedisOptions::new("tg:", partitions, server.timeout).expect(valid) })
    }

    /// Whether there is a store.
    async fn exists(&self) -> Result<bool, StoreError> {
        match self {
            Self::File { path, .. } => path
                .try_exists()
                .map_err(|error| StoreError::Unavailable { reason: format!("{}: {error}", path.display()) }),
            Self::Redis { client, options } => RedisStore::exists(client, options).await,
        }
    }

    /// Opens the store, or makes it.
    ///
    /// # Errors
    /// It cannot be reached, or holds something else.
    pub(crate) async fn open(&self) -> Result<Store, StoreError> {
        match self {
            Self::File { path, options } => {
                let (path, options) = (path.clone(), options.clone());
                // A disk may keep its reader waiting; calls are answered meanwhile.
                let opened = spawn_blocking(move || SqliteStore::open(&path, &options)).await;
                opened
                    .unwrap_or_else(|error| Err(StoreError::Unavailable { reason: error.to_string() }))
                    .map(Store::Sqlite)
            }
            Self::Redis { client, options } => {
                RedisStore::open(client.clone(), options.clone()).await.map(Store::Redis)
            }
        }
    }

    fn pause(&self) -> Duration {
        match self {
            Self::File { .. } => LOOK_AT_FILE,
            Self::Redis { .. } => LOOK,
        }
    }
}

/// Where workflows are when there is no Redis.
pub(crate) fn file(settings: &Settings) -> PathBuf {
    settings.data_dir.join(FILE)
}

/// Where workflows are, without credentials.
pub(crate) fn shown(settings: &Settings, redis: Option<&RedisServer>) -> String {
    match redis {
        Some(server) => format!("redis at {}", server.shown),
        None => file(settings).display().to_string(),
    }
}

/// How the engine reaches Redis. Of the settings for rate limits it has where and with what to connect, but not how a call is split: the
/// reference's default of one node at a time would make lists and sweeps wait for node after node.
fn engine_config(server: &RedisServer) -> Config {
    let mut config = server.config.clone();
    config.parallelism = Parallelism::UNBOUNDED;
    config.grouping = Grouping::Node;
    config
}

/// Opens the store that is wanted, and tells the API about it until then.
pub(super) struct Opener<'a> {
    pub(super) settings: &'a Settings,
    pub(super) redis: Option<&'a RedisServer>,
    pub(super) api: &'a Api,
    /// Told what the first look found.
    pub(super) looked: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl Opener<'_> {
    /// Opens the store if it exists, else when the first call needs it. As long as it cannot be opened, calls are answered with the reason.
    ///
    /// # Cancellation
    /// When the future is dropped, a store may have been made, empty.
    pub(super) async fn open(mut self) -> Engine {
        let (mut called, mut reported) = (false, String::new());
        let mut place = None;
        loop {
            let found = self.look(&mut place, called).await;
            let pause = place.as_ref().map_or(LOOK, Place::pause);
            if let Some(looked) = self.looked.take() {
                // The starter may have stopped waiting.
                let _ = looked.send(found.as_ref().map(drop).map_err(StoreError::clone));
            }
            match found {
                Ok(Some(engine)) => {
                    if !reported.is_empty() {
                        info!("the store of workflows is open");
                    }
                    return engine;
                }
                Ok(None) => called = timeout(LOOK, self.api.await_call()).await.is_ok(),
                Err(error) => {
                    self.report(&error, &mut reported);
                    sleep(pause).await;
                }
            }
        }
    }

    /// One look. None: there is no store, and nobody has asked for one.
    async fn look(&self, place: &mut Option<Place>, called: bool) -> Result<Option<Engine>, StoreError> {
        let place = match place {
            Some(place) => place,
            None => place.insert(Place::new(self.settings, self.redis)?),
        };
        if !called && !place.exists().await? {
            return Ok(None);
        }
        let Settings { retention, memory, .. } = *self.settings;
        Engine::start(place.open().await?, EngineOptions { retention, memory }).await.map(Some)
    }

    /// Tells callers, and the log if it is news.
    fn report(&self, error: &StoreError, reported: &mut String) {
        let reason = error.to_string();
        let store = shown(self.settings, self.redis);
        self.api.refuse(format!("workflows are not available: the store, {store}, cannot be opened: {reason}"));
        if *reported != reason {
            warn!(
                store,
                %error,
                "workflows are not available: their store cannot be opened; limits are served, calls of /v1 are answered with 503, and it \
                 is tried again. Set TIDEGATE_DATA_DIR to a folder that only this server uses, or TIDEGATE_HTTP_ADDR to an empty value to turn \
                 workflows off"
            );
            *reported = reason;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflows_talk_to_all_nodes_at_once_whatever_rate_limits_do() {
        let mut config = Config::single("127.0.0.1:1".parse().unwrap());
        config.parallelism = Parallelism::SERIAL;
        config.grouping = Grouping::Key;
        config.database = 3;
        let server = RedisServer { config, shown: String::new(), auth: String::new(), timeout: Duration::from_secs(1) };
        let config = engine_config(&server);
        assert_eq!((config.parallelism, config.grouping), (Parallelism::UNBOUNDED, Grouping::Node));
        assert_eq!(config.database, 3);
    }
}
