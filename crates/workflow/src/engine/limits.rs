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

/// The name of a limit, the same for all jobs that it counts, however many units they take.
pub(crate) fn name_of(limit: &Limit) -> Arc<str> {
    match limit {
        Limit::Concurrency { name, .. } => name.as_str().into(),
        Limit::Units { domain, entries, .. } => {
            let mut name = format!("{domain}\n");
            for (key, value) in entries {
                name.extend([key, "\t", value, "\n"]);
            }
            name.into()
        }
    }
}
