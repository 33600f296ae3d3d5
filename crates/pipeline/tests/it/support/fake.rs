//! A cluster in this process, for what real servers do too rarely: slots that move at every other command, and streams
//! that are cut, chopped and held up at random bytes.

mod state;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use fastrand::Rng;
use tidegate_pipeline::{Address, Config};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::support::cut::{Budget, Cut, Ending};

/// How the cluster treats connections. The default is fair: whole replies, at once, for ever.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) replies: Replies,
    /// Longest pause before replies leave.
    pub(crate) pause: Duration,
    /// A connection breaks after fewer bytes than this, read or written; 0 never.
    pub(crate) cut_within: usize,
}

/// In which pieces replies leave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    /// All that is ready, at once.
    #[default]
    Whole,
    /// In pieces of random sizes.
    Chopped,
    /// Never, but for the greeting: a black hole.
    Swallowed,
}

/// A cluster whose nodes answer from one shared state. Ends with the handle.
#[derive(Debug)]
pub(crate) struct FakeCluster {
    ports: Vec<u16>,
    state: Arc<Mutex<State>>,
    _listeners: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    ports: Vec<u16>,
    rng: Rng,
    weather: Weather,
    /// How long each reply of a node waits.
    delays: Vec<Duration>,
    /// For each slot the index of its owner.
    owners: Vec<usize>,
    /// Slots on their way, and where to.
    moving: HashMap<u16, usize>,
    /// Whether CLUSTER SLOTS is answered with an empty list.
    hidden: bool,
    /// Commands that are answered LOADING.
    loading: HashSet<&'static str>,
    /// Slots that every node takes for its neighbour's.
    disowned: HashSet<u16>,
    /// For each node its counters.
    counters: Vec<HashMap<Vec<u8>, i64>>,
    /// Increments the cluster ran, and those it sent elsewhere.
    ran: u64,
    redirected: u64,
}

/// What a node remembers about one connection.
#[derive(Debug, Default)]
struct Session {
    asking: Asking,
    transaction: Option<Transaction>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Asking {
    #[default]
    No,
    Yes,
}

#[derive(Debug, Default)]
struct Transaction {
    asking: Asking,
    queued: Vec<Vec<Vec<u8>>>,
    failed: Option<String>,
}

impl FakeCluster {
    /// Starts `nodes` nodes that share the slots evenly. What happens to connections follows from `seed`.
    pub(crate) async fn start(nodes: usize, seed: u64) -> Self {
        Self::start_with(nodes, seed, None).await
    }

    /// As [`FakeCluster::start`]. Connections are encrypted when there is an `acceptor`, and cut in the encrypted bytes.
    pub(crate) async fn start_with(nodes: usize, seed: u64, acceptor: Option<TlsAcceptor>) -> Self {
        let mut listeners = Vec::new();
        for _ in 0..nodes {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let ports: Vec<u16> = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap().port())
            .collect();
        let state = Arc::new(Mutex::new(State {
            ports: ports.clone(),
            rng: Rng::with_seed(seed),
            weather: Weather::default(),
            delays: vec![Duration::ZERO; nodes],
            owners: (0..16_384).map(|slot| slot * nodes / 16_384).collect(),
            moving: HashMap::new(),
            hidden: false,
            loading: HashSet::new(),
            disowned: HashSet::new(),
            counters: vec![HashMap::new(); nodes],
            ran: 0,
            redirected: 0,
        }));
        let mut tasks = JoinSet::new();
        for (node, listener) in listeners.into_iter().enumerate() {
            tasks.spawn(accept(listener, node, Arc::clone(&state), acceptor.clone()));
        }
        Self {
            ports,
            state,
            _listeners: tasks,
        }
    }

    /// A configuration that knows one node and waits little.
    pub(crate) fn config(&self) -> Config {
        self.impatient(Config::cluster(vec![self.address(0)]))
    }

    /// A configuration for the first node alone.
    pub(crate) fn single(&self) -> Config {
        self.impatient(Config::single(self.address(0)))
    }

    fn impatient(&self, mut config: Config) -> Config {
        (config.backoff_min, config.backoff_max) =
            (Duration::from_millis(1), Duration::from_millis(5));
        config
    }

    fn address(&self, node: usize) -> Address {
        Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port: self.ports[node],
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Changes how connections are treated. Those that are open keep the point at which they will be cut.
    pub(crate) fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// The node that owns a key.
    pub(crate) fn owner(&self, key: &str) -> usize {
        self.state().owners[usize::from(slot_of(key.as_bytes()))]
    }

    /// Makes each reply of a node wait so long.
    pub(crate) fn slow_down(&self, node: usize, delay: Duration) {
        self.state().delays[node] = delay;
    }

    /// The value of a counter; 0 when nobody ever counted there.
    pub(crate) fn counter(&self, key: &str) -> i64 {
        self.state()
            .counters
            .iter()
            .filter_map(|counters| counters.get(key.as_bytes()))
            .sum()
    }

    /// Forgets a counter, and returns its value.
    pub(crate) fn forget(&self, key: &str) -> i64 {
        self.state()
            .counters
            .iter_mut()
            .filter_map(|counters| counters.remove(key.as_bytes()))
            .sum()
    }

    /// The counters that were not forgotten.
    pub(crate) fn counters(&self) -> Vec<(String, i64)> {
        let name = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
        let state = self.state();
        state
            .counters
            .iter()
            .flatten()
            .map(|(key, value)| (name(key), *value))
            .collect()
    }

    /// Increments the cluster ran so far.
    pub(crate) fn ran(&self) -> u64 {
        self.state().ran
    }

    /// Commands the cluster sent elsewhere so far.
    pub(crate) fn redirected(&self) -> u64 {
        self.state().redirected
    }

    /// From here on every node takes the slot of `key` for its neighbour's.
    pub(crate) fn disown(&self, key: &str) {
        self.state().disowned.insert(slot_of(key.as_bytes()));
    }

    /// From here on no node says who owns what.
    pub(crate) fn hide_owners(&self) {
        self.state().hidden = true;
    }

    /// From here on every node says who owns what.
    pub(crate) fn show_owners(&self) {
        self.state().hidden = false;
    }

    /// From here on commands of these names are answered LOADING.
    pub(crate) fn load(&self, names: &[&'static str]) {
        self.state().loading = names.iter().copied().collect();
    }

    /// Gives all slots of a node that holds no counters to another one.
    pub(crate) fn hand_over(&self, from: usize, to: usize) {
        self.state()
            .owners
            .iter_mut()
            .filter(|owner| **owner == from)
            .for_each(|owner| *owner = to);
    }

    /// Takes one random step in the life of the slot of `key`: it starts to move, a key of it travels, or it arrives.
    /// True when it arrived.
    pub(crate) fn shuffle(&self, key: &str) -> bool {
        self.state().shuffle(slot_of(key.as_bytes()))
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn slot_of(key: &[u8]) -> u16 {
    redis_protocol::redis_keyslot(key)
}

async fn accept(
    listener: TcpListener,
    node: usize,
    state: Arc<Mutex<State>>,
    acceptor: Option<TlsAcceptor>,
) {
    // Dropping the set ends the connections with their listener.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, node, Arc::clone(&state), acceptor.clone()));
    }
}

/// Answers one connection until it is cut or closed.
async fn serve(
    stream: TcpStream,
    node: usize,
    state: Arc<Mutex<State>>,
    acceptor: Option<TlsAcceptor>,
) {
    let _ = stream.set_nodelay(true);
    let (rng, budget) = {
        let mut state = lock(&state);
        let cut = state.weather.cut_within;
        let mut bytes = || {
            if cut == 0 {
                usize::MAX
            } else {
                state.rng.usize(..cut)
            }
        };
        let (readable, writable) = (bytes(), bytes());
        let ending = if state.rng.bool() {
            Ending::Reset
        } else {
            Ending::Plain
        };
        (
            state.rng.fork(),
            Budget {
                readable,
                writable,
                ending,
            },
        )
    };
    let stream = Cut::new(stream, budget);
    let Some(acceptor) = acceptor else {
        return converse(stream, node, &state, rng).await;
    };
    if let Ok(stream) = acceptor.accept(stream).await {
        converse(stream, node, &state, rng).await;
    }
}

async fn converse<S>(mut stream: S, node: usize, state: &Mutex<State>, mut rng: Rng)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut session, mut input, mut output) =
        (Session::default(), BytesMut::new(), BytesMut::new());
    // Commands that arrived whole before the cut do run: the client cannot know.
    while let Ok(1..) = stream.read_buf(&mut input).await {
        let (weather, delay) = {
            let mut state = lock(state);
            while let Some(command) = next_command(&mut input) {
                let reply = state.run(node, &mut session, command);
                output.extend_from_slice(reply.as_bytes());
            }
            (state.weather, state.delays[node])
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if weather.replies == Replies::Swallowed {
            output.truncate(if output.starts_with(b"+PONG\r\n") {
                7
            } else {
                0
            });
        }
        if !weather.pause.is_zero() && rng.bool() {
            tokio::time::sleep(weather.pause.mul_f64(rng.f64())).await;
        }
        if write(&mut stream, &mut output, weather.replies, &mut rng)
            .await
            .is_err()
        {
            return;
        }
    }
}

async fn write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    output: &mut BytesMut,
    replies: Replies,
    rng: &mut Rng,
) -> Result<(), std::io::Error> {
    while !output.is_empty() {
        let piece = match replies {
            Replies::Chopped => rng.usize(1..=output.len().min(24)),
            Replies::Whole | Replies::Swallowed => output.len(),
        };
        stream.write_all(&output[..piece]).await?;
        output.advance(piece);
        if replies == Replies::Chopped && rng.u8(..4) == 0 {
            tokio::task::yield_now().await;
        }
    }
    stream.flush().await
}

/// Takes one command off the front, when a whole one is there.
pub(crate) fn next_command(input: &mut BytesMut) -> Option<Vec<Vec<u8>>> {
    let mut at = 0;
    let header = |at: &mut usize| -> Option<usize> {
        let line = input[*at..].windows(2).position(|end| end == b"\r\n")?;
        let number = std::str::from_utf8(&input[*at + 1..*at + line])
            .unwrap()
            .parse()
            .unwrap();
        *at += line + 2;
        Some(number)
    };
    let mut command = Vec::new();
    for _ in 0..header(&mut at)? {
        let length = header(&mut at)?;
        command.push(input.get(at..at + length)?.to_vec());
        input.get(at + length..at + length + 2)?;
        at += length + 2;
    }
    input.advance(at);
    Some(command)
}
