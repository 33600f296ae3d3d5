//! Memory that is free goes back to the system, also after the last call.

use std::time::Duration;

use tokio::time::interval;

use crate::supervise::Supervisor;

/// How often the allocator is asked for memory, and for how much. It returns freed pages to the system a while later, and only when it is asked for
/// more than it keeps at hand. Nothing is written to what it gives, so this costs some microseconds.
const PAUSE: Duration = Duration::from_secs(1);
const BYTES: usize = 4 << 20;

/// Lets the allocator return what is free, until the server drains.
pub(crate) async fn purge_allocator(supervisor: Supervisor) {
    let mut ticks = interval(PAUSE);
    loop {
        tokio::select! {
            _ = ticks.tick() => drop(std::hint::black_box(Vec::<u8>::with_capacity(BYTES))),
            () = supervisor.drain.cancelled() => return,
        }
    }
}
