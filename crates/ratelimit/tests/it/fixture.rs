//! Short ways to write configurations, requests and expectations.

use std::time::{Duration, Instant};

use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_ratelimit::{
    Code, Configuration, Descriptor, Entry, Error, Facts, LimitDelta, Limiter, MemoryBounds,
    MemoryStore, Options, Request, Response, SameDomain, Source, StatsKey, Store, Timestamp,
};

/// 14 s into a minute; 46 s before the end of it, 826 s before that of the hour, 36,826 s before that of the day.
pub(crate) const NOW: u64 = 999_974;

pub(crate) fn source(name: &str, text: &str) -> Source {
    Source {
        name: name.into(),
        text: text.into(),
    }
}

#[track_caller]
pub(crate) fn configuration(text: &str) -> Configuration {
    match Configuration::load(&[source("test.yaml", text)], SameDomain::Refuse) {
        Ok(configuration) => configuration,
        Err(errors) => panic!(
            "{}",
            errors
                .iter()
                .map(|error| format!("{error}\n"))
                .collect::<String>()
        ),
    }
}

/// Options without anything random.
pub(crate) fn options() -> Options {
    Options {
        expiration_jitter: 0,
        ..Options::default()
    }
}

pub(crate) fn memory() -> Store {
    Store::Memory(MemoryStore::new(MemoryBounds::default()))
}

#[track_caller]
pub(crate) fn limiter(text: &str, options: Options) -> Limiter {
    limiter_with(memory(), text, options)
}

#[track_caller]
pub(crate) fn limiter_with(store: Store, text: &str, options: Options) -> Limiter {
    let limiter = Limiter::new(store, options);
    limiter.configure(configuration(text));
    limiter
}

/// Entries written as `key=value key=value`.
pub(crate) fn entries(text: &str) -> Vec<Entry> {
    text.split_whitespace()
        .map(|entry| {
            let (key, value) = entry
                .split_once('=')
                .expect("entries are written key=value");
            Entry {
                key: key.into(),
                value: value.into(),
            }
        })
        .collect()
}

pub(crate) fn descriptor(text: &str) -> Descriptor {
    Descriptor {
        entries: entries(text),
        ..Descriptor::default()
    }
}

pub(crate) fn with_hits(text: &str, hits: u64) -> Descriptor {
    Descriptor {
        hits_addend: Some(hits),
        ..descriptor(text)
    }
}

pub(crate) fn refund(text: &str, hits: u64) -> Descriptor {
    Descriptor {
        is_negative_hits: true,
        ..with_hits(text, hits)
    }
}

pub(crate) fn request(descriptors: &[Descriptor]) -> Request {
    Request {
        domain: "test-domain".into(),
        descriptors: descriptors.to_vec(),
        hits_addend: 0,
    }
}

/// The outcome of one check.
pub(crate) struct Checked {
    pub(crate) facts: Facts,
    pub(crate) response: Result<Response, Error>,
    /// One per tally.
    pub(crate) stats_keys: Vec<String>,
}

/// Asks at a second.
pub(crate) async fn check_at(limiter: &Limiter, second: u64, request: &Request) -> Checked {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut facts = Facts::default();
    let response = limiter
        .check(request, Timestamp(second * 1_000_000), deadline, &mut facts)
        .await;
    let stats_keys = facts
        .tallies
        .iter()
        .map(|tally| stats_key(limiter, tally))
        .collect();
    Checked {
        facts,
        response,
        stats_keys,
    }
}

pub(crate) fn stats_key(limiter: &Limiter, tally: &LimitDelta) -> String {
    match &tally.stats_key {
        StatsKey::Configured { slot } => {
            let configuration = limiter.configuration().expect("something was counted");
            configuration
                .stats_keys()
                .nth(*slot as usize)
                .expect("slots are places")
                .to_owned()
        }
        StatsKey::FromRequest { name, .. } => String::from(&**name),
    }
}

/// Asks at [`NOW`] and expects an answer.
pub(crate) async fn answer(limiter: &Limiter, descriptors: &[Descriptor]) -> Response {
    check_at(limiter, NOW, &request(descriptors))
        .await
        .response
        .expect("an answer")
}

/// Code and remaining hits of every descriptor.
pub(crate) fn outline(response: &Response) -> Vec<(Code, u32)> {
    response
        .statuses
        .iter()
        .map(|status| (status.code, status.remaining))
        .collect()
}

/// The counters of a tally, in the order of the struct.
pub(crate) fn numbers(tally: &LimitDelta) -> [u64; 7] {
    [
        tally.total_hits,
        tally.over_limit,
        tally.near_limit,
        tally.within_limit,
        tally.over_limit_with_local_cache,
        tally.shadow_mode,
        tally.total_negative_hits,
    ]
}

pub(crate) fn client(server: &RedisServer) -> Client {
    Client::new(server.config()).expect("default bounds are valid")
}
