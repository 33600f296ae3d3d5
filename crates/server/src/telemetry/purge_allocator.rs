//! Returns free memory to the system, even if no calls arrive.

use std::time::Duration;

use tokio::time::interval;

use crate::supervise::Supervisor;

/// Interval and size in bytes of an allocation that makes the allocator return free pages. It does
/// so with a delay, and only on a request that exceeds its reserve. The memory is not written, so
/// an allocation costs some microseconds.
const PAUSE: Duration = Duration::from_secs(1);
const BYTES: usize = 4 << 20;

/// Makes the allocator return free memory, until the server drains.
pub(crate) async fn purge_allocator(supervisor: Supervisor) {
    let mut ticks = interval(PAUSE);
    loop {
        tokio::select! {
            _ = ticks.tick() => drop(std::hint::black_box(Vec::<u8>::with_capacity(BYTES))),
            () = supervisor.drain.cancelled() => return,
        }
    }
}
