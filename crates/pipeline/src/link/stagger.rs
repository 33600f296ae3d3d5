//! Delivers the replies of one read in two halves, so that client and server work at the same time.

/// Number of pending groups from which one read is delivered in halves. If one read answers more
/// than half of them, the server is about to become idle. The callers of the first half are woken
/// and their next commands written before the second half is woken. So client and server work
/// concurrently instead of in turns.
///
/// On two cores the throughput of 64 callers rose from 408 to 561 thousand commands a second, and
/// of 48 callers from 292 to 480 thousand. With 32 callers it is one more write without a gain.
const FROM: usize = 48;

/// State of replies that were read and are held back.
///
/// **Invariant:** replies that are held back are delivered after the next turn, or when the
/// connection fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stagger {
    /// No replies are held back.
    #[default]
    Nothing,
    /// The second half is held back until the callers of the first half have run.
    Half,
    /// The callers of the first half have run: the second half is delivered after the next write.
    Due,
}

/// First step of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadStep {
    /// Read from the socket.
    Read,
    /// Only write.
    WriteFirst,
    /// Deliver the replies that were held back.
    GiveOut,
}

impl Stagger {
    /// Returns the number of finished groups after which the rest is held back.
    #[inline]
    pub(crate) fn first_half(owed: usize) -> usize {
        if owed >= FROM {
            owed.div_ceil(2)
        } else {
            usize::MAX
        }
    }

    /// Records that the first half was delivered. The rest of `buffer` is held back.
    pub(crate) fn hold(&mut self, buffer: &[u8]) {
        *self = if buffer.is_empty() {
            Self::Nothing
        } else {
            Self::Half
        };
    }

    /// Begins a turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self) -> ReadStep {
        let (next, step) = match self {
            Self::Nothing => (Self::Nothing, ReadStep::Read),
            Self::Half => (Self::Due, ReadStep::WriteFirst),
            Self::Due => (Self::Nothing, ReadStep::GiveOut),
        };
        *self = next;
        step
    }

    /// Returns whether the callers of the first half should run now.
    #[inline]
    pub(crate) fn waits(self) -> bool {
        self == Self::Half
    }

    /// Releases the replies that are held back. Returns whether there were any.
    pub(crate) fn release(&mut self) -> bool {
        std::mem::take(self) != Self::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_half_waits_for_one_write() {
        let mut stagger = Stagger::default();
        assert_eq!(
            (stagger.begin_turn(), stagger.waits()),
            (ReadStep::Read, false)
        );
        stagger.hold(b":1\r\n");
        assert!(stagger.waits());
        assert_eq!(
            (stagger.begin_turn(), stagger.waits()),
            (ReadStep::WriteFirst, false)
        );
        assert_eq!(stagger.begin_turn(), ReadStep::GiveOut);
        assert_eq!(stagger.begin_turn(), ReadStep::Read);
    }

    #[test]
    fn nothing_is_held_back_where_nothing_is_left() {
        let mut stagger = Stagger::default();
        stagger.hold(b"");
        assert!(!stagger.waits() && !stagger.release());
        stagger.hold(b":1\r\n");
        assert!(stagger.release() && !stagger.release());
    }

    #[test]
    fn only_many_groups_are_halved() {
        for (owed, half) in [(0, usize::MAX), (47, usize::MAX), (48, 24), (49, 25)] {
            assert_eq!(Stagger::first_half(owed), half, "{owed} owed");
        }
    }
}
