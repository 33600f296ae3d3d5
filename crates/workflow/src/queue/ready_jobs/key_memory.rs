//! Bounds the memory for the keys of limits of all queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Remaining memory for the keys of all queues, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct KeyMemory(Arc<AtomicI64>);

impl KeyMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new((bytes as i64).into()))
    }

    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let rest = |left: i64| Some(left - bytes as i64).filter(|left| *left >= 0);
        self.0.fetch_update(Relaxed, Relaxed, rest).is_ok()
    }

    /// Reserves memory beyond the bound.
    pub(super) fn overdraw(&self, bytes: usize) {
        self.0.fetch_sub(bytes as i64, Relaxed);
    }

    pub(super) fn release(&self, bytes: usize) {
        self.0.fetch_add(bytes as i64, Relaxed);
    }
}
