//! File descriptors: as many as the system allows, and how the ports share them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Descriptors that no connection of a client gets: connections to Redis, the files of workflows and of the configuration.
const RESERVE: usize = 512;
/// Connections of a port with pages for operators: scrapers and people.
const PAGES: usize = 64;

/// The most connections of each port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) grpc: usize,
    pub(crate) http: usize,
    pub(crate) api: usize,
    /// The debug port and the port of Prometheus, each.
    pub(crate) pages: usize,
}

/// Raises the soft limit on open files to the hard limit, and returns what it is then.
pub(crate) fn raise() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        if let Err(error) = raised {
            warn!(%error, "cannot raise the limit on open files");
        }
    }
    let now = getrlimit(Resource::Nofile).current;
    now.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

impl Shares {
    /// At most `wanted` connections a port, and fewer where that many open files are not allowed.
    pub(crate) fn of(files: usize, wanted: usize) -> Self {
        let reserve = RESERVE.min(files / 4);
        let pages = PAGES.min(files / 32).max(1);
        let left = files.saturating_sub(reserve + 2 * pages);
        let share = |part: usize| (left / 4).saturating_mul(part).clamp(1, wanted);
        Self { grpc: share(2), http: share(1), api: share(1), pages }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_share_what_the_system_allows() {
        for (files, wanted, expected) in [
            (1 << 20, 10_000, Shares { grpc: 10_000, http: 10_000, api: 10_000, pages: 64 }),
            (20_000, 10_000, Shares { grpc: 9_680, http: 4_840, api: 4_840, pages: 64 }),
            (1_024, 10_000, Shares { grpc: 352, http: 176, api: 176, pages: 32 }),
            (1_024, 5, Shares { grpc: 5, http: 5, api: 5, pages: 32 }),
            (0, 10, Shares { grpc: 1, http: 1, api: 1, pages: 1 }),
        ] {
            assert_eq!(Shares::of(files, wanted), expected, "{files} {wanted}");
        }
    }

    #[test]
    fn the_limit_becomes_the_hard_limit() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise() as u64, hard.unwrap_or(usize::MAX as u64));
    }
}
