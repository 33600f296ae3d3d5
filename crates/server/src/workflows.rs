//! The workflow engine and its API. They have a thread of their own, so that rate limits and workflows do not wait for each other.

mod driver;

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_api::{Access, Activity, Api, Host};
use tidegate_pipeline::{Client, Config, Grouping, Parallelism};
use tidegate_workflow::{
    Engine, EngineOptions, RedisOptions, RedisStore, SqliteOptions, SqliteStore, Store, StoreError,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::edge::bounds::Bounds;
use crate::edge::clock;
use crate::edge::http;
use crate::edge::runtime::ThreadRuntime;
use crate::error::ServeError;
use crate::operate::health::Health;
use crate::settings::{Redis, RedisServer, Workflows as Settings};
use crate::supervise::{Supervisor, tripwire};

/// The name of the thread.
const PART: &str = "workflows";
/// The name of the database in the data folder.
const FILE: &str = "workflows.db";

/// Bytes that unfinished bodies may hold: sixteen of the largest by default, and never fewer than four.
const UNFINISHED: usize = 128 * 1024 * 1024;

/// The running thread.
#[derive(Debug)]
pub(crate) struct Workflows {
    /// Takes the socket of the API when the ports open.
    open: Option<oneshot::Sender<(std::net::TcpListener, usize)>>,
    pub(crate) activity: Arc<Activity>,
    /// Where workflows are, without credentials.
    pub(crate) store: String,
}

/// What the thread needs at its start.
struct Start {
    settings: Settings,
    redis: Option<RedisServer>,
    activity: Arc<Activity>,
    health: Health,
    supervisor: Supervisor,
}

impl Workflows {
    /// Opens the store and starts the engine. The API is not served yet.
    ///
    /// # Errors
    /// The store cannot be opened, or the system refuses a thread.
    pub(crate) async fn start(
        settings: &Settings,
        redis: Option<&Redis>,
        health: &Health,
        supervisor: &Supervisor,
    ) -> Result<Self, ServeError> {
        let redis = redis.map(|redis| redis.main.clone());
        let store = shown(settings, redis.as_ref());
        let activity = Arc::new(Activity::default());
        let start = Start {
            settings: settings.clone(),
            redis,
            activity: activity.clone(),
            health: health.clone(),
            supervisor: supervisor.clone(),
        };
        let runtime = ThreadRuntime::new()?;
        let (open, opened) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let main = move || runtime.block_on(tripwire::with(PART.into(), start.run(tell, opened)));
        supervisor.thread(PART, main)?;
        match told.await {
            Ok(Ok(())) => Ok(Self { open: Some(open), activity, store }),
            Ok(Err(source)) => Err(ServeError::Workflows { store, source }),
            Err(_) => Err(std::io::Error::other("the thread of the workflows ended during the start").into()),
        }
    }

    /// Serves the API on `listener`, with so many connections at most.
    pub(crate) fn open(&mut self, listener: std::net::TcpListener, connections: usize) {
        if let Some(open) = self.open.take() {
            // If the thread has ended, the supervisor reports it.
            let _ = open.send((listener, connections));
        }
    }
}

impl Start {
    async fn run(
        self,
        tell: oneshot::Sender<Result<(), StoreError>>,
        opened: oneshot::Receiver<(std::net::TcpListener, usize)>,
    ) {
        let engine = match self.engine().await {
            Ok(engine) => engine,
            Err(error) => {
                // The caller may have stopped waiting. It ends the server; a part that ends before would hide the reason.
                let _ = tell.send(Err(error));
                return self.supervisor.drain.cancelled().await;
            }
        };
        let _ = tell.send(Ok(()));
        let api = Api::new(engine.clone(), self.access(), self.activity.clone(), self.host());
        let drive = driver::run(engine.clone(), self.activity.clone(), api.store_answers(), self.supervisor.clone());
        let driver = tokio::spawn(drive);
        match opened.await {
            Ok((listener, connections)) => self.serve(listener, connections, api).await,
            // The start failed elsewhere.
            Err(_) => self.supervisor.drain.cancelled().await,
        }
        driver.abort();
        // An aborted task returns nothing.
        let _ = driver.await;
        engine.close().await;
        if let Store::Sqlite(store) = engine.store() {
            store.close().await;
        }
        info!("workflows have stopped");
    }

    /// Serves the API until the server stops.
    async fn serve(&self, listener: std::net::TcpListener, connections: usize, api: Api) {
        let bytes = UNFINISHED.max(self.settings.max_body.saturating_mul(4));
        let bounds = Bounds::new("API", connections, bytes);
        match TcpListener::from_std(listener) {
            Ok(listener) => http::serve(listener, api.router(), bounds, self.supervisor.clone()).await,
            Err(error) => warn!(%error, "cannot register the listener of the API"),
        }
        self.supervisor.stop.cancelled().await;
    }

    fn access(&self) -> Access {
        let Settings { tokens, anonymous, max_body, max_streams, .. } = &self.settings;
        Access { tokens: tokens.clone(), anonymous: *anonymous, max_body: *max_body, max_streams: *max_streams }
    }

    fn host(&self) -> Host {
        let health = self.health.clone();
        let (drain, tasks) = (self.supervisor.drain.clone(), self.supervisor.tasks.clone());
        Host { clock: clock::moment, serving: Arc::new(move || health.serving()), drain, tasks }
    }

    async fn engine(&self) -> Result<Engine, StoreError> {
        let store = open(&self.settings, self.redis.as_ref()).await?;
        let Settings { retention, memory, .. } = self.settings;
        Engine::start(store, EngineOptions { retention, memory }).await
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

/// Opens the store, or creates it.
///
/// # Errors
/// It cannot be reached, or holds something else.
pub(crate) async fn open(settings: &Settings, redis: Option<&RedisServer>) -> Result<Store, StoreError> {
    let partitions = settings.partitions;
    match redis {
        Some(server) => {
            let client = Client::new(engine_config(server))
                .map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
            let options = RedisOptions::new("tg:", partitions, server.timeout);
            Ok(Store::Redis(RedisStore::open(client, options.expect("settings bound partitions")).await?))
        }
        None => {
            let options = SqliteOptions::new(partitions).expect("settings bound partitions");
            Ok(Store::Sqlite(SqliteStore::open(&file(settings), &options)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn workflows_talk_to_all_nodes_at_once_whatever_rate_limits_do() {
        let mut config = Config::single("127.0.0.1:1".parse().unwrap());
        config.parallelism = Parallelism::SERIAL;
        config.grouping = Grouping::Key;
        config.database = 3;
        let server = RedisServer { config, shown: String::new(), timeout: Duration::from_secs(1) };
        let config = engine_config(&server);
        assert_eq!((config.parallelism, config.grouping), (Parallelism::UNBOUNDED, Grouping::Node));
        assert_eq!(config.database, 3);
    }
}
