//! Files that are watched, and the objects that are made from them again when they change.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, Metadata};
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::counts::{FileKind, ReloadCounts};
use super::named_file::{CertificateFileError, NamedFile};
use super::validity::{Validity, ValidityStatus};

/// Time after a change in which the contents are compared as well: two changes within one tick of a
/// file system's clock look like one.
const RECENT_TIME: Duration = Duration::from_secs(4);
/// Interval of warnings about a certificate that has expired, or is about to.
const WARNING_INTERVAL: Duration = Duration::from_secs(86_400);

type LoadFn = Box<dyn FnMut() -> Result<ReloadedFiles, Vec<CertificateFileError>> + Send>;

/// The new content of files, before it is in use.
pub(crate) struct ReloadedFiles {
    validity: Option<Validity>,
    apply: Box<dyn FnOnce() + Send>,
}

impl ReloadedFiles {
    /// `apply` replaces the old content.
    pub(crate) fn new(validity: Option<Validity>, apply: impl FnOnce() + Send + 'static) -> Self {
        Self {
            validity,
            apply: Box::new(apply),
        }
    }
}

/// An object that is made from files, and made again when they change.
pub(crate) struct WatchedFiles {
    pub(crate) kind: FileKind,
    /// The owner of the files in a word, for messages and metrics.
    of: &'static str,
    pub(crate) files: Vec<NamedFile>,
    make: LoadFn,
    stamps: FileStamps,
    last_warning: Option<(ValidityStatus, Instant)>,
    validity: Option<Validity>,
}

/// The state of the files at the last check.
#[derive(Debug, Default)]
struct FileStamps {
    stamps: Vec<Option<FileStamp>>,
    changed: Option<Instant>,
    /// Hash of the contents at the last check.
    last_contents: Option<u64>,
    /// Hash of the contents that were loaded last.
    loaded_contents: Option<u64>,
}

/// The attributes of a file that differ after a change.
type FileStamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl WatchedFiles {
    /// Creates a watch. `make` reads `files`; if it fails, the old content stays in use.
    pub(crate) fn new(
        of: &'static str,
        files: Vec<NamedFile>,
        make: impl FnMut() -> Result<ReloadedFiles, Vec<CertificateFileError>> + Send + 'static,
    ) -> Self {
        Self {
            kind: FileKind::Certificates,
            of,
            files,
            make: Box::new(make),
            stamps: FileStamps::default(),
            last_warning: None,
            validity: None,
        }
    }

    /// Creates a watch as [`WatchedFiles::new`] does, for the tokens of the API.
    pub(crate) fn tokens(
        file: NamedFile,
        make: impl FnMut() -> Result<ReloadedFiles, Vec<CertificateFileError>> + Send + 'static,
    ) -> Self {
        Self {
            kind: FileKind::Tokens,
            ..Self::new("api", vec![file], make)
        }
    }

    /// Loads the files if they have changed.
    pub(crate) fn reload_if_changed(&mut self, counts: &ReloadCounts, now: i64) {
        if !self.stamps.is_due(&self.files) {
            return;
        }
        let of = self.of;
        let what = self.kind.word();
        let loads = counts.loads(self.kind);
        loads.attempts.fetch_add(1, Relaxed);
        match (self.make)() {
            Ok(ReloadedFiles { validity, .. })
                if replaces_valid_by_expired(self.validity, validity, now) =>
            {
                loads.failures.fetch_add(1, Relaxed);
                warn!(
                    of,
                    "the changed certificate has expired already, and the old one stays, which is still valid"
                );
            }
            Ok(ReloadedFiles { validity, apply }) => {
                apply();
                info!(of, "{what} are loaded");
                self.validity = validity;
                self.last_warning = None;
                counts.set_validity(of, validity);
            }
            Err(flaws) => {
                loads.failures.fetch_add(1, Relaxed);
                for flaw in flaws {
                    warn!(
                        of,
                        "changed {what} cannot be used, and the old ones stay: {flaw}"
                    );
                }
            }
        }
    }

    /// Logs a warning about a certificate that has expired, or is about to.
    pub(crate) fn warn_of_expiry(&mut self, now: i64) {
        let Some(validity) = self.validity else {
            return;
        };
        let status = validity.status(now);
        if self.last_warning.is_some_and(|(last_warning, at)| {
            last_warning == status && at.elapsed() < WARNING_INTERVAL
        }) {
            return;
        }
        self.last_warning = Some((status, Instant::now()));
        let of = self.of;
        let seconds = validity.seconds_left(now);
        match status {
            ValidityStatus::Good => {}
            ValidityStatus::NotYet => {
                warn!(
                    of,
                    "the certificate is not valid yet, or the clock of this machine is wrong: others refuse it"
                );
            }
            ValidityStatus::NearlyOver => warn!(
                of,
                seconds, "the certificate is valid for a short time only: renew it"
            ),
            ValidityStatus::Over => error!(
                of,
                "the certificate has expired, and others refuse it: renew it"
            ),
        }
    }
}

/// Whether an expired certificate would replace a valid one, for example a backup that was
/// restored.
fn replaces_valid_by_expired(old: Option<Validity>, new: Option<Validity>, now: i64) -> bool {
    let is_over = |validity: Validity| validity.status(now) == ValidityStatus::Over;
    old.is_some_and(|old| !is_over(old)) && new.is_some_and(is_over)
}

impl FileStamps {
    /// Whether the files have changed since they were loaded, and not since the last check. Files
    /// may be half written.
    fn is_due(&mut self, files: &[NamedFile]) -> bool {
        let stamps: Vec<_> = files
            .iter()
            .map(|file| fs::metadata(&file.path).ok().map(|file| file_stamp(&file)))
            .collect();
        if self.stamps != stamps {
            self.stamps = stamps;
            self.changed = Some(Instant::now());
        }
        if self.changed.is_none_or(|at| at.elapsed() >= RECENT_TIME) {
            return false;
        }
        let now = contents(files);
        let is_stable = self
            .last_contents
            .replace(now)
            .is_none_or(|seen| seen == now);
        is_stable && self.loaded_contents != Some(now) && {
            self.loaded_contents = Some(now);
            true
        }
    }
}

fn file_stamp(file: &Metadata) -> FileStamp {
    (
        file.dev(),
        file.ino(),
        file.size(),
        (file.mtime(), file.mtime_nsec()),
        (file.ctime(), file.ctime_nsec()),
    )
}

fn contents(files: &[NamedFile]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.bytes().map_err(|error| error.kind()).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn file(&self, name: &str) -> NamedFile {
            NamedFile {
                variable: "TEST",
                path: self.0.path().join(name),
            }
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.file(name).path;
            fs::write(&path, text).unwrap();
            path
        }
    }

    #[test]
    fn only_a_certificate_that_is_over_does_not_replace_one_that_is_valid() {
        let valid = |from, until| Some(Validity { from, until });
        for (old, new, expected) in [
            (valid(0, 100), valid(0, 40), true),
            (valid(0, 100), valid(0, 60), false),
            (valid(0, 100), valid(60, 100), false),
            (valid(60, 100), valid(0, 40), true),
            (valid(0, 40), valid(0, 30), false),
            (None, valid(0, 40), false),
            (valid(0, 100), None, false),
        ] {
            assert_eq!(
                replaces_valid_by_expired(old, new, 50),
                expected,
                "{old:?} {new:?}"
            );
        }
    }

    #[test]
    fn every_way_to_replace_a_file_is_noticed_once_it_rests() {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("a", "1");
        fs::create_dir(folder.0.path().join("v1")).unwrap();
        folder.write("v1/b", "1");
        std::os::unix::fs::symlink("v1", folder.0.path().join("data")).unwrap();
        let files = [folder.file("a"), folder.file("data/b")];
        let mut stamps = FileStamps::default();
        let mut check = |what: &str, expected: [bool; 3]| {
            assert_eq!([(); 3].map(|()| stamps.is_due(&files)), expected, "{what}");
        };
        check("at the start", [true, false, false]);
        folder.write("a", "2");
        check("written in place, of the same length", [false, true, false]);
        fs::rename(folder.write("new", "3"), folder.0.path().join("a")).unwrap();
        check("renamed over", [false, true, false]);
        fs::create_dir(folder.0.path().join("v2")).unwrap();
        folder.write("v2/b", "2");
        std::os::unix::fs::symlink("v2", folder.0.path().join("new")).unwrap();
        fs::rename(folder.0.path().join("new"), folder.0.path().join("data")).unwrap();
        check("a link swapped above it", [false, true, false]);
        fs::remove_file(folder.0.path().join("a")).unwrap();
        check("gone", [false, true, false]);
        folder.write("a", "3");
        check("there again", [false, true, false]);
        folder.write("a", "3");
        check("the same again", [false, false, false]);
    }
}
