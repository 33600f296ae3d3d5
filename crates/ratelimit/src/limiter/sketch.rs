//! Sketches: the keys with the most hits, and the latest refusals. Both are bounded whatever the
//! number of keys.

mod shorten;
mod top;

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::hash_map::Entry as MapEntry;
use hashbrown::{DefaultHashBuilder, HashMap};

use super::{Code, Status};
use crate::model::{Descriptor, Entry, Request, Timestamp};
use top::TopKeys;

/// Maximum number of keys, and of refusals, in a sketch.
const MAX_SKETCH_ITEMS: usize = 128;
/// Number of decisions of one minute and core that are all counted. On a busy core they take less
/// than a millisecond, and a person at a terminal makes fewer.
const MAX_COUNTED_DECISIONS: u32 = 4096;
/// Of later decisions, one in this number is counted until the minute ends, chosen at random.
const SAMPLE_EVERY: u32 = 64;
/// Maximum number of refusals of one kind that are kept for one second and core. In a flood, all
/// are alike.
const MAX_REFUSALS_PER_SECOND: u32 = 16;
const MINUTE_MICROS: u64 = 60_000_000;

/// The keys with the most hits, and the latest refusals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch {
    /// Keys with a limit, those with the most hits first: at most 128. A key with less than about a
    /// hundredth of all hits may be missing.
    pub top: Vec<TopKey>,
    /// Start of the time in which these hits were counted: the minute before the current one.
    pub since: Timestamp,
    /// Whether `top` has all keys with hits in this time.
    pub is_complete: bool,
    /// The latest refusals, the last one first: at most 128. Of many in one second, some are
    /// missing.
    pub refusals: Vec<Refusal>,
}

/// A key and its requested hits. Hits of jobs are those that were granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    /// The domain, at most 256 bytes.
    pub domain: String,
    /// The entries, at most 256 bytes in all.
    pub entries: Vec<Entry>,
    /// Whether the domain or the entries were cut, so that they name another key.
    pub is_cut: bool,
    /// Number of hits.
    pub hits: u64,
    /// Whether `hits` is an estimate, because there were too many decisions or keys to count all of
    /// them.
    pub is_estimate: bool,
    /// Refusals by [`Caller`]: hits of requests that were refused, and how often jobs had to wait.
    /// They are counted with the hits, and may be too low for a key that replaced another.
    pub refused: [Refused; 2],
}

/// Refusals of a key to one kind of caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refused {
    /// Number of refusals.
    pub count: u64,
    /// Time of the first one.
    pub first_at: Timestamp,
    /// Time of the latest one.
    pub last_at: Timestamp,
}

/// Keys that were counted in one minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMinute {
    /// Start of the minute.
    pub start: Timestamp,
    /// Keys with hits or refusals, at most 128 for each core, in no order.
    pub keys: Vec<TopKey>,
    /// Whether no core had more keys than it keeps.
    pub is_complete: bool,
}

impl TopKey {
    /// Adds the counts of the same key.
    fn merge(&mut self, other: &Self) {
        self.hits = self.hits.saturating_add(other.hits);
        self.is_estimate |= other.is_estimate;
        for (sum, refused) in self.refused.iter_mut().zip(other.refused) {
            sum.merge(refused);
        }
    }
}

impl Refused {
    fn add(&mut self, count: u64, at: Timestamp) {
        self.merge(Self {
            count,
            first_at: at,
            last_at: at,
        });
    }

    fn merge(&mut self, other: Self) {
        if self.count == 0 {
            *self = other;
        } else if other.count > 0 {
            self.count = self.count.saturating_add(other.count);
            self.first_at = self.first_at.min(other.first_at);
            self.last_at = self.last_at.max(other.last_at);
        }
    }
}

/// A refused request, or a job that had to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The domain, at most 256 bytes.
    pub domain: String,
    /// The entries of the first refused descriptor, or of the limit that a job waits for; at most
    /// 256 bytes in all.
    pub entries: Vec<Entry>,
    /// Whether the domain or the entries were cut, so that they name another key.
    pub is_cut: bool,
    /// Time of the refusal.
    pub at: Timestamp,
    /// The kind of caller.
    pub caller: Caller,
}

/// Kind of caller of the limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// A request of the gateway.
    Request,
    /// Jobs of workflows.
    Job,
}

/// The decisions of one core.
#[derive(Debug, Default)]
pub(crate) struct CoreSketch {
    /// Number of decisions to skip before the next one that is counted.
    skip: AtomicU32,
    /// Time at which `skip` ends early: each minute begins with decisions that are all counted.
    skip_until: AtomicU64,
    /// All cores share one hasher, so that equal keys have equal hashes.
    hasher: DefaultHashBuilder,
    activity: Mutex<CoreActivity>,
}

#[derive(Debug, Default)]
struct CoreActivity {
    minute: u64,
    current: TopKeys,
    previous: TopKeys,
    refusals: VecDeque<Refusal>,
    /// The second of the latest refusals, and the numbers of refused requests and jobs that are
    /// kept of it.
    second: u64,
    kept_refusals: [u32; 2],
}

/// A key as a caller names it.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Key<'k> {
    pub(crate) domain: &'k str,
    pub(crate) entries: &'k [Entry],
}

impl CoreSketch {
    pub(crate) fn new(hasher: DefaultHashBuilder) -> Self {
        Self {
            hasher,
            ..Self::default()
        }
    }

    /// Records a decision about a request. At high rates, most calls only count down to the next
    /// decision that is counted.
    #[inline]
    pub(crate) fn record(
        &self,
        request: &Request,
        code: Code,
        statuses: &[Status],
        now: Timestamp,
    ) {
        let skip = self.skip.load(Relaxed);
        if skip > 0 && now.0 < self.skip_until.load(Relaxed) {
            self.skip.store(skip - 1, Relaxed);
        } else {
            self.sample(request, statuses, now);
        }
        if code == Code::OverLimit {
            self.record_refusal(request, statuses, now);
        }
    }

    #[cold]
    fn sample(&self, request: &Request, statuses: &[Status], now: Timestamp) {
        let mut activity = self.lock();
        let current = activity.current_at(now);
        let weight = current.next_weight();
        // The number is random, so that clients which alternate are all counted.
        self.skip.store(
            if weight == 1 {
                0
            } else {
                fastrand::u32(..SAMPLE_EVERY * 2 - 1)
            },
            Relaxed,
        );
        self.skip_until
            .store((now.0 / MINUTE_MICROS + 1) * MINUTE_MICROS, Relaxed);
        for (descriptor, status) in request.descriptors.iter().zip(statuses) {
            let hits = hits(request, descriptor).saturating_mul(weight.into());
            if status.limit.is_some() && hits > 0 {
                let key = Key {
                    domain: &request.domain,
                    entries: &descriptor.entries,
                };
                let counted = current.add(self.hasher.hash_one(key), key, hits);
                if status.code == Code::OverLimit {
                    counted.refused[Caller::Request as usize].add(hits, now);
                }
            }
        }
    }

    #[cold]
    fn record_refusal(&self, request: &Request, statuses: &[Status], now: Timestamp) {
        let over = |(_, status): &(&Descriptor, &Status)| status.code == Code::OverLimit;
        let refused = request.descriptors.iter().zip(statuses).find(over);
        if let Some((descriptor, _)) = refused {
            let key = Key {
                domain: &request.domain,
                entries: &descriptor.entries,
            };
            self.lock().add_refusal(key, Caller::Request, now);
        }
    }

    /// Records the hits that jobs were granted, and the keys that made others wait.
    pub(crate) fn record_jobs<'k>(
        &self,
        granted: impl Iterator<Item = (Key<'k>, u64)>,
        refused: impl Iterator<Item = Key<'k>>,
        now: Timestamp,
    ) {
        let mut activity = self.lock();
        for (key, hits) in granted.filter(|(_, hits)| *hits > 0) {
            activity
                .current_at(now)
                .add(self.hasher.hash_one(key), key, hits);
        }
        for key in refused {
            let hash = self.hasher.hash_one(key);
            if let Some(counted) = activity.current_at(now).add_without_hits(hash, key) {
                counted.refused[Caller::Job as usize].add(1, now);
            }
            activity.add_refusal(key, Caller::Job, now);
        }
    }

    /// A panic leaves at worst a count too low, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, CoreActivity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CoreActivity {
    /// Returns the counts of the current minute.
    fn current_at(&mut self, now: Timestamp) -> &mut TopKeys {
        let minute = now.0 / MINUTE_MICROS;
        if minute > self.minute {
            let current = std::mem::take(&mut self.current);
            self.previous = if minute == self.minute + 1 {
                current
            } else {
                TopKeys::default()
            };
            self.minute = minute;
        }
        &mut self.current
    }

    fn add_refusal(&mut self, key: Key<'_>, caller: Caller, now: Timestamp) {
        let second = now.0 / 1_000_000;
        if second != self.second {
            self.second = second;
            self.kept_refusals = [0; 2];
        }
        let kept = &mut self.kept_refusals[caller as usize];
        if *kept == MAX_REFUSALS_PER_SECOND {
            return;
        }
        *kept += 1;
        if self.refusals.len() == MAX_SKETCH_ITEMS {
            self.refusals.pop_front();
        }
        let short = shorten::key(key);
        self.refusals.push_back(Refusal {
            domain: short.domain,
            entries: short.entries,
            is_cut: short.is_cut,
            at: now,
            caller,
        });
    }
}

/// The sum of a key over all cores.
struct KeySum {
    key: TopKey,
    /// Number of incomplete parts that have the key.
    incomplete: usize,
}

/// Merges the sketches of all cores at the time `now`.
pub(crate) fn merge<'c>(cores: impl Iterator<Item = &'c CoreSketch>, now: Timestamp) -> Sketch {
    let mut top: HashMap<u64, KeySum> = HashMap::new();
    let mut refusals = Vec::new();
    // Number of parts that may lack hits of a key.
    let mut incomplete = 0;
    for core in cores {
        let mut activity = core.lock();
        activity.current_at(now);
        for part in [&activity.current, &activity.previous] {
            incomplete += usize::from(!part.is_complete());
            for (hash, key) in part.iter() {
                let sum = top.entry(hash).or_insert_with(|| KeySum {
                    key: TopKey {
                        hits: 0,
                        refused: Default::default(),
                        ..key.clone()
                    },
                    incomplete: 0,
                });
                sum.key.merge(key);
                sum.incomplete += usize::from(!part.is_complete());
            }
        }
        refusals.extend(activity.refusals.iter().cloned());
    }
    let finished = |sum: KeySum| TopKey {
        is_estimate: sum.key.is_estimate || sum.incomplete < incomplete,
        ..sum.key
    };
    // A key that only made jobs wait has no hits.
    let has_hits = |sum: &KeySum| sum.key.hits > 0;
    let counted = top.into_values().filter(has_hits);
    let mut top: Vec<TopKey> = counted.map(finished).collect();
    top.sort_by(|a, b| {
        b.hits
            .cmp(&a.hits)
            .then_with(|| (&a.domain, &a.entries).cmp(&(&b.domain, &b.entries)))
    });
    let is_complete = incomplete == 0 && top.len() <= MAX_SKETCH_ITEMS;
    top.truncate(MAX_SKETCH_ITEMS);
    refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.at));
    refusals.truncate(MAX_SKETCH_ITEMS);
    let since = Timestamp((now.0 / MINUTE_MICROS).saturating_sub(1) * MINUTE_MICROS);
    Sketch {
        top,
        since,
        is_complete,
        refusals,
    }
}

/// Returns the keys of all cores in the previous minute and in the current one at the time `now`.
pub(crate) fn key_minutes<'c>(
    cores: impl Iterator<Item = &'c CoreSketch>,
    now: Timestamp,
) -> [KeyMinute; 2] {
    let mut minutes: [HashMap<u64, TopKey>; 2] = Default::default();
    let mut is_complete = [true; 2];
    for core in cores {
        let mut activity = core.lock();
        activity.current_at(now);
        let parts = [&activity.previous, &activity.current];
        for (is_complete, part) in is_complete.iter_mut().zip(parts) {
            *is_complete &= !part.has_evicted();
        }
        for (sums, part) in minutes.iter_mut().zip(parts) {
            for (hash, key) in part.iter() {
                match sums.entry(hash) {
                    MapEntry::Vacant(sum) => {
                        sum.insert(key.clone());
                    }
                    MapEntry::Occupied(sum) => sum.into_mut().merge(key),
                }
            }
        }
    }
    let minute = now.0 / MINUTE_MICROS;
    let starts = [minute.saturating_sub(1), minute];
    let [previous, current] = minutes.map(|sums| sums.into_values().collect());
    let of = |start: u64, keys, is_complete| KeyMinute {
        start: Timestamp(start * MINUTE_MICROS),
        keys,
        is_complete,
    };
    [
        of(starts[0], previous, is_complete[0]),
        of(starts[1], current, is_complete[1]),
    ]
}

/// Returns the requested hits of a descriptor. A refund requests none.
fn hits(request: &Request, descriptor: &Descriptor) -> u64 {
    if descriptor.is_negative_hits {
        return 0;
    }
    descriptor
        .hits_addend
        .unwrap_or(u64::from(request.hits_addend.max(1)))
}
