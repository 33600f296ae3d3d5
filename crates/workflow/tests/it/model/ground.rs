//! What a world stands on: a store, and what can befall it.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tempfile::TempDir;
use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{
    CallKind, DataLoss, Engine, EngineOptions, Fault, InjectedFault, RedisOptions, RedisStore,
    SimulatedStore, SqliteOptions, SqliteStore, Store,
};

pub(crate) const PARTITIONS: u16 = 2;
/// How long a store may take to answer again.
const PATIENCE: Duration = Duration::from_secs(20);
/// More pages than a file ever has.
const NO_BOUND: u32 = u32::MAX - 1;

pub(crate) enum Ground {
    /// Requests and answers can be lost, and what is asked at one time happens in any order.
    Simulated(SimulatedStore),
    /// A file that is closed and opened again, on a disk that is full at times.
    Sqlite(Store, TempDir),
    /// A Redis with a log, that is killed and comes back, is full or has no replica at times, and loses things.
    Redis(Box<RedisServer>),
}

/// How a store does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    Fair,
    /// Requests and answers are lost.
    Lossy,
    /// It can be read and not be written.
    Refusing,
    /// It is being killed.
    Dying,
}

impl Weather {
    pub(crate) fn is_bad(self) -> bool {
        self != Self::Fair
    }
}

impl Ground {
    pub(crate) fn simulated() -> Self {
        Self::Simulated(SimulatedStore::new(PARTITIONS))
    }

    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::Sqlite(open_file(&folder), folder)
    }

    pub(crate) async fn redis() -> Self {
        Self::Redis(Box::new(
            RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await,
        ))
    }

    /// A server that knows nothing yet.
    pub(crate) async fn engine(&self) -> Engine {
        let store = match self {
            Self::Simulated(store) => Store::Simulated(store.clone()),
            Self::Sqlite(store, _) => store.clone(),
            Self::Redis(redis) => redis_store(redis, PARTITIONS).await,
        };
        Engine::start(store, EngineOptions::default())
            .await
            .unwrap()
    }

    /// A server that would make another store than the first one did.
    pub(crate) async fn other_engine(&self) -> Engine {
        match self {
            Self::Redis(redis) => {
                let store = redis_store(redis, PARTITIONS / 2).await;
                Engine::start(store, EngineOptions::default())
                    .await
                    .unwrap()
            }
            _ => self.engine().await,
        }
    }

    /// From now on the store does so. In any weather the calls of a simulated store overtake each other.
    pub(crate) async fn becomes(&self, weather: Weather, rng: &mut Rng) {
        match self {
            Self::Simulated(store) => {
                let mut rng = rng.fork();
                store.inject(move |call| injected_fault(weather, call, &mut rng));
            }
            Self::Sqlite(Store::Sqlite(file), _) => {
                file.limit_pages(if weather == Weather::Refusing {
                    1
                } else {
                    NO_BOUND
                })
                .await
                .unwrap();
            }
            Self::Sqlite(..) => unreachable!("it is one"),
            Self::Redis(redis) => {
                let (full, alone) = match weather {
                    Weather::Refusing if rng.bool() => (1, 0),
                    Weather::Refusing => (0, 1),
                    _ => (0, 0),
                };
                let settings = format!("CONFIG SET maxmemory {full} min-replicas-to-write {alone}");
                assert_eq!(redis.raw(&settings), "+OK\r\n");
            }
        }
    }

    /// Nothing fails and nothing waits: for those who look whether all is well.
    pub(crate) fn holds_still(&self) {
        if let Self::Simulated(store) = self {
            store.inject(|_| Fault::None);
        }
    }

    /// The weathers that it can have, and that nobody dies of.
    pub(crate) fn climate(&self) -> &'static [Weather] {
        match self {
            Self::Simulated(_) => &[Weather::Lossy, Weather::Refusing],
            Self::Sqlite(..) | Self::Redis(_) => &[Weather::Refusing],
        }
    }

    /// Whether it can be killed and comes back.
    pub(crate) fn is_mortal(&self) -> bool {
        !matches!(self, Self::Simulated(_))
    }

    /// Loses something. Returns false when it never does.
    pub(crate) fn lose(&self, loss: DataLoss) -> bool {
        match self {
            Self::Simulated(store) => store.lose(loss),
            Self::Sqlite(..) => return false,
            Self::Redis(redis) => {
                let keys = match loss {
                    DataLoss::Everything => {
                        assert_eq!(redis.raw("FLUSHALL"), "+OK\r\n");
                        return true;
                    }
                    DataLoss::State(id) => keys(redis, &format!("model:*:[sw]:{id}")),
                    DataLoss::Ready(at) => keys(redis, "model:*:rq")
                        .into_iter()
                        .skip(at.0.into())
                        .take(1)
                        .collect(),
                    DataLoss::Registers => {
                        vec!["model:queues".to_owned(), "model:names".to_owned()]
                    }
                };
                let _number = redis.raw(&format!("DEL none {}", keys.join(" ")));
            }
        }
        true
    }

    /// From now on messages between servers are lost, or not. Returns false where none ever is.
    pub(crate) fn lose_messages(&self, lost: bool) -> bool {
        let Self::Simulated(store) = self else {
            return false;
        };
        store.lose_messages(if lost { u64::MAX } else { 0 });
        true
    }

    /// Calls of the store so far, if it counts them.
    pub(crate) fn calls(&self) -> u64 {
        if let Self::Simulated(store) = self {
            store.calls()
        } else {
            0
        }
    }

    /// Dies at any moment of what goes on, and comes back with all that it said was written.
    pub(crate) async fn die(&mut self, after: usize) {
        for _ in 0..after {
            tokio::task::yield_now().await;
        }
        match self {
            Self::Simulated(_) => {}
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

    /// Servers that can use the store again. Those of a file that was closed are new ones.
    pub(crate) async fn servers_after(&self, servers: &mut [Engine]) {
        let begin = Instant::now();
        for engine in servers {
            if let Self::Sqlite(..) = self {
                *engine = self.engine().await;
            }
            while engine.queue_states().await.is_err() {
                assert!(begin.elapsed() < PATIENCE, "the store does not come back");
            }
        }
    }
}

fn injected_fault(weather: Weather, call: CallKind, rng: &mut Rng) -> InjectedFault {
    let fault = match (weather, rng.u8(..9)) {
        (Weather::Refusing, _) if call == CallKind::Write => Fault::Refused,
        (Weather::Lossy, 0) => Fault::Refused,
        (Weather::Lossy, 1) => Fault::AnswerLost,
        (Weather::Lossy, 2) => Fault::RequestLost,
        _ => Fault::None,
    };
    let mut turns = || if rng.u8(..3) == 0 { rng.u8(..5) } else { 0 };
    InjectedFault {
        fault,
        before: turns(),
        after: turns(),
    }
}

async fn redis_store(redis: &RedisServer, partitions: u16) -> Store {
    let options = RedisOptions::new("model:", partitions, Duration::from_secs(1)).unwrap();
    let client = Client::new(redis.config()).unwrap();
    Store::Redis(RedisStore::open(client, options).await.unwrap())
}

fn keys(redis: &RedisServer, pattern: &str) -> Vec<String> {
    let answer = redis.raw(&format!("KEYS {pattern}"));
    let mut keys: Vec<String> = answer
        .lines()
        .filter(|line| line.starts_with("model:"))
        .map(str::to_owned)
        .collect();
    keys.sort_unstable();
    keys
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
