//! The size of commands, in number and bytes.

/// Commands and their encoded bytes: what a queue and a connection are bounded in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) commands: usize,
    pub(crate) bytes: usize,
}

impl Load {
    pub(crate) fn add(&mut self, more: Self) {
        self.commands += more.commands;
        self.bytes += more.bytes;
    }

    /// Whether `more` on top stays within `cap`.
    pub(crate) fn fits(self, more: Self, cap: Self) -> bool {
        self.commands + more.commands <= cap.commands && self.bytes + more.bytes <= cap.bytes
    }

    pub(crate) fn remove(&mut self, less: Self) {
        self.commands -= less.commands;
        self.bytes -= less.bytes;
    }
}
