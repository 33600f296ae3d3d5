//! A proxy that adds a fixed delay to each direction of a connection and nothing else.
//!
//! Every chunk is written a fixed time after it is read. Reading never waits for writing, so a
//! delay costs time and no throughput, as a longer wire would. A separate thread serves all
//! connections, because the timer of an asynchronous runtime is too coarse for a millisecond.
//! Connecting is not delayed.

pub(crate) mod command;
mod probe;
mod queue;
mod relay;

use std::io::PipeWriter;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};

pub(crate) use probe::proxy_accuracy;
use relay::Relay;

/// Proxies for some servers, on one thread; dropping it closes their connections and ends the
/// thread.
pub(crate) struct DelayProxy {
    /// Addresses of the proxies, in the order of the servers.
    pub(crate) addresses: Vec<SocketAddr>,
    state: Arc<ProxyState>,
    /// The thread ends when this is dropped.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// State that the thread shares with its owner.
#[derive(Default)]
struct ProxyState {
    one_way_nanos: AtomicU64,
    full: AtomicU64,
}

impl DelayProxy {
    /// Starts a proxy on a free loopback port for each of `servers`.
    pub(crate) fn start(servers: &[SocketAddr], one_way: Duration) -> Result<Self> {
        let listen = |server: &SocketAddr| Ok((TcpListener::bind("127.0.0.1:0")?, *server));
        let links: std::io::Result<Vec<_>> = servers.iter().map(listen).collect();
        Self::start_on(links.context("no free port")?, one_way)
    }

    /// Starts a proxy for each listener and its server. The thread has the CPU affinity of the
    /// caller's.
    pub(crate) fn start_on(
        links: Vec<(TcpListener, SocketAddr)>,
        one_way: Duration,
    ) -> Result<Self> {
        let addresses: std::io::Result<Vec<_>> = links
            .iter()
            .map(|(listener, _)| listener.local_addr())
            .collect();
        let state = Arc::new(ProxyState::default());
        let (ended, stop) = std::io::pipe().context("could not make a pipe")?;
        let mut relay = Relay::new(links, ended, state.clone())?;
        let thread = std::thread::Builder::new()
            .name("delay-proxy".into())
            .spawn(move || relay.run())?;
        let proxy = Self {
            addresses: addresses?,
            state,
            stop: Some(stop),
            thread: Some(thread),
        };
        proxy.set_delay(one_way);
        Ok(proxy)
    }

    /// Changes the delay of each direction for bytes that are read from now on. Their order is
    /// kept.
    pub(crate) fn set_delay(&self, one_way: Duration) {
        self.state
            .one_way_nanos
            .store(one_way.as_nanos() as u64, Relaxed);
    }

    /// Returns how often a full queue kept the proxy from reading. A measurement with any such
    /// event shows more than the delay.
    pub(crate) fn full(&self) -> u64 {
        self.state.full.load(Relaxed)
    }

    /// Blocks until the proxy ends, and returns the reason.
    pub(crate) fn wait(mut self) -> Result<()> {
        self.thread.take().map_or(Ok(()), |thread| {
            thread.join().expect("the relay does not panic")
        })
    }
}

impl ProxyState {
    fn one_way(&self) -> Duration {
        Duration::from_nanos(self.one_way_nanos.load(Relaxed))
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("tidegate-bench: the delay proxy ended early: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Instant;

    use super::*;

    /// A proxy and the two ends of a connection through it.
    fn connected(one_way: Duration) -> (DelayProxy, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = DelayProxy::start(&[listener.local_addr().unwrap()], one_way).unwrap();
        let client = TcpStream::connect(proxy.addresses[0]).unwrap();
        let (server, _) = listener.accept().unwrap();
        (proxy, client, server)
    }

    #[test]
    fn bytes_arrive_whole_and_in_order_while_the_delay_changes() {
        let (proxy, mut client, mut server) = connected(Duration::from_millis(3));
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
        let expected = sent.clone();
        let writer = std::thread::spawn(move || {
            for (turn, part) in sent.chunks(10_000).enumerate() {
                proxy.set_delay(Duration::from_micros([3_000, 0, 700][turn % 3]));
                client.write_all(part).unwrap();
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
            proxy
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        assert!(
            received == expected,
            "{} bytes of {}",
            received.len(),
            expected.len()
        );
        assert_eq!(writer.join().unwrap().full(), 0);
    }

    #[test]
    fn nothing_arrives_before_its_time() {
        let one_way = Duration::from_millis(30);
        let (_proxy, mut client, mut server) = connected(one_way);
        let start = Instant::now();
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        assert!(start.elapsed() >= one_way);
        server.write_all(b"y").unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert!(start.elapsed() >= one_way * 2);
    }

    #[test]
    fn chunks_wait_at_the_same_time() {
        // A hundred chunks one after the other would take ten seconds.
        let (_proxy, mut client, mut server) = connected(Duration::from_millis(100));
        client.set_nodelay(true).unwrap();
        let start = Instant::now();
        for chunk in 0..100_u8 {
            client.write_all(&[chunk]).unwrap();
        }
        let mut received = [0; 100];
        server.read_exact(&mut received).unwrap();
        assert!(received.iter().copied().eq(0..100));
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }

    #[test]
    fn the_end_of_one_direction_passes_behind_its_bytes_and_leaves_the_other_open() {
        let (_proxy, mut client, mut server) = connected(Duration::from_millis(1));
        client.write_all(b"last").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"last");
        server.write_all(b"answer").unwrap();
        drop(server);
        received.clear();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"answer");
    }

    #[test]
    fn a_dropped_proxy_closes_its_connections() {
        let (proxy, mut client, _server) = connected(Duration::from_secs(60));
        client.write_all(b"never arrives").unwrap();
        drop(proxy);
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    }
}
