//! A server of our own that says what a test tells it to, and short ways to ask.

use std::time::{Duration, Instant};

use tidegate_memcache::{ChangeDirection, Charge, Client, Config, CounterRead, Expiry, Servers};
use tidegate_pipeline::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Far above what anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A client with a short timeout, where that is what a test waits for.
pub(crate) fn client(addresses: &[Address], timeout: Duration) -> Client {
    let mut config = Config::default();
    config.timeout = timeout;
    Client::new(config, Servers::new(addresses.to_vec()))
}

/// A client that no slow machine makes give up.
pub(crate) fn patient(addresses: &[Address]) -> Client {
    client(addresses, PATIENCE)
}

pub(crate) async fn read(client: &Client, keys: &[&str]) -> Vec<CounterRead> {
    client.read(keys, Instant::now() + PATIENCE).await
}

/// Reads a counter and adds to it, as one request does.
pub(crate) async fn add(client: &Client, key: &str, hits: u64) -> CounterRead {
    let found = read(client, &[key]).await[0];
    client.change(charge(key, hits, found));
    found
}

/// Adds to a counter of which this is known.
pub(crate) fn charge(key: &str, hits: u64, found: CounterRead) -> Charge<'_> {
    Charge {
        key: key.as_bytes(),
        change: ChangeDirection::Add,
        hits,
        found,
        expiry: Expiry::after(60, 0),
    }
}

/// Takes back from a counter of which this is known.
pub(crate) fn refund(key: &str, hits: u64, found: CounterRead) -> Charge<'_> {
    Charge {
        change: ChangeDirection::Subtract,
        ..charge(key, hits, found)
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is().await {
        assert!(
            started.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Accepts connections, and gives each to `serve` with its number.
pub(crate) async fn peer<F>(serve: impl Fn(usize, TcpStream) -> F + Send + 'static) -> Address
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(number, stream));
        }
    });
    Address::Tcp {
        host: "127.0.0.1".to_owned(),
        port,
    }
}

/// Answers whatever comes with this text, as often as something comes.
pub(crate) async fn says(text: &'static [u8]) -> Address {
    peer(move |_, mut stream| async move {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).await.is_ok_and(|read| read > 0)
            && stream.write_all(text).await.is_ok()
        {}
    })
    .await
}
