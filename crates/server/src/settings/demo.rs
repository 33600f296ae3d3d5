//! The settings of `tidegate demo`.

use super::read::environment;
use super::table::variables;
use super::{Settings, SettingsError};

/// The variables that the demo reads. All others are about stores, files or clients of somebody's real server.
const READ: [&str; 11] = [
    "HOST",
    "PORT",
    "GRPC_HOST",
    "GRPC_PORT",
    "DEBUG_HOST",
    "DEBUG_PORT",
    "LOG_LEVEL",
    "LOG_FORMAT",
    "TIDEGATE_CORES",
    "TIDEGATE_HTTP_ADDR",
    "TIDEGATE_ALLOW_ANONYMOUS",
];
/// Where the demo differs from the defaults: only this machine reaches it, all is in memory, and what has ended is soon removed.
const DEFAULTS: [(&str, &str); 5] = [
    ("HOST", "127.0.0.1"),
    ("GRPC_HOST", "127.0.0.1"),
    ("DEBUG_HOST", "127.0.0.1"),
    ("TIDEGATE_STORE_URL", "memory"),
    ("TIDEGATE_RETENTION", "1h"),
];

impl Settings {
    /// Reads what the demo uses of the process's environment.
    ///
    /// # Errors
    /// Every mistake in it.
    pub(crate) fn demo() -> Result<Self, SettingsError> {
        let mut given = environment();
        let ignored: Vec<_> = variables()
            .map(|variable| variable.name)
            .filter(|name| !READ.contains(name) && given.contains_key(*name))
            .collect();
        given.retain(|name, _| READ.contains(&name.as_str()));
        for (name, value) in DEFAULTS {
            given
                .entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        }
        let mut settings = Self::parse(&given)?;
        settings.demo = true;
        if !ignored.is_empty() {
            settings
                .warnings
                .push(format!("the demo does not use {}", ignored.join(", ")));
        }
        Ok(settings)
    }
}
