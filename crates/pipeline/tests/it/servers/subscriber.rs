//! Messages that others publish, while servers come, go and change roles.

use std::time::Duration;

use tidegate_pipeline::test_util::{MASTER, RedisCluster, RedisSentinels, RedisServer};
use tidegate_pipeline::{
    Client, Config, Credentials, Delivery, Protocol, Refusal, Subscriber, SubscriberEvent,
    SubscriberOptions,
};
use tokio::time::timeout;

use super::cluster::move_slot;
use crate::support::eventually;
use crate::support::proxy::{Mode, Proxy};

const BOTH: [Delivery; 2] = [Delivery::Broadcast, Delivery::Sharded];

fn subscribe(config: Config, delivery: Delivery, channels: &[&'static str]) -> Subscriber {
    let client = Client::new(config).unwrap();
    Subscriber::new(
        &client,
        channels.iter().copied(),
        SubscriberOptions::new(delivery),
    )
}

async fn next(subscriber: &mut Subscriber) -> SubscriberEvent {
    let event = timeout(Duration::from_secs(20), subscriber.next()).await;
    event
        .expect("an event comes in time")
        .expect("the client is open")
}

fn subscribed(channel: &'static str) -> SubscriberEvent {
    SubscriberEvent::Subscribed {
        channel: channel.into(),
    }
}

fn message(channel: &'static str, payload: &'static str) -> SubscriberEvent {
    SubscriberEvent::Message {
        channel: channel.into(),
        payload: payload.into(),
    }
}

/// Waits for the first subscriptions to so many channels.
async fn ready(subscriber: &mut Subscriber, channels: usize) {
    for _ in 0..channels {
        let event = next(subscriber).await;
        assert!(
            matches!(event, SubscriberEvent::Subscribed { .. }),
            "{event:?}"
        );
    }
}

/// Waits until the subscription is lost and works again; returns why it was lost.
async fn interrupted(subscriber: &mut Subscriber, channel: &'static str) -> String {
    let lost = match next(subscriber).await {
        SubscriberEvent::Unsubscribed {
            channel: lost,
            reason,
        } if lost == channel => reason.to_string(),
        // Lost and back before anybody looked: only the latest is told.
        event if event == subscribed(channel) => return String::new(),
        event => panic!("{event:?}"),
    };
    let again = next(subscriber).await;
    assert_eq!(again, subscribed(channel), "{lost}");
    lost
}

fn publish(server: &RedisServer, delivery: Delivery, channel: &str, payload: &str) -> String {
    let command = if delivery == Delivery::Sharded {
        "SPUBLISH"
    } else {
        "PUBLISH"
    };
    server.raw(&format!("{command} {channel} {payload}"))
}

fn connections(server: &RedisServer) -> usize {
    server
        .raw("CLIENT LIST TYPE pubsub")
        .matches(" fd=")
        .count()
}

/// Publishes at the servers until a message arrives. While roles change, a channel may come and go more than once.
async fn arrives(
    cluster: &RedisCluster,
    subscriber: &mut Subscriber,
    channel: &'static str,
    alive: &[usize],
) {
    eventually("a published message arrives", async || {
        for &at in alive {
            publish(&cluster.servers()[at], Delivery::Sharded, channel, "hello");
        }
        while let Ok(event) = timeout(Duration::from_millis(100), subscriber.next()).await {
            if event == Some(message(channel, "hello")) {
                return true;
            }
        }
        false
    })
    .await;
}

#[tokio::test]
async fn messages_arrive_in_order_in_both_protocols() {
    let server = RedisServer::start().await;
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        for delivery in BOTH {
            let mut config = server.config();
            config.protocol = protocol;
            let mut subscriber = subscribe(config, delivery, &["a", "b"]);
            ready(&mut subscriber, 2).await;
            for (channel, payload) in [("a", "1"), ("b", "2"), ("none", "3"), ("a", "4")] {
                publish(&server, delivery, channel, payload);
            }
            for expected in [message("a", "1"), message("b", "2"), message("a", "4")] {
                assert_eq!(
                    next(&mut subscriber).await,
                    expected,
                    "{protocol:?} {delivery:?}"
                );
            }
            assert_eq!(
                connections(&server),
                1,
                "channels of one node share a connection"
            );
            drop(subscriber);
            eventually("its connection is gone", async || connections(&server) == 0).await;
        }
    }
}

#[tokio::test]
async fn a_server_that_dies_and_comes_back_is_told_as_a_gap() {
    let mut server = RedisServer::start().await;
    for delivery in BOTH {
        let mut subscriber = subscribe(server.config(), delivery, &["a"]);
        ready(&mut subscriber, 1).await;
        server.kill();
        let lost = next(&mut subscriber).await;
        assert!(
            matches!(lost, SubscriberEvent::Unsubscribed { .. }),
            "{lost:?}"
        );
        server.restart().await;
        assert_eq!(
            next(&mut subscriber).await,
            subscribed("a"),
            "and nothing is told for each failed connect"
        );
        publish(&server, delivery, "a", "1");
        assert_eq!(next(&mut subscriber).await, message("a", "1"));
        // The server may also end the connection alone.
        assert_eq!(server.raw("CLIENT KILL TYPE pubsub"), ":1\r\n");
        interrupted(&mut subscriber, "a").await;
        publish(&server, delivery, "a", "2");
        assert_eq!(next(&mut subscriber).await, message("a", "2"));
    }
}

#[tokio::test]
async fn a_silent_connection_is_asked_and_then_replaced() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port(), Mode::Forward).await;
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut config = proxy.config();
        (config.stall_timeout, config.protocol) = (Duration::from_millis(100), protocol);
        let mut subscriber = subscribe(config, Delivery::Broadcast, &["a"]);
        ready(&mut subscriber, 1).await;
        // Answers to PING keep it, however long nobody publishes.
        let quiet = timeout(Duration::from_millis(500), subscriber.next()).await;
        assert!(quiet.is_err(), "{quiet:?}");
        proxy.set(Mode::Silent);
        let lost = next(&mut subscriber).await;
        proxy.set(Mode::Forward);
        let reason = SubscriberEvent::Unsubscribed {
            channel: "a".into(),
            reason: "no answer to PING for 100ms".into(),
        };
        assert_eq!(lost, reason, "{protocol:?}");
        assert_eq!(next(&mut subscriber).await, subscribed("a"));
    }
}

#[tokio::test]
async fn a_slow_reader_is_told_how_much_it_missed() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    let mut options = SubscriberOptions::new(Delivery::Broadcast);
    options.queue_messages = 2;
    options.queue_bytes = 100_000;
    let mut subscriber = Subscriber::new(&client, ["a"], options);
    ready(&mut subscriber, 1).await;
    let publishes: Vec<String> = (0..5).map(|at| format!("PUBLISH a {at}")).collect();
    let _ = server.raw(&publishes.join("\r\n"));
    let mut events = Vec::new();
    while events
        .iter()
        .map(|event| {
            if let SubscriberEvent::Missed { messages } = event {
                *messages
            } else {
                1
            }
        })
        .sum::<u64>()
        < 5
    {
        events.push(next(&mut subscriber).await);
    }
    assert!(
        events.contains(&SubscriberEvent::Missed { messages: 3 }),
        "{events:?}"
    );
    // What could never be kept is not received, but told.
    let _ = server.raw(&format!("PUBLISH a {}", "x".repeat(60_000)));
    assert!(matches!(
        next(&mut subscriber).await,
        SubscriberEvent::Message { .. }
    ));
    let huge = r#"EVAL "return redis.call('PUBLISH', 'a', string.rep('x', 10000000))" 0"#;
    assert_eq!(server.raw(huge), ":1\r\n");
    let lost = interrupted(&mut subscriber, "a").await;
    assert!(
        lost.is_empty() || lost == "a message of more than 100000 bytes",
        "{lost}"
    );
}

#[tokio::test]
async fn a_refusal_says_whether_the_command_or_the_permission_is_missing() {
    // As Redis 6.2 answers, which does not know the command.
    let old = RedisServer::start_with(&["--rename-command", "SSUBSCRIBE", ""]).await;
    let mut subscriber = subscribe(old.config(), Delivery::Sharded, &["a"]);
    let event = next(&mut subscriber).await;
    let is_right = |event: &SubscriberEvent| {
        matches!(
            event,
            SubscriberEvent::Refused {
                refusal: Refusal::Unsupported { .. },
                ..
            }
        )
    };
    assert!(is_right(&event), "{event:?}");

    let server = RedisServer::start().await;
    let user = "ACL SETUSER ada on >pw resetchannels &open +@all -ssubscribe";
    assert_eq!(server.raw(user), "+OK\r\n");
    let mut config = server.config();
    config.credentials = Some(Credentials {
        username: Some("ada".to_owned()),
        password: "pw".to_owned(),
    });
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        config.protocol = protocol;
        let mut subscriber = subscribe(config.clone(), Delivery::Sharded, &["open"]);
        let event = next(&mut subscriber).await;
        let is_right = |event: &SubscriberEvent| {
            matches!(
                event,
                SubscriberEvent::Refused {
                    refusal: Refusal::NotPermitted { .. },
                    ..
                }
            )
        };
        assert!(is_right(&event), "{event:?}");
        // One channel that is not permitted does not keep the others from being listened to.
        let mut subscriber = subscribe(config.clone(), Delivery::Broadcast, &["open", "closed"]);
        let events = [next(&mut subscriber).await, next(&mut subscriber).await];
        assert!(
            events.contains(&subscribed("open")) && events.iter().any(is_right),
            "{events:?}"
        );
        publish(&server, Delivery::Broadcast, "open", "1");
        assert_eq!(next(&mut subscriber).await, message("open", "1"));
    }
}

#[tokio::test]
async fn the_channels_can_be_changed_without_a_gap_in_those_that_stay() {
    let server = RedisServer::start().await;
    for delivery in BOTH {
        let mut subscriber = subscribe(server.config(), delivery, &["a", "b"]);
        ready(&mut subscriber, 2).await;
        subscriber.set_channels(["b", "c"]);
        assert_eq!(next(&mut subscriber).await, subscribed("c"));
        for channel in ["a", "b", "c"] {
            publish(&server, delivery, channel, "1");
        }
        assert_eq!(next(&mut subscriber).await, message("b", "1"));
        assert_eq!(next(&mut subscriber).await, message("c", "1"));
        subscriber.set_channels([""; 0]);
        eventually("nothing to listen to needs no connection", async || {
            connections(&server) == 0
        })
        .await;
        subscriber.set_channels(["b"]);
        assert_eq!(next(&mut subscriber).await, subscribed("b"));
    }
}

#[tokio::test]
async fn a_client_that_is_closed_ends_its_subscribers() {
    let server = RedisServer::start().await;
    let client = Client::new(server.config()).unwrap();
    let mut subscriber =
        Subscriber::new(&client, ["a"], SubscriberOptions::new(Delivery::Broadcast));
    ready(&mut subscriber, 1).await;
    client.close().await;
    assert_eq!(subscriber.next().await, None);
    assert_eq!(subscriber.next().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_follow_their_slots_through_a_cluster() {
    let cluster = RedisCluster::start(3, 0).await;
    let channels = [
        "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11",
    ];
    let mut owner = cluster.owner("c0");
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut config = cluster.config();
        config.protocol = protocol;
        let mut subscriber = subscribe(config, Delivery::Sharded, &channels);
        ready(&mut subscriber, channels.len()).await;
        for server in cluster.servers() {
            assert_eq!(connections(server), 1, "one connection to each node");
        }
        for channel in channels {
            let heard = |server| publish(server, Delivery::Sharded, channel, "hello") == ":1\r\n";
            assert!(
                cluster.servers().iter().any(heard),
                "nobody listens to {channel}"
            );
            assert_eq!(next(&mut subscriber).await, message(channel, "hello"));
        }
        let next_owner = (owner + 1) % 3;
        move_slot(&cluster, "c0", owner, next_owner);
        owner = next_owner;
        // The other channels of the node notice nothing.
        interrupted(&mut subscriber, "c0").await;
        arrives(&cluster, &mut subscriber, "c0", &[owner]).await;
        for channel in channels.into_iter().skip(1) {
            let heard = |server| publish(server, Delivery::Sharded, channel, "hello") == ":1\r\n";
            assert!(
                cluster.servers().iter().any(heard),
                "nobody listens to {channel}"
            );
            assert_eq!(next(&mut subscriber).await, message(channel, "hello"));
        }
        drop(subscriber);
        eventually("its connections are gone", async || {
            cluster
                .servers()
                .iter()
                .all(|server| connections(server) == 0)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_follow_a_failover() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let mut subscriber = subscribe(cluster.config(), Delivery::Sharded, &["c0", "c1"]);
    let mut everywhere = subscribe(cluster.config(), Delivery::Broadcast, &["all"]);
    ready(&mut subscriber, 2).await;
    ready(&mut everywhere, 1).await;
    assert_ne!(
        cluster.owner("c0"),
        cluster.owner("c1"),
        "the channels are of different nodes"
    );
    // On purpose first: the old primary lives on, as a replica.
    let victim = cluster.owner("c0");
    assert!(victim < 3, "primaries come first");
    eventually("the replica takes over", async || {
        let _ = cluster.servers()[victim + 3].raw("CLUSTER FAILOVER");
        cluster.owner("c0") == victim + 3
    })
    .await;
    interrupted(&mut subscriber, "c0").await;
    arrives(&cluster, &mut subscriber, "c0", &[victim + 3]).await;
    // Then by force: the node that took over dies, and the old one takes over again.
    eventually("they are in step", async || {
        cluster.servers()[victim]
            .raw("INFO replication")
            .contains("master_link_status:up")
    })
    .await;
    cluster.server_mut(victim + 3).kill();
    interrupted(&mut subscriber, "c0").await;
    arrives(&cluster, &mut subscriber, "c0", &[victim]).await;
    let other = cluster.owner("c1");
    arrives(&cluster, &mut subscriber, "c1", &[other]).await;
    eventually(
        "a broadcast at any node reaches its subscriber",
        async || {
            let server = &cluster.servers()[other];
            publish(server, Delivery::Broadcast, "all", "1");
            let event = timeout(Duration::from_millis(200), everywhere.next()).await;
            matches!(event, Ok(Some(SubscriberEvent::Message { .. })))
        },
    )
    .await;
}

#[tokio::test]
async fn channels_follow_the_primary_that_sentinels_name() {
    let mut sentinels = RedisSentinels::start("").await;
    let mut subscriber = subscribe(
        Config::sentinel(MASTER, sentinels.addresses()),
        Delivery::Sharded,
        &["a"],
    );
    ready(&mut subscriber, 1).await;
    sentinels.server_mut(0).kill();
    interrupted(&mut subscriber, "a").await;
    assert_eq!(
        publish(sentinels.server_mut(1), Delivery::Sharded, "a", "1"),
        ":1\r\n"
    );
    assert_eq!(next(&mut subscriber).await, message("a", "1"));
}
