//! Counters in Redis.

use tidegate_pipeline::Client;

/// Counters in Redis, under the reference's key names.
#[derive(Debug, Clone)]
pub struct RedisStore {
    _main: Client,
    _per_second: Option<Client>,
}

impl RedisStore {
    /// Counters on `main`; those of per-second limits on `per_second`, if there is one.
    #[must_use]
    pub fn new(main: Client, per_second: Option<Client>) -> Self {
        Self { _main: main, _per_second: per_second }
    }
}
