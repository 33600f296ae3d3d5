//! Configuration: loaded at start, and again whenever its files change.
//!
//! One thread reads files, so that no core ever waits for a disk or parses YAML.

mod files;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_ratelimit::{Configuration, Limiter, SameDomain, Source};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::operate::health::{Health, Part};
use crate::operate::metrics::Metrics;
use crate::settings::Files;
use files::Reading;
use watch::Watch;

/// The configuration of a fresh start.
const SAMPLE: &str = include_str!("sample.yaml");
/// The sample's name in messages.
const SAMPLE_NAME: &str = "sample.yaml";
/// Some mounts send no events; reading a handful of files this rarely costs nothing.
const POLL: Duration = Duration::from_secs(10);
/// A file that is being written is left alone until it was quiet for this long,
const QUIET: Duration = Duration::from_millis(50);
/// but at most for this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who is told of a new configuration.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) limiter: Limiter,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Health,
    pub(crate) health_needs_domain: bool,
    pub(crate) same_domain: SameDomain,
}

/// Where the configuration comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Built in: nothing was asked for, and the default folder does not exist.
    Sample,
    /// Files under a folder.
    Files(Files),
}

/// Why the thread wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Changed,
    Stop,
}

/// The thread that loads configurations; it ends with this.
#[derive(Debug)]
pub(crate) struct Reloader {
    wake: SyncSender<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    pub(crate) fn new(files: &Files) -> Self {
        if !files.root_given && !files.root.exists() { Self::Sample } else { Self::Files(files.clone()) }
    }
}

impl Target {
    /// Loads the sample.
    pub(crate) fn load_sample(&self) {
        self.load(&[Source { name: SAMPLE_NAME.to_owned(), text: SAMPLE.as_bytes().to_vec() }]);
    }

    /// Puts `sources` in force, or keeps what is in force when they have mistakes.
    fn load(&self, sources: &[Source]) {
        match Configuration::load(sources, self.same_domain) {
            Ok(configuration) => {
                self.metrics.declare(configuration.stats_keys());
                let domains = configuration.domain_count();
                if self.health_needs_domain {
                    self.health.set_configuration(if domains > 0 { Part::Healthy } else { Part::Unhealthy });
                }
                self.limiter.configure(configuration);
                self.metrics.loads.success.fetch_add(1, Relaxed);
                info!(files = sources.len(), domains, "loaded configuration");
            }
            Err(errors) => {
                self.metrics.loads.error.fetch_add(1, Relaxed);
                for error in errors {
                    error!("Error loading new configuration: {error}");
                }
            }
        }
    }

    fn read(&self, reading: &Reading) {
        self.metrics.loads.attempts.fetch_add(1, Relaxed);
        self.metrics.loads.failures.fetch_add(reading.failures.len() as u64, Relaxed);
        self.metrics.loads.files.store(reading.sources.len() as u64, Relaxed);
        for (path, error) in &reading.failures {
            warn!(path = %path.display(), %error, "a configuration file could not be read");
        }
        self.load(&reading.sources);
    }
}

impl Reloader {
    /// Starts to load and watch `files`; `loaded` is told after the first load.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub(crate) fn start(files: Files, target: Target, loaded: oneshot::Sender<()>) -> std::io::Result<Self> {
        let (wake, wakes) = sync_channel(16);
        let watch = Watch::new(&files, wake.clone());
        let main = move || run(&files, &target, watch, &wakes, loaded);
        let thread = std::thread::Builder::new().name("reload".to_owned()).spawn(main)?;
        Ok(Self { wake, thread: Some(thread) })
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        // A closed queue means that the thread has ended.
        let _ = self.wake.send(Wake::Stop);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            error!("the thread that loads configurations panicked");
        }
    }
}

fn run(files: &Files, target: &Target, mut watch: Watch, wakes: &Receiver<Wake>, loaded: oneshot::Sender<()>) {
    let mut loaded = Some(loaded);
    let mut last = None;
    loop {
        let reading = files::read(files);
        if last.replace(reading.fingerprint) != Some(reading.fingerprint) {
            target.read(&reading);
        }
        // What changed before it was watched is seen by reading once more.
        if watch.follow(reading.folders) == watch::Change::Moved {
            continue;
        }
        if let Some(loaded) = loaded.take() {
            // The starter may have given up waiting.
            let _ = loaded.send(());
        }
        if wait(wakes) == Wake::Stop {
            return;
        }
    }
}

/// Waits for a change to end, for the poll, or for the stop.
fn wait(wakes: &Receiver<Wake>) -> Wake {
    match wakes.recv_timeout(POLL) {
        Ok(Wake::Changed) => {}
        Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return Wake::Stop,
        Err(RecvTimeoutError::Timeout) => return Wake::Changed,
    }
    let patience = Instant::now() + PATIENCE;
    while Instant::now() < patience {
        match wakes.recv_timeout(QUIET) {
            Ok(Wake::Changed) => {}
            Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return Wake::Stop,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    Wake::Changed
}
