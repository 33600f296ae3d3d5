//! Settings of a client.

use std::time::Duration;

use tidegate_pipeline::Connector;

/// Settings of a client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// TLS connector. `None` if connections are not encrypted.
    pub tls: Option<Connector>,
    /// Maximum time for opening a connection, and for one answer.
    pub timeout: Duration,
    /// Maximum number of bytes that are queued for one server.
    pub queue_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tls: None,
            // The memcached client of the reference has this timeout, too.
            timeout: Duration::from_millis(500),
            // About 20,000 charges. A core that does nothing else charges 10 MiB a second, and a
            // server that is half a second late counts as lost.
            queue_bytes: 4 * 1024 * 1024,
        }
    }
}
