//! The settings of `tidegate demo`.

use crate::settings::read::environment;
use crate::settings::table::variables;
use crate::settings::{Settings, SettingsError};

/// Variables that the demo reads. The others concern the stores, files or clients of a production
/// server.
const DEMO_VARIABLES: [&str; 11] = [
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
/// Defaults of the demo: it is reachable only from this machine, stores everything in memory, and
/// soon removes ended workflows.
const DEFAULTS: [(&str, &str); 5] = [
    ("HOST", "127.0.0.1"),
    ("GRPC_HOST", "127.0.0.1"),
    ("DEBUG_HOST", "127.0.0.1"),
    ("TIDEGATE_STORE_URL", "memory"),
    ("TIDEGATE_RETENTION", "1h"),
];

impl Settings {
    /// Reads the variables of the demo from the environment.
    ///
    /// # Errors
    /// All mistakes in it.
    pub(crate) fn demo() -> Result<Self, SettingsError> {
        let mut given = environment();
        let ignored: Vec<_> = variables()
            .map(|variable| variable.name)
            .filter(|name| !DEMO_VARIABLES.contains(name) && given.contains_key(*name))
            .collect();
        given.retain(|name, _| DEMO_VARIABLES.contains(&name.as_str()));
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
