//! The workflow engine and its API, on a thread of their own: neither gateway nor workflows wait for the other.

mod driver;

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_api::{Access, Activity, Api, Host};
use tidegate_pipeline::Client;
use tidegate_workflow::{
    Engine, EngineOptions, RedisOptions, RedisStore, SqliteOptions, SqliteStore, Store, StoreError,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::clock;
use crate::edge::{cores, http};
use crate::error::ServeError;
use crate::operate::health::Health;
use crate::settings::{Redis, RedisServer, Workflows as Settings};
use crate::supervise::Life;

/// The name of the file in the data folder.
const FILE: &str = "workflows.db";

/// The thread, once its engine has started.
#[derive(Debug)]
pub(crate) struct Workflows {
    /// Takes the socket when the ports are to open.
    open: Option<oneshot::Sender<std::net::TcpListener>>,
    thread: std::thread::JoinHandle<()>,
    pub(crate) activity: Arc<Activity>,
    /// Where workflows are, without credentials.
    pub(crate) store: String,
}

/// What the thread starts with.
struct Start {
    settings: Settings,
    redis: Option<RedisServer>,
    activity: Arc<Activity>,
    health: Health,
    life: Life,
}

impl Workflows {
    /// Opens the store and starts the engine; nobody can ask it yet.
    ///
    /// # Errors
    /// The store cannot be opened, or the system refuses a thread.
    pub(crate) async fn start(
        settings: &Settings,
        redis: Option<&Redis>,
        health: &Health,
        life: &Life,
    ) -> Result<Self, ServeError> {
        let redis = redis.map(|redis| redis.main.clone());
        let store = shown(settings, redis.as_ref());
        let activity = Arc::new(Activity::default());
        let (health, life) = (health.clone(), life.clone());
        let start = Start { settings: settings.clone(), redis, activity: activity.clone(), health, life };
        let runtime = cores::runtime()?;
        let (open, opened) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let main = move || runtime.block_on(start.run(tell, opened));
        let thread = std::thread::Builder::new().name("workflows".to_owned()).spawn(main)?;
        match told.await {
            Ok(Ok(())) => Ok(Self { open: Some(open), thread, activity, store }),
            Ok(Err(source)) => Err(ServeError::Workflows { store, source }),
            Err(_) => Err(std::io::Error::other("the thread of the workflows ended").into()),
        }
    }

    /// Lets clients in.
    pub(crate) fn open(&mut self, listener: std::net::TcpListener) {
        if let Some(open) = self.open.take() {
            // A thread that has ended says so when it is joined.
            let _ = open.send(listener);
        }
    }

    /// Waits for the thread, which ends when told to stop.
    pub(crate) fn join(self) {
        drop(self.open);
        if self.thread.join().is_err() {
            warn!("the thread of the workflows panicked");
        }
    }
}

impl Start {
    async fn run(
        self,
        tell: oneshot::Sender<Result<(), StoreError>>,
        opened: oneshot::Receiver<std::net::TcpListener>,
    ) {
        let started = self.engine().await;
        let engine = match started {
            Ok(engine) => engine,
            // Whoever asked for the start may have been told to stop.
            Err(error) => return drop(tell.send(Err(error))),
        };
        let _ = tell.send(Ok(()));
        let api = Api::new(engine.clone(), self.access(), self.activity.clone(), self.host());
        let drive = driver::run(engine.clone(), self.activity.clone(), api.store_answers(), self.life.clone());
        let driver = tokio::spawn(drive);
        if let Ok(listener) = opened.await {
            match TcpListener::from_std(listener) {
                Ok(listener) => http::serve(listener, api.router(), self.life.clone()).await,
                Err(error) => warn!(%error, "the API cannot listen"),
            }
            self.life.stop.cancelled().await;
        }
        driver.abort();
        // An aborted task has nothing to say.
        let _ = driver.await;
        engine.close().await;
        if let Store::Sqlite(store) = engine.store() {
            store.close().await;
        }
        info!("workflows have stopped");
    }

    fn access(&self) -> Access {
        let Settings { tokens, anonymous, max_body, .. } = &self.settings;
        Access { tokens: tokens.clone(), anonymous: *anonymous, max_body: *max_body }
    }

    fn host(&self) -> Host {
        let health = self.health.clone();
        let (drain, tasks) = (self.life.drain.clone(), self.life.tasks.clone());
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

/// Opens the store, or makes it.
///
/// # Errors
/// It cannot be reached, or is not one.
pub(crate) async fn open(settings: &Settings, redis: Option<&RedisServer>) -> Result<Store, StoreError> {
    let partitions = settings.partitions;
    match redis {
        Some(server) => {
            let client = Client::new(server.config.clone())
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
