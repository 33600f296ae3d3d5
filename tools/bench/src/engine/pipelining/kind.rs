//! What is sent.

use serde::{Deserialize, Serialize};

/// The commands that redis-benchmark knows as `set` and `incr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Set,
    Incr,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Incr => "incr",
        }
    }
}
