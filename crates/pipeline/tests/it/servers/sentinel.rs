//! A primary that sentinels name, and replace.

use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{MASTER, RedisSentinels, RedisServer};
use tidegate_pipeline::{Address, Arg, Client, Config, Credentials, NotSent, Outcome, Servers};

use crate::support::crowd::{Answer, Crowd};
use crate::support::{eventually, one, send_one, soon};

#[tokio::test]
async fn a_failover_is_followed() {
    let mut sentinels = RedisSentinels::start("").await;
    let config = Config::sentinel(MASTER, sentinels.addresses());
    let [client, other] = [config.clone(), config].map(|config| Client::new(config).unwrap());
    assert_eq!(
        send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)])
            .await
            .integer()
            .unwrap(),
        1
    );
    send_one(&other, "GET", &[Arg::Key(b"k")])
        .await
        .reply()
        .unwrap();
    // The sentinel that is asked first may be gone as well.
    sentinels.kill_sentinel(0);
    sentinels.server_mut(0).kill();
    eventually("the new primary is found", async || {
        let deadline = std::time::Instant::now() + std::time::Duration::from_millis(200);
        let outcomes = client
            .send(one("INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]), deadline)
            .await;
        outcomes[0].reply().is_ok()
    })
    .await;
    assert!(
        send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)])
            .await
            .integer()
            .unwrap()
            >= 2
    );
    // One of the two listens to the sentinels and asks them; the other hears of it.
    send_one(&other, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)])
        .await
        .integer()
        .unwrap();
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own() {
    let sentinels = RedisSentinels::start("watch").await;
    let mut config = Config::sentinel(MASTER, sentinels.addresses());
    let log_in = |config: &mut Config, password: &str| {
        let Servers::Sentinel { credentials, .. } = &mut config.servers else {
            unreachable!()
        };
        *credentials = Some(Credentials {
            username: None,
            password: password.to_owned(),
        });
    };
    tells_why(&config, "NOAUTH Authentication required.").await;
    log_in(&mut config, "wrong");
    tells_why(&config, "WRONGPASS invalid username-password pair").await;
    log_in(&mut config, "watch");
    let client = Client::new(config.clone()).unwrap();
    let outcome = client
        .send(one("GET", &[Arg::Key(b"k")]), soon())
        .await
        .remove(0);
    assert!(outcome.reply().is_ok(), "{outcome:?}");
    let Servers::Sentinel { master, .. } = &mut config.servers else {
        unreachable!()
    };
    *master = "unknown".to_owned();
    tells_why(&config, "it does not know the master \"unknown\"").await;
}

/// The error of a call says which sentinel answered what. It was "no redis node is known to own hash slot 7629" in all cases.
async fn tells_why(config: &Config, answer: &str) {
    let Servers::Sentinel { sentinels, .. } = &config.servers else {
        unreachable!()
    };
    let client = Client::new(config.clone()).unwrap();
    eventually("the error has the answers of the sentinels", async || {
        let deadline = Instant::now() + Duration::from_millis(500);
        let outcome = client
            .send(one("GET", &[Arg::Key(b"k")]), deadline)
            .await
            .remove(0);
        assert!(
            matches!(outcome, Outcome::NotSent(NotSent::NoOwner { .. })),
            "{outcome:?}"
        );
        let error = outcome.reply().unwrap_err().to_string();
        sentinels
            .iter()
            .all(|sentinel| error.contains(&format!("sentinel {sentinel}: {answer}")))
    })
    .await;
}

/// A password that the primary refuses looked as if sentinels were no sentinels.
#[tokio::test]
async fn a_primary_that_refuses_the_login_is_named_with_its_answer() {
    let primary = RedisServer::start().await;
    assert_eq!(primary.raw("ACL SETUSER default >secret"), "+OK\r\n");
    let (_crowd, addresses) = sentinels(vec![Some(primary.port())]).await;
    let client = Client::new(Config::sentinel(MASTER, addresses)).unwrap();
    let expected = format!("the primary 127.0.0.1:{}: NOAUTH", primary.port());
    eventually("the error has the answer of the primary", async || {
        let deadline = Instant::now() + Duration::from_millis(500);
        let outcome = client
            .send(one("GET", &[Arg::Key(b"k")]), deadline)
            .await
            .remove(0);
        outcome.reply().unwrap_err().to_string().contains(&expected)
    })
    .await;
}

/// Sentinels at 127.0.0.1, 127.0.0.2 and so on, each of which names the server at a port, or never answers.
async fn sentinels(named: Vec<Option<u16>>) -> (Crowd, Vec<Address>) {
    let hosts: Vec<String> = (1..=named.len())
        .map(|at| format!("127.0.0.{at}"))
        .collect();
    let known = hosts.clone();
    let crowd = Crowd::answering(move |asked| {
        let at = known.iter().position(|host| host == asked.host)?;
        match (&asked.command[0][..], named[at]) {
            ("SENTINEL", Some(port)) => {
                let port = port.to_string();
                Some(Answer::Reply(format!(
                    "*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n",
                    port.len()
                )))
            }
            ("PING", Some(_)) => None,
            _ => Some(Answer::Nothing),
        }
    })
    .await;
    let addresses = hosts.iter().map(|host| crowd.address(host)).collect();
    (crowd, addresses)
}

/// The sentinel that answered first was believed. One that was cut off together with an old primary sent the writes there.
#[tokio::test]
async fn a_sentinel_that_is_cut_off_with_an_old_primary_is_outvoted() {
    let (old, new) = (RedisServer::start().await, RedisServer::start().await);
    let (_crowd, addresses) =
        sentinels(vec![Some(old.port()), Some(new.port()), Some(new.port())]).await;
    for round in 1..=10 {
        let client = Client::new(Config::sentinel(MASTER, addresses.clone())).unwrap();
        let value = send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).await;
        assert_eq!(value.integer().unwrap(), round, "all are at one server");
        client.close().await;
    }
    assert_eq!(old.raw("EXISTS k"), ":0\r\n");
}

/// Sentinels were asked one after the other, each for as long as a connection may take.
#[tokio::test]
async fn sentinels_that_never_answer_hold_up_nobody_for_long() {
    let primary = RedisServer::start().await;
    let (_crowd, addresses) = sentinels(vec![None, None, Some(primary.port())]).await;
    let mut config = Config::sentinel(MASTER, addresses);
    config.connect_timeout = Duration::from_secs(10);
    let client = Client::new(config).unwrap();
    let outcome = client
        .send(one("PING", &[]), Instant::now() + Duration::from_secs(4))
        .await
        .remove(0);
    assert!(outcome.reply().is_ok(), "{outcome:?}");
}

#[tokio::test]
async fn a_user_who_may_not_ask_for_the_role_takes_the_word_of_the_sentinels() {
    let primary = RedisServer::start().await;
    assert_eq!(
        primary.raw("ACL SETUSER app on >secret ~* +@all -role"),
        "+OK\r\n"
    );
    let (_crowd, addresses) = sentinels(vec![Some(primary.port())]).await;
    let mut config = Config::sentinel(MASTER, addresses);
    config.credentials = Some(Credentials {
        username: Some("app".to_owned()),
        password: "secret".to_owned(),
    });
    let client = Client::new(config).unwrap();
    assert_eq!(
        send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)])
            .await
            .integer()
            .unwrap(),
        1
    );
}
