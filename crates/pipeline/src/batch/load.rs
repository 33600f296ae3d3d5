//! The size of commands, in number and bytes.

/// Number of commands and their encoded bytes. Queues and connections are bounded in both.
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

    /// Returns whether this load plus `more` stays within `cap`.
    pub(crate) fn fits(self, more: Self, cap: Self) -> bool {
        self.commands + more.commands <= cap.commands && self.bytes + more.bytes <= cap.bytes
    }

    pub(crate) fn remove(&mut self, less: Self) {
        self.commands -= less.commands;
        self.bytes -= less.bytes;
    }
}
