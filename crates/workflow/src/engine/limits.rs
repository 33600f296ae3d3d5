//! Limits of jobs: what is taken for them before they leave their queue, and what is given back.
//!
//! First what jobs need is taken, then they are leased. So a crash in between can waste units, and a limit is never exceeded.

mod charge;
mod lookahead;
mod permits;
mod spared;
pub(crate) mod status;
pub(in crate::engine) mod throttle;
pub(in crate::engine) mod unbegun;
mod unblock;
pub(crate) mod unit_counter;

use std::sync::Arc;

use crate::graph::limits::Limit;

/// Stands before the number in the name of a limit. No domain, key, value or name of a set contains it.
const NUMBER: char = '\0';

/// What closes and opens by itself: a rate limit for jobs that take so many units of it, or a set for jobs that run only while so many do. Where
/// there is no room for some, there may be room for others.
pub(crate) fn name_of(limit: &Limit) -> Arc<str> {
    match limit {
        Limit::Concurrency { name, most } => name_of_set(name, *most),
        Limit::Units {
            domain,
            entries,
            hits,
        } => {
            let mut name = format!("{domain}\n");
            for (key, value) in entries {
                name.extend([key, "\t", value, "\n"]);
            }
            name.push(NUMBER);
            name.push_str(&hits.to_string());
            name.into()
        }
    }
}

/// [`name_of`] a set for jobs that run only while so many do.
pub(crate) fn name_of_set(set: &str, most: u32) -> Arc<str> {
    format!("{set}{NUMBER}{most}").into()
}

/// The number in the name of a limit: how many units a job takes, or how many jobs may run.
pub(crate) fn number_in(name: &str) -> u32 {
    name.split_once(NUMBER)
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(1)
}

/// Whether it is the name of a set for jobs that run, not of a rate limit.
pub(crate) fn is_set(name: &str) -> bool {
    !counted_by(name).ends_with('\n')
}

/// What the name of a limit begins with, the same for all jobs that it counts, whatever their numbers are.
pub(crate) fn counted_by(name: &str) -> &str {
    name.split_once(NUMBER).map_or(name, |(counted, _)| counted)
}

/// Whether a name is one of those that begin with it, as [`counted_by`] says.
pub(crate) fn is_counted_by(name: &str, counted: &str) -> bool {
    name.strip_prefix(counted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(NUMBER))
}
