//! Servers in this process at many addresses of loopback, on one port, that answer what a test says and vanish together.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tidegate_pipeline::{Address, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fake::next_command;

/// A command that a server got.
pub(crate) struct Asked<'a> {
    /// The address at which it was asked.
    pub(crate) host: &'a str,
    /// Which of the crowd's connections it came on, the first is 0.
    pub(crate) connection: u64,
    pub(crate) command: &'a [String],
}

/// What a server does about a command.
pub(crate) enum Answer {
    Reply(String),
    /// The connection ends after it.
    Last(String),
    /// It never answers.
    Nothing,
}

type Answers = dyn Fn(&Asked<'_>) -> Option<Answer> + Send + Sync;

/// Every address of 127.0.0.0/8 at one port. Commands about which the test says nothing are answered as a server of a cluster
/// that has all slots would, without counting. Ends with the handle.
pub(crate) struct Crowd {
    pub(crate) port: u16,
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    accepting: JoinSet<()>,
    /// Connections that nobody accepts, which fill the queue of the listener.
    fillers: Vec<TcpStream>,
}

struct Shared {
    answers: Box<Answers>,
    /// The reply to CLUSTER SLOTS.
    slots: Mutex<String>,
    accepted: AtomicU64,
    connections: Mutex<JoinSet<()>>,
}

impl Crowd {
    pub(crate) async fn start() -> Self {
        Self::answering(|_| None).await
    }

    pub(crate) async fn answering(
        answers: impl Fn(&Asked<'_>) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let listener = Arc::new(TcpListener::bind("0.0.0.0:0").await.unwrap());
        let shared = Arc::new(Shared {
            answers: Box::new(answers),
            slots: Mutex::new("*0\r\n".to_owned()),
            accepted: AtomicU64::new(0),
            connections: Mutex::default(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(Arc::clone(&listener), Arc::clone(&shared)));
        Self {
            port: listener.local_addr().unwrap().port(),
            listener,
            shared,
            accepting,
            fillers: Vec::new(),
        }
    }

    pub(crate) fn address(&self, host: &str) -> Address {
        Address::Tcp {
            host: host.to_owned(),
            port: self.port,
        }
    }

    /// The configuration of a cluster that the server at 127.0.0.1 is a seed of.
    pub(crate) fn config(&self) -> Config {
        Config::cluster(vec![self.address("127.0.0.1")])
    }

    /// From here on, CLUSTER SLOTS says that these own the first slots, as many each as all of 16,384 would be.
    pub(crate) fn name_owners(&self, owners: &[Address], all: usize) {
        let mut text = format!("*{}\r\n", owners.len());
        for (at, owner) in owners.iter().enumerate() {
            let Address::Tcp { host, port } = owner else {
                unreachable!("the crowd is on TCP")
            };
            let (first, next) = (at * 16_384 / all, (at + 1) * 16_384 / all);
            let primary = format!("*3\r\n${}\r\n{host}\r\n:{port}\r\n$2\r\nid\r\n", host.len());
            text += &format!("*3\r\n:{first}\r\n:{}\r\n{primary}", next - 1);
        }
        *self
            .shared
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// Connections so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.shared.accepted.load(SeqCst)
    }

    /// Ends all connections. New ones are welcome.
    pub(crate) fn hang_up(&self) {
        self.shared
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .abort_all();
    }

    /// Ends all connections, and drops the packets that would open new ones: they are neither accepted nor refused.
    pub(crate) async fn vanish(&mut self) {
        self.accepting.shutdown().await;
        self.hang_up();
        // The system drops packets for a listener whose queue is full.
        SockRef::from(&*self.listener).listen(0).unwrap();
        while let Ok(filler) = timeout(
            Duration::from_millis(300),
            TcpStream::connect(("127.0.0.1", self.port)),
        )
        .await
        {
            self.fillers.push(filler.unwrap());
        }
    }
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

async fn accept(listener: Arc<TcpListener>, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let connection = shared.accepted.fetch_add(1, SeqCst);
        let serving = serve(stream, connection, Arc::clone(&shared));
        shared
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .spawn(serving);
    }
}

async fn serve(mut stream: TcpStream, connection: u64, shared: Arc<Shared>) {
    let host: IpAddr = stream.local_addr().unwrap().ip();
    let (host, mut input) = (host.to_string(), BytesMut::new());
    while let Ok(1..) = stream.read_buf(&mut input).await {
        let mut output = String::new();
        let mut is_last = false;
        while let Some(command) = next_command(&mut input).filter(|_| !is_last) {
            let command: Vec<String> = command
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            let asked = Asked {
                host: &host,
                connection,
                command: &command,
            };
            match (shared.answers)(&asked).unwrap_or_else(|| shared.usual_answer(&command)) {
                Answer::Reply(reply) => output += &reply,
                Answer::Last(reply) => {
                    output += &reply;
                    is_last = true;
                }
                Answer::Nothing => {}
            }
        }
        if stream.write_all(output.as_bytes()).await.is_err() || is_last {
            return;
        }
    }
}

impl Shared {
    fn usual_answer(&self, command: &[String]) -> Answer {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        Answer::Reply(match words[..] {
            ["PING", ..] => "+PONG\r\n".to_owned(),
            ["CLUSTER", "SLOTS"] => self
                .slots
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            ["INCRBY", ..] | ["EXPIRE", ..] => ":1\r\n".to_owned(),
            ["ASKING"] => "+OK\r\n".to_owned(),
            _ => format!("-ERR unknown command '{}'\r\n", words[0]),
        })
    }
}
