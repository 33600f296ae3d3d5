//! What Prometheus reads.

use std::net::SocketAddr;

use tidegate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;

use crate::support::{Limits, Server, ask, await_that, get, request};

/// The value of a sample; 0 is not the same as none.
fn sample(page: &str, name: &str) -> Option<f64> {
    page.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .map(|value| value.parse().unwrap())
}

/// A sample of a server's page. 0 when there is none.
pub(crate) fn metric(debug: SocketAddr, name: &str) -> f64 {
    sample(&get(debug, "/metrics").body, name).unwrap_or_default()
}

fn check(page: &str, samples: &[(&str, Option<f64>)]) {
    for (name, value) in samples {
        assert_eq!(sample(page, name), *value, "{name} in\n{page}");
    }
}

fn prometheus(server: &Server) -> SocketAddr {
    server.started.addresses.prometheus.unwrap()
}

/// Samples after the calls of [`names_and_labels_are_the_references`].
const OF_THE_REFERENCE: &str = r#"
ratelimit_service_rate_limit_total_hits{domain="shop",key1="user"} 4
ratelimit_service_rate_limit_over_limit{domain="shop",key1="user"} 1
ratelimit_service_rate_limit_near_limit{domain="shop",key1="user"} 1
ratelimit_service_rate_limit_within_limit{domain="shop",key1="user"} 3
ratelimit_service_rate_limit_total_hits{domain="shop",key1="plan_gold",key2="user"} 4
ratelimit_service_rate_limit_over_limit{domain="shop",key1="plan_gold",key2="user"} 2
ratelimit_service_rate_limit_total_hits{domain="shop",key1="named"} 0
ratelimit_service_rate_limit_other_domain_not_found 1
ratelimit_service_should_rate_limit_error{err_type="service_error"} 1
ratelimit_service_should_rate_limit_error{err_type="redis_error"} 0
ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 6
ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 6
ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="+Inf"} 6
ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="10"} 6
ratelimit_service_config_load_success 1
ratelimit_service_config_load_error 0
ratelimit_service_global_shadow_mode 0
runtime_num_values 1
"#;

/// Checks samples, each as it is on a page.
#[track_caller]
fn check_samples(page: &str, samples: &str) {
    for line in samples.trim().lines() {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        assert_eq!(sample(page, name), Some(value), "{name} in\n{page}");
    }
}

/// Lines of a page, without those of who asks and of the process, which goes on.
fn lasting(page: &str) -> Vec<&str> {
    let changes =
        |line: &&str| line.starts_with("tidegate_connections") || line.starts_with("process_");
    page.lines().filter(|line| !changes(line)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn names_and_labels_are_the_references() {
    let server = Server::start(&[
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", "127.0.0.1:0"),
    ]);
    let channel = server.channel().await;
    let both: [&[_]; 2] = [&[("user", "ada")], &[("plan", "gold"), ("user", "ada")]];
    for _ in 0..4 {
        ask(&channel, request("shop", &both)).await.unwrap();
    }
    let other = request("other", &[&[("user", "ada")]]);
    ask(&channel, other).await.unwrap();
    ask(&channel, request("", &[])).await.unwrap_err();

    let answer = get(prometheus(&server), "/metrics");
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
    check_samples(&answer.body, OF_THE_REFERENCE);
    let shadow = r#"ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="user"}"#;
    assert_eq!(sample(&answer.body, shadow), None);
    let debug = get(server.debug(), "/metrics").body;
    assert_eq!(
        lasting(&debug),
        lasting(&answer.body),
        "the debug port has the same page"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hits_refused_by_the_local_cache_are_counted_once() {
    let server = Server::start(&[("LOCAL_CACHE_SIZE_IN_BYTES", "1000000")]);
    let channel = server.channel().await;
    for _ in 0..6 {
        ask(
            &channel,
            request("shop", &[&[("plan", "gold"), ("user", "ada")]]),
        )
        .await
        .unwrap();
    }
    check(
        &get(server.debug(), "/metrics").body,
        &[
            (
                r#"ratelimit_service_rate_limit_over_limit{domain="shop",key1="plan_gold",key2="user"}"#,
                Some(4.0),
            ),
            (
                "ratelimit_service_rate_limit_shop_plan_gold_user_over_limit_with_local_cache",
                Some(3.0),
            ),
            ("ratelimit_localcache_hitCount", Some(3.0)),
            ("ratelimit_localcache_entryCount", Some(1.0)),
        ],
    );
}

#[test]
fn extra_tags_are_labels_of_every_sample() {
    let server = Server::start(&[("EXTRA_TAGS", "zone:a\"b,env:prod,domain:mine")]);
    let page = get(server.debug(), "/metrics").body;
    let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(
        samples
            .iter()
            .all(|line| line.contains(r#"env="prod",zone="a\"b""#)),
        "{page}"
    );
    assert!(!page.contains("mine"), "a tag must not repeat a label");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn names_from_callers_are_bounded() {
    let server = Server::start(&[("TIDEGATE_MAX_METRIC_KEYS", "6")]);
    let channel = server.channel().await;
    for number in 0..50 {
        ask(
            &channel,
            request(&format!("domain{number}"), &[&[("user", "ada")]]),
        )
        .await
        .unwrap();
    }
    let page = get(server.debug(), "/metrics").body;
    let names = page.lines().filter(|line| {
        line.starts_with("ratelimit_service_rate_limit_") && line.contains("not_found ")
    });
    assert_eq!(
        names.count(),
        3,
        "two fit beside the four limits, the rest is in one\n{page}"
    );
    check(
        &page,
        &[(
            "ratelimit_service_rate_limit__overflow_domain_not_found",
            Some(48.0),
        )],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn names_from_callers_are_bounded_in_bytes() {
    let server = Server::start(&[("TIDEGATE_CORES", "1")]);
    let channel = server.channel().await;
    let long = "x".repeat(100_000);
    for number in 0..200 {
        ask(
            &channel,
            request(&format!("{number}{long}"), &[&[("user", "ada")]]),
        )
        .await
        .unwrap();
        let mut override_limit = request("shop", &[&[("user", &format!("{number}{long}"))]]);
        override_limit.descriptors[0].limit = Some(RateLimitOverride {
            requests_per_unit: 9,
            unit: 4,
        });
        ask(&channel, override_limit).await.unwrap();
    }
    let page = get(server.debug(), "/metrics").body;
    assert!(page.len() < 20_000, "{} bytes", page.len());
    check(
        &page,
        &[
            (
                "ratelimit_service_rate_limit__overflow_domain_not_found",
                Some(200.0),
            ),
            (
                r#"ratelimit_service_rate_limit_total_hits{domain="_overflow"}"#,
                Some(200.0),
            ),
        ],
    );
    // Many short names have room for a thousand.
    for number in 0..1_500 {
        ask(
            &channel,
            request(&format!("domain{number}"), &[&[("user", "ada")]]),
        )
        .await
        .unwrap();
    }
    let page = get(server.debug(), "/metrics").body;
    let names = page
        .lines()
        .filter(|line| line.starts_with("ratelimit_") && line.contains("_domain_not_found "));
    assert_eq!(names.count(), 1_001);
    check(
        &page,
        &[(
            "ratelimit_service_rate_limit__overflow_domain_not_found",
            Some(700.0),
        )],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn configured_limits_keep_their_names_beside_junk_and_are_forgotten_with_their_file() {
    let limits = |key: &str| {
        format!(
            "domain: d\ndescriptors:\n  - {{key: stays, rate_limit: {{unit: day, requests_per_unit: 9}}}}\n  - {{key: {key}, rate_limit: {{unit: day, requests_per_unit: 9}}}}\n"
        )
    };
    let files = Limits::new(&limits("first"));
    let server = Server::start_bare(&[
        ("RUNTIME_ROOT", files.root()),
        ("TIDEGATE_MAX_METRIC_KEYS", "4"),
    ]);
    let channel = server.channel().await;
    for number in 0..50 {
        let mut junk = request("d", &[&[("junk", &number.to_string())]]);
        junk.descriptors[0].limit = Some(RateLimitOverride {
            requests_per_unit: 9,
            unit: 4,
        });
        ask(&channel, junk).await.unwrap();
    }
    ask(
        &channel,
        request("d", &[&[("stays", "x")], &[("first", "x")]]),
    )
    .await
    .unwrap();
    assert_eq!(
        server.stat("ratelimit.service.rate_limit.d.first.total_hits"),
        1
    );
    assert_eq!(
        server.stat("ratelimit.service.rate_limit._overflow.total_hits"),
        48
    );

    files.write("limits.yaml", &limits("second"));
    await_that("the file is read", || {
        get(server.debug(), "/rlconfig").body.contains("d.second")
    });
    ask(
        &channel,
        request("d", &[&[("stays", "x")], &[("second", "x")]]),
    )
    .await
    .unwrap();
    assert_eq!(
        server.stat("ratelimit.service.rate_limit.d.stays.total_hits"),
        2,
        "a reload loses nothing"
    );
    assert_eq!(
        server.stat("ratelimit.service.rate_limit.d.second.total_hits"),
        1
    );
    assert!(!get(server.debug(), "/stats").body.contains("d.first"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn old_dashboards_get_milliseconds() {
    let server = Server::start(&[("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "true")]);
    ask(
        &server.channel().await,
        request("shop", &[&[("user", "ada")]]),
    )
    .await
    .unwrap();
    let sum = r#"ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"}"#;
    let page = get(server.debug(), "/metrics").body;
    // A call takes microseconds: a sum in seconds would be far below this.
    assert!(sample(&page, sum).unwrap() > 0.0005, "{page}");
}

/// Samples of a pool after the calls of [`what_redis_did_is_shown_by_pool`].
const OF_REDIS: &str = r#"
tidegate_redis_outcomes_total{pool="main",outcome="server_error"} 1
tidegate_redis_outcomes_total{pool="main",outcome="not_sent"} 0
tidegate_redis_outcomes_total{pool="main",outcome="rejected"} 0
tidegate_redis_outcomes_total{pool="main",outcome="unknown"} 0
tidegate_redis_redirects_total{pool="main",kind="moved"} 0
tidegate_redis_redirects_total{pool="main",kind="ask"} 0
tidegate_redis_retries_total{pool="main"} 0
tidegate_redis_overloads_total{pool="main"} 0
tidegate_redis_retrying_commands{pool="main"} 0
tidegate_redis_oldest_owed_reply_seconds{pool="main"} 0
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_redis_did_is_shown_by_pool() {
    let redis = tidegate_pipeline::test_util::RedisServer::start().await;
    let url = redis.address().to_string();
    let server = tokio::task::spawn_blocking(move || {
        Server::start(&[
            ("REDIS_URL", &url),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("TIDEGATE_CORES", "2"),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", "127.0.0.1:0"),
        ])
    });
    let server = server.await.unwrap();
    let before = get(prometheus(&server), "/metrics").body;
    let replies = r#"tidegate_redis_outcomes_total{pool="main",outcome="reply"}"#;
    let before = sample(&before, replies).unwrap();
    for _ in 0..4 {
        let user = request("shop", &[&[("user", "ada")]]);
        ask(&server.channel().await, user).await.unwrap();
    }
    assert_eq!(redis.raw("CONFIG SET maxmemory 1"), "+OK\r\n");
    let refused = request("shop", &[&[("user", "eve")]]);
    ask(&server.channel().await, refused).await.unwrap_err();
    let page = get(prometheus(&server), "/metrics").body;
    assert_eq!(
        sample(&page, replies),
        Some(before + 9.0),
        "an increment and an expiry for each call, and an expiry\n{page}"
    );
    check_samples(&page, OF_REDIS);
    let other_pool = r#"tidegate_redis_retries_total{pool="per_second"}"#;
    assert_eq!(sample(&page, other_pool), None);
}

#[test]
fn the_process_is_shown_under_its_usual_names() {
    let server = Server::start(&[]);
    let page = get(server.debug(), "/metrics").body;
    let value = |name: &str| sample(&page, name).unwrap_or_else(|| panic!("no {name} in\n{page}"));
    assert!(value("process_cpu_seconds_total") > 0.0);
    assert!(
        value("process_open_fds") >= 3.0 && value("process_open_fds") <= value("process_max_fds")
    );
    let (resident, all) = (
        value("process_resident_memory_bytes"),
        value("process_virtual_memory_bytes"),
    );
    assert!(resident > 1e6 && resident <= all && all <= value("process_virtual_memory_max_bytes"));
    assert!(value("process_threads") >= 3.0);
    // The test is the process: it began after 2020, and before now.
    let started = value("process_start_time_seconds");
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!(started > 1.57e9 && started <= now + 1.0, "{started}");
}
