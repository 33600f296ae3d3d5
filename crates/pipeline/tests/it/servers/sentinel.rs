//! A primary that sentinels name, and replace.

use tidegate_pipeline::test_util::{MASTER, RedisSentinels};
use tidegate_pipeline::{Arg, Client, Config, Credentials, NotSent, Outcome, Servers};

use crate::support::{eventually, one, send_one, soon};

#[tokio::test]
async fn a_failover_is_followed() {
    let mut sentinels = RedisSentinels::start("").await;
    let config = Config::sentinel(MASTER, sentinels.addresses());
    let [client, other] = [config.clone(), config].map(|config| Client::new(config).unwrap());
    assert_eq!(send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).await.integer().unwrap(), 1);
    send_one(&other, "GET", &[Arg::Key(b"k")]).await.reply().unwrap();
    // The sentinel that is asked first may be gone as well.
    sentinels.kill_sentinel(0);
    sentinels.server_mut(0).kill();
    eventually("the new primary is found", async || {
        let deadline = std::time::Instant::now() + std::time::Duration::from_millis(200);
        let outcomes = client.send(one("INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]), deadline).await;
        outcomes[0].reply().is_ok()
    })
    .await;
    assert!(send_one(&client, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).await.integer().unwrap() >= 2);
    // One of the two listens to the sentinels and asks them; the other hears of it.
    send_one(&other, "INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]).await.integer().unwrap();
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own() {
    let sentinels = RedisSentinels::start("watch").await;
    let mut config = Config::sentinel(MASTER, sentinels.addresses());
    let check = async |config: &Config, works: bool| {
        let client = Client::new(config.clone()).unwrap();
        let deadline = if works { soon() } else { std::time::Instant::now() + std::time::Duration::from_millis(500) };
        let outcome = client.send(one("GET", &[Arg::Key(b"k")]), deadline).await.remove(0);
        assert_eq!(outcome.reply().is_ok(), works, "{outcome:?}");
        if !works {
            assert!(matches!(outcome, Outcome::NotSent(NotSent::NoOwner { .. })), "{outcome:?}");
        }
    };
    check(&config, false).await;
    let Servers::Sentinel { credentials, .. } = &mut config.servers else { unreachable!() };
    *credentials = Some(Credentials { username: None, password: "watch".to_owned() });
    check(&config, true).await;
    let Servers::Sentinel { master, .. } = &mut config.servers else { unreachable!() };
    *master = "unknown".to_owned();
    check(&config, false).await;
}
