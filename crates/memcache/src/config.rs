//! How a client behaves.

use std::time::Duration;

use tidegate_pipeline::Connector;

/// How a client behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// How connections are encrypted. None: they are not.
    pub tls: Option<Connector>,
    /// The longest wait for a connection, and for an answer.
    pub timeout: Duration,
    /// What may wait for one server, in bytes.
    pub queue_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tls: None,
            // As the client of the reference.
            timeout: Duration::from_millis(500),
            // Some 20,000 charges: a second of what a core charges when it does nothing else would be 10 MiB, and a server
            // that is half a second late is as good as gone.
            queue_bytes: 4 * 1024 * 1024,
        }
    }
}
