//! Limits of jobs: what is taken for them before they leave their queue, and what is given back.
//!
//! First what jobs need is taken, then they are leased. So a crash in between can waste units, and a limit is never exceeded.

mod ahead;
mod charge;
pub(crate) mod look;
mod openings;
pub(in crate::engine) mod throttle;
pub(crate) mod units;

use std::sync::Arc;

use crate::graph::limits::Limit;

/// Stands before the number of units in the name of a rate limit. No domain, key or value contains it.
const HITS: char = '\0';

/// What closes and opens by itself: a set of jobs, or a rate limit for jobs that take so many units of it. Where there is no room for many, there
/// may be some for few.
pub(crate) fn name_of(limit: &Limit) -> Arc<str> {
    match limit {
        Limit::Concurrency { name, .. } => name.as_str().into(),
        Limit::Units { domain, entries, hits } => {
            let mut name = format!("{domain}\n");
            for (key, value) in entries {
                name.extend([key, "\t", value, "\n"]);
            }
            name.push(HITS);
            name.push_str(&hits.to_string());
            name.into()
        }
    }
}

/// What the name of a limit begins with, the same for all jobs that it counts, however many units they take.
pub(crate) fn counted_by(name: &str) -> &str {
    name.split_once(HITS).map_or(name, |(counted, _)| counted)
}

/// Whether a name is one of those that begin with it, as [`counted_by`] says.
pub(crate) fn is_counted_by(name: &str, counted: &str) -> bool {
    name.strip_prefix(counted).is_some_and(|rest| rest.is_empty() || rest.starts_with(HITS))
}
