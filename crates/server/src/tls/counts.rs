//! Counts of files with certificates and tokens, under the reference's names where it has them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::validity::Validity;
use crate::base::sync::lock;

/// The contents of files that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Certificates,
    /// Tokens of the API.
    Tokens,
}

impl FileKind {
    /// The word for this kind in messages.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Certificates => "certificates",
            Self::Tokens => "tokens",
        }
    }
}

/// Names of the counts of attempts and failures, in the order of [`FileKind`].
const LOAD_NAMES: [[&str; 2]; 2] = [
    ["certs.load_attempts", "certs.load_failures"],
    [
        "tidegate.tokens.load_attempts",
        "tidegate.tokens.load_failures",
    ],
];

/// Counts of the files of one kind. They are not shown if there are no such files.
#[derive(Debug, Default)]
pub(crate) struct LoadCounts {
    /// Attempts to use changed files.
    pub(crate) attempts: AtomicU64,
    /// Failed attempts.
    pub(crate) failures: AtomicU64,
    pub(crate) files: AtomicUsize,
}

/// Counts of all files that are watched.
#[derive(Debug, Default)]
pub(crate) struct ReloadCounts {
    /// In the order of [`FileKind`].
    loads: [LoadCounts; 2],
    /// The end of each certificate's validity.
    certificate_ends: Mutex<Vec<(&'static str, i64)>>,
}

impl ReloadCounts {
    pub(crate) fn loads(&self, kind: FileKind) -> &LoadCounts {
        &self.loads[kind as usize]
    }

    pub(crate) fn set_validity(&self, of: &'static str, validity: Option<Validity>) {
        let mut certificate_ends = lock(&self.certificate_ends);
        certificate_ends.retain(|(other, _)| *other != of);
        certificate_ends.extend(validity.map(|validity| (of, validity.until)));
    }

    /// Returns the counts of the kinds that have files at `now`, in seconds since 1970.
    pub(crate) fn sample(&self, now: i64) -> ReloadSample {
        let mut sample = ReloadSample::default();
        for (loads, [attempts, failures]) in self.loads.iter().zip(LOAD_NAMES) {
            if loads.files.load(Relaxed) > 0 {
                sample.counters.extend([
                    (attempts, loads.attempts.load(Relaxed)),
                    (failures, loads.failures.load(Relaxed)),
                ]);
            }
        }
        let certificates = self.loads(FileKind::Certificates).files.load(Relaxed);
        if certificates > 0 {
            sample
                .gauges
                .push(("certs.num_values", certificates as u64));
        }
        let ends = lock(&self.certificate_ends);
        let seconds_left = ends.iter().map(|(_, until)| until.saturating_sub(now));
        sample.gauges.extend(seconds_left.min().map(|seconds| {
            let name = "tidegate.certificates.seconds_left";
            (name, seconds.max(0).unsigned_abs())
        }));
        sample
    }
}

/// The counts at one moment, with their names.
#[derive(Debug, Default)]
pub(crate) struct ReloadSample {
    pub(crate) counters: Vec<(&'static str, u64)>,
    /// The last one is the time until the first certificate expires.
    pub(crate) gauges: Vec<(&'static str, u64)>,
}
