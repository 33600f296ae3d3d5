//! Configured limits.

use serde_json::{Map, Value};

use crate::model::Unit;

/// A configured limit.
#[derive(Debug)]
pub struct Limit {
    /// `domain.key_value.subkey`: the path in the configuration, by which overrides and statistics
    /// name the limit.
    pub stats_key: Box<str>,
    /// The number of the stats key; see [`crate::StatsKey`].
    pub slot: u32,
    /// The rate that the limit allows.
    pub rate: Rate,
    /// The name. Empty if the limit has none.
    pub name: Box<str>,
    /// Names of the limits that this one replaces.
    pub replaces: Box<[Box<str>]>,
    /// Whether the limit counts but never refuses.
    pub shadow_mode: bool,
    /// Whether the limit refuses a request only if all such limits of the request are exceeded.
    pub quota_mode: bool,
    /// Whether hits count under the request's keys and values instead of the path in the
    /// configuration.
    pub detailed_metric: bool,
    /// Whether throttled jobs make requests wait, too.
    pub pause_when_throttled: bool,
    /// Metadata that is returned to the caller if the descriptor passes.
    pub metadata: Map<String, Value>,
}

/// The rate of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Any number of hits.
    Unlimited {
        /// The number in the file. Only the dump shows it.
        requests_per_unit: u32,
    },
    /// A number of hits in every window.
    PerUnit {
        /// The number of hits.
        requests_per_unit: u32,
        /// The length of the window.
        unit: Unit,
    },
}
