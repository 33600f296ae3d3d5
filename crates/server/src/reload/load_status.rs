//! The status of the latest load for operators: the configuration in force, and the mistakes of a
//! refused one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_api::{ConfigurationSource, InForce, Loads, Mistake, Refused};
use tidegate_ratelimit::ConfigError;

use super::Origin;
use super::files::Failure;
use crate::net::clock;
use crate::quote::quoted;

/// Bounds on the mistakes that are kept: a page shows no more.
const MISTAKES: Bound = Bound {
    count: 50,
    bytes: 32 * 1024,
};
/// Bounds on the unreadable files that are kept.
const UNREADABLE: Bound = Bound {
    count: 20,
    bytes: 8 * 1024,
};
/// Maximum of characters of each text. Names and values of a file may be as long as the file.
const TEXT: usize = 300;

/// Bounds on the number of mistakes, and on their bytes in all.
struct Bound {
    count: usize,
    bytes: usize,
}

/// The status of the latest load. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct LoadStatus(Arc<Mutex<Arc<Loads>>>);

impl LoadStatus {
    /// Creates the status of an origin from which nothing is loaded yet.
    pub(crate) fn new(origin: &Origin) -> Self {
        let (source, place) = match origin {
            Origin::BuiltIn(built_in) => (ConfigurationSource::BuiltIn, built_in.shown.to_owned()),
            Origin::Files(files) => (
                ConfigurationSource::Files,
                files.folder().display().to_string(),
            ),
            Origin::Server(xds) => (ConfigurationSource::ManagementServer, xds.shown.clone()),
        };
        let counting_since = clock::now();
        let loads = Loads {
            source,
            place,
            counting_since,
            in_force: None,
            refused: None,
            unreadable: Vec::new(),
        };
        Self(Arc::new(Mutex::new(Arc::new(loads))))
    }

    /// Returns the current status.
    pub(crate) fn loads(&self) -> Arc<Loads> {
        self.lock().clone()
    }

    /// A configuration of this number of files or resources is in force.
    pub(super) fn applied(&self, sources: usize) {
        self.change(|loads| {
            let version = loads.in_force.map_or(0, |in_force| in_force.version) + 1;
            loads.in_force = Some(InForce {
                version,
                at: clock::now(),
                sources,
            });
            loads.refused = None;
        });
    }

    /// A configuration was refused. The previous one stays in force.
    pub(super) fn refused(&self, mistakes: &[ConfigError]) {
        let kept = within(MISTAKES, mistakes.iter().map(mistake));
        let more = mistakes.len() - kept.len();
        self.refuse(kept, more);
    }

    /// A configuration was refused as a whole, before it was read.
    pub(super) fn refused_unread(&self, reason: &str) {
        self.refuse(
            vec![Mistake {
                text: quoted(reason, TEXT),
                ..Mistake::default()
            }],
            0,
        );
    }

    /// Replaces the list of files and folders that could not be read.
    pub(super) fn unreadable(&self, failures: &[Failure]) {
        let unreadable = |failure: &Failure| Mistake {
            file: quoted(&failure.path.to_string_lossy(), TEXT),
            text: failure.error.to_string(),
            ..Mistake::default()
        };
        let unreadable = within(UNREADABLE, failures.iter().map(unreadable));
        self.change(|loads| loads.unreadable = unreadable);
    }

    fn refuse(&self, mistakes: Vec<Mistake>, more: usize) {
        let refused = Refused {
            at: clock::now(),
            mistakes,
            more,
        };
        self.change(|loads| loads.refused = Some(refused));
    }

    fn change(&self, change: impl FnOnce(&mut Loads)) {
        let mut known = self.lock();
        change(Arc::make_mut(&mut known));
    }

    /// Each change is complete or absent.
    fn lock(&self) -> MutexGuard<'_, Arc<Loads>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the first mistakes within a bound.
fn within(bound: Bound, mistakes: impl Iterator<Item = Mistake>) -> Vec<Mistake> {
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
        file: quoted(&error.file, TEXT),
        line: error.line,
        column: error.column,
        path: quoted(&error.path, TEXT),
        text: quoted(&error.message, TEXT),
        hint: quoted(error.hint().unwrap_or_default(), TEXT),
    }
}
