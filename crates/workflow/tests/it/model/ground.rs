//! What a world stands on: a store, and what can befall it.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tempfile::TempDir;
use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{
    Engine, EngineOptions, Fault, MemoryStore, RedisOptions, RedisStore, SqliteOptions, SqliteStore, Store,
};

const PARTITIONS: u16 = 2;
/// How long a store may take to answer again.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) enum Ground {
    /// Requests and answers can be lost.
    Memory(MemoryStore),
    /// A file that is closed and opened again.
    Sqlite(Store, TempDir),
    /// A Redis with a log, that is killed and comes back.
    Redis(Box<RedisServer>),
}

impl Ground {
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryStore::new(PARTITIONS))
    }

    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::Sqlite(open_file(&folder), folder)
    }

    pub(crate) async fn redis() -> Self {
        Self::Redis(Box::new(RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await))
    }

    /// A server that knows nothing yet.
    pub(crate) async fn engine(&self) -> Engine {
        let store = match self {
            Self::Memory(memory) => Store::Memory(memory.clone()),
            Self::Sqlite(store, _) => store.clone(),
            Self::Redis(redis) => {
                let options = RedisOptions::new("model:", PARTITIONS, Duration::from_secs(1)).unwrap();
                let client = Client::new(redis.config()).unwrap();
                Store::Redis(RedisStore::open(client, options).await.unwrap())
            }
        };
        Engine::start(store, EngineOptions::default()).await.unwrap()
    }

    /// From now on requests and answers are lost, or no longer.
    pub(crate) fn lose(&self, faulty: bool, mut rng: Rng) {
        if let Self::Memory(memory) = self {
            memory.inject(move || match rng.u8(..9) {
                0 if faulty => Fault::Refused,
                1 if faulty => Fault::AnswerLost,
                2 if faulty => Fault::RequestLost,
                _ => Fault::None,
            });
        }
    }

    /// Whether losing is something that this store does, other than dying.
    pub(crate) fn loses(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Dies at any moment of what goes on, and comes back with all that it said was written.
    pub(crate) async fn die(&mut self, after: usize) {
        for _ in 0..after {
            tokio::task::yield_now().await;
        }
        match self {
            Self::Memory(_) => {}
            Self::Sqlite(store, folder) => {
                if let Store::Sqlite(file) = &*store {
                    file.close().await;
                }
                *store = open_file(folder);
            }
            Self::Redis(redis) => {
                redis.kill();
                redis.restart().await;
            }
        }
    }

    /// Servers of which both can use the store again. Those of a file that was closed are new ones.
    pub(crate) async fn servers_after(&self, servers: [Engine; 2]) -> [Engine; 2] {
        if let Self::Sqlite(..) = self {
            return [self.engine().await, self.engine().await];
        }
        let begin = Instant::now();
        for engine in &servers {
            while engine.queue_states().await.is_err() {
                assert!(begin.elapsed() < PATIENCE, "the store does not come back");
            }
        }
        servers
    }
}

fn open_file(folder: &TempDir) -> Store {
    let options = SqliteOptions::new(PARTITIONS).unwrap();
    let begin = Instant::now();
    loop {
        match SqliteStore::open(&folder.path().join("model.db"), &options) {
            Ok(store) => return Store::Sqlite(store),
            // A process that another test is just starting has all files of this one, and with them the lock, until it runs its program.
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::yield_now();
    }
}
