//! The status of the latest load for operators: the configuration in force, and the mistakes of a
//! refused one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidegate_api::{ActiveLoad, ConfigurationSource, Loads, Mistake, RefusedLoad};
use tidegate_ratelimit::ConfigError;

use super::ConfigOrigin;
use super::files::ReadFailure;
use crate::base::clock;
use crate::base::sync::lock;
use crate::base::text::quoted;

/// Bounds on the mistakes that are kept: a page shows no more.
const MISTAKE_LIMIT: MistakeLimit = MistakeLimit {
    count: 50,
    bytes: 32 * 1024,
};
/// Bounds on the unreadable files that are kept.
const UNREADABLE_LIMIT: MistakeLimit = MistakeLimit {
    count: 20,
    bytes: 8 * 1024,
};
/// Maximum of characters of each text. Names and values of a file may be as long as the file.
const MAX_TEXT_CHARS: usize = 300;

/// Bounds on the number of mistakes, and on their bytes in all.
struct MistakeLimit {
    count: usize,
    bytes: usize,
}

/// The status of the latest load. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct LoadStatus(Arc<Mutex<Arc<Loads>>>);

impl LoadStatus {
    /// Creates the status of an origin from which nothing is loaded yet.
    pub(crate) fn new(origin: &ConfigOrigin) -> Self {
        let (source, place) = match origin {
            ConfigOrigin::BuiltIn(built_in) => {
                (ConfigurationSource::BuiltIn, built_in.shown.to_owned())
            }
            ConfigOrigin::Files(files) => (
                ConfigurationSource::Files,
                files.folder().display().to_string(),
            ),
            ConfigOrigin::Server(xds) => (ConfigurationSource::ManagementServer, xds.shown.clone()),
        };
        let counting_since = clock::now();
        let loads = Loads {
            source,
            place,
            counting_since,
            active: None,
            refused: None,
            unreadable: Vec::new(),
            paths: HashMap::new(),
        };
        Self(Arc::new(Mutex::new(Arc::new(loads))))
    }

    /// Returns the current status.
    pub(crate) fn loads(&self) -> Arc<Loads> {
        lock(&self.0).clone()
    }

    /// Which limits are in force, for the log line after a refused configuration.
    pub(super) fn limits_in_force(&self) -> String {
        match lock(&self.0).active {
            Some(ActiveLoad { at, .. }) => {
                let micros = i64::try_from(at.0).unwrap_or(i64::MAX);
                let at = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
                let at = at.strftime("%H:%M:%S UTC");
                format!("the limits of {at} stay in force")
            }
            None => "no limits are in force".to_owned(),
        }
    }

    /// A configuration of this number of files or resources is in force.
    pub(super) fn applied(&self, sources: usize) {
        self.change(|loads| {
            let version = loads.active.map_or(0, |in_force| in_force.version) + 1;
            loads.active = Some(ActiveLoad {
                version,
                at: clock::now(),
                sources,
            });
            loads.refused = None;
        });
    }

    /// A configuration was refused. The previous one stays in force.
    pub(super) fn refused(&self, mistakes: &[ConfigError]) {
        let kept = take_within(MISTAKE_LIMIT, mistakes.iter().map(mistake));
        let omitted = mistakes.len() - kept.len();
        self.refuse(kept, omitted);
    }

    /// A configuration was refused as a whole, before it was read.
    pub(super) fn refused_unread(&self, reason: &str) {
        self.refuse(
            vec![Mistake {
                text: quoted(reason, MAX_TEXT_CHARS),
                ..Mistake::default()
            }],
            0,
        );
    }

    /// Replaces the list of files and folders that could not be read.
    pub(super) fn unreadable(&self, failures: &[ReadFailure]) {
        let unreadable = |failure: &ReadFailure| Mistake {
            file: quoted(&failure.path.to_string_lossy(), MAX_TEXT_CHARS),
            text: failure.error.to_string(),
            ..Mistake::default()
        };
        let unreadable = take_within(UNREADABLE_LIMIT, failures.iter().map(unreadable));
        self.change(|loads| loads.unreadable = unreadable);
    }

    /// The configuration in force is of files with these paths, by name.
    pub(super) fn replace_paths(&self, paths: HashMap<String, String>) {
        self.change(|loads| loads.paths = paths);
    }

    /// A refused load was of files with these paths. Those of the configuration in force stay.
    pub(super) fn add_paths(&self, paths: HashMap<String, String>) {
        self.change(|loads| loads.paths.extend(paths));
    }

    fn refuse(&self, mistakes: Vec<Mistake>, omitted: usize) {
        let refused = RefusedLoad {
            at: clock::now(),
            mistakes,
            more: omitted,
        };
        self.change(|loads| loads.refused = Some(refused));
    }

    fn change(&self, change: impl FnOnce(&mut Loads)) {
        let mut status = lock(&self.0);
        change(Arc::make_mut(&mut status));
    }
}

/// Returns the first mistakes within a bound.
fn take_within(bound: MistakeLimit, mistakes: impl Iterator<Item = Mistake>) -> Vec<Mistake> {
    let mut bytes = bound.bytes;
    let fits = |mistake: &Mistake| {
        let Mistake {
            file,
            path,
            text,
            hint,
            ..
        } = mistake;
        let size = [file, path, text, hint].map(String::len).iter().sum();
        bytes.checked_sub(size).is_some_and(|left| {
            bytes = left;
            true
        })
    };
    mistakes.take(bound.count).take_while(fits).collect()
}

fn mistake(error: &ConfigError) -> Mistake {
    Mistake {
        file: quoted(&error.file, MAX_TEXT_CHARS),
        line: error.line,
        column: error.column,
        path: quoted(&error.path, MAX_TEXT_CHARS),
        text: quoted(&error.message, MAX_TEXT_CHARS),
        hint: quoted(error.hint().unwrap_or_default(), MAX_TEXT_CHARS),
    }
}
