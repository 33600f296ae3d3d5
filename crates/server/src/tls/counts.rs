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

    /// Returns the counts at `now`, in seconds since 1970. `None` if there are no files.
    pub(crate) fn sample(&self, now: i64) -> Option<ReloadSample> {
        let loaded = self.loads.each_ref().map(|loads| {
            let files = Some(loads.files.load(Relaxed)).filter(|files| *files > 0)?;
            Some(LoadSample {
                attempts: loads.attempts.load(Relaxed),
                failures: loads.failures.load(Relaxed),
                files: files as u64,
            })
        });
        if loaded.iter().all(Option::is_none) {
            return None;
        }
        let certificate_ends = lock(&self.certificate_ends);
        let first_end = certificate_ends.iter().map(|(_, until)| *until).min();
        let seconds_left = first_end.map(|until| until.saturating_sub(now).max(0).unsigned_abs());
        Some(ReloadSample {
            loaded,
            seconds_left,
        })
    }
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReloadSample {
    /// In the order of [`FileKind`].
    loaded: [Option<LoadSample>; 2],
    /// Seconds until the first certificate expires.
    seconds_left: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct LoadSample {
    attempts: u64,
    failures: u64,
    files: u64,
}

impl ReloadSample {
    pub(crate) fn counters(self) -> impl Iterator<Item = (&'static str, u64)> {
        const NAMES: [[&str; 2]; 2] = [
            ["certs.load_attempts", "certs.load_failures"],
            [
                "tidegate.tokens.load_attempts",
                "tidegate.tokens.load_failures",
            ],
        ];
        let kinds = NAMES.into_iter().zip(self.loaded);
        kinds
            .filter_map(|(names, loaded)| loaded.map(|loaded| (names, loaded)))
            .flat_map(|([attempts, failures], loaded)| {
                [(attempts, loaded.attempts), (failures, loaded.failures)]
            })
    }

    pub(crate) fn gauges(self) -> impl Iterator<Item = (&'static str, u64)> {
        let seconds_left = self
            .seconds_left
            .map(|seconds_left| ("tidegate.certificates.seconds_left", seconds_left));
        let [certificates, _] = self.loaded;
        certificates
            .map(|loaded| ("certs.num_values", loaded.files))
            .into_iter()
            .chain(seconds_left)
    }
}
