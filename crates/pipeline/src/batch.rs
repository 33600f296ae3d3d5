//! A caller's ordered commands, encoded once, as they are added.

mod builder;
mod load;
mod unfinished;

pub use builder::{Arg, UnitBuilder};
pub(crate) use load::Load;
pub(crate) use unfinished::SlotState;

use std::ops::Range;

use smallvec::SmallVec;

use crate::outcome::NotSent;
use crate::wire::Slot;

/// A caller's ordered commands.
///
/// Commands are encoded as they are added, on the caller's task. The order of the units is the
/// order of the outcomes. Commands of one unit run on one connection without another caller's
/// commands between them. Units of one key run in their order in a batch of up to 512 commands;
/// nothing else is promised about the order in which units run.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    pub(crate) encoded: Vec<u8>,
    /// Most batches have one or two counters, and an allocation is a visible part of the cost of a
    /// call.
    commands: SmallVec<[Command; 4]>,
    pub(crate) units: SmallVec<[Unit; 2]>,
    /// Reason why the batch cannot be sent. `None` if it can.
    pub(crate) refused: Option<NotSent>,
}

#[derive(Debug, Clone, Copy)]
struct Command {
    /// End of the command in `encoded`.
    end: u32,
    repeat: Repeat,
}

/// Whether a command may run more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Never,
    /// The command may run twice without harm.
    Anytime,
    /// Only after a command of its unit that is sent again: the reply is about earlier commands of
    /// the connection.
    Behind,
}

/// Commands that run together, on the node that owns their key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    /// Index after the unit's last command.
    pub(crate) commands_end: u32,
    placement: Placement,
    /// Whether the unit starts with MULTI: it runs as a whole or not at all.
    transaction: bool,
}

/// Rule that decides which node runs a unit.
#[derive(Debug, Clone, Copy)]
enum Placement {
    /// Any node will do.
    Anywhere,
    /// The owner of the key at these offsets in `encoded`. The slot is computed only if there are
    /// several nodes.
    Key(u32, u32),
    /// The owner of a slot.
    Slot(Slot),
}

impl Batch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty batch with capacity for `commands` commands of `bytes` encoded bytes in
    /// all.
    #[must_use]
    pub fn with_capacity(commands: usize, bytes: usize) -> Self {
        Self {
            encoded: Vec::with_capacity(bytes),
            commands: SmallVec::with_capacity(commands),
            units: SmallVec::with_capacity(commands),
            refused: None,
        }
    }

    /// Returns the indices of the commands of a run of units.
    pub(crate) fn commands_of(&self, units: Range<u32>) -> Range<usize> {
        let end_before = |unit: u32| match unit.checked_sub(1) {
            Some(previous) => self.units[previous as usize].commands_end as usize,
            None => 0,
        };
        end_before(units.start)..end_before(units.end)
    }

    /// Returns the load of the whole batch.
    pub(crate) fn load(&self) -> Load {
        Load {
            commands: self.len(),
            bytes: self.encoded.len(),
        }
    }

    /// Returns the load of a unit.
    pub(crate) fn load_of(&self, unit: u32) -> Load {
        let commands = self.commands_of(unit..unit + 1);
        Load {
            commands: commands.len(),
            bytes: self.bytes_of(commands).len(),
        }
    }

    /// Returns the range of the encoded bytes of a run of commands.
    pub(crate) fn bytes_of(&self, commands: Range<usize>) -> Range<usize> {
        let end_before = |command: usize| match command.checked_sub(1) {
            Some(previous) => self.commands[previous].end as usize,
            None => 0,
        };
        end_before(commands.start)..end_before(commands.end)
    }

    /// Returns the slot that decides which node runs a unit. `None` if any node can.
    pub(crate) fn slot_of(&self, unit: u32) -> Option<Slot> {
        match self.units[unit as usize].placement {
            Placement::Slot(slot) => Some(slot),
            Placement::Key(start, end) => {
                Some(Slot::for_key(&self.encoded[start as usize..end as usize]))
            }
            Placement::Anywhere => None,
        }
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns whether there is no command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}
