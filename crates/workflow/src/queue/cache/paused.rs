//! Pauses of queues.

/// Whether a queue is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// Workers get no jobs of it.
    Yes,
    /// Workers get its jobs.
    No,
}

/// Value of a paused queue in the register.
const PAUSED: &str = "paused";

impl Paused {
    /// Parses a value of the register.
    pub(crate) fn read(value: &str) -> Self {
        Self::from_flag(value == PAUSED)
    }

    pub(crate) const fn from_flag(is_paused: bool) -> Self {
        if is_paused { Self::Yes } else { Self::No }
    }

    /// Returns the value for the register.
    pub(crate) const fn value(self) -> &'static str {
        match self {
            Self::Yes => PAUSED,
            Self::No => "",
        }
    }
}
