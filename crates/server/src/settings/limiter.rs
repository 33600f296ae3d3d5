//! Options of the rate limiter.

use tidegate_ratelimit::{MemoryBounds, Options, OverLimitKeys};

use super::memcache;
use super::read::Values;

/// Variables with the names of the response headers: limit, remaining, reset.
const HEADER_NAMES: [&str; 3] = [
    "LIMIT_LIMIT_HEADER",
    "LIMIT_REMAINING_HEADER",
    "LIMIT_RESET_HEADER",
];

pub(super) fn header_names(values: &mut Values) -> [String; 3] {
    HEADER_NAMES.map(|name| {
        let text = values.text(name);
        let parsed = http::HeaderName::try_from(text.as_str());
        values.reported(
            name,
            &text,
            parsed.map_err(|_| "expected the name of an HTTP header"),
        );
        text
    })
}

pub(super) fn counters(values: &mut Values) -> MemoryBounds {
    let keys = match values.integer("TIDEGATE_MAX_KEYS", 0..=i64::MAX) as usize {
        0 => usize::MAX,
        keys => keys,
    };
    MemoryBounds {
        keys,
        bytes: values.integer("TIDEGATE_COUNTER_MEMORY", 1 << 20..=i64::MAX) as usize,
    }
}

pub(super) fn options(values: &mut Values) -> Options {
    let stop = values.boolean("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT");
    Options {
        key_prefix: values.text("CACHE_KEY_PREFIX"),
        near_limit_ratio: values.fraction("NEAR_LIMIT_RATIO") as f32,
        expiration_jitter: values.integer("EXPIRATION_JITTER_MAX_SECONDS", 0..=i64::from(u32::MAX))
            as u32,
        over_limit_keys: if stop && !memcache::is_wanted(values) {
            OverLimitKeys::StopIncrement
        } else {
            OverLimitKeys::Increment
        },
        local_cache_bytes: values.integer("LOCAL_CACHE_SIZE_IN_BYTES", 0..=i64::MAX) as usize,
        global_shadow_mode: values.boolean("SHADOW_MODE"),
        global_quota_mode: values.boolean("QUOTA_MODE"),
        response_headers: values.boolean("LIMIT_RESPONSE_HEADERS_ENABLED"),
        dynamic_metadata: values.boolean("RESPONSE_DYNAMIC_METADATA"),
    }
}
