//! What is counted of certificates, under the reference's names where it has them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::validity::Validity;

/// What is counted of certificates. Nothing is shown while there are no files with certificates.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Times that changed files were used, or were to be.
    pub(super) attempts: AtomicU64,
    /// Those of them that failed.
    pub(super) failures: AtomicU64,
    files: AtomicUsize,
    /// When the certificate of each is over.
    ends: Mutex<Vec<(&'static str, i64)>>,
}

impl Counts {
    pub(super) fn set_files(&self, files: usize) {
        self.files.store(files, Relaxed);
    }

    pub(super) fn set_validity(&self, of: &'static str, validity: Option<Validity>) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.retain(|(other, _)| *other != of);
        ends.extend(validity.map(|validity| (of, validity.until)));
    }

    /// What there is to show at `now`, in seconds since 1970. None: there are no files.
    pub(crate) fn sample(&self, now: i64) -> Option<Sample> {
        let files = Some(self.files.load(Relaxed)).filter(|files| *files > 0)?;
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ends.iter().map(|(_, until)| *until).min();
        let (attempts, failures) = (self.attempts.load(Relaxed), self.failures.load(Relaxed));
        let left = first.map(|until| until.saturating_sub(now).max(0).unsigned_abs());
        Some(Sample { attempts, failures, files: files as u64, left })
    }
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    attempts: u64,
    failures: u64,
    files: u64,
    /// Seconds to the end of the first certificate that ends.
    left: Option<u64>,
}

impl Sample {
    pub(crate) fn counters(self) -> [(&'static str, u64); 2] {
        [("certs.load_attempts", self.attempts), ("certs.load_failures", self.failures)]
    }

    pub(crate) fn gauges(self) -> impl Iterator<Item = (String, u64)> {
        let left = self.left.map(|left| ("tidegate.certificates.seconds_left".to_owned(), left));
        [("certs.num_values".to_owned(), self.files)].into_iter().chain(left)
    }
}
