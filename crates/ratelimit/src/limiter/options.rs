//! Options that apply to all limits.

/// Options that apply to all limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The start of every counter key.
    pub key_prefix: String,
    /// Hits above this share of a limit count as near the limit.
    pub near_limit_ratio: f32,
    /// Bound of the random number of seconds that a counter in Redis lives longer than its window;
    /// 0 adds none.
    pub expiration_jitter: u32,
    /// Counters that a refused request charges.
    pub over_limit_keys: OverLimitKeys,
    /// Bytes of the cache of exceeded limits. 0 is no cache; any other size below 512 KiB is 512
    /// KiB.
    pub local_cache_bytes: usize,
    /// Every request passes. Requests that would have been refused are counted.
    pub global_shadow_mode: bool,
    /// Every limit is a quota: a request is refused only when all of its descriptors are over their
    /// limit.
    pub global_quota_mode: bool,
    /// Whether answers have [`crate::LimitHeaders`].
    pub response_headers: bool,
    /// Whether answers have dynamic metadata.
    pub dynamic_metadata: bool,
}

/// Counters that a refused request charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverLimitKeys {
    /// Every counter of the request.
    #[default]
    Increment,
    /// Only the counters that go over their limit. This needs a read before every charge.
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
