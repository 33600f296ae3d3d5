//! What becomes of commands that a server refuses to run, told by servers that refuse on cue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tidegate_pipeline::{Arg, Batch, Client, Config, Credentials, CredentialsProvider};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::{send_one, soon};

/// A server that answers each line of a command it reads as `reply` says: given the number of the connection and the line,
/// what to send, if anything. Ends with the handle.
async fn server(
    mut reply: impl FnMut(usize, &str) -> Option<&'static str> + Send + 'static,
) -> (JoinSet<()>, Config) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config::single(listener.local_addr().unwrap().to_string().parse().unwrap());
    let mut task = JoinSet::new();
    task.spawn(async move {
        // One connection at a time is enough: the client opens the next one when it has left the last.
        for connection in 1.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut text, mut buffer) = (String::new(), [0; 4096]);
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
                while let Some((line, rest)) = text.split_once("\r\n") {
                    if let Some(answer) = reply(connection, line) {
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                    text = rest.to_owned();
                }
            }
        }
    });
    (task, config)
}

/// The commands that arrive at a server which refuses to run the first one, once.
async fn order_of_arrival(batch: Batch) -> Vec<String> {
    let arrived = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&arrived);
    let (_server, config) = server(move |_, line| match line {
        "PING" => Some("+PONG\r\n"),
        "first" | "second" => {
            let mut seen = seen.lock().unwrap();
            seen.push(line.to_owned());
            Some(if seen.len() == 1 {
                "-TRYAGAIN later\r\n"
            } else {
                "+OK\r\n"
            })
        }
        _ => None,
    })
    .await;
    let outcomes = Client::new(config).unwrap().send(batch, soon()).await;
    assert!(
        outcomes.iter().all(|outcome| outcome.reply().is_ok()),
        "{outcomes:?}"
    );
    arrived.lock().unwrap().clone()
}

#[tokio::test]
async fn units_of_one_key_may_change_places_and_repeatable_commands_of_one_unit_do_not() {
    let [first, second] =
        ["first", "second"].map(|value| [Arg::Key(b"k"), Arg::Bytes(value.as_bytes())]);
    let mut two = Batch::new();
    two.unit().repeatable("SET", &first);
    two.unit().repeatable("SET", &second);
    assert_eq!(order_of_arrival(two).await, ["first", "second", "first"]);

    let mut one = Batch::new();
    one.unit()
        .repeatable("SET", &first)
        .repeatable("SET", &second);
    assert_eq!(
        order_of_arrival(one).await,
        ["first", "second", "first", "second"]
    );

    // What may not run twice keeps its one place, even in a unit.
    let mut append = Batch::new();
    append
        .unit()
        .command("APPEND", &first)
        .command("APPEND", &second);
    assert_eq!(order_of_arrival(append).await, ["first", "second", "first"]);
}

#[tokio::test]
async fn a_connection_that_is_nobody_any_more_is_replaced_by_one_with_fresh_credentials() {
    let (_server, mut config) = server(|connection, line| match (line, connection) {
        ("AUTH" | "GET", _) => None,
        ("token-1" | "token-2", _) => Some("+OK\r\n"),
        ("PING", _) => Some("+PONG\r\n"),
        ("k", 1) => Some("-NOAUTH Authentication required.\r\n"),
        ("k", _) => Some("$2\r\nok\r\n"),
        _ => None,
    })
    .await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    config.credentials_provider = Some(CredentialsProvider::new(move || {
        Ok(Credentials {
            username: None,
            password: format!("token-{}", count.fetch_add(1, SeqCst) + 1),
        })
    }));
    let client = Client::new(config).unwrap();
    let outcome = send_one(&client, "GET", &[Arg::Key(b"k")]).await;
    assert_eq!(outcome.bytes().unwrap(), Some(&b"ok"[..]), "{outcome:?}");
    assert_eq!(
        (
            asked.load(SeqCst),
            client.stats().opened,
            client.stats().lost
        ),
        (2, 2, 0)
    );
}
