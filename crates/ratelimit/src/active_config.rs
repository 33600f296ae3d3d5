//! The limits that are in force.

use std::sync::Arc;

use crate::config::Configuration;
use crate::overrides::Overrides;

/// The configuration and its overrides. One load gives both.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    pub(crate) configuration: Arc<Configuration>,
    /// `None` if there are no overrides, so that a check tests only this.
    pub(crate) overrides: Option<Arc<Overrides>>,
}
