//! Change events of folders. They only say "look again": what changed is found by reading.

use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tracing::warn;

use super::Wake;
use super::files::{Folders, parent};
use crate::settings::Files;

/// The folders that are watched.
#[derive(Debug)]
pub(super) struct Watch {
    /// None when the system has no more watches to give: the poll does it alone.
    watcher: Option<RecommendedWatcher>,
    folders: Folders,
}

/// Whether the set of watched folders changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Same,
    Moved,
}

impl Watch {
    /// Watches nothing yet; wakes `wake` when something under the folders to come changes.
    pub(super) fn new(files: &Files, wake: SyncSender<Wake>) -> Self {
        let root = std::path::absolute(&files.root).unwrap_or_else(|_| files.root.clone());
        let neighbours = Neighbours { folder: parent(&root).canonicalize().unwrap_or_else(|_| parent(&root)), root };
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| neighbours.matters(&event)) {
                // A full queue already says what this event would.
                let _ = wake.try_send(Wake::Changed);
            }
        });
        let watcher = watcher
            .inspect_err(|error| warn!(%error, "configuration files cannot be watched; they are read every 10 s"))
            .ok();
        Self { watcher, folders: Folders::new() }
    }

    /// Watches exactly `folders` from now on.
    pub(super) fn follow(&mut self, folders: Folders) -> Change {
        if self.folders == folders {
            return Change::Same;
        }
        if let Some(watcher) = &mut self.watcher {
            for (folder, _) in self.folders.iter().filter(|(folder, identity)| folders.get(*folder) != Some(identity)) {
                // A folder that is gone took its watch along.
                let _ = watcher.unwatch(folder);
            }
            for (folder, _) in folders.iter().filter(|(folder, identity)| self.folders.get(*folder) != Some(identity)) {
                if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                    warn!(folder = %folder.display(), %error, "a folder cannot be watched; it is read every 10 s");
                }
            }
        }
        self.folders = folders;
        Change::Moved
    }
}

/// The folder around the root is watched for the root alone; it may be as busy as /tmp.
struct Neighbours {
    folder: PathBuf,
    root: PathBuf,
}

impl Neighbours {
    fn matters(&self, event: &Event) -> bool {
        // Reading a file makes events too, and must not make us read again.
        if matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write)) {
            return false;
        }
        let is_neighbour =
            |path: &PathBuf| path.parent() == Some(&self.folder) && path.file_name() != self.root.file_name();
        event.paths.is_empty() || !event.paths.iter().all(is_neighbour)
    }
}
