//! Expiries of counters whose callers have left: without them a counter would stay for ever.

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Client, Outcome};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::connections::scripted::{expect, greet, listener};
use crate::support::{eventually, soon};

const INCREMENT: &str = "*3\r\n$6\r\nINCRBY\r\n$1\r\nk\r\n$1\r\n1\r\n";

const EXPIRE: &str = "*3\r\n$6\r\nEXPIRE\r\n$1\r\nk\r\n$2\r\n60\r\n";

type Caller = JoinHandle<Vec<Outcome>>;

fn charge() -> Batch {
    let (mut batch, key) = (Batch::new(), Arg::Key(b"k"));
    batch
        .unit()
        .command("INCRBY", &[key, Arg::Integer(1)])
        .repeatable("EXPIRE", &[key, Arg::Integer(60)]);
    batch
}

/// Sends a charge for a caller. Returns the caller, and the connection on which both commands have arrived.
async fn begin_charge(
    listener: &TcpListener,
    client: &Client,
    deadline: Instant,
) -> (Caller, TcpStream) {
    let client = client.clone();
    let caller = tokio::spawn(async move { client.send(charge(), deadline).await });
    let mut stream = greet(listener).await;
    expect(&mut stream, INCREMENT).await;
    expect(&mut stream, EXPIRE).await;
    (caller, stream)
}

/// Answers the greeting of the next connection and the lone expiry on it.
async fn expiry_follows(listener: &TcpListener, client: &Client) {
    let replies = client.stats().replies;
    let follows = async {
        let mut stream = greet(listener).await;
        expect(&mut stream, EXPIRE).await;
        stream.write_all(b":1\r\n").await.unwrap();
        stream
    };
    let _stream = tokio::time::timeout_at(soon().into(), follows)
        .await
        .expect("no expiry follows");
    eventually("the reply is read", async || {
        client.stats().replies > replies
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_gave_up_leaves_no_counter_without_expiry() {
    for ran in ["", ":1\r\n"] {
        let (listener, config) = listener().await;
        let client = Client::new(config).unwrap();
        let (caller, mut stream) = begin_charge(&listener, &client, soon()).await;
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        stream.write_all(ran.as_bytes()).await.unwrap();
        drop(stream);
        expiry_follows(&listener, &client).await;
    }
}

#[tokio::test]
async fn a_deadline_that_passes_leaves_no_counter_without_expiry() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    let deadline = Instant::now() + Duration::from_millis(200);
    let (caller, stream) = begin_charge(&listener, &client, deadline).await;
    let outcomes = caller.await.unwrap();
    assert!(
        matches!(&outcomes[..], [Outcome::Unknown(_), Outcome::Unknown(_)]),
        "{outcomes:?}"
    );
    drop(stream);
    expiry_follows(&listener, &client).await;
}

/// The caller leaves while the expiry is being sent again.
#[tokio::test]
async fn a_caller_that_gave_up_later_leaves_no_counter_without_expiry() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    let (caller, mut stream) = begin_charge(&listener, &client, soon()).await;
    stream
        .write_all(b":1\r\n-LOADING Redis is loading the dataset in memory\r\n")
        .await
        .unwrap();
    expect(&mut stream, EXPIRE).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    // The one of the caller is unanswered, so there may be another one on this connection before it ends.
    drop(stream);
    expiry_follows(&listener, &client).await;
}
