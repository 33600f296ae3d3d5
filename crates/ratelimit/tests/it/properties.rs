//! What must hold for any requests and any configuration.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;
use tidegate_ratelimit::{Code, Entry, Limiter};

use crate::fixture::{NOW, check_at, descriptor, limiter, options, request, with_hits};
use crate::units::{Job, take_at};

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime can be built")
        .block_on(future)
}

const TEN: &str = "
domain: test-domain
descriptors: [{key: ten, rate_limit: {unit: minute, requests_per_unit: 10}}]";

proptest! {
    #[test]
    fn no_more_than_the_limit_passes_in_a_window(asked in prop::collection::vec((0_u64..120, 0_u64..6), 1..60)) {
        let limiter = limiter(TEN, options());
        let mut passed = [0; 3];
        for (second, hits) in asked {
            let checked = block_on(check_at(&limiter, NOW + second, &request(&[with_hits("ten=x", hits)])));
            let status = &checked.response.unwrap().statuses[0];
            // NOW is 14 s into a minute.
            let window = &mut passed[(second as usize + 14) / 60];
            if status.code == Code::Ok {
                *window += hits;
                prop_assert!(*window + u64::from(status.remaining) <= 10);
            }
        }
    }

    #[test]
    fn lookup_agrees_with_a_naive_search(tree in level(2), path in prop::collection::vec((key(), value()), 0..4)) {
        let entries: Vec<Entry> = path.into_iter().map(|(key, value)| Entry { key, value }).collect();
        let limiter = limiter(&format!("domain: test-domain\ndescriptors: {}", yaml(&tree)), options());
        let mut asked = descriptor("");
        asked.entries = entries.clone();
        let checked = block_on(check_at(&limiter, NOW, &request(&[asked])));
        let limit = checked.response.unwrap().statuses[0].limit.as_ref().map(|limit| limit.requests_per_unit);
        prop_assert_eq!(limit, naive(&tree, &entries), "{} {:?}", yaml(&tree), entries);
    }
}

#[test]
fn no_more_than_the_limit_passes_when_threads_compete() {
    let limiter: Limiter = limiter(TEN, options());
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let checked =
                        block_on(check_at(&limiter, NOW, &request(&[descriptor("ten=x")])));
                    if checked.response.unwrap().code == Code::Ok {
                        passed.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(passed.load(Relaxed), 10);
}

#[test]
fn jobs_and_requests_on_threads_share_the_limit_exactly() {
    let limiter: Limiter = limiter(&TEN.replace("10}", "5000}"), options());
    let got = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (limiter, got) = (limiter.clone(), &got);
            scope.spawn(move || {
                for turn in 0..1_000 {
                    let jobs = [Job::of(&[("ten=x", 1 + turn % 3)], 1 + (turn + thread) % 4)];
                    let took = block_on(take_at(&limiter, NOW, &jobs));
                    got.fetch_add(u64::from(took.times() * (1 + turn % 3)), Relaxed);
                }
                while block_on(check_at(&limiter, NOW, &request(&[descriptor("ten=x")])))
                    .response
                    .unwrap()
                    .code
                    == Code::Ok
                {
                    got.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(got.load(Relaxed), 5_000);
}

/// One configured descriptor: key, value, limit, children.
#[derive(Debug, Clone)]
struct Node {
    key: String,
    value: String,
    limit: Option<u32>,
    children: Vec<Node>,
}

impl Node {
    fn composite(&self) -> String {
        if self.value.is_empty() {
            self.key.clone()
        } else {
            format!("{}_{}", self.key, self.value)
        }
    }
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "a_x"]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "x", "xy", "yx", "x*", "xyx"]).prop_map(str::to_owned)
}

fn level(depth: u32) -> BoxedStrategy<Vec<Node>> {
    let patterns =
        prop::sample::select(vec!["", "x", "xy", "x*", "*x", "x*x", "*"]).prop_map(str::to_owned);
    let children = if depth == 0 {
        Just(Vec::new()).boxed()
    } else {
        level(depth - 1)
    };
    let node = (key(), patterns, prop::option::of(1_u32..100), children).prop_map(
        |(key, value, limit, children)| Node {
            key,
            value,
            limit,
            children,
        },
    );
    prop::collection::vec(node, 0..5)
        .prop_map(|mut nodes| {
            let mut seen = std::collections::HashSet::new();
            nodes.retain(|node| seen.insert(node.composite()));
            nodes
        })
        .boxed()
}

fn yaml(nodes: &[Node]) -> String {
    let nodes = nodes.iter().map(|node| {
        let limit = node.limit.map_or(String::new(), |limit| {
            format!(", rate_limit: {{unit: hour, requests_per_unit: {limit}}}")
        });
        format!(
            "{{key: {}, value: '{}'{limit}, descriptors: {}}}",
            node.key,
            node.value,
            yaml(&node.children)
        )
    });
    format!("[{}]", nodes.collect::<Vec<_>>().join(", "))
}

/// The rule as one would say it: exact, then the first pattern, then the key alone; only the last level's limit counts.
fn naive(nodes: &[Node], entries: &[Entry]) -> Option<u32> {
    let (first, rest) = entries.split_first()?;
    let probe = format!("{}_{}", first.key, first.value);
    let found = nodes
        .iter()
        .find(|node| node.composite() == probe)
        .or_else(|| {
            nodes
                .iter()
                .find(|node| node.composite().contains('*') && matches(&node.composite(), &probe))
        })
        .or_else(|| nodes.iter().find(|node| node.composite() == first.key))?;
    if rest.is_empty() {
        found.limit
    } else {
        naive(&found.children, rest)
    }
}

/// Tries every length for every star.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text
            .strip_prefix(before)
            .is_some_and(|rest| (0..=rest.len()).any(|skipped| matches(after, &rest[skipped..]))),
    }
}
