//! Limits of jobs: permits and units are acquired before jobs are claimed, and refunded if that
//! fails.
//!
//! Charges come before leases. So a crash in between wastes units, and a limit is never exceeded.

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

/// Separates the number in the name of a limit. No domain, key, value or name of a concurrency
/// limit contains it.
const NUMBER: char = '\0';

/// The name under which a limit is blocked. It contains the units per job or the maximum of running
/// jobs: a limit without room for one number may have room for another.
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

/// The name of a concurrency limit with a maximum of running jobs, see [`limit_name`].
pub(crate) fn name_of_set(set: &str, most: u32) -> Arc<str> {
    format!("{set}{NUMBER}{most}").into()
}

/// The number in the name of a limit: units per job, or maximum of running jobs.
pub(crate) fn number_in(name: &str) -> u32 {
    name.split_once(NUMBER)
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(1)
}

/// Whether the name is that of a concurrency limit.
pub(crate) fn is_set(name: &str) -> bool {
    !counted_by(name).ends_with('\n')
}

/// The prefix of a limit's name, which is equal for all jobs that the limit counts, whatever their
/// numbers are.
pub(crate) fn counted_by(name: &str) -> &str {
    name.split_once(NUMBER).map_or(name, |(counted, _)| counted)
}

/// Whether a name has a prefix that [`counter_prefix`] returned.
pub(crate) fn is_counted_by(name: &str, counted: &str) -> bool {
    name.strip_prefix(counted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(NUMBER))
}
