//! Counts how many are at work at once, over processes that are killed.

use std::fs::File;
use std::path::{Path, PathBuf};

/// Files, one for each that may be at work. Whoever is at work has one locked; the system unlocks it when its process dies.
pub(super) struct Slots(PathBuf);

const NUMBER: usize = super::PLACES;
/// Whoever looks for a free slot is alone: of the others, some may leave theirs, and none takes one.
const DOOR: &str = "door";
/// Written by whoever found no free slot.
const CROWD: &str = "crowd";

impl Slots {
    pub(super) fn of(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    fn open(&self, name: &str) -> File {
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.0.join(name))
            .unwrap()
    }

    fn alone<T>(&self, look: impl FnOnce() -> T) -> T {
        let door = self.open(DOOR);
        door.lock().unwrap();
        look()
    }

    /// A slot, until it is dropped. Nobody may find none.
    pub(super) fn take(&self, who: &str) -> Option<File> {
        let slot = self.alone(|| self.all().find(|slot| slot.try_lock().is_ok()));
        if slot.is_none() {
            std::fs::write(self.0.join(CROWD), format!("{who} was one too many")).unwrap();
        }
        slot
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.alone(|| self.all().filter(|slot| slot.try_lock().is_err()).count())
    }

    fn all(&self) -> impl Iterator<Item = File> {
        (0..NUMBER).map(|number| self.open(&format!("slot {number}")))
    }

    /// Who found all slots taken.
    pub(super) fn crowd(&self) -> Option<String> {
        std::fs::read_to_string(self.0.join(CROWD)).ok()
    }
}
