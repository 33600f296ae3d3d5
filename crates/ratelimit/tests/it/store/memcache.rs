//! What reaches memcached, and what is told when it does not answer.

use std::time::Duration;

use tidegate_memcache::test_util::MemcachedServer;
use tidegate_memcache::{Client, Config, Servers};
use tidegate_ratelimit::Code::{Ok as Pass, OverLimit};
use tidegate_ratelimit::{Limiter, MemcacheStore, Options, Store};

use super::memcached;
use crate::fixture::{
    NOW, answer, check_at, descriptor, limiter_with, numbers, options, outline, refund, request,
    with_hits,
};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 10}}
  - {key: year, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: files, value: files/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true}}
";

/// A limiter, and its client to wait for.
struct Counting {
    limiter: Limiter,
    client: Client,
}

fn counting(servers: &[&MemcachedServer], options: Options) -> Counting {
    let mut config = Config::default();
    config.timeout = Duration::from_secs(20);
    let addresses = servers.iter().map(|server| server.address()).collect();
    let client = Client::new(config, Servers::new(addresses));
    let store = Store::Memcache(MemcacheStore::new(client.clone()));
    Counting {
        limiter: limiter_with(store, LIMITS, options),
        client,
    }
}

fn now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("it is after 1970")
        .as_secs()
}

#[tokio::test]
async fn counters_have_the_names_of_the_reference() {
    let server = MemcachedServer::start();
    let Counting { limiter, client } = counting(
        &[&server],
        Options {
            key_prefix: "p:".into(),
            ..options()
        },
    );
    let asked = [
        with_hits("minute=x", 3),
        descriptor("none=x"),
        descriptor("free=x"),
        descriptor("second="),
        with_hits("hour=x y=z", 1),
        with_hits("files=files/a.pdf", 2),
        with_hits("minute=zero", 0),
        descriptor("hour=x"),
    ];
    answer(&limiter, &asked).await;
    client.flush().await;
    let names: Vec<String> = server.keys().into_iter().map(|(name, _)| name).collect();
    let expected = [
        "p:test-domain_files_files/*_950400",
        "p:test-domain_hour_x_997200",
        "p:test-domain_minute_x_999960",
        "p:test-domain_second__999974",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        server.value("p:test-domain_minute_x_999960").as_deref(),
        Some("3")
    );
}

#[tokio::test]
async fn a_request_is_decided_on_what_was_there_and_charged_afterwards() {
    let server = MemcachedServer::start();
    let [one, other] = [
        counting(&[&server], options()),
        counting(&[&server], options()),
    ];
    let ten = request(&[with_hits("minute=x", 10)]);
    let (first, second) = tokio::join!(
        check_at(&one.limiter, NOW, &ten),
        check_at(&other.limiter, NOW, &ten)
    );
    // Whether one saw the charge of the other is a matter of time, but both did not, and no charge is lost.
    let both = [first, second].map(|check| outline(&check.response.unwrap()));
    assert!(both.contains(&vec![(Pass, 0)]), "{both:?}");
    assert!(
        both.iter()
            .all(|one| matches!(one[..], [(Pass | OverLimit, 0)])),
        "{both:?}"
    );
    one.client.flush().await;
    other.client.flush().await;
    assert_eq!(
        server.value("test-domain_minute_x_999960").as_deref(),
        Some("20")
    );
    let third = check_at(&one.limiter, NOW, &request(&[descriptor("minute=x")])).await;
    assert_eq!(numbers(&third.facts.tallies[0]), [1, 1, 0, 0, 0, 0, 0]);
    one.client.flush().await;
    assert_eq!(
        server.value("test-domain_minute_x_999960").as_deref(),
        Some("21"),
        "what is over is charged too"
    );
}

#[tokio::test]
async fn a_counter_over_its_limit_in_the_local_cache_is_neither_read_nor_charged() {
    let server = MemcachedServer::start();
    let Counting { limiter, client } = counting(
        &[&server],
        Options {
            local_cache_bytes: 1 << 20,
            ..options()
        },
    );
    assert_eq!(
        outline(&answer(&limiter, &[with_hits("minute=x", 11)]).await),
        [(OverLimit, 0)]
    );
    assert_eq!(
        outline(&answer(&limiter, &[with_hits("minute=x", 5)]).await),
        [(OverLimit, 0)]
    );
    client.flush().await;
    assert_eq!(
        (client.stats().keys_requested, client.stats().changes),
        (1, 1)
    );
    assert_eq!(
        server.value("test-domain_minute_x_999960").as_deref(),
        Some("11")
    );
}

#[tokio::test]
async fn lifetimes_are_the_window_and_a_jitter() {
    let server = MemcachedServer::start();
    let Counting { limiter, client } = counting(
        &[&server],
        Options {
            expiration_jitter: 300,
            ..options()
        },
    );
    let asked: Vec<_> = (0..20)
        .map(|user| descriptor(&format!("minute={user}")))
        .collect();
    let before = i64::try_from(now()).unwrap();
    answer(&limiter, &asked).await;
    client.flush().await;
    let lifetimes: Vec<i64> = server
        .keys()
        .into_iter()
        .map(|(_, expiry)| expiry - before)
        .collect();
    // memcached's clock ticks once a second.
    assert!(
        lifetimes.len() == 20 && lifetimes.iter().all(|seconds| (58..=400).contains(seconds)),
        "{lifetimes:?}"
    );
    assert!(
        lifetimes.iter().any(|seconds| *seconds != lifetimes[0]),
        "drawn for each key: {lifetimes:?}"
    );
}

/// The reference stores these with a time that memcached takes for one in 1970 or 1971, so that they are gone at once.
#[tokio::test]
async fn limits_of_a_month_and_a_year_count() {
    let server = MemcachedServer::start();
    for jitter in [0, 300] {
        let Counting { limiter, client } = counting(
            &[&server],
            Options {
                expiration_jitter: jitter,
                ..options()
            },
        );
        let user = format!("u{jitter}");
        for (used, code) in [(9, Pass), (1, Pass), (1, OverLimit)] {
            let both = [
                with_hits(&format!("month={user}"), used),
                with_hits(&format!("year={user}"), used),
            ];
            let checked = check_at(&limiter, now(), &request(&both)).await;
            let codes: Vec<_> = outline(&checked.response.unwrap())
                .into_iter()
                .map(|(code, _)| code)
                .collect();
            assert_eq!(codes, [code, code], "{used} with jitter {jitter}");
        }
        client.flush().await;
        assert_eq!(client.stats().failed_changes, 0);
    }
}

/// The reference reads all counters of such a request as zero.
#[tokio::test]
async fn a_key_that_memcached_does_not_take_counts_and_spoils_no_other() {
    let server = MemcachedServer::start();
    let Counting { limiter, client } = counting(&[&server], options());
    let mut spaced = descriptor("minute=x");
    spaced.entries[0].value = "a b\r\nflush_all\r\n".into();
    let mut long = descriptor("hour=x");
    long.entries[0].value = "y".repeat(300);
    for left in [9, 8, 7] {
        let asked = [descriptor("minute=x"), spaced.clone(), long.clone()];
        assert_eq!(
            outline(&answer(&limiter, &asked).await),
            [(Pass, left), (Pass, left), (Pass, left)]
        );
    }
    client.flush().await;
    let digests = server
        .keys()
        .into_iter()
        .filter(|(name, _)| name.starts_with("tidegate_sha256_"))
        .count();
    assert_eq!((digests, server.keys().len()), (2, 3));
}

#[tokio::test]
async fn without_memcached_calls_pass_and_hits_count_as_asked_for() {
    let mut servers = [MemcachedServer::start(), MemcachedServer::start()];
    let Counting { limiter, client } = counting(&[&servers[0], &servers[1]], options());
    // CRC-32 is even for one of these keys and odd for another: both servers have some.
    let asked: Vec<_> = (0..8)
        .map(|user| with_hits(&format!("minute={user}"), 8))
        .collect();
    answer(&limiter, &asked).await;
    client.flush().await;
    let lost: Vec<bool> = (0..8)
        .map(|user| {
            servers[0]
                .value(&format!("test-domain_minute_{user}_999960"))
                .is_some()
        })
        .collect();
    assert!(lost.contains(&true) && lost.contains(&false));
    servers[0].kill();
    let checked = check_at(&limiter, NOW, &request(&asked)).await;
    for (tally, lost) in checked.facts.tallies.iter().zip(&lost) {
        assert_eq!(
            numbers(tally),
            if *lost {
                [8, 0, 0, 8, 0, 0, 0]
            } else {
                [8, 6, 2, 0, 0, 0, 0]
            }
        );
    }
    let expected: Vec<_> = lost
        .iter()
        .map(|lost| if *lost { (Pass, 2) } else { (OverLimit, 0) })
        .collect();
    assert_eq!(outline(&checked.response.unwrap()), expected);
    servers[1].kill();
    for _ in 0..20 {
        assert_eq!(
            outline(&answer(&limiter, &[with_hits("minute=0", 8)]).await),
            [(Pass, 2)]
        );
    }
    assert!(
        client.stats().failed_reads >= 21 && client.stats().failed_changes >= 20,
        "{:?}",
        client.stats()
    );
}

#[tokio::test]
async fn a_request_without_counters_does_not_need_memcached() {
    let mut server = MemcachedServer::start();
    server.kill();
    let Counting { limiter, client } = counting(&[&server], options());
    assert_eq!(
        outline(&answer(&limiter, &[descriptor("none=x"), descriptor("free=x")]).await),
        [(Pass, 0), (Pass, u32::MAX)]
    );
    assert_eq!((client.stats().reads, client.stats().failed_reads), (0, 0));
}

/// memcached counts on from zero after 2^64, so that a client could take charges back.
#[tokio::test]
async fn no_number_of_hits_lowers_a_counter() {
    let server = MemcachedServer::start();
    let Counting { limiter, client } = counting(&[&server], options());
    for _ in 0..5 {
        assert_eq!(
            outline(&answer(&limiter, &[with_hits("minute=x", i64::MAX as u64)]).await),
            [(OverLimit, 0)]
        );
    }
    client.flush().await;
    assert_eq!(
        server.value("test-domain_minute_x_999960").as_deref(),
        Some("1099511627776")
    );
    for value in ["9223372036854775808", "18446744073709551615"] {
        server.set("test-domain_minute_x_999960", value);
        assert_eq!(
            outline(&answer(&limiter, &[descriptor("minute=x")]).await),
            [(OverLimit, 0)],
            "{value}"
        );
        client.flush().await;
        assert_eq!(
            server.value("test-domain_minute_x_999960").as_deref(),
            Some(value)
        );
    }
    assert_eq!(
        outline(&answer(&limiter, &[refund("minute=x", u64::MAX >> 1)]).await),
        [(Pass, 0)]
    );
}

#[tokio::test]
async fn what_is_no_number_counts_as_zero() {
    let server = MemcachedServer::start();
    let limiter = limiter_with(memcached(&[]), LIMITS, options());
    assert_eq!(
        outline(&answer(&limiter, &[descriptor("minute=x")]).await),
        [(Pass, 9)],
        "no server"
    );
    let Counting { limiter, client } = counting(&[&server], options());
    server.set("test-domain_minute_x_999960", "text");
    for _ in 0..3 {
        assert_eq!(
            outline(&answer(&limiter, &[descriptor("minute=x"), descriptor("hour=y")]).await)[0],
            (Pass, 9)
        );
    }
    client.flush().await;
    assert_eq!(
        server.value("test-domain_hour_y_997200").as_deref(),
        Some("3"),
        "the other counts"
    );
    assert_eq!(client.stats().foreign_values, 3);
}

#[tokio::test]
async fn a_refund_makes_no_counter() {
    let server = MemcachedServer::start();
    let Counting { limiter, client } = counting(&[&server], options());
    assert_eq!(
        outline(&answer(&limiter, &[refund("minute=x", 3)]).await),
        [(Pass, 10)]
    );
    client.flush().await;
    assert_eq!(server.keys(), []);
}
