//! Health of the server, for `/healthcheck` and the gRPC health service.

use std::sync::Arc;

use tidegate_workflow::Timestamp;
use tokio::sync::watch;

/// Health of the parts of the server. Clones share one state.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    parts: Arc<watch::Sender<HealthParts>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HealthParts {
    store: PartHealth,
    configuration: PartHealth,
    /// Time until which calls are still accepted, once the process stops.
    drains_until: Option<Timestamp>,
    /// Number of parts of the process that ended unexpectedly and are being restarted.
    unhealthy: usize,
    /// Number of configuration files that cannot be read and keep their last content. They do not
    /// make the server unhealthy.
    kept_files: usize,
}

/// A part of the process is being restarted. The drop reports that it runs again.
#[derive(Debug)]
pub(crate) struct UnhealthyGuard(Health);

impl Drop for UnhealthyGuard {
    fn drop(&mut self) {
        self.0.parts.send_modify(|parts| parts.unhealthy -= 1);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartHealth {
    Healthy,
    Unhealthy,
}

impl PartHealth {
    pub(crate) fn healthy_if(condition: bool) -> Self {
        if condition {
            Self::Healthy
        } else {
            Self::Unhealthy
        }
    }
}

impl HealthParts {
    /// Reasons why the server is unhealthy, one per line.
    fn reasons(self) -> String {
        let is_unhealthy = |part| part == PartHealth::Unhealthy;
        let reasons = [
            (self.drains_until.is_some(), "the server is about to end"),
            (
                is_unhealthy(self.store),
                "redis does not answer PING (REDIS_HEALTH_CHECK_ACTIVE_CONNECTION)",
            ),
            (
                is_unhealthy(self.configuration),
                "no limits are loaded (HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED)",
            ),
            (self.unhealthy > 0, "a part of the server is started again"),
        ];
        reasons
            .into_iter()
            .filter(|(applies, _)| *applies)
            .map(|(_, reason)| format!("not healthy: {reason}\n"))
            .collect()
    }

    /// Whether the process has not begun to stop.
    pub(crate) fn is_not_stopping(self) -> bool {
        self.drains_until.is_none()
    }

    pub(crate) fn serving(self) -> bool {
        self.reasons().is_empty()
    }
}

impl Health {
    /// Creates the health with these parts. The process is healthy until it stops.
    pub(crate) fn new(store: PartHealth, configuration: PartHealth) -> Self {
        let parts = HealthParts {
            store,
            configuration,
            drains_until: None,
            unhealthy: 0,
            kept_files: 0,
        };
        Self {
            parts: Arc::new(watch::Sender::new(parts)),
        }
    }

    pub(crate) fn serving(&self) -> bool {
        self.parts.borrow().serving()
    }

    /// Returns the latest time at which the server accepts calls, if it is about to end.
    pub(crate) fn drains_until(&self) -> Option<Timestamp> {
        self.parts.borrow().drains_until
    }

    /// Subscribes to changes of health.
    pub(crate) fn watch(&self) -> watch::Receiver<HealthParts> {
        self.parts.subscribe()
    }

    /// Sets the health of the store. Returns whether it changed.
    pub(crate) fn set_store(&self, part: PartHealth) -> bool {
        self.parts
            .send_if_modified(|parts| std::mem::replace(&mut parts.store, part) != part)
    }

    pub(crate) fn set_configuration(&self, part: PartHealth) {
        self.parts
            .send_if_modified(|parts| std::mem::replace(&mut parts.configuration, part) != part);
    }

    /// Body of `/healthcheck` for a healthy server: `OK` as in the reference, and further lines for
    /// problems that do not stop it.
    ///
    /// # Errors
    /// The server is unhealthy; the text has the reasons.
    pub(crate) fn report(&self) -> Result<String, String> {
        let parts = *self.parts.borrow();
        match parts.kept_files {
            _ if !parts.serving() => Err(parts.reasons()),
            0 => Ok("OK".to_owned()),
            files => Ok(format!(
                "OK\nconfiguration files that cannot be read and keep their last text: {files}\n"
            )),
        }
    }

    pub(crate) fn set_kept_files(&self, files: usize) {
        self.parts
            .send_if_modified(|parts| std::mem::replace(&mut parts.kept_files, files) != files);
    }

    /// Marks the server as unhealthy until the guard is dropped, while a part of the process
    /// restarts.
    pub(crate) fn mark_unhealthy(&self) -> UnhealthyGuard {
        self.parts.send_modify(|parts| parts.unhealthy += 1);
        UnhealthyGuard(self.clone())
    }

    /// Marks the process as unhealthy, because it begins to stop. It accepts calls until
    /// `drains_until`, or a shorter time.
    pub(crate) fn stopping(&self, drains_until: Timestamp) {
        self.parts
            .send_modify(|parts| parts.drains_until = Some(drains_until));
    }
}
