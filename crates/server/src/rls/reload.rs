//! Loads the configuration at start, and again whenever its files change.
//!
//! A thread reads the files, so that no core waits for a disk or parses YAML.

mod files;
mod load_status;
mod watch;
pub(crate) mod xds;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tidegate_ratelimit::{ConfigError, Configuration, Limiter, Resource, SameDomain, Source};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::base::text::quoted;
use crate::settings::{FileScope, Files, FirstLoad, MissingRoot, Settings, Xds};
use crate::supervise::error::ServeError;
use crate::supervise::health::{Health, PartHealth};
use crate::supervise::notify::Notify;
use crate::supervise::{Supervisor, failpoint};
use crate::telemetry::logging::LIFECYCLE;
use crate::telemetry::metrics::Metrics;
use files::{FileSet, ReadFailure};
pub(crate) use files::{FolderEntry, MAX_FILE_BYTES, entries, read_regular};
pub(crate) use load_status::LoadStatus;
use watch::FolderWatch;

/// The name of the thread.
const THREAD_NAME: &str = "configure";
/// The configuration of a fresh start.
static SAMPLE: BuiltIn = BuiltIn {
    shown: "built-in sample (set RUNTIME_ROOT to use your own files)",
    files: &[("sample.yaml", include_str!("reload/sample.yaml"))],
};
/// The configuration of `tidegate demo`.
static DEMO: BuiltIn = BuiltIn {
    shown: "built-in demo",
    files: &[
        ("shop.yaml", include_str!("reload/demo/shop.yaml")),
        ("partner.yaml", include_str!("reload/demo/partner.yaml")),
    ],
};
/// Interval at which files are read without an event, because some mounts send none.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Time without another event after which files are read, so that a half-written file is not read.
const QUIET_TIME: Duration = Duration::from_millis(50);
/// Maximum of characters of a mistake in the text for a management server. It has room for the
/// names that people choose.
const MAX_MISTAKE_CHARS: usize = 1_000;
/// Time after an event at which files are read even if events keep coming.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// The parts of the server that a new configuration is applied to.
#[derive(Debug, Clone)]
pub(crate) struct ConfigTarget {
    pub(crate) limiter: Limiter,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Health,
    pub(crate) health_needs_domain: bool,
    pub(crate) same_domain: SameDomain,
    pub(crate) notify: Notify,
    pub(crate) status: LoadStatus,
}

/// Counts of an applied configuration.
#[derive(Debug)]
struct AppliedConfig {
    sources: usize,
    domains: usize,
    limits: usize,
}

/// A configuration that is part of the program.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    /// The name that the banner shows.
    shown: &'static str,
    /// The name of each file, for messages, and its text.
    files: &'static [(&'static str, &'static str)],
}

/// The origin of the configuration.
#[derive(Debug, Clone)]
pub(crate) enum ConfigOrigin {
    /// The demo, or the sample, which is used if RUNTIME_ROOT is not set and its default does not
    /// exist.
    BuiltIn(&'static BuiltIn),
    /// Files under a folder.
    Files(Files),
    /// A management server.
    Server(Box<Xds>),
}

/// The reason why the thread wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Changed,
    /// An operator requested a load, even if no file has changed.
    Requested,
    Stop,
}

/// The thread that loads configurations. Dropping this ends the thread, and the supervisor waits
/// for it.
#[derive(Debug)]
pub(crate) struct ConfigLoader {
    wake: SyncSender<Wake>,
}

impl ConfigOrigin {
    /// Chooses a management server, files, or the sample if the settings name neither.
    ///
    /// # Errors
    /// The folder in the settings does not exist, and the settings do not allow a start without it.
    pub(crate) fn new(settings: &Settings) -> Result<Self, ServeError> {
        let Settings { files, xds, .. } = settings;
        if settings.demo {
            return Ok(Self::BuiltIn(&DEMO));
        }
        if let Some(xds) = xds {
            return Ok(Self::Server(Box::new(xds.clone())));
        }
        match (files.root.exists(), files.root_given, files.first_load) {
            (false, false, _) => Ok(Self::BuiltIn(&SAMPLE)),
            (false, true, FirstLoad::BeforePorts) if !awaits_root(files) => {
                Err(ServeError::NoRoot {
                    path: files.root.clone(),
                })
            }
            _ => Ok(Self::Files(files.clone())),
        }
    }
}

/// Whether the server starts without the root. The reference does if it watches the parent folder,
/// which must exist.
fn awaits_root(files: &Files) -> bool {
    files.missing_root == MissingRoot::Awaited
        && files.scope == FileScope::Subdirectory
        && files::parent(&files.root).is_dir()
}

impl fmt::Display for ConfigOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(built_in) => f.write_str(built_in.shown),
            Self::Files(files) => write!(f, "{}", files.folder().display()),
            Self::Server(xds) => write!(f, "management server {}", xds.shown),
        }
    }
}

impl ConfigTarget {
    /// Loads a configuration that is part of the program.
    pub(crate) fn load_built_in(&self, built_in: &BuiltIn) {
        let source = |&(name, text): &(&str, &str)| Source {
            name: name.to_owned(),
            text: text.as_bytes().to_vec(),
        };
        self.load_sources(&built_in.files.iter().map(source).collect::<Vec<_>>());
    }

    /// Applies the configuration in `sources`. Returns false, and keeps the current configuration,
    /// if it has mistakes.
    fn load_sources(&self, sources: &[Source]) -> bool {
        match Configuration::load(sources, self.same_domain) {
            Ok(configuration) => {
                self.apply(configuration, sources.len()).log(0);
                true
            }
            Err(errors) => {
                self.metrics.loads.error.fetch_add(1, Relaxed);
                self.status.refused(&errors);
                for error in errors {
                    error!("Error loading new configuration: {error}");
                }
                info!(target: LIFECYCLE, "{}", self.status.limits_in_force());
                false
            }
        }
    }

    /// Applies the configuration in `resources`. The error lists at most `max_listed` mistakes. It
    /// logs nothing.
    ///
    /// # Errors
    /// The configuration has mistakes. The text for the sender has a line for each.
    fn load_resources(
        &self,
        resources: Vec<Resource>,
        max_listed: usize,
    ) -> Result<AppliedConfig, String> {
        let count = resources.len();
        let errors = match Configuration::from_resources(resources, self.same_domain) {
            Ok(configuration) => return Ok(self.apply(configuration, count)),
            Err(errors) => errors,
        };
        self.status.refused(&errors);
        // Names in the text may be as long as the message.
        let text = |error: &ConfigError| quoted(&error.reference_text(), MAX_MISTAKE_CHARS);
        let mut texts: Vec<_> = errors.iter().take(max_listed).map(text).collect();
        let more = errors.len().saturating_sub(max_listed);
        if more > 0 {
            texts.push(format!("and {more} more mistakes"));
        }
        Err(texts.join("\n"))
    }

    /// Applies a configuration that was loaded from this number of sources.
    fn apply(&self, configuration: Configuration, sources: usize) -> AppliedConfig {
        let configuration = self.metrics.declare(configuration);
        let domains = configuration.domain_count();
        let (_, limits) = configuration.counts();
        if self.health_needs_domain {
            self.health
                .set_configuration(PartHealth::healthy_if(domains > 0));
        }
        self.limiter.configure(configuration);
        self.metrics.loads.success.fetch_add(1, Relaxed);
        self.status.applied(sources);
        AppliedConfig {
            sources,
            domains,
            limits,
        }
    }

    /// Counts and logs files that cannot be read.
    fn report_unreadable(&self, failures: &[ReadFailure]) {
        let count = failures.len() as u64;
        self.metrics.loads.failures.fetch_add(count, Relaxed);
        for ReadFailure { path, error, .. } in failures {
            warn!(path = %path.display(), %error, "cannot read a configuration file");
        }
        self.status.unreadable(failures);
    }

    /// Loads the files that were read. Returns false if they are not in use. Files that cannot be
    /// read keep their text in `last`.
    fn load_files(&self, file_set: &mut FileSet, last: &[Source]) -> bool {
        let loads = &self.metrics.loads;
        loads.attempts.fetch_add(1, Relaxed);
        self.report_unreadable(&file_set.failures);
        let kept = file_set.keep_unreadable(last);
        if kept > 0 {
            warn!(
                files = kept,
                "configuration files that cannot be read keep their last text"
            );
        } else if !file_set.failures.is_empty() {
            warn!("the limits in what cannot be read are not in use: it had no text before");
        }
        let files = file_set.sources.len() as u64;
        loads.files.store(files, Relaxed);
        loads.kept.store(kept as u64, Relaxed);
        self.health.set_kept_files(kept);
        let paths = std::mem::take(&mut file_set.paths);
        let is_applied = self.load_sources(&file_set.sources);
        if is_applied {
            self.status.replace_paths(paths);
        } else {
            self.status.add_paths(paths);
        }
        is_applied
    }
}

impl AppliedConfig {
    /// Logs the counts, and how many configurations were not logged before.
    fn log(&self, suppressed: u64) {
        let Self {
            sources,
            domains,
            limits,
        } = self;
        match (domains, suppressed) {
            (0, _) => {
                warn!(
                    sources,
                    domains,
                    suppressed,
                    "loaded configuration: it has no domain, so nothing is limited"
                )
            }
            (_, 0) => info!(target: LIFECYCLE, sources, domains, limits, "loaded configuration"),
            (_, 1..) => {
                info!(target: LIFECYCLE, sources, domains, limits, suppressed, "loaded configuration")
            }
        }
    }
}

impl ConfigLoader {
    /// Starts to load and watch `files`. `loaded` receives a message after the first load.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        files: Files,
        target: ConfigTarget,
        loaded: oneshot::Sender<()>,
        supervisor: &Supervisor,
    ) -> std::io::Result<Self> {
        let (wake, wakes) = sync_channel(16);
        let drain = supervisor.drain.clone();
        let waker = wake.clone();
        let mut reload = Reload {
            files,
            target,
            loaded: Some(loaded),
            last_fingerprint: None,
            last_sources: Vec::new(),
            is_requested: false,
        };
        supervisor.restarting_thread(THREAD_NAME, move || reload.run(&waker, &wakes, &drain))?;
        Ok(Self { wake })
    }

    /// Loads the files again, even if they have not changed.
    pub(crate) fn reload(&self) {
        // A full queue already wakes the thread.
        let _ = self.wake.try_send(Wake::Requested);
    }
}

impl Drop for ConfigLoader {
    fn drop(&mut self) {
        // A closed queue means that the thread has ended. If the queue is full, the thread wakes up
        // and sees that the server drains.
        let _ = self.wake.try_send(Wake::Stop);
    }
}

/// The state of the thread, which survives a restart after a panic.
struct Reload {
    files: Files,
    target: ConfigTarget,
    loaded: Option<oneshot::Sender<()>>,
    /// The fingerprint of the last files. It is set before they are loaded, so that files that make
    /// the loader panic are not loaded again.
    last_fingerprint: Option<u64>,
    /// The last texts in use, for files that cannot be read the next time.
    last_sources: Vec<Source>,
    /// Whether an operator requested a load and waits for it.
    is_requested: bool,
}

impl Reload {
    fn run(&mut self, wake: &SyncSender<Wake>, wakes: &Receiver<Wake>, drain: &CancellationToken) {
        let mut watch = FolderWatch::new(&self.files, wake.clone());
        while !drain.is_cancelled() {
            let mut file_set = files::read(&self.files);
            let changed =
                self.last_fingerprint.replace(file_set.fingerprint) != Some(file_set.fingerprint);
            if changed && file_set.sources.is_empty() && file_set.failures.is_empty() {
                warn_without_files(&self.files.folder());
            }
            if changed && self.target.load_files(&mut file_set, &self.last_sources) {
                self.last_sources = file_set.sources;
            }
            failpoint::check(THREAD_NAME);
            // A file may have changed before its folder was watched: read once more.
            if watch.follow(file_set.folders) == watch::FolderChange::Changed {
                continue;
            }
            if let Some(loaded) = self.loaded.take() {
                // The starter may have stopped waiting.
                let _ = loaded.send(());
            }
            if std::mem::take(&mut self.is_requested) {
                self.target.notify.ready();
            }
            match wait(wakes) {
                Wake::Stop => return,
                Wake::Requested => (self.last_fingerprint, self.is_requested) = (None, true),
                Wake::Changed => {}
            }
        }
    }
}

fn warn_without_files(folder: &Path) {
    let state = if folder.is_dir() {
        "has no file"
    } else {
        "does not exist"
    };
    warn!(folder = %folder.display(), "the folder of limits {state}");
}

/// Waits until files have changed, the poll is due, or the thread must stop.
fn wait(wakes: &Receiver<Wake>) -> Wake {
    let mut deadline = None;
    loop {
        let timeout = if deadline.is_none() {
            POLL_INTERVAL
        } else {
            QUIET_TIME
        };
        match wakes.recv_timeout(timeout) {
            Ok(Wake::Changed) => {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + MAX_DELAY);
                if Instant::now() >= deadline {
                    return Wake::Changed;
                }
            }
            Ok(Wake::Requested) => return Wake::Requested,
            Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return Wake::Stop,
            Err(RecvTimeoutError::Timeout) => return Wake::Changed,
        }
    }
}
