//! Batches that go well.

use std::sync::Arc;

use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{
    Arg, Batch, Client, Config, Credentials, NotSent, Outcome, Protocol, Reply,
};

use crate::support::{one, send_one, soon};

#[tokio::test]
async fn outcomes_come_in_the_order_of_the_commands() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    let mut batch = Batch::new();
    for turn in 1..=3 {
        batch
            .unit()
            .command("INCRBY", &[Arg::Key(b"k"), Arg::Integer(turn)])
            .command("EXPIRE", &[Arg::Key(b"k"), Arg::Integer(60)]);
    }
    batch.unit().command("GET", &[Arg::Key(b"missing")]);
    batch
        .unit()
        .command("LPUSH", &[Arg::Key(b"k"), Arg::Bytes(b"x")]);
    batch.unit().command("ECHO", &[Arg::Bytes(b"a\r\nb\0")]);
    let outcomes = client.send(batch, soon()).await;
    let integers: Vec<i64> = outcomes[..6]
        .iter()
        .map(|outcome| outcome.integer().unwrap())
        .collect();
    assert_eq!(integers, [1, 1, 3, 1, 6, 1]);
    assert_eq!(outcomes[6], Outcome::Reply(Reply::Null));
    assert!(
        matches!(&outcomes[7], Outcome::ServerError(error) if error.message.starts_with("WRONGTYPE"))
    );
    assert_eq!(outcomes[8].bytes().unwrap(), Some(&b"a\r\nb\0"[..]));
}

#[tokio::test]
async fn callers_share_a_connection_and_its_writes() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    send_one(&client, "PING", &[]).await;
    let before = client.stats();
    let callers = (0..200).map(|caller: i64| {
        let client = client.clone();
        tokio::spawn(async move {
            for turn in 0..20 {
                let value = (caller * 1000 + turn).to_string();
                let echoed = send_one(&client, "ECHO", &[Arg::Bytes(value.as_bytes())]).await;
                assert_eq!(echoed.bytes().unwrap(), Some(value.as_bytes()));
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let after = client.stats();
    assert_eq!(after.commands - before.commands, 4000);
    assert_eq!(after.replies - before.replies, 4000);
    assert_eq!(after.connections, 1);
    assert!(
        after.writes - before.writes < 1000,
        "{} writes for 4000 commands",
        after.writes - before.writes
    );
}

#[tokio::test]
async fn a_large_batch_is_cut_and_put_together_again() {
    let server = RedisServer::start().await;
    let mut config = server.config();
    // Smaller than the batch, so that it also has to wait for itself.
    config.in_flight_commands = 600;
    let client = Client::new(config).unwrap();
    let mut batch = Batch::new();
    for index in 0..10_000 {
        let text = format!("value-{index}");
        batch
            .unit()
            .command("ECHO", &[Arg::Bytes(text.as_bytes())])
            .command("PING", &[]);
    }
    let outcomes = client.send(batch, soon()).await;
    assert_eq!(outcomes.len(), 20_000);
    for (index, pair) in outcomes.chunks(2).enumerate() {
        assert_eq!(
            pair[0].bytes().unwrap(),
            Some(format!("value-{index}").as_bytes())
        );
        assert_eq!(pair[1].bytes().unwrap(), Some(&b"PONG"[..]));
    }
}

#[tokio::test]
async fn sixty_four_megabytes_each_way_do_not_block_each_other() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    let value = vec![b'x'; 1 << 20];
    let mut batch = Batch::new();
    for _ in 0..64 {
        batch.unit().command("ECHO", &[Arg::Bytes(&value)]);
    }
    // The queue counts bytes too, so the batch goes in alone.
    for outcome in client.send(batch, soon()).await {
        assert_eq!(outcome.bytes().unwrap().map(<[u8]>::len), Some(value.len()));
    }
}

#[tokio::test]
async fn a_unix_socket_works_as_tcp_does() {
    let server = RedisServer::start().await;
    let client = Client::new(Config::single(server.unix_address())).unwrap();
    assert_eq!(
        send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(7)])
            .await
            .integer()
            .unwrap(),
        7
    );
}

#[tokio::test]
async fn users_passwords_and_databases_are_used_at_every_connect() {
    let server = RedisServer::start_with(&[
        "--requirepass",
        "root",
        "--user",
        "ada",
        "on",
        ">lovelace",
        "~*",
        "+@all",
    ])
    .await;
    let credentials = |username: Option<&str>, password: &str| {
        Some(Credentials {
            username: username.map(str::to_owned),
            password: password.to_owned(),
        })
    };
    let check = async |login: Option<Credentials>, expected: Result<&str, &str>| {
        let mut config = server.config();
        config.credentials = login;
        config.database = 3;
        let client = Client::new(config).unwrap();
        let outcome = send_one(&client, "ACL", &[Arg::Bytes(b"WHOAMI")]).await;
        match (expected, outcome) {
            (Ok(user), outcome) => assert_eq!(outcome.bytes().unwrap(), Some(user.as_bytes())),
            (Err(text), Outcome::NotSent(NotSent::Unavailable { reason, .. })) => {
                assert!(reason.contains(text), "{reason}")
            }
            (Err(text), other) => panic!("expected {text}, got {other:?}"),
        }
    };
    check(credentials(None, "root"), Ok("default")).await;
    check(credentials(Some("ada"), "lovelace"), Ok("ada")).await;
    check(credentials(Some("ada"), "wrong"), Err("WRONGPASS")).await;
    check(None, Err("NOAUTH")).await;

    let mut config = server.config();
    config.credentials = credentials(None, "root");
    config.database = 3;
    send_one(
        &Client::new(config).unwrap(),
        "SET",
        &[Arg::Key(b"k"), Arg::Bytes(b"v")],
    )
    .await
    .reply()
    .unwrap();
    let info = server.raw("AUTH root\r\nINFO keyspace");
    assert!(info.contains("db3:keys=1"), "{info}");
}

#[tokio::test]
async fn commands_that_would_spoil_a_shared_connection_are_refused() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    let mut batch = one("PING", &[]);
    batch.unit().command("SUBSCRIBE", &[Arg::Bytes(b"news")]);
    let refused = Outcome::NotSent(NotSent::Refused {
        command: "SUBSCRIBE",
    });
    assert_eq!(client.send(batch, soon()).await, [refused.clone(), refused]);
    assert_eq!(client.send(Batch::new(), soon()).await, []);
}

#[tokio::test]
async fn a_closed_client_refuses_and_leaves_no_task() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    send_one(&client, "PING", &[]).await;
    client.close().await;
    assert_eq!(client.stats().connections, 0);
    assert_eq!(
        send_one(&client, "PING", &[]).await,
        Outcome::NotSent(NotSent::Closed)
    );
}

#[tokio::test]
async fn a_nested_error_belongs_to_its_element() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    let mut batch = Batch::new();
    batch
        .unit()
        .command("MULTI", &[])
        .command("SET", &[Arg::Key(b"k"), Arg::Bytes(b"text")])
        .command("INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)])
        .command("EXEC", &[]);
    let outcomes = client.send(batch, soon()).await;
    let Ok(Reply::Array(elements)) = outcomes[3].reply() else {
        panic!("{outcomes:?}")
    };
    assert_eq!(elements[0], Ok(Reply::Simple("OK".into())));
    let message: Arc<str> = elements[1].clone().unwrap_err().message;
    assert!(
        message.starts_with("ERR value is not an integer"),
        "{message}"
    );
}

#[tokio::test]
async fn resp3_is_spoken_where_it_is_asked_for_and_known() {
    for (hello, version) in [("HELLO", "resp=3"), ("", "resp=2")] {
        let server =
            RedisServer::start_with(&["--requirepass", "root", "--rename-command", "HELLO", hello])
                .await;
        let mut config = server.config();
        config.protocol = Protocol::Resp3;
        config.credentials = Some(Credentials {
            username: None,
            password: "root".to_owned(),
        });
        let client = Client::new(config).unwrap();
        let mut batch = Batch::new();
        batch
            .unit()
            .command(
                "HSET",
                &[Arg::Key(b"h"), Arg::Bytes(b"field"), Arg::Integer(7)],
            )
            .command("HGETALL", &[Arg::Key(b"h")])
            .command("GET", &[Arg::Key(b"{h}missing")]);
        let outcomes = client.send(batch, soon()).await;
        let pair = Reply::Array(vec![
            Ok(Reply::Bulk("field".into())),
            Ok(Reply::Bulk("7".into())),
        ]);
        assert_eq!(outcomes[1].reply().unwrap(), &pair);
        assert_eq!(outcomes[2], Outcome::Reply(Reply::Null));
        let info = send_one(&client, "CLIENT", &[Arg::Bytes(b"INFO")]).await;
        let info = String::from_utf8_lossy(info.bytes().unwrap().unwrap()).into_owned();
        assert!(info.contains(version), "{info}");
    }
}

#[tokio::test]
async fn pushed_messages_are_nobodys_reply() {
    let server = RedisServer::start().await;
    let mut config = server.config();
    config.protocol = Protocol::Resp3;
    config.max_connections = 1;
    let client = Client::new(config).unwrap();
    send_one(
        &client,
        "CLIENT",
        &[Arg::Bytes(b"TRACKING"), Arg::Bytes(b"ON")],
    )
    .await
    .reply()
    .unwrap();
    for value in ["one", "two", "three"] {
        let _ = send_one(&client, "GET", &[Arg::Key(b"k")]).await;
        // The server pushes that `k` changed, ahead of whatever it is asked next.
        assert_eq!(server.raw(&format!("SET k {value}")), "+OK\r\n");
        let outcome = send_one(&client, "GET", &[Arg::Key(b"k")]).await;
        assert_eq!(outcome.bytes().unwrap(), Some(value.as_bytes()));
    }
}
