//! How a node chooses among its connections.

/// How a node chooses among its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// The first of the oldest `space` with room, else some random ones among the rest. 0 is random only, and keeps every
    /// connection in use that a spike has opened.
    Linear {
        /// How many connections are searched in order.
        space: usize,
    },
    /// The first `size` in turn from a random one on, else the first of the rest.
    CorePool {
        /// How many connections share the load.
        size: usize,
        /// Whether to open connections until there are `size`.
        fill: Fill,
    },
    /// The less loaded of two random ones among the first `core`, else the first of the rest.
    PowerOfTwo {
        /// How many connections share the load; 0 is all.
        core: usize,
        /// How many pairs are tried.
        effort: usize,
        /// Whether to open connections until there are `core`.
        fill: Fill,
    },
}

/// Whether connections are opened before the ones there are have no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Up to the size of the core, one after the other; those there are take the load meanwhile.
    First,
    /// Only when there is no room.
    OnDemand,
}

impl Default for Selection {
    fn default() -> Self {
        Self::Linear { space: 16 }
    }
}

impl Selection {
    /// How many connections are opened before the ones there are have no room.
    #[inline]
    pub(crate) fn fills_first(self) -> usize {
        match self {
            Self::CorePool {
                size,
                fill: Fill::First,
            }
            | Self::PowerOfTwo {
                core: size,
                fill: Fill::First,
                ..
            } => size,
            _ => 0,
        }
    }
}
