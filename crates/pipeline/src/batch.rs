//! A caller's ordered commands, encoded once, as they are added.

pub(crate) mod builder;
pub(crate) mod load;
pub(crate) mod unfinished;

use std::ops::Range;

use smallvec::SmallVec;

use crate::batch::load::Load;
use crate::outcome::NotSent;
use crate::wire::slot::Slot;

/// A caller's ordered commands.
///
/// Commands are encoded as they are added, on the caller's task. The order of the units is the order of the outcomes.
/// Commands of one unit run on one connection without another caller's commands between them. Units of one key run in their
/// order in a batch of up to 512 commands; nothing else is promised about the order in which units run.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    pub(crate) encoded: Vec<u8>,
    /// Most batches have one or two counters, and an allocation is a visible part of the cost of a call.
    commands: SmallVec<[Command; 4]>,
    pub(crate) units: SmallVec<[Unit; 2]>,
    /// Why the batch cannot be sent, if it cannot.
    pub(crate) refused: Option<NotSent>,
}

#[derive(Debug, Clone, Copy)]
struct Command {
    /// Where it ends in `encoded`.
    end: u32,
    repeat: Repeat,
}

/// Whether a command may run more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Never,
    /// Running it twice is as good as once.
    Anytime,
    /// Only behind a command of its unit that is sent again: its answer is about what the connection did before.
    Behind,
}

/// Commands that run together, on the node that owns their key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    /// Index after the unit's last command.
    pub(crate) commands_end: u32,
    placement: Placement,
    /// The unit starts with MULTI: it runs as a whole or not at all.
    transaction: bool,
}

/// What decides which node runs a unit.
#[derive(Debug, Clone, Copy)]
enum Placement {
    /// Any node will do.
    Anywhere,
    /// The owner of the key that is here in `encoded`. Its slot is worked out only when there are several nodes.
    Key(u32, u32),
    /// The owner of a slot.
    Slot(Slot),
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `commands` commands of `bytes` encoded bytes in all.
    #[must_use]
    pub fn with_capacity(commands: usize, bytes: usize) -> Self {
        Self {
            encoded: Vec::with_capacity(bytes),
            commands: SmallVec::with_capacity(commands),
            units: SmallVec::with_capacity(commands),
            refused: None,
        }
    }

    /// The commands of a run of units, as indices.
    pub(crate) fn commands_of(&self, units: Range<u32>) -> Range<usize> {
        let before = |unit: u32| match unit.checked_sub(1) {
            Some(previous) => self.units[previous as usize].commands_end as usize,
            None => 0,
        };
        before(units.start)..before(units.end)
    }

    /// What the whole batch weighs.
    pub(crate) fn load(&self) -> Load {
        Load {
            commands: self.len(),
            bytes: self.encoded.len(),
        }
    }

    /// What a unit weighs.
    pub(crate) fn load_of(&self, unit: u32) -> Load {
        let commands = self.commands_of(unit..unit + 1);
        Load {
            commands: commands.len(),
            bytes: self.bytes_of(commands).len(),
        }
    }

    /// The encoded bytes of a run of commands.
    pub(crate) fn bytes_of(&self, commands: Range<usize>) -> Range<usize> {
        let before = |command: usize| match command.checked_sub(1) {
            Some(previous) => self.commands[previous].end as usize,
            None => 0,
        };
        before(commands.start)..before(commands.end)
    }

    /// The slot that decides which node runs a unit; none when any can.
    pub(crate) fn slot_of(&self, unit: u32) -> Option<Slot> {
        match self.units[unit as usize].placement {
            Placement::Slot(slot) => Some(slot),
            Placement::Key(start, end) => {
                Some(Slot::of(&self.encoded[start as usize..end as usize]))
            }
            Placement::Anywhere => None,
        }
    }

    /// The number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there is no command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}
