//! A proxy in front of a real server that treats its connections badly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use socket2::SockRef;
use tidegate_pipeline::{Address, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What happens to bytes. A change reaches open connections at their next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Forward,
    /// What is on its way to the server waits for so long: each round trip takes this time at least.
    Delay(Duration),
    /// One byte per write.
    Trickle,
    /// Bytes vanish, and no end is told: the other side is gone without a word. An open connection never recovers.
    Silent,
    /// The first connection ends after this many bytes to the server; later ones are left alone.
    CutUp(usize),
    /// The first connection ends after this many bytes from the server; later ones are left alone.
    CutDown(usize),
}

/// A running proxy. Ends with the handle.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    mode: watch::Sender<Mode>,
    _task: JoinSet<()>,
}

/// One direction of one connection.
struct Pump {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    mode: watch::Receiver<Mode>,
    direction: Direction,
    /// Bytes left until the cut.
    left: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl Proxy {
    pub(crate) async fn start(target: u16, mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, receiver) = watch::channel(mode);
        let mut task = JoinSet::new();
        task.spawn(accept(listener, target, receiver));
        Self {
            port,
            mode: sender,
            _task: task,
        }
    }

    pub(crate) fn config(&self) -> Config {
        Config::single(self.address())
    }

    pub(crate) fn address(&self) -> Address {
        Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port: self.port,
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn accept(listener: TcpListener, target: u16, mode: watch::Receiver<Mode>) {
    let mut connections = JoinSet::new();
    let accepted = Arc::new(AtomicUsize::new(0));
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else {
            continue;
        };
        let first = accepted.fetch_add(1, SeqCst) == 0;
        let (up, down) = match *mode.borrow() {
            Mode::CutUp(bytes) if first => (bytes, usize::MAX),
            Mode::CutDown(bytes) if first => (usize::MAX, bytes),
            _ => (usize::MAX, usize::MAX),
        };
        connections.spawn(join(client, server, mode.clone(), (up, down)));
    }
}

/// Carries bytes both ways until either way ends; then both ends are closed.
async fn join(
    client: TcpStream,
    server: TcpStream,
    mode: watch::Receiver<Mode>,
    budgets: (usize, usize),
) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    // Cut on its way up, the client is reset as by a crash. Cut on its way down, what was let through must arrive.
    if budgets.0 < usize::MAX {
        SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = Pump {
        from: from_client,
        to: to_server,
        mode: mode.clone(),
        direction: Direction::Up,
        left: budgets.0,
    };
    let down = Pump {
        from: from_server,
        to: to_client,
        mode,
        direction: Direction::Down,
        left: budgets.1,
    };
    tokio::select! {
        () = up.run() => {}
        () = down.run() => {}
    }
}

impl Pump {
    /// Forwards bytes and all that arrived behind them.
    async fn forward_rest(&mut self, first: &[u8]) {
        let mut bytes = first.to_vec();
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(more @ 1..) = self.from.try_read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..more]);
        }
        // A connection that broke is noticed by the next read.
        let _ = self.to.write_all(&bytes).await;
    }

    async fn run(mut self) {
        let mut buffer = vec![0; 64 * 1024];
        let mut silent = false;
        while let Ok(read @ 1..) = self.from.read(&mut buffer).await {
            let bytes = &buffer[..read.min(self.left)];
            let cut = bytes.len() < read;
            let mode = *self.mode.borrow();
            silent |= mode == Mode::Silent;
            if silent {
                continue;
            }
            if let (Mode::Delay(time), Direction::Up) = (mode, self.direction) {
                tokio::time::sleep(time).await;
                self.forward_rest(&buffer[..read]).await;
                continue;
            }
            self.left -= bytes.len();
            let size = if mode == Mode::Trickle {
                1
            } else {
                bytes.len()
            };
            for piece in bytes.chunks(size) {
                if self.to.write_all(piece).await.is_err() {
                    return;
                }
            }
            if cut {
                return;
            }
        }
    }
}
