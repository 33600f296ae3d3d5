//! Real servers that die, hang and come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisServer, free_port};
use tidegate_pipeline::{
    Arg, Batch, Client, Config, Credentials, CredentialsProvider, NotSent, Outcome, Reply, Unknown,
};

use crate::support::{eventually, one, send_one, soon};

#[tokio::test]
async fn nobody_listening_is_an_error_at_once() {
    let address = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let client = Client::new(Config::single(address)).unwrap();
    for _ in 0..3 {
        let outcome = send_one(&client, "PING", &[]).await;
        let refused = matches!(&outcome, Outcome::NotSent(NotSent::Unavailable { reason, .. }) if reason.contains("refused"));
        assert!(refused, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_hanging_server_is_waited_for_until_the_deadline_only() {
    let server = RedisServer::start().await;
    let mut config = server.config();
    // A second one would then mean that the first was given up.
    config.max_connections = 1;
    let client = Client::new(config).unwrap();
    send_one(&client, "SET", &[Arg::Key(b"k"), Arg::Integer(1)])
        .await
        .reply()
        .unwrap();
    server.pause();
    let deadline = Instant::now() + Duration::from_millis(100);
    let outcomes = client
        .send(one("INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]), deadline)
        .await;
    assert!(
        matches!(
            &outcomes[..],
            [Outcome::Unknown(Unknown::DeadlineExceeded { .. })]
        ),
        "{outcomes:?}"
    );
    server.resume();
    // The unknown one did run, and its reply went to nobody: the next caller sees the third value, not the second.
    let next = send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).await;
    assert_eq!(next.integer().unwrap(), 3);
    assert_eq!(client.stats().opened, 1);
}

#[tokio::test]
async fn a_server_that_hangs_for_long_refuses_new_work_and_answers_the_old() {
    let server = RedisServer::start().await;
    let mut config = server.config();
    config.connect_timeout = Duration::from_millis(200);
    let client = Client::new(config).unwrap();
    send_one(&client, "SET", &[Arg::Key(b"k"), Arg::Integer(1)])
        .await
        .reply()
        .unwrap();
    server.pause();
    let old = {
        let client = client.clone();
        tokio::spawn(async move {
            send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).await
        })
    };
    eventually("new work is refused at once", async || {
        let outcomes = client
            .send(
                one("GET", &[Arg::Key(b"k")]),
                Instant::now() + Duration::from_millis(50),
            )
            .await;
        matches!(outcomes[0], Outcome::NotSent(NotSent::Unavailable { .. }))
    })
    .await;
    server.resume();
    assert_eq!(old.await.unwrap().integer().unwrap(), 2);
    eventually("new work is taken again", async || {
        send_one(&client, "PING", &[]).await.reply().is_ok()
    })
    .await;
}

/// Attempts to connect fail meanwhile: they must not fail the calls that still have time.
#[tokio::test]
async fn a_pause_shorter_than_callers_wait_fails_no_call() {
    let server = RedisServer::start().await;
    let mut config = server.config();
    (config.connect_timeout, config.silence_timeout) =
        (Duration::from_millis(100), Duration::from_secs(10));
    let client = Client::new(config).unwrap();
    let increment = || {
        let client = client.clone();
        tokio::spawn(async move {
            send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).await
        })
    };
    increment().await.unwrap().reply().unwrap();
    server.pause();
    let mut calls: Vec<_> = (0..5).map(|_| increment()).collect();
    for failures in 1..4 {
        eventually("an attempt to connect fails", async || {
            client.stats().connect_failures >= failures
        })
        .await;
        calls.extend((0..5).map(|_| increment()));
    }
    server.resume();
    for call in calls {
        call.await.unwrap().integer().unwrap();
    }
    assert_eq!(increment().await.unwrap().integer().unwrap(), 22);
}

#[tokio::test]
async fn writes_that_a_server_holds_back_are_answered_when_it_lets_go() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    send_one(&client, "DEL", &[Arg::Key(b"k")])
        .await
        .reply()
        .unwrap();
    let pause = Instant::now();
    // As a primary does that hands over to its replica: new connections and reads are answered all the while.
    assert_eq!(server.raw("CLIENT PAUSE 1200 WRITE"), "+OK\r\n");
    let outcome = send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).await;
    assert_eq!(outcome.integer().ok(), Some(1), "{outcome:?}");
    assert!(
        pause.elapsed() > Duration::from_millis(1_000),
        "nothing was held back: the test shows nothing"
    );
    // Silence asked for a second connection, and what came in the end cleared the first.
    let stats = client.stats();
    assert_eq!((stats.lost, stats.closed), (0, 0), "{stats:?}");
}

#[tokio::test]
async fn a_server_without_room_for_clients_is_unavailable_and_comes_back() {
    let server = RedisServer::start_with(&["--maxclients", "2"]).await;
    let blockers: Vec<_> = (0..2).map(|_| server.monitor()).collect();
    let client = Client::new(server.config()).unwrap();
    let outcome = send_one(&client, "PING", &[]).await;
    let refused = matches!(&outcome, Outcome::NotSent(NotSent::Unavailable { reason, .. }) if reason.contains("max number of clients"));
    assert!(refused, "{outcome:?}");
    drop(blockers);
    eventually("the client gets in", async || {
        send_one(&client, "PING", &[]).await.reply().is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_password_changed_under_way_is_reported_and_recovers_when_changed_back() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    send_one(&client, "PING", &[]).await.reply().unwrap();
    assert_eq!(server.raw("CONFIG SET requirepass new"), "+OK\r\n");
    let kill = server.raw("AUTH new\r\nCLIENT KILL TYPE normal SKIPME yes");
    assert!(kill.contains("+OK"), "{kill}");
    eventually("the refusal is told", async || {
        let outcome = send_one(&client, "PING", &[]).await;
        matches!(outcome, Outcome::NotSent(NotSent::Unavailable { reason, .. }) if reason.contains("NOAUTH"))
    })
    .await;
    let _ = server.raw("AUTH new\r\nCONFIG SET requirepass \"\"");
    eventually("the client is back", async || {
        send_one(&client, "PING", &[]).await.reply().is_ok()
    })
    .await;
}

#[tokio::test]
async fn service_is_back_with_the_first_connect_that_redis_answers() {
    let mut server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    send_one(&client, "PING", &[]).await.reply().unwrap();
    server.kill();
    eventually("calls fail", async || {
        send_one(&client, "PING", &[]).await.reply().is_err()
    })
    .await;
    // Long enough for the waits between two connects to have grown to their maximum.
    eventually("attempts went on", async || {
        client.stats().connect_failures >= 8
    })
    .await;
    server.restart().await;
    // One attempt may have been under way while the server started. Two attempts are at most backoff_max apart.
    let failures = client.stats().connect_failures;
    eventually("calls work again", async || {
        send_one(&client, "PING", &[]).await.reply().is_ok()
    })
    .await;
    assert!(client.stats().connect_failures <= failures + 1);
    assert!(server.config().backoff_max < Duration::from_secs(1));
}

/// Redis repeats the arguments of a command that it does not know.
#[tokio::test]
async fn a_server_without_auth_brings_no_password_into_an_error() {
    let server = RedisServer::start_with(&[
        "--rename-command",
        "AUTH",
        "",
        "--rename-command",
        "HELLO",
        "",
    ])
    .await;
    let mut config = server.config();
    config.credentials = Some(Credentials {
        username: Some("ada".to_owned()),
        password: "hunter2".to_owned(),
    });
    let client = Client::new(config).unwrap();
    let error = send_one(&client, "PING", &[])
        .await
        .reply()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("unknown command") && !error.contains("hunter2") && !error.contains("ada"),
        "{error}"
    );
}

#[tokio::test]
async fn a_password_that_changes_is_asked_for_at_every_connect() {
    let server = RedisServer::start_with(&["--requirepass", "first"]).await;
    let password = Arc::new(std::sync::Mutex::new("first"));
    let mut config = server.config();
    let told = Arc::clone(&password);
    config.credentials_provider = Some(CredentialsProvider::new(move || {
        match *told.lock().unwrap() {
            "" => Err("the token expired".to_owned()),
            password => Ok(Credentials {
                username: None,
                password: password.to_owned(),
            }),
        }
    }));
    let client = Client::new(config).unwrap();
    send_one(&client, "PING", &[]).await.reply().unwrap();
    *password.lock().unwrap() = "";
    assert_eq!(
        server.raw("AUTH first\r\nCONFIG SET requirepass second"),
        "+OK\r\n+OK\r\n"
    );
    let _ = server.raw("AUTH second\r\nCLIENT KILL TYPE normal SKIPME yes");
    eventually("the provider's error is told", async || {
        let outcome = send_one(&client, "PING", &[]).await;
        matches!(outcome, Outcome::NotSent(NotSent::Unavailable { reason, .. }) if &*reason == "the token expired")
    })
    .await;
    *password.lock().unwrap() = "second";
    eventually("the new password is used", async || {
        send_one(&client, "PING", &[]).await.reply().is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_user_who_is_made_anew_gets_in_with_the_new_password() {
    let server = RedisServer::start().await;
    let user = |password: &str| server.raw(&format!("ACL SETUSER limiter on >{password} ~* +@all"));
    assert_eq!(user("first"), "+OK\r\n");
    let password = Arc::new(std::sync::Mutex::new("first"));
    let mut config = server.config();
    let told = Arc::clone(&password);
    config.credentials_provider = Some(CredentialsProvider::new(move || {
        let password = told.lock().unwrap().to_string();
        Ok(Credentials {
            username: Some("limiter".to_owned()),
            password,
        })
    }));
    // A second one would then mean that the first was given up.
    config.max_connections = 1;
    let client = Client::new(config).unwrap();
    let whoami = async || send_one(&client, "ACL", &[Arg::Bytes(b"WHOAMI")]).await;
    assert_eq!(whoami().await.bytes().unwrap(), Some(&b"limiter"[..]));
    // A right that is taken away is an error of the command; the connection stays.
    assert_eq!(server.raw("ACL SETUSER limiter -get"), "+OK\r\n");
    let denied = send_one(&client, "GET", &[Arg::Key(b"k")]).await;
    assert!(
        matches!(&denied, Outcome::ServerError(error) if error.message.starts_with("NOPERM")),
        "{denied:?}"
    );
    assert_eq!(whoami().await.bytes().unwrap(), Some(&b"limiter"[..]));
    assert_eq!(client.stats().opened, 1);
    // The server ends the connections of a user who is no more.
    *password.lock().unwrap() = "second";
    assert_eq!(server.raw("ACL DELUSER limiter"), ":1\r\n");
    assert_eq!(user("second"), "+OK\r\n");
    eventually("the user is back", async || {
        whoami()
            .await
            .bytes()
            .is_ok_and(|name| name == Some(&b"limiter"[..]))
    })
    .await;
}

/// What one caller did to its own counter.
#[derive(Default)]
struct Ledger {
    acknowledged: u64,
    unknown: u64,
}

/// Every caller owns a key and checks every value: a reply that reached the wrong caller, or a command that ran twice,
/// shows at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_kills_mix_up_and_double_nothing() {
    // The append-only file keeps the counters over a kill: what was acknowledged must be there afterwards.
    let mut server =
        RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let client = Client::new(server.config()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let slowest = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..64)
        .map(|caller| {
            tokio::spawn(count_until(
                caller,
                client.clone(),
                Arc::clone(&stop),
                Arc::clone(&slowest),
            ))
        })
        .collect();
    for _ in 0..6 {
        let before = client.stats().replies;
        let some = fastrand::u64(..400);
        eventually("work goes on", async || {
            client.stats().replies > before + some
        })
        .await;
        server.kill();
        server.respawn();
        let opened = client.stats().opened;
        eventually("the client reconnects", async || {
            client.stats().opened > opened
        })
        .await;
    }
    stop.store(true, SeqCst);
    let mut ledgers = HashMap::new();
    for (caller, task) in callers.into_iter().enumerate() {
        ledgers.insert(caller, task.await.unwrap());
    }
    for (caller, ledger) in &ledgers {
        let key = format!("counter-{caller}");
        let outcome = send_one(
            &client,
            "INCRBY",
            &[Arg::Key(key.as_bytes()), Arg::Integer(0)],
        )
        .await;
        let value = u64::try_from(outcome.integer().unwrap()).unwrap();
        let range = ledger.acknowledged..=ledger.acknowledged + ledger.unknown;
        assert!(range.contains(&value), "{key} is {value}, not in {range:?}");
    }
    let unknown: u64 = ledgers.values().map(|ledger| ledger.unknown).sum();
    assert!(
        unknown > 0,
        "the kills hit nothing in flight: the test shows nothing"
    );
    assert!(
        slowest.load(SeqCst) < 2_000,
        "a call took {} ms with a deadline of 1 s",
        slowest.load(SeqCst)
    );
}

async fn count_until(
    caller: usize,
    client: Client,
    stop: Arc<AtomicBool>,
    slowest: Arc<AtomicU64>,
) -> Ledger {
    let key = format!("counter-{caller}");
    let mut ledger = Ledger::default();
    let mut at_least = 0;
    let mut turn = 0_u64;
    while !stop.load(SeqCst) {
        turn += 1;
        let token = format!("{caller}:{turn}");
        let mut batch = Batch::new();
        batch
            .unit()
            .command("ECHO", &[Arg::Bytes(token.as_bytes())]);
        batch
            .unit()
            .command("INCRBY", &[Arg::Key(key.as_bytes()), Arg::Integer(1)]);
        let started = Instant::now();
        let outcomes = client.send(batch, started + Duration::from_secs(1)).await;
        slowest.fetch_max(started.elapsed().as_millis() as u64, SeqCst);
        if let Outcome::Reply(reply) = &outcomes[0] {
            assert_eq!(
                reply,
                &Reply::Bulk(token.into()),
                "a reply of somebody else"
            );
        }
        match &outcomes[1] {
            Outcome::Reply(Reply::Integer(value)) => {
                ledger.acknowledged += 1;
                let value = *value as u64;
                assert!(
                    value > at_least && value <= ledger.acknowledged + ledger.unknown,
                    "{key} is {value}"
                );
                at_least = value;
            }
            Outcome::Unknown(_) => ledger.unknown += 1,
            Outcome::NotSent(_) | Outcome::Rejected(_) => {
                tokio::time::sleep(Duration::from_millis(5)).await
            }
            other => panic!("{other:?}"),
        }
    }
    ledger
}

#[tokio::test]
async fn dropped_calls_leave_nothing_behind() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    for turn in 0..200_u64 {
        let call = client.send(one("PING", &[]), soon());
        // Some are dropped before they are written, some after, some when done.
        let _ = tokio::time::timeout(Duration::from_micros(turn % 7 * 60), call).await;
    }
    send_one(&client, "PING", &[]).await.reply().unwrap();
    eventually("every written command got its reply", async || {
        let stats = client.stats();
        stats.commands == stats.replies && stats.waiting == 0
    })
    .await;
}
