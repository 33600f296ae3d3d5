//! Counters in memory: those whose window has passed are removed.

use std::time::Duration;

use tidegate_ratelimit::MemoryStore;
use tokio::time::interval;

use crate::edge::clock;
use crate::supervise::Supervisor;

/// The wait between two removals.
const PURGE_INTERVAL: Duration = Duration::from_secs(1);

/// After a removal, how often the allocator is asked for memory, and for how much. The allocator returns freed pages to the
/// system a while later, and only when it is asked for more than it keeps at hand.
const REQUESTS: u32 = 4;
const REQUEST_BYTES: usize = 4 << 20;

/// Removes counters whose window has passed, until the server drains.
pub(crate) async fn purge(memory: MemoryStore, supervisor: Supervisor) {
    let mut ticks = interval(PURGE_INTERVAL);
    let mut requests = 0;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = supervisor.drain.cancelled() => return,
        }
        if memory.purge(clock::now()) > 0 {
            requests = REQUESTS;
        } else if requests > 0 {
            requests -= 1;
            drop(std::hint::black_box(Vec::<u8>::with_capacity(REQUEST_BYTES)));
        }
    }
}
