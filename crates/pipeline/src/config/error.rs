//! Errors of a configuration.

use thiserror::Error;

/// Errors of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The text is not an address.
    #[error(
        "'{text}' is not an address: expected host:port, [ipv6]:port or a path of a unix socket"
    )]
    Address {
        /// The invalid value.
        text: String,
    },
    /// The parallelism is negative.
    #[error("redis cluster pipeline parallelism must be >= 0, and is {setting}")]
    NegativeParallelism {
        /// The invalid value.
        setting: i64,
    },
    /// The configuration has no server.
    #[error("at least one server address is needed")]
    NoServers,
    /// A bound that must be at least one is zero.
    #[error("{name} must be at least 1")]
    Zero {
        /// Name of the field.
        name: &'static str,
    },
}
