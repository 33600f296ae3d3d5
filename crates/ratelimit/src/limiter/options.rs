//! How to count and answer, whatever the limits are.

/// How to count and answer, whatever the limits are.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Put before every counter key, as it is.
    pub key_prefix: String,
    /// From which share of a limit on hits count as near it.
    pub near_limit_ratio: f32,
    /// A counter outlives its window by a random time below this, in seconds; 0 is none.
    pub expiration_jitter: u32,
    /// What a refused request charges.
    pub over_limit_keys: OverLimitKeys,
    /// Size of the cache of counters known to be over their limit; 0 is none, less than 512 KiB is 512 KiB.
    pub local_cache_bytes: usize,
    /// Every request passes; what would have been refused is counted.
    pub global_shadow_mode: bool,
    /// Every limit is a quota: a request is refused only when all of its descriptors are.
    pub global_quota_mode: bool,
    /// Answer with [`crate::LimitHeaders`].
    pub response_headers: bool,
    /// Answer with dynamic metadata.
    pub dynamic_metadata: bool,
}

/// What a refused request charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverLimitKeys {
    /// Every counter of the request.
    #[default]
    Increment,
    /// Only the counters that are over their limit. Costs a read before every charge.
    StopIncrement,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            key_prefix: String::new(),
            near_limit_ratio: 0.8,
            expiration_jitter: 300,
            over_limit_keys: OverLimitKeys::Increment,
            local_cache_bytes: 0,
            global_shadow_mode: false,
            global_quota_mode: false,
            response_headers: false,
            dynamic_metadata: false,
        }
    }
}
