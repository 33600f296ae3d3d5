//! Watches folders for changes. An event only means that files must be read again.

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
pub(super) struct FolderWatch {
    /// `None` if the system refuses a watch: then files are only polled.
    watcher: Option<RecommendedWatcher>,
    folders: Folders,
}

/// Whether the set of watched folders changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderChange {
    Unchanged,
    Changed,
}

impl FolderWatch {
    /// Creates a watch without folders. `wake` receives a message for each change in the folders of
    /// [`FolderWatch::follow`].
    pub(super) fn new(files: &Files, wake: SyncSender<Wake>) -> Self {
        let root = std::path::absolute(&files.root).unwrap_or_else(|_| files.root.clone());
        let neighbours = Neighbours {
            folder: parent(&root)
                .canonicalize()
                .unwrap_or_else(|_| parent(&root)),
            root,
        };
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| neighbours.matters(&event)) {
                // A full queue already holds an event.
                let _ = wake.try_send(Wake::Changed);
            }
        });
        let watcher = watcher
            .inspect_err(
                |error| warn!(%error, "cannot watch configuration files; reading them every 10 s"),
            )
            .ok();
        Self {
            watcher,
            folders: Folders::new(),
        }
    }

    /// Watches exactly `folders` from now on.
    pub(super) fn follow(&mut self, folders: Folders) -> FolderChange {
        if self.folders == folders {
            return FolderChange::Unchanged;
        }
        if let Some(watcher) = &mut self.watcher {
            for (folder, _) in self
                .folders
                .iter()
                .filter(|(folder, identity)| folders.get(*folder) != Some(identity))
            {
                // The watch of a deleted folder has ended already.
                let _ = watcher.unwatch(folder);
            }
            for (folder, _) in folders
                .iter()
                .filter(|(folder, identity)| self.folders.get(*folder) != Some(identity))
            {
                if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                    warn!(folder = %folder.display(), %error, "cannot watch a folder; reading it every 10 s");
                }
            }
        }
        self.folders = folders;
        FolderChange::Changed
    }
}

/// The parent folder of the root is watched for changes of the root only: it may be as busy as
/// /tmp.
struct Neighbours {
    folder: PathBuf,
    root: PathBuf,
}

impl Neighbours {
    fn matters(&self, event: &Event) -> bool {
        // The server's own reads cause events too, and must not lead to more reads.
        if matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write))
        {
            return false;
        }
        let is_neighbour = |path: &PathBuf| {
            path.parent() == Some(&self.folder) && path.file_name() != self.root.file_name()
        };
        event.paths.is_empty() || !event.paths.iter().all(is_neighbour)
    }
}
