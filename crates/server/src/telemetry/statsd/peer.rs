//! Connection to the receiver of metrics, with DNS lookups and reconnects.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_pipeline::dial_any;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout};

use crate::settings::Transport;

/// Timeout of a DNS lookup, and of a connection attempt.
const CONNECT: Duration = Duration::from_secs(3);
/// Shortest and longest back-off after a failure. It doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// Maximum age of a UDP socket, after which the name is resolved again. Datagrams do not reveal a
/// changed address.
const SOCKET_AGE: Duration = Duration::from_secs(60);

/// Function that resolves a host. It may block.
pub(super) type LookUp = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Resolves a host by the system. IPv4 addresses come first, since a datagram to an address without
/// a listener is lost silently.
pub(super) fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<_> = std::net::ToSocketAddrs::to_socket_addrs(&(host, port))?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    Ok(addresses)
}

pub(super) struct Peer {
    host: String,
    port: u16,
    transport: Transport,
    look_up: LookUp,
    /// DNS lookup in progress. There is at most one, so a resolver that hangs holds only one
    /// thread.
    looking_up: Option<JoinHandle<io::Result<Vec<SocketAddr>>>>,
    socket: Option<(Socket, Instant)>,
    /// Number of failures since the last success, and the time of the next attempt.
    failures: u32,
    due: Instant,
}

enum Socket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = if self.transport == Transport::Tcp {
            "tcp"
        } else {
            "udp"
        };
        write!(f, "{transport}://{}:{}", self.host, self.port)
    }
}

impl Peer {
    pub(super) fn new(host: String, port: u16, transport: Transport, look_up: LookUp) -> Self {
        let due = Instant::now();
        Self {
            host,
            port,
            transport,
            look_up,
            looking_up: None,
            socket: None,
            failures: 0,
            due,
        }
    }

    pub(super) fn transport(&self) -> Transport {
        self.transport
    }

    /// Connects, unless there is an open connection. If the future is dropped, the next call
    /// continues the lookup.
    ///
    /// # Errors
    /// There is no connection, or it is too early for another attempt.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        match &self.socket {
            Some((Socket::Tcp(stream), _)) if !is_closed(stream) => return Ok(()),
            Some((Socket::Udp(_), opened)) if opened.elapsed() < SOCKET_AGE => return Ok(()),
            _ => {}
        }
        if Instant::now() < self.due {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the last connection failed a moment ago",
            ));
        }
        match self.connect().await {
            Ok(socket) => {
                self.socket = Some((socket, Instant::now()));
                self.failures = 0;
                Ok(())
            }
            Err(error) => match &mut self.socket {
                // The old UDP socket may still have the right address.
                Some((Socket::Udp(_), opened)) => {
                    *opened = Instant::now();
                    Ok(())
                }
                _ => {
                    self.close();
                    Err(error)
                }
            },
        }
    }

    /// Sends all bytes of `piece`. If the future is dropped, a part may have been sent; the caller
    /// must close the connection then.
    ///
    /// # Errors
    /// The bytes were not sent, or only a part of them.
    pub(super) async fn send(&mut self, piece: &[u8]) -> io::Result<()> {
        match &mut self.socket {
            Some((Socket::Tcp(stream), _)) => stream.write_all(piece).await,
            Some((Socket::Udp(socket), _)) => socket.send(piece).await.map(drop),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Closes the connection. The next attempt waits for the back-off.
    pub(super) fn close(&mut self) {
        self.socket = None;
        let pause = FIRST_PAUSE
            .saturating_mul(1 << self.failures.min(5))
            .min(LAST_PAUSE);
        // Servers that lose their receiver at one time should not reconnect at one time.
        self.due = Instant::now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.failures = self.failures.saturating_add(1);
    }

    async fn connect(&mut self) -> io::Result<Socket> {
        let addresses = self.addresses().await?;
        if self.transport == Transport::Tcp {
            let connected = timeout(CONNECT, dial_any(&addresses)).await;
            return connected
                .map_err(|_| timed_out("no connection"))?
                .map(Socket::Tcp);
        }
        // UDP has no handshake that would show whether an address works, so each attempt begins
        // with another address.
        let first = self.failures as usize % addresses.len().max(1);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses[first..].iter().chain(&addresses[..first]) {
            match open_udp(*address).await {
                Ok(socket) => return Ok(Socket::Udp(socket)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn addresses(&mut self) -> io::Result<Vec<SocketAddr>> {
        let look_up = self.look_up;
        let host = self.host.clone();
        let port = self.port;
        let looking_up = self
            .looking_up
            .get_or_insert_with(|| spawn_blocking(move || look_up(&host, port)));
        let found = timeout(CONNECT, looking_up)
            .await
            .map_err(|_| timed_out("the name is not looked up"))?;
        self.looking_up = None;
        found.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

async fn open_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if address.is_ipv4() {
        ([0; 4], 0).into()
    } else {
        ([0; 16], 0).into()
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(socket)
}

fn timed_out(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} in {CONNECT:?}"))
}

/// Whether the peer has closed its side. Bytes that it sends are discarded.
fn is_closed(stream: &TcpStream) -> bool {
    let mut said = [0; 4096];
    // The number of reads is limited, for a peer that sends all the time.
    for _ in 0..16 {
        match stream.try_read(&mut said) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Barrier, OnceLock};

    use socket2::{Domain, Socket as Socket2, Type};

    use super::*;

    static GATE: Barrier = Barrier::new(2);
    static LOOKED_UP: AtomicUsize = AtomicUsize::new(0);

    fn hangs(_: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        LOOKED_UP.fetch_add(1, SeqCst);
        GATE.wait();
        Ok(vec![([127, 0, 0, 1], port).into()])
    }

    /// A resolver that does not answer must not gather threads, and its answer counts when it comes
    /// at last.
    #[tokio::test]
    async fn a_name_that_hangs_is_looked_up_once_at_a_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut peer = Peer::new("slow.test".to_owned(), port, Transport::Tcp, hangs);
        for _ in 0..3 {
            assert!(
                tokio::time::timeout(Duration::ZERO, peer.ready())
                    .await
                    .is_err()
            );
        }
        GATE.wait();
        peer.ready().await.unwrap();
        assert_eq!(LOOKED_UP.load(SeqCst), 1);
    }

    static SILENT: OnceLock<SocketAddr> = OnceLock::new();

    fn first_is_silent(_: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![
            *SILENT.get().expect("the test has set it"),
            ([127, 0, 0, 1], port).into(),
        ])
    }

    /// The first address took the whole time for a connection.
    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_others() {
        // Its queue is full, so that it answers no attempt to connect.
        let socket = || Socket2::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let [silent, first, second] = [socket(), socket(), socket()];
        silent
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        silent.listen(0).unwrap();
        let address = silent.local_addr().unwrap();
        for client in [&first, &second] {
            client.set_nonblocking(true).unwrap();
            let _ = client.connect(&address);
        }
        SILENT.set(address.as_socket().unwrap()).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut peer = Peer::new("two.test".to_owned(), port, Transport::Tcp, first_is_silent);
        peer.ready().await.unwrap();
    }
}
