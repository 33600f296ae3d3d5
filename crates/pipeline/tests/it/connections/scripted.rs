//! A server made of a script, for streams and cuts that no real server can be made to produce.

mod several;

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Client, Config, NotSent, Outcome, Unknown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::{eventually, one, send_one, soon};

pub(crate) async fn listener() -> (TcpListener, Config) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    (listener, Config::single(address))
}

/// Accepts a connection and answers the client's greeting.
pub(crate) async fn greet(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    expect(&mut stream, PING).await;
    stream.write_all(b"+PONG\r\n").await.unwrap();
    stream
}

pub(crate) async fn expect(stream: &mut TcpStream, wire: &str) {
    let mut read = vec![0; wire.len()];
    stream.read_exact(&mut read).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&read), wire);
}

const PING: &str = "*1\r\n$4\r\nPING\r\n";

/// What tells a stuck connection from a server that holds writes back.
const WRITE_PROBE: &str =
    "*3\r\n$7\r\nEVALSHA\r\n$40\r\n0000000000000000000000000000000000000000\r\n$1\r\n0\r\n";

pub(crate) const GET_K: &str = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

#[tokio::test]
async fn a_caller_that_gave_up_leaves_its_replies_to_nobody() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    let caller = {
        let client = client.clone();
        tokio::spawn(async move { client.send(one("GET", &[Arg::Key(b"k")]), soon()).await })
    };
    let mut stream = greet(&listener).await;
    expect(&mut stream, GET_K).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());

    let second = {
        let client = client.clone();
        tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await })
    };
    expect(&mut stream, GET_K).await;
    stream
        .write_all(b"$5\r\nfirst\r\n$6\r\nsecond\r\n")
        .await
        .unwrap();
    assert_eq!(second.await.unwrap().bytes().unwrap(), Some(&b"second"[..]));
}

#[tokio::test]
async fn a_deadline_says_whether_the_command_was_sent() {
    let (listener, mut config) = listener().await;
    config.in_flight_commands = 1;
    config.max_connections = 1;
    let client = Client::new(config).unwrap();
    let silent = {
        let client = client.clone();
        tokio::spawn(async move {
            client
                .send(
                    one("GET", &[Arg::Key(b"k")]),
                    Instant::now() + Duration::from_millis(200),
                )
                .await
        })
    };
    let mut stream = greet(&listener).await;
    expect(&mut stream, GET_K).await;
    let queued = client
        .send(
            one("GET", &[Arg::Key(b"k")]),
            Instant::now() + Duration::from_millis(50),
        )
        .await;
    assert!(
        matches!(
            &queued[..],
            [Outcome::NotSent(NotSent::DeadlineExceeded { .. })]
        ),
        "{queued:?}"
    );
    let silent = silent.await.unwrap();
    assert!(
        matches!(
            &silent[..],
            [Outcome::Unknown(Unknown::DeadlineExceeded { .. })]
        ),
        "{silent:?}"
    );

    // The late reply frees the connection; the expired command was never written.
    stream.write_all(b"$4\r\nlate\r\n").await.unwrap();
    let third = tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await });
    expect(&mut stream, GET_K).await;
    stream.write_all(b"$5\r\nthird\r\n").await.unwrap();
    assert_eq!(third.await.unwrap().bytes().unwrap(), Some(&b"third"[..]));
}

#[tokio::test]
async fn a_reply_nobody_asked_for_closes_the_connection() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    let ping = {
        let client = client.clone();
        tokio::spawn(async move { send_one(&client, "PING", &[]).await })
    };
    let mut stream = greet(&listener).await;
    expect(&mut stream, "*1\r\n$4\r\nPING\r\n").await;
    stream.write_all(b"+PONG\r\n:1\r\n").await.unwrap();
    assert_eq!(ping.await.unwrap().bytes().unwrap(), Some(&b"PONG"[..]));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
    eventually("the connection is counted as closed", async || {
        client.stats().closed == 1
    })
    .await;
}

#[tokio::test]
async fn a_broken_connection_tells_replied_from_unknown() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    let caller = tokio::spawn(async move {
        let mut batch = Batch::new();
        batch
            .unit()
            .command("GET", &[Arg::Key(b"k")])
            .command("GET", &[Arg::Key(b"k")]);
        client.send(batch, soon()).await
    });
    let mut stream = greet(&listener).await;
    expect(&mut stream, GET_K).await;
    expect(&mut stream, GET_K).await;
    stream.write_all(b"$1\r\na\r\n$4\r\nha").await.unwrap();
    stream.shutdown().await.unwrap();
    let outcomes = caller.await.unwrap();
    assert_eq!(outcomes[0].bytes().unwrap(), Some(&b"a"[..]));
    assert!(
        matches!(
            &outcomes[1],
            Outcome::Unknown(Unknown::ConnectionLost { .. })
        ),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_what_was_queued_moves_on() {
    let (listener, mut config) = listener().await;
    config.stall_timeout = Duration::from_millis(150);
    config.in_flight_commands = 1;
    config.max_connections = 1;
    let client = Client::new(config).unwrap();
    let caller = |client: &Client| {
        let client = client.clone();
        tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await })
    };
    let sent = caller(&client);
    let mut stream = greet(&listener).await;
    expect(&mut stream, GET_K).await;
    let queued = caller(&client);
    let outcome = sent.await.unwrap();
    assert!(
        matches!(&outcome, Outcome::Unknown(Unknown::ConnectionLost { reason, .. }) if reason.contains("150ms")),
        "{outcome:?}"
    );
    let mut stream = greet(&listener).await;
    expect(&mut stream, GET_K).await;
    stream.write_all(b"$2\r\nok\r\n").await.unwrap();
    assert_eq!(queued.await.unwrap().bytes().unwrap(), Some(&b"ok"[..]));
}

#[tokio::test]
async fn a_server_that_is_loading_is_asked_again_until_the_deadline() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    let caller = {
        let client = client.clone();
        tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await })
    };
    let mut stream = greet(&listener).await;
    for _ in 0..3 {
        expect(&mut stream, GET_K).await;
        stream
            .write_all(b"-LOADING Redis is loading the dataset in memory\r\n")
            .await
            .unwrap();
    }
    expect(&mut stream, GET_K).await;
    stream.write_all(b"$2\r\nok\r\n").await.unwrap();
    assert_eq!(caller.await.unwrap().bytes().unwrap(), Some(&b"ok"[..]));

    let late = tokio::spawn(async move {
        client
            .send(
                one("GET", &[Arg::Key(b"k")]),
                Instant::now() + Duration::from_millis(300),
            )
            .await
    });
    expect(&mut stream, GET_K).await;
    stream
        .write_all(b"-LOADING Redis is loading the dataset in memory\r\n")
        .await
        .unwrap();
    // Whatever it asks again, it is told the same.
    let answer = tokio::spawn(async move {
        let mut buffer = [0; GET_K.len()];
        while stream.read_exact(&mut buffer).await.is_ok() {
            stream
                .write_all(b"-LOADING Redis is loading the dataset in memory\r\n")
                .await
                .unwrap();
        }
    });
    let outcome = late.await.unwrap().remove(0);
    let refused =
        matches!(&outcome, Outcome::Rejected(rejected) if rejected.message.starts_with("LOADING"));
    assert!(
        refused || matches!(&outcome, Outcome::Unknown(Unknown::DeadlineExceeded { .. })),
        "{outcome:?}"
    );
    answer.abort();
}

#[tokio::test]
async fn a_full_queue_refuses_instead_of_growing() {
    let (listener, mut config) = listener().await;
    config.in_flight_commands = 1;
    config.max_connections = 1;
    config.queue_commands = 2;
    let client = Client::new(config).unwrap();
    let caller = |client: &Client| {
        let client = client.clone();
        tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await })
    };
    let first = caller(&client);
    let mut stream = greet(&listener).await;
    expect(&mut stream, GET_K).await;
    // Two that gave up do not count, once their place is needed.
    for _ in 0..2 {
        let soon_late = Instant::now() + Duration::from_millis(1);
        let _ = client.send(one("GET", &[Arg::Key(b"k")]), soon_late).await;
    }
    let waiting = [caller(&client), caller(&client)];
    // On this runtime both run before the test goes on, and take the places of the two that left.
    tokio::task::yield_now().await;
    assert_eq!(client.stats().waiting, 2);
    let refused = send_one(&client, "GET", &[Arg::Key(b"k")]).await;
    assert!(
        matches!(refused, Outcome::NotSent(NotSent::Overloaded { .. })),
        "{refused:?}"
    );
    let answer = async {
        let mut buffer = [0; GET_K.len()];
        stream.write_all(b"$-1\r\n").await.unwrap();
        for _ in 0..2 {
            stream.read_exact(&mut buffer).await.unwrap();
            stream.write_all(b"$-1\r\n").await.unwrap();
        }
    };
    answer.await;
    for caller in [first].into_iter().chain(waiting) {
        assert_eq!(caller.await.unwrap().bytes().unwrap(), None);
    }
}

#[tokio::test]
async fn replies_that_trickle_in_are_put_together() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    let caller = tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await });
    let mut stream = greet(&listener).await;
    stream.set_nodelay(true).unwrap();
    expect(&mut stream, GET_K).await;
    for byte in b"$11\r\nhello\r\nyou!\r\n" {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(
        caller.await.unwrap().bytes().unwrap(),
        Some(&b"hello\r\nyou!"[..])
    );
}

#[test]
fn a_caller_whose_clients_runtime_ends_is_told() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (clients, callers) = (runtime(), runtime());
    let (listener, client) = clients.block_on(async {
        let (listener, config) = listener().await;
        (listener, Client::new(config).unwrap())
    });
    let send =
        |client: Client| async move { client.send(one("GET", &[Arg::Key(b"k")]), soon()).await };
    let sent = callers.spawn(send(client.clone()));
    let early = callers.spawn(async move {});
    callers.block_on(early).unwrap();
    let stream = clients.block_on(async {
        let mut stream = greet(&listener).await;
        expect(&mut stream, GET_K).await;
        stream
    });
    drop(clients);
    let outcomes = callers.block_on(async {
        tokio::time::timeout(Duration::from_secs(5), sent)
            .await
            .unwrap()
            .unwrap()
    });
    assert!(
        matches!(
            &outcomes[..],
            [Outcome::Unknown(Unknown::ConnectionLost { .. })]
        ),
        "{outcomes:?}"
    );
    drop(stream);

    let deadline = Instant::now() + Duration::from_millis(50);
    let outcomes = callers.block_on(client.send(one("GET", &[Arg::Key(b"k")]), deadline));
    assert!(
        matches!(&outcomes[..], [Outcome::NotSent(_)]),
        "{outcomes:?}"
    );
}

/// A push may stand anywhere between replies, and arrive in pieces: it is nobody's reply.
#[tokio::test]
async fn stray_pushes_shift_no_reply() {
    let (listener, mut config) = listener().await;
    config.protocol = tidegate_pipeline::Protocol::Resp3;
    let client = Client::new(config).unwrap();
    let mut batch = Batch::new();
    batch
        .unit()
        .command("GET", &[Arg::Key(b"k")])
        .command("GET", &[Arg::Key(b"k")]);
    let caller = {
        let client = client.clone();
        tokio::spawn(async move { client.send(batch, soon()).await })
    };
    let (mut stream, _) = listener.accept().await.unwrap();
    expect(&mut stream, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n").await;
    // Also before the client has said who it is.
    stream
        .write_all(b">2\r\n+hello\r\n:1\r\n%1\r\n+proto\r\n:3\r\n")
        .await
        .unwrap();
    expect(&mut stream, PING).await;
    stream
        .write_all(b">1\r\n+early\r\n+PONG\r\n")
        .await
        .unwrap();
    expect(&mut stream, GET_K).await;
    expect(&mut stream, GET_K).await;
    let invalidate = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
    let unknown = ">3\r\n+of-a-later-version\r\n_\r\n>1\r\n:7\r\n";
    let wire = format!("{invalidate}$1\r\na\r\n{unknown}{invalidate}:2\r\n{invalidate}");
    for piece in wire.as_bytes().chunks(3) {
        stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let outcomes = caller.await.unwrap();
    assert_eq!(outcomes[0].bytes().unwrap(), Some(&b"a"[..]));
    assert_eq!(outcomes[1].integer().unwrap(), 2);
    // And the connection is as good as before.
    let next = {
        let client = client.clone();
        tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await })
    };
    expect(&mut stream, GET_K).await;
    stream.write_all(b":3\r\n").await.unwrap();
    assert_eq!(next.await.unwrap().integer().unwrap(), 3);
}
