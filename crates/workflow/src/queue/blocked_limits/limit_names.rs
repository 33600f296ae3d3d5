//! Names under which limits are blocked.

use std::sync::Arc;

use crate::graph::Limit;

/// Separates the number in the name of a limit. No domain, key, value or name of a concurrency
/// limit contains it.
const NUMBER_SEPARATOR: char = '\0';

/// The name under which a limit is blocked. It contains the units per job or the maximum of running
/// jobs: a limit without room for one number may have room for another.
pub(crate) fn limit_name(limit: &Limit) -> Arc<str> {
    match limit {
        Limit::Concurrency { name, most } => concurrency_limit_name(name, *most),
        Limit::Units {
            domain,
            entries,
            hits,
        } => {
            let mut name = format!("{domain}\n");
            for (key, value) in entries {
                name.extend([key, "\t", value, "\n"]);
            }
            name.push(NUMBER_SEPARATOR);
            name.push_str(&hits.to_string());
            name.into()
        }
    }
}

/// The name of a concurrency limit with a maximum of running jobs, see [`limit_name`].
pub(crate) fn concurrency_limit_name(set: &str, most: u32) -> Arc<str> {
    format!("{set}{NUMBER_SEPARATOR}{most}").into()
}

/// The number in the name of a limit: units per job, or maximum of running jobs.
pub(crate) fn number_in(name: &str) -> u32 {
    name.split_once(NUMBER_SEPARATOR)
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(1)
}

/// Whether the name is that of a concurrency limit.
pub(crate) fn is_concurrency_limit(name: &str) -> bool {
    !counter_prefix(name).ends_with('\n')
}

/// The prefix of a limit's name, which is equal for all jobs that the limit counts, whatever their
/// numbers are.
pub(crate) fn counter_prefix(name: &str) -> &str {
    name.split_once(NUMBER_SEPARATOR)
        .map_or(name, |(prefix, _)| prefix)
}

/// Whether a name has a prefix that [`counter_prefix`] returned.
pub(crate) fn has_counter_prefix(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(NUMBER_SEPARATOR))
}
