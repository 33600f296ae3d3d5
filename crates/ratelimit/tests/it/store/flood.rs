//! Floods of keys that nobody asks for again: the counters that matter outlast them.

use tidegate_ratelimit::Code::OverLimit;
use tidegate_ratelimit::{Limiter, MemoryBounds, MemoryStore, Request, Store};

use crate::fixture::{NOW, check_at, limiter_with, options, request, with_hits};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: login, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: search, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: once, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: call, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: second, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 5}}
";
/// Bytes of the stores here. The bound on the number of keys comes first.
const BYTES: usize = 16 << 20;

fn store(keys: usize) -> (MemoryStore, Limiter) {
    let store = MemoryStore::new(MemoryBounds { keys, bytes: BYTES });
    (
        store.clone(),
        limiter_with(Store::Memory(store), LIMITS, options()),
    )
}

/// Sends hits to keys of one limit.
struct Hits<'a> {
    limiter: &'a Limiter,
    request: Request,
}

impl<'a> Hits<'a> {
    fn new(limiter: &'a Limiter, key: &str, hits: u64) -> Self {
        Self {
            limiter,
            request: request(&[with_hits(&format!("{key}="), hits)]),
        }
    }

    /// Whether the hits on this value are refused.
    async fn are_refused(&mut self, value: &str) -> bool {
        value.clone_into(&mut self.request.descriptors[0].entries[0].value);
        check_at(self.limiter, NOW, &self.request)
            .await
            .response
            .expect("an answer")
            .code
            == OverLimit
    }
}

/// New keys of these limits in turn, with so many hits each.
struct Flood<'a> {
    limits: Vec<Hits<'a>>,
    sent: usize,
}

impl<'a> Flood<'a> {
    fn new(limiter: &'a Limiter, limits: &[(&str, u64)]) -> Self {
        Self {
            limits: limits
                .iter()
                .map(|&(key, hits)| Hits::new(limiter, key, hits))
                .collect(),
            sent: 0,
        }
    }

    async fn send(&mut self, keys: usize) {
        for _ in 0..keys {
            let limits = self.limits.len();
            self.limits[self.sent % limits]
                .are_refused(&self.sent.to_string())
                .await;
            self.sent += 1;
        }
    }
}

/// Sends ten hits to each of `keys` counters of `login`, and `flood` new keys between; returns how many counters refused
/// exactly five.
async fn enforced(
    limiter: &Limiter,
    keys: usize,
    mut flood: Flood<'_>,
    flood_keys: usize,
) -> usize {
    let mut ours = Hits::new(limiter, "login", 1);
    let mut refused = vec![0; keys];
    for hit in 0..keys * 10 {
        flood.send(flood_keys / (keys * 10)).await;
        let value = hit % keys;
        refused[value] += usize::from(ours.are_refused(&format!("ours-{value}")).await);
    }
    refused.iter().filter(|refused| **refused == 5).count()
}

/// How many of `keys` counters of `login` refuse so many hits more.
async fn refused(limiter: &Limiter, keys: usize, hits: u64) -> usize {
    let mut hits = Hits::new(limiter, "login", hits);
    let mut refused = 0;
    for value in 0..keys {
        refused += usize::from(hits.are_refused(&format!("ours-{value}")).await);
    }
    refused
}

#[tokio::test]
async fn keys_of_a_day_do_not_push_out_counters_of_a_minute() {
    let (_, limiter) = store(20_000);
    let flood = Flood::new(&limiter, &[("day", 1)]);
    assert_eq!(enforced(&limiter, 40, flood, 45_000).await, 40);
}

#[tokio::test]
async fn a_million_keys_of_a_day_leave_a_thousand_counters_of_a_minute() {
    let (store, limiter) = store(100_000);
    let flood = Flood::new(&limiter, &[("day", 1)]);
    let enforced = enforced(&limiter, 1_000, flood, 1_000_000).await;
    assert!(enforced >= 990, "{enforced} of 1,000");
    assert!(
        store.len() <= 100_000 && store.bytes() <= BYTES,
        "{} keys, {} bytes",
        store.len(),
        store.bytes()
    );
}

#[tokio::test]
async fn a_million_keys_of_a_minute_leave_counters_of_the_same_limit_that_are_near_it() {
    let (store, limiter) = store(100_000);
    let mut near = Hits::new(&limiter, "login", 4);
    for value in 0..1_000 {
        assert!(!near.are_refused(&format!("ours-{value}")).await);
    }
    Flood::new(&limiter, &[("login", 1)]).send(1_000_000).await;
    let refused = refused(&limiter, 1_000, 2).await;
    assert!(refused >= 990, "{refused} of 1,000");
    assert!(
        store.len() <= 100_000 && store.bytes() <= BYTES,
        "{} keys, {} bytes",
        store.len(),
        store.bytes()
    );
}

#[tokio::test]
async fn a_flood_of_other_limits_leaves_a_limit_alone() {
    let floods: [&[(&str, u64)]; 5] = [
        &[("search", 1)],
        &[("search", 6)],
        &[("once", 1)],
        &[("call", 900)],
        &[
            ("second", 9),
            ("search", 9),
            ("once", 9),
            ("hour", 9),
            ("day", 9),
        ],
    ];
    for limits in floods {
        let (_, limiter) = store(10_000);
        assert_eq!(
            enforced(&limiter, 100, Flood::new(&limiter, limits), 50_000).await,
            100,
            "{limits:?}"
        );
    }
}

#[tokio::test]
async fn a_flood_of_a_small_limit_leaves_counters_of_a_large_one_that_used_little() {
    let (_, limiter) = store(10_000);
    let mut calls = Hits::new(&limiter, "call", 10);
    let mut flood = Flood::new(&limiter, &[("login", 1)]);
    for round in 0..=100 {
        for value in 0..10 {
            assert_eq!(
                calls.are_refused(&value.to_string()).await,
                round == 100,
                "round {round}"
            );
        }
        flood.send(500).await;
    }
}

#[tokio::test]
async fn a_flood_of_exhausted_counters_leaves_new_ones_of_the_same_limit() {
    let (_, limiter) = store(10_000);
    let mut flood = Flood::new(&limiter, &[("login", 6)]);
    flood.send(30_000).await;
    let mut one = Hits::new(&limiter, "login", 1);
    for _ in 0..4 {
        for value in 0..100 {
            flood.send(100).await;
            assert!(!one.are_refused(&format!("ours-{value}")).await);
        }
    }
    assert_eq!(refused(&limiter, 100, 2).await, 100);
}
