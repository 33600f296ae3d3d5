//! File descriptors: the limit of the system, and how the ports share them.

use std::fs;
use std::io::ErrorKind;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Minimum of file descriptors that are reserved for other uses than client connections, if the
/// limit is high.
const RESERVE: usize = 512;
/// File descriptors that are opened on demand: the store of workflows, files of the configuration,
/// DNS look-ups, and connections that were evicted.
const SPARE: usize = 32;
/// Minimum of client connections for a start: one or two for each port.
const FEWEST: usize = 16;
/// Connections of a port below which a warning is logged even without the setting. A load balancer
/// alone opens some.
const FEW: usize = 100;
/// Maximum of connections of a port with pages for operators: scrapers and people.
const PAGES: usize = 64;

/// File descriptors that the process is allowed, and those that it needs itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) allowed: usize,
    /// File descriptors that are open now.
    open: usize,
    /// Connections to Redis that the process may open.
    redis: usize,
}

/// The maximum of connections of each port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) grpc: Most,
    pub(crate) http: Most,
    pub(crate) api: Most,
    /// The debug port and the Prometheus port, each.
    pub(crate) pages: Most,
}

/// The maximum of connections of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Most {
    pub(crate) connections: usize,
    by: By,
}

/// The source of a maximum of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Setting,
    Files,
    /// A constant of this server.
    Us,
}

/// Raises the soft limit on open files to the hard limit, and returns the new limit.
pub(crate) fn raise() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                ..limit
            },
        );
        if let Err(error) = raised {
            warn!(%error, "cannot raise the limit on open files");
        }
    }
    let now = getrlimit(Resource::Nofile).current;
    now.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX)
    })
}

impl Files {
    /// Counts open file descriptors. Call it when all threads run and all ports are open. `redis`
    /// is the maximum of connections to Redis.
    pub(crate) fn count(allowed: usize, redis: usize) -> Self {
        let open = match fs::read_dir("/proc/self/fd") {
            Ok(files) => files.count(),
            // A root folder without /proc: the reserve covers the files that are open now, too.
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            // The process has no file descriptor left if it cannot open this folder.
            Err(_) => allowed,
        };
        Self {
            allowed,
            open,
            redis,
        }
    }

    /// The minimum of open files that must be allowed.
    pub(crate) fn least(&self) -> usize {
        self.open + FEWEST
    }

    fn reserve(&self) -> usize {
        RESERVE
            .min(self.allowed / 4)
            .max(self.open + self.redis + SPARE)
    }
}

impl Most {
    #[cfg(test)]
    pub(super) fn fixed(connections: usize) -> Self {
        Self {
            connections,
            by: By::Us,
        }
    }

    /// Advice how to raise the maximum, as the end of a sentence.
    pub(super) fn advice(self) -> &'static str {
        match self.by {
            By::Setting => "; raise TIDEGATE_MAX_CONNECTIONS",
            By::Files => "; raise the hard limit on open files (ulimit -H -n)",
            By::Us => "",
        }
    }
}

impl Shares {
    /// At most `wanted` connections a port, and fewer if the limit on open files is lower.
    pub(crate) fn of(files: Files, wanted: usize) -> Self {
        let pages = PAGES.min(files.allowed / 32).max(1);
        let left = files.allowed.saturating_sub(files.reserve() + 2 * pages);
        let share = |part: usize| {
            let most = (left / 4).saturating_mul(part).max(1);
            let by = if most < wanted {
                By::Files
            } else {
                By::Setting
            };
            Most {
                connections: most.min(wanted),
                by,
            }
        };
        let by = if pages < PAGES { By::Files } else { By::Us };
        Self {
            grpc: share(2),
            http: share(1),
            api: share(1),
            pages: Most {
                connections: pages,
                by,
            },
        }
    }

    /// A warning if a port gets fewer than `wanted` connections. `given` says whether the setting
    /// asks for that number.
    pub(crate) fn warning(&self, files: Files, wanted: usize, given: bool) -> Option<String> {
        let grpc = self.grpc.connections;
        let http = self.http.connections;
        let worth_it = http < wanted && (given || http < FEW);
        worth_it.then(|| {
            let needed = files.reserve().max(RESERVE) + 2 * PAGES + 4 * wanted;
            format!(
                "TIDEGATE_MAX_CONNECTIONS={wanted} needs {needed} open files, {} are allowed: gRPC gets {grpc} connections, HTTP \
                 and the API get {http} each; raise the hard limit on open files (ulimit -H -n)",
                files.allowed
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_share_what_the_system_allows() {
        // Connections, those of pages, files in all, those that are open, and connections to Redis.
        for (allowed, open, redis, wanted, expected) in [
            (1 << 20, 40, 8, 10_000, [10_000, 10_000, 64]),
            (20_000, 40, 8, 10_000, [9_680, 4_840, 64]),
            (1_024, 40, 8, 10_000, [352, 176, 32]),
            (1_024, 40, 8, 5, [5, 5, 32]),
            // Many cores, each with its connections to Redis.
            (1_024, 280, 256, 10_000, [196, 98, 32]),
            (64, 33, 0, 10, [1, 1, 2]),
            (0, 0, 0, 10, [1, 1, 1]),
        ] {
            let files = Files {
                allowed,
                open,
                redis,
            };
            let shares = Shares::of(files, wanted);
            let got = [shares.grpc, shares.http, shares.pages].map(|most| most.connections);
            assert_eq!(got, expected, "{files:?} {wanted}");
            assert_eq!(shares.http, shares.api);
            let taken =
                files.open + files.redis + [got[0], 2 * got[1], 2 * got[2]].iter().sum::<usize>();
            assert!(
                taken <= allowed || allowed < files.least(),
                "{files:?} {taken}"
            );
        }
    }

    #[test]
    fn who_asks_for_more_than_the_system_allows_is_told_so() {
        let check = |allowed, wanted, given, expected: Option<&str>| {
            let files = Files {
                allowed,
                open: 40,
                redis: 8,
            };
            let warning = Shares::of(files, wanted).warning(files, wanted, given);
            assert_eq!(warning.as_deref(), expected, "{allowed} {wanted} {given}");
        };
        check(20_000, 4_840, true, None);
        check(20_000, 10_000, false, None);
        let text = "TIDEGATE_MAX_CONNECTIONS=50000 needs 200640 open files, 20000 are allowed: gRPC gets 9680 connections, HTTP and \
                    the API get 4840 each; raise the hard limit on open files (ulimit -H -n)";
        check(20_000, 50_000, true, Some(text));
        check(200_640, 50_000, true, None);
        let text = "TIDEGATE_MAX_CONNECTIONS=10000 needs 40640 open files, 256 are allowed: gRPC gets 80 connections, HTTP and the \
                    API get 40 each; raise the hard limit on open files (ulimit -H -n)";
        check(256, 10_000, false, Some(text));
    }

    #[test]
    fn the_limit_becomes_the_hard_limit() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise() as u64, hard.unwrap_or(usize::MAX as u64));
    }
}
