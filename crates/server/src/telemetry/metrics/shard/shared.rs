//! Access to data that other threads write.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex even after a panic of another holder: each addition is complete or absent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
