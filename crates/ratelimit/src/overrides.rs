//! Overrides: decisions of operators and workers about limits for a time, in addition to the
//! configuration.

mod limit_override;
mod record;
mod store;

pub use limit_override::{
    EffectKind, Factor, LimitOverride, OverrideEffect, OverrideError, OverrideTarget, Overrides,
    Reach,
};
pub use store::{OverrideStore, RedisOverrides};
