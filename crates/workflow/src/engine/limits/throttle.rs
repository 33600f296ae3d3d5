//! Reports of workers that a service behind a rate limit refuses calls for a while, such as with
//! HTTP status 429.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::claim::report::Report;
use crate::graph::Limits;
use crate::machine::Outcome;
use crate::model::LeaseRef;

/// Delay of the job itself. During it, its key is blocked.
const JOB_DELAY: Duration = Duration::from_secs(1);
/// Maximum time for which a report blocks a key.
const MAX_BLOCK_TIME: Duration = Duration::from_secs(24 * 3_600);

/// A report that blocks rate limits when it is accepted.
#[derive(Debug)]
pub(in crate::engine) struct Throttled {
    pub(crate) lease: LeaseRef,
    limits: Arc<Limits>,
    pause: Duration,
}

impl Engine {
    /// Turns throttled reports into returns of their jobs. Jobs without rate limits wait for the
    /// delay. The others wait for their key, which is blocked when the report is accepted.
    pub(in crate::engine) async fn throttled(&self, reports: &mut [Report]) -> Vec<Throttled> {
        let mut throttled = Vec::new();
        for report in reports {
            let Outcome::Throttled { pause } = report.outcome else {
                continue;
            };
            let lease = report.lease;
            // A graph that cannot be read is refused with the report.
            let graph = self.graph(lease.workflow).await.ok().flatten();
            let limits = graph.and_then(|(graph, _)| {
                let limits = graph.limits(lease.job)?.for_workflow(lease.workflow);
                Some(limits.into_owned())
            });
            let limits =
                limits.filter(|limits| limits.has_rate_limits() && self.unit_counter().is_some());
            report.outcome = Outcome::Returned {
                pause: if limits.is_some() {
                    pause.min(JOB_DELAY)
                } else {
                    pause
                },
            };
            throttled.extend(limits.map(|limits| Throttled {
                lease,
                limits: limits.into(),
                pause: pause.min(MAX_BLOCK_TIME),
            }));
        }
        throttled
    }

    /// Blocks the limits of an accepted report at all servers.
    pub(in crate::engine) async fn throttle(&self, throttled: Throttled) {
        if let Some(counter) = self.unit_counter() {
            counter.throttle(throttled.limits, throttled.pause).await;
        }
    }
}
