//! The server on a real Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{MASTER, RedisCluster, RedisSentinels, RedisServer};
use tonic::Code;

use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, Server, ask, await_that, channel, get, request};

async fn start(redis: &RedisServer, more: &[(&str, &str)]) -> Server {
    let url = redis.address().to_string();
    let more = [
        &[("REDIS_URL", url.as_str()), ("REDIS_SOCKET_TYPE", "tcp")],
        more,
    ]
    .concat();
    let more: Vec<_> = more
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let start = move || {
        let more: Vec<_> = more
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        Server::start(&more)
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn counters_are_in_redis_under_the_references_names() {
    let redis = RedisServer::start().await;
    let server = start(&redis, &[("CACHE_KEY_PREFIX", "edge:")]).await;
    let channel = server.channel().await;
    for remaining in [2, 1] {
        let answer = ask(&channel, request("shop", &[&[("user", "ada")]]))
            .await
            .unwrap();
        assert_eq!(answer.statuses[0].limit_remaining, remaining);
    }
    let keys = redis.raw("KEYS *");
    assert!(keys.contains("edge:shop_user_ada_"), "{keys}");
    assert!(server.stat("ratelimit.redis_pool.cx_active") >= 1);
    assert!(
        server.started.store.starts_with("redis at 127.0.0.1:"),
        "{}",
        server.started.store
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_core_counts_in_the_same_redis() {
    let redis = RedisServer::start().await;
    let server = start(&redis, &[("TIDEGATE_CORES", "3")]).await;
    for used in 1..=9 {
        let answer = ask(
            &server.channel().await,
            request("shop", &[&[("named", "x")]]),
        )
        .await
        .unwrap();
        assert_eq!(answer.statuses[0].limit_remaining, 100 - used);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn limits_per_second_have_a_redis_of_their_own() {
    let (redis, second) = (RedisServer::start().await, RedisServer::start().await);
    let limits = Limits::new(
        "domain: d\ndescriptors:\n  - {key: s, rate_limit: {unit: second, requests_per_unit: 9}}\n  - {key: m, rate_limit: {unit: minute, requests_per_unit: 9}}\n",
    );
    let url = second.address().to_string();
    let server = start(
        &redis,
        &[
            ("RUNTIME_ROOT", limits.root()),
            ("REDIS_PERSECOND", "true"),
            ("REDIS_PERSECOND_URL", url.as_str()),
        ],
    )
    .await;
    ask(
        &server.channel().await,
        request("d", &[&[("s", "x")], &[("m", "x")]]),
    )
    .await
    .unwrap();
    let (main, second) = (redis.raw("KEYS *"), second.raw("KEYS *"));
    assert!(
        main.contains("d_m_x_") && !main.contains("d_s_x_"),
        "{main}"
    );
    assert!(
        second.contains("d_s_x_") && !second.contains("d_m_x_"),
        "{second}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_ports_open_when_redis_answers() {
    let mut redis = RedisServer::start().await;
    let address = redis.address().to_string();
    redis.kill();
    let starting = tokio::task::spawn_blocking(move || {
        let fast = ("REDIS_STARTUP_INITIAL_INTERVAL", "20ms");
        Server::start(&[
            ("REDIS_URL", address.as_str()),
            fast,
            ("REDIS_STARTUP_MAX_INTERVAL", "20ms"),
        ])
    });
    assert!(!starting.is_finished());
    redis.restart().await;
    let server = starting.await.unwrap();
    assert_eq!(get(server.http(), "/healthcheck").status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_redis_that_goes_away_fails_calls_in_time_and_comes_back() {
    let mut redis = RedisServer::start().await;
    let server = start(&redis, &[("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true")]).await;
    let channel = server.channel().await;
    ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .unwrap();
    redis.kill();
    let asked = Instant::now();
    let error = ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unknown, "{error:?}");
    assert!(
        asked.elapsed() < Duration::from_secs(8),
        "{:?}",
        asked.elapsed()
    );
    assert!(server.stat("ratelimit.service.call.should_rate_limit.redis_error") >= 1);
    // What needs no counter is answered all the same.
    ask(&channel, request("shop", &[&[("free", "x")]]))
        .await
        .unwrap();
    let healthy = |status| get(server.http(), "/healthcheck").status == status;
    await_that("it is unhealthy", || healthy(500));

    redis.restart().await;
    await_that("it is healthy", || healthy(200));
    let answer = ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .unwrap();
    assert_eq!(
        answer.statuses[0].limit_remaining, 99,
        "a new Redis counts anew"
    );
}

/// Starts calls that their client forgets once they wait for Redis: its library resets their streams.
async fn reset_calls(server: &Server, calls: u64) {
    let channel = server.channel().await;
    let sent = server.stat("tidegate.redis.commands");
    let call = |_| {
        let channel = channel.clone();
        let both = request("shop", &[&[("named", "x")], &[("user", "x")]]);
        tokio::spawn(async move { ask(&channel, both).await })
    };
    let started: Vec<_> = (0..calls).map(call).collect();
    // INCRBY and EXPIRE for each descriptor.
    await_that("all calls wait for redis", || {
        server.stat("tidegate.redis.commands") == sent + calls * 4
    });
    for call in started {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
}

/// Hits of the counter whose key contains this name.
fn hits_in_redis(redis: &RedisServer, name: &str) -> u64 {
    let keys = redis.raw("KEYS *");
    let key = keys.lines().find(|key| key.contains(name));
    let key = key.unwrap_or_else(|| panic!("{keys}"));
    let value = redis.raw(&format!("GET {key}"));
    value.lines().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_that_their_clients_reset_are_counted_like_their_hits() {
    let redis = RedisServer::start().await;
    let settings = [("TIDEGATE_CALL_TIMEOUT", "60s"), ("TIDEGATE_CORES", "1")];
    let server = start(&redis, &settings).await;
    let one = request("shop", &[&[("named", "x")]]);
    ask(&server.channel().await, one).await.unwrap();

    redis.pause();
    reset_calls(&server, 20).await;
    await_that("all calls are counted", || {
        server.stat("ratelimit_server.ShouldRateLimit.total_requests") == 21
    });
    let total = |name: &str| {
        let limit = format!("ratelimit.service.rate_limit.shop.{name}");
        server.stat(&format!("{limit}.total_hits"))
    };
    assert_eq!((total("named"), total("user")), (21, 20));
    let errors = server.stat("ratelimit.service.call.should_rate_limit.redis_error");
    assert_eq!(errors, 20, "as in the reference");

    redis.resume();
    await_that("redis has run what was sent", || {
        redis.raw("KEYS *").contains("shop_user_x")
    });
    await_that("as many hits are in redis", || {
        let named = hits_in_redis(&redis, "named_x");
        named == total("named") && hits_in_redis(&redis, "user_x") == total("user")
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_redis_that_hangs_fails_calls_at_their_deadline() {
    let redis = RedisServer::start().await;
    let server = start(&redis, &[("TIDEGATE_CALL_TIMEOUT", "400ms")]).await;
    let channel = server.channel().await;
    ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .unwrap();
    redis.pause();
    for (timeout, at_least) in [(None, 390), (Some(50), 40)] {
        let mut message = tonic::Request::new(request("shop", &[&[("named", "x")]]));
        if let Some(timeout) = timeout {
            message.set_timeout(Duration::from_millis(timeout));
        }
        let asked = Instant::now();
        ask(&channel, message).await.unwrap_err();
        let elapsed = asked.elapsed().as_millis();
        // Without a deadline it would be the ten seconds of REDIS_TIMEOUT.
        assert!(
            (at_least..8000).contains(&elapsed),
            "{elapsed} ms for {timeout:?}"
        );
    }
    redis.resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_password_is_used_and_not_shown() {
    let redis = RedisServer::start_with(&["--requirepass", "hunter2"]).await;
    let url = format!("redis://:hunter2@{}/3", redis.address());
    let server = start(&redis, &[("REDIS_AUTH", "hunter2")]).await;
    ask(
        &server.channel().await,
        request("shop", &[&[("named", "x")]]),
    )
    .await
    .unwrap();
    drop(server);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hunter2\n").unwrap();
    let server = start(
        &redis,
        &[("TIDEGATE_REDIS_AUTH_FILE", file.path().to_str().unwrap())],
    )
    .await;
    let answer = ask(
        &server.channel().await,
        request("shop", &[&[("named", "x")]]),
    )
    .await
    .unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 98);
    drop(server);
    let server = tokio::task::spawn_blocking(move || Server::start(&[("REDIS_URL", url.as_str())]))
        .await
        .unwrap();
    let answer = ask(
        &server.channel().await,
        request("shop", &[&[("named", "x")]]),
    )
    .await
    .unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 99, "another database");
    assert!(!server.started.to_string().contains("hunter2"));
}

fn list(addresses: &[tidegate_pipeline::Address]) -> String {
    addresses
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

async fn start_at(url: String, kind: &'static str) -> Server {
    let start = move || Server::start(&[("REDIS_URL", url.as_str()), ("REDIS_TYPE", kind)]);
    tokio::task::spawn_blocking(start).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cluster_counts_wherever_its_slots_are() {
    let cluster = RedisCluster::start(3, 0).await;
    let server = start_at(list(&cluster.addresses()[..1]), "cluster").await;
    let channel = server.channel().await;
    let users: Vec<String> = (1..=40_u64)
        .map(|user| format!("{:x}", user * 0x9e37_79b9_7f4a))
        .collect();
    let entries: Vec<[(&str, &str); 1]> = users
        .iter()
        .map(|user| [("named", user.as_str())])
        .collect();
    let descriptors: Vec<&[(&str, &str)]> = entries.iter().map(|entry| &entry[..]).collect();
    for used in 1..=3 {
        let answer = ask(&channel, request("shop", &descriptors)).await.unwrap();
        assert!(
            answer
                .statuses
                .iter()
                .all(|status| status.limit_remaining == 100 - used),
            "{answer:?}"
        );
    }
    let sizes: Vec<String> = cluster
        .servers()
        .iter()
        .map(|server| server.raw("DBSIZE"))
        .collect();
    assert!(
        sizes.iter().all(|size| size != ":0\r\n"),
        "every node holds some of the counters: {sizes:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_primary_that_sentinels_name_counts() {
    let sentinels = RedisSentinels::start("").await;
    let server = start_at(
        format!("{MASTER},{}", list(&sentinels.addresses())),
        "sentinel",
    )
    .await;
    let answer = ask(
        &server.channel().await,
        request("shop", &[&[("named", "x")]]),
    )
    .await
    .unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 99);
    assert!(
        server
            .started
            .store
            .starts_with("redis at tidegate by sentinels 127.0.0.1:"),
        "{}",
        server.started.store
    );
}

/// What one caller was told about its own counter.
#[derive(Default)]
struct Told {
    answers: u32,
    errors: u32,
    slowest: Duration,
}

/// Asks for a counter that nobody else uses, again and again.
async fn ask_until(server: tonic::transport::Channel, user: String, stop: Arc<AtomicBool>) -> Told {
    let mut told = Told::default();
    let mut last = u32::MAX;
    while !stop.load(SeqCst) {
        let asked = Instant::now();
        match ask(&server, request("load", &[&[("user", &user)]])).await {
            Ok(answer) => {
                told.answers += 1;
                let remaining = answer.statuses[0].limit_remaining;
                // What another caller was owed would not be below what this one was told last.
                assert!(
                    remaining < last && 1_000_000_000 - remaining <= told.answers + told.errors,
                    "{user}: {remaining}"
                );
                last = remaining;
            }
            Err(status) => {
                assert_eq!(status.code(), Code::Unknown, "{status:?}");
                told.errors += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        told.slowest = told.slowest.max(asked.elapsed());
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_under_load_hangs_nobody_and_mixes_up_nothing() {
    // Appended and synced before the answer: after a kill the counters go on where they were.
    let mut redis =
        RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let limits = Limits::new(
        "domain: load\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 1000000000}}]\n",
    );
    let server = start(&redis, &[("RUNTIME_ROOT", limits.root())]).await;
    let channels = [server.channel().await, server.channel().await];
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..32)
        .map(|caller| {
            tokio::spawn(ask_until(
                channels[caller % 2].clone(),
                format!("u{caller}"),
                stop.clone(),
            ))
        })
        .collect();
    for _ in 0..3 {
        let total = || server.stat("ratelimit_server.ShouldRateLimit.total_requests");
        let errors = || server.stat("ratelimit.service.call.should_rate_limit.redis_error");
        let (before, failed) = (total(), errors());
        tokio::task::block_in_place(|| await_that("calls are answered", || total() > before + 300));
        redis.kill();
        tokio::task::block_in_place(|| await_that("calls fail", || errors() > failed));
        redis.restart().await;
    }
    let answered = server.stat("ratelimit_server.ShouldRateLimit.total_requests");
    tokio::task::block_in_place(|| {
        await_that("calls are answered again", || {
            server.stat("ratelimit_server.ShouldRateLimit.total_requests") > answered + 300
        });
    });
    stop.store(true, SeqCst);
    let mut errors = 0;
    for caller in callers {
        let told = caller.await.unwrap();
        assert!(told.answers > 0, "{} errors", told.errors);
        // On a busy machine, a caller may have had no turn while Redis was away.
        errors += told.errors;
        // The deadline is a second; the rest is the machine's.
        assert!(told.slowest < Duration::from_secs(8), "{:?}", told.slowest);
    }
    assert!(errors >= 3, "{errors} errors");
}

/// The end closes its own connections to Redis, also while a client has a call that does not end: that is no loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_end_closes_are_not_reported_as_lost() {
    let redis = RedisServer::start().await;
    let (url, limits) = (redis.address().to_string(), Limits::new(LIMITS));
    let process = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_URL", &url),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("TIDEGATE_DRAIN_TIMEOUT", "100ms"),
    ]);
    let mut open = Vec::new();
    for _ in 0..4 {
        let channel = channel(process.address("gRPC")).await;
        ask(&channel, request("shop", &[&[("named", "x")]]))
            .await
            .unwrap();
        let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
        let watch = health
            .watch(tonic_health::pb::HealthCheckRequest::default())
            .await
            .unwrap()
            .into_inner();
        open.push((channel, watch));
    }
    process.signal("TERM");
    let (code, log) = process.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("lost"), "{log}");
    drop(open);
}
