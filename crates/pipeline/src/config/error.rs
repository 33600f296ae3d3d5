//! What is wrong with a configuration.

use thiserror::Error;

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Not an address.
    #[error(
        "'{text}' is not an address: expected host:port, [ipv6]:port or a path of a unix socket"
    )]
    Address {
        /// What was given.
        text: String,
    },
    /// A parallelism below zero.
    #[error("redis cluster pipeline parallelism must be >= 0, and is {setting}")]
    NegativeParallelism {
        /// What was given.
        setting: i64,
    },
    /// No server to begin with.
    #[error("at least one server address is needed")]
    NoServers,
    /// A bound that must be at least one is zero.
    #[error("{name} must be at least 1")]
    Zero {
        /// The field.
        name: &'static str,
    },
}
