//! Rate limits whose windows turn when a test says so. It stands for the limiter, which this crate does not know: the server's tests have the
//! real one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_workflow::{
    BoxFuture, Engine, EngineOptions, EngineThread, Limit, LimitExhausted, Limits, Receipt, Store,
    Timestamp, UnitCounter, UnitGrant, UnitRequest,
};
use tokio::runtime::Handle;

/// How much each window of a limit has room for, and what was taken of it.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By domain; others are unlimited.
    room: HashMap<String, u64>,
    /// The number of the window, its length, and its end.
    window: u64,
    left: Duration,
    /// Of each window and descriptor.
    taken: HashMap<(u64, String), u64>,
    calls: u64,
    /// How long each answer takes.
    delay: Duration,
}

/// What was taken of which window.
type Taken = Vec<((u64, String), u64)>;

impl Windows {
    pub(crate) fn new(limits: &[(&str, u64)]) -> Arc<Self> {
        let room = limits
            .iter()
            .map(|(domain, room)| ((*domain).to_owned(), *room))
            .collect();
        let state = State {
            room,
            left: Duration::from_secs(1),
            ..State::default()
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// A server over a store that takes its units here.
    pub(crate) async fn server(self: &Arc<Self>, store: &Store) -> Engine {
        let thread = EngineThread::new(store.clone(), Handle::current()).with_units(self.clone());
        Engine::start_on_threads(vec![thread], EngineOptions::default())
            .await
            .unwrap()
    }

    /// The next window of all limits begins.
    pub(crate) fn turn(&self) {
        self.state.lock().unwrap().window += 1;
    }

    /// How long it is until the window turns, as is told to those who are refused.
    pub(crate) fn set_left(&self, left: Duration) {
        self.state.lock().unwrap().left = left;
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    /// What was taken in the current window, by descriptor.
    pub(crate) fn taken(&self, descriptor: &str) -> u64 {
        let state = self.state.lock().unwrap();
        state
            .taken
            .get(&(state.window, descriptor.to_owned()))
            .copied()
            .unwrap_or_default()
    }

    /// The most that was taken in any window of any descriptor of a domain.
    pub(crate) fn most_taken(&self, domain: &str) -> u64 {
        let state = self.state.lock().unwrap();
        let of_domain = state
            .taken
            .iter()
            .filter(|((_, name), _)| name.starts_with(&format!("{domain}/")));
        of_domain.map(|(_, taken)| *taken).max().unwrap_or_default()
    }

    /// How often units were asked for.
    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().unwrap().calls
    }

    fn take_one(state: &mut State, wanted: &UnitRequest) -> UnitGrant {
        let counted = |limit: &Limit| match limit {
            Limit::Units {
                domain,
                entries,
                hits,
            } => Some((domain.clone(), name(domain, entries), u64::from(*hits))),
            Limit::Concurrency { .. } => None,
        };
        let each: Vec<_> = wanted.limits.as_slice().iter().map(counted).collect();
        let mut taken = Taken::new();
        let fits = |state: &State| {
            each.iter().position(|limit| {
                let Some((domain, name, hits)) = limit else {
                    return false;
                };
                let taken = state
                    .taken
                    .get(&(state.window, name.clone()))
                    .copied()
                    .unwrap_or_default();
                state
                    .room
                    .get(domain)
                    .is_some_and(|room| taken + hits > *room)
            })
        };
        let mut jobs = 0;
        let mut full = fits(state);
        while jobs < wanted.jobs && full.is_none() {
            for (_, name, hits) in each.iter().flatten() {
                let key = (state.window, name.clone());
                *state.taken.entry(key.clone()).or_default() += hits;
                taken.push((key, *hits));
            }
            jobs += 1;
            full = fits(state);
        }
        let per_job = each.iter().flatten().count();
        let receipt: Receipt = Arc::new(Mutex::new((taken, per_job)));
        let no_room = full.map(|limit| LimitExhausted {
            limit_index: limit,
            available_after: state.left,
            retry_after: None,
        });
        UnitGrant {
            jobs,
            receipt: Some(receipt),
            exhausted: no_room,
        }
    }
}

fn name(domain: &str, entries: &[(String, String)]) -> String {
    entries
        .iter()
        .fold(domain.to_owned(), |name, (key, value)| {
            format!("{name}/{key}={value}")
        })
}

impl UnitCounter for Windows {
    fn acquire(&self, wanted: Vec<UnitRequest>) -> BoxFuture<'_, Vec<UnitGrant>> {
        Box::pin(async move {
            let (granted, delay) = {
                let mut state = self.state.lock().unwrap();
                state.calls += 1;
                (
                    wanted
                        .iter()
                        .map(|wanted| Self::take_one(&mut state, wanted))
                        .collect(),
                    state.delay,
                )
            };
            tokio::time::sleep(delay).await;
            granted
        })
    }

    fn throttle(&self, limits: Arc<Limits>, _pause: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut state = self.state.lock().unwrap();
            for limit in limits.as_slice() {
                if let Limit::Units {
                    domain, entries, ..
                } = limit
                {
                    // Until the window turns.
                    let key = (state.window, name(domain, entries));
                    state.taken.insert(key, u64::MAX / 2);
                }
            }
        })
    }

    fn refund(&self, receipt: Receipt, jobs: u32) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let taken = receipt.downcast_ref::<Mutex<(Taken, usize)>>().unwrap();
            let (taken, per_job) = &mut *taken.lock().unwrap();
            let mut state = self.state.lock().unwrap();
            for (key, hits) in taken.drain(taken.len() - jobs as usize * *per_job..) {
                *state.taken.get_mut(&key).unwrap() -= hits;
            }
        })
    }
}

/// A time that the engine is told, which follows the real one.
pub(crate) fn clock(from: Timestamp) -> impl Fn() -> Timestamp + Clone {
    let begin = std::time::Instant::now();
    move || from + begin.elapsed()
}
