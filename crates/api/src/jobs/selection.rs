//! Which jobs a page of jobs has, and in what order.

use std::fmt::{self, Display};
use std::str::FromStr;

use hashbrown::HashSet;
use tidegate_workflow::{JobIndex, JobState, Snapshot};

use crate::http::problem::Problem;
use crate::http::query::Query;
use crate::workflows::list::MAX_PAGE_ITEMS;

/// States that distinguish jobs of one state of the engine, each with that state.
const FINER_STATES: [(&str, &str); 3] = [
    ("limited", "ready"),
    ("blocked", "waiting"),
    ("retrying", "scheduled"),
];
/// States in the order of attention. All others are over.
const ATTENTION: [&str; 8] = [
    "failed",
    "running",
    "retrying",
    "limited",
    "ready",
    "scheduled",
    "waiting",
    "blocked",
];

/// Filter, order and start of a page of jobs.
#[derive(Debug)]
pub(super) struct JobQuery {
    states: Vec<&'static str>,
    /// Part of the name, in lower case.
    text: Option<String>,
    handler: Option<String>,
    order: JobOrder,
    from: Position,
    pub(super) limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobOrder {
    Definition,
    Attention,
}

/// Place of a job in the order of a page. As text, it is a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// Place of its state in the order of attention. `None` in the order of the definition.
    rank: Option<usize>,
    pub(super) job: JobIndex,
}

impl Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(out, "{rank}.{}", self.job),
            None => write!(out, "{}", self.job),
        }
    }
}

impl FromStr for Position {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rank, job) = match text.split_once('.') {
            Some((rank, job)) => (Some(rank.parse()?), job),
            None => (None, text),
        };
        let job = JobIndex(job.parse()?);
        Ok(Self { rank, job })
    }
}

impl JobQuery {
    pub(super) fn parse(query: &mut Query) -> Result<Self, Problem> {
        let order = match query.remove("order").as_deref() {
            None | Some("definition") => JobOrder::Definition,
            Some("attention") => JobOrder::Attention,
            Some(_) => {
                return Err(Problem::field("order", "expected definition or attention"));
            }
        };
        let first = Position {
            rank: (order == JobOrder::Attention).then_some(0),
            job: JobIndex(0),
        };
        // A cursor of the other order would begin anywhere.
        let in_order = |position: &Position| position.rank.is_some() == first.rank.is_some();
        let from = query.cursor("a page of jobs in this order", |text| {
            text.parse::<Position>().ok().filter(in_order)
        })?;
        Ok(Self {
            states: parse_states(query.remove("state").as_deref())?,
            text: query.remove("q").map(|text| text.to_lowercase()),
            handler: query.remove("handler"),
            order,
            from: from.unwrap_or(first),
            limit: query.limit(100, MAX_PAGE_ITEMS)?,
        })
    }

    /// Whether the page is the next jobs of the definition, so that only these are to be read.
    pub(super) fn is_plain(&self) -> bool {
        let filters = self.text.is_some() || self.handler.is_some() || !self.states.is_empty();
        !filters && self.order == JobOrder::Definition
    }

    /// Positions of a plain page of a workflow with `number` jobs, and of one job more if there is
    /// one.
    pub(super) fn plain_page(&self, number: usize) -> Vec<Position> {
        let jobs = self.from.job.index()..number;
        jobs.take(self.limit + 1)
            .map(|at| Position {
                rank: None,
                job: JobIndex(at as u32),
            })
            .collect()
    }

    /// States of the engine that the jobs of the page can have. Empty for any.
    pub(super) fn engine_states(&self) -> Vec<&'static str> {
        let finer = |word: &str| FINER_STATES.iter().find(|(finer, _)| *finer == word);
        let states = self.states.iter();
        states
            .map(|&word| finer(word).map_or(word, |&(_, state)| state))
            .collect()
    }

    /// Whether it must be known which ready jobs a limit denies.
    pub(super) fn needs_limited(&self) -> bool {
        self.order == JobOrder::Attention || self.states.contains(&"limited")
    }

    /// Positions of the page, and of one job more if there is one. `limited` are the ready jobs that
    /// a limit denies.
    pub(super) fn select(&self, snapshot: &Snapshot, limited: &HashSet<JobIndex>) -> Vec<Position> {
        let all = (0..snapshot.jobs().len()).map(|at| JobIndex(at as u32));
        let position = |job| {
            let state = finest_state(snapshot, job, limited);
            let rank = || {
                let place = ATTENTION.iter().position(|word| *word == state);
                place.unwrap_or(ATTENTION.len())
            };
            let position = Position {
                rank: (self.order == JobOrder::Attention).then(rank),
                job,
            };
            (position >= self.from && self.admits(snapshot, job, state)).then_some(position)
        };
        let mut positions: Vec<Position> = all.filter_map(position).collect();
        positions.sort_unstable();
        positions.truncate(self.limit + 1);
        positions
    }

    fn admits(&self, snapshot: &Snapshot, job: JobIndex, state: &str) -> bool {
        let definition = &snapshot.graph().jobs[job.index()];
        let has_state = |word: &&str| *word == state || *word == snapshot.job(job).state.word();
        let has_text = |text: &String| definition.name.to_lowercase().contains(text);
        (self.states.is_empty() || self.states.iter().any(has_state))
            && self
                .handler
                .as_ref()
                .is_none_or(|handler| *handler == definition.handler)
            && self.text.as_ref().is_none_or(has_text)
    }
}

/// The state of a job, with finer states where it has one.
fn finest_state(snapshot: &Snapshot, index: JobIndex, limited: &HashSet<JobIndex>) -> &'static str {
    let job = snapshot.job(index);
    match job.state {
        JobState::Ready if limited.contains(&index) => "limited",
        JobState::Waiting if snapshot.is_blocked(index) => "blocked",
        JobState::Scheduled { .. } if job.attempt > 0 => "retrying",
        state => state.word(),
    }
}

/// Parses a list of states.
fn parse_states(list: Option<&str>) -> Result<Vec<&'static str>, Problem> {
    let finer = FINER_STATES.iter().map(|(word, _)| *word);
    let known: Vec<&str> = JobState::WORDS.into_iter().chain(finer).collect();
    let words = list.iter().flat_map(|list| list.split(','));
    let state = |word: &str| {
        let state = known.iter().copied().find(|known| *known == word);
        state.ok_or_else(|| {
            let known = known.join(", ");
            Problem::field(
                "state",
                format!("'{word}' is not a state; expected one of {known}"),
            )
        })
    };
    words.map(state).collect()
}
