//! An example of a value for each setting: one that the server accepts, and another than the default.

use super::super::value::VariableKind;
use super::super::{Support, Variable};

/// Examples of settings whose kind does not say what they accept.
const EXAMPLES: &[(&str, &str)] = &[
    ("CONFIG_GRPC_XDS_NODE_METADATA", "{\"cluster\": \"edge\"}"),
    ("CONFIG_GRPC_XDS_SERVER_URL", "xds:18000"),
    ("LIMIT_LIMIT_HEADER", "X-RateLimit-Limit"),
    ("LIMIT_REMAINING_HEADER", "X-RateLimit-Remaining"),
    ("LIMIT_RESET_HEADER", "X-RateLimit-Reset"),
    ("LOG_FORMAT", "json"),
    ("MEMCACHE_HOST_PORT", "memcached-0:11211,memcached-1:11211"),
    ("MEMCACHE_SRV", "_memcache._tcp.example.com"),
    ("NO_COLOR", "1"),
    ("OTEL_BSP_SCHEDULE_DELAY", "1000"),
    ("PROMETHEUS_ADDR", "127.0.0.1:9090"),
    ("PROMETHEUS_PATH", "/prometheus"),
    ("TIDEGATE_ACKNOWLEDGED_BY", "replicas:1"),
    ("TIDEGATE_DATA_DIR", "/var/lib/tidegate"),
    ("TIDEGATE_DNS_SERVERS", "10.0.0.53:53"),
    ("TIDEGATE_HTTP_ADDR", "127.0.0.1:7071"),
    ("TIDEGATE_SERVER", "https://tidegate.example"),
    ("TIDEGATE_STORE_PREFIX", "staging:"),
    ("TRACING_SERVICE_INSTANCE_ID", "edge-1"),
];

/// Examples of settings whose names end so.
const BY_ENDING: &[(&str, &str)] = &[
    ("_ADDRESS_MAP", "10.0.0.7:6379=redis.example:6379"),
    ("_COMPRESSION", "gzip"),
    ("_ENDPOINT", "http://collector:4318"),
    ("_INSECURE", "true"),
    ("OTLP_HEADERS", "api-key=secret"),
    ("TRACES_HEADERS", "api-key=secret"),
    ("OTLP_TIMEOUT", "5000"),
    ("TRACES_TIMEOUT", "5000"),
    ("HOST", "127.0.0.1"),
];

/// A value that the server accepts. It differs from the default if others have an effect.
pub(super) fn example(row: &Variable) -> String {
    if row.support != Support::Full {
        return row.default.to_owned();
    }
    let named = EXAMPLES.iter().find(|(name, _)| row.name == *name);
    let ending = || BY_ENDING.iter().find(|(end, _)| row.name.ends_with(end));
    match named.or_else(ending) {
        Some((_, text)) => (*text).to_owned(),
        None => of_kind(row),
    }
}

fn of_kind(row: &Variable) -> String {
    let default = row.default;
    let other = |words: &[&'static str]| {
        let found = words
            .iter()
            .find(|&&word| !word.is_empty() && word != default);
        found.map_or(default, |word| *word).to_owned()
    };
    match row.kind {
        VariableKind::Boolean => other(&["true", "false"]),
        VariableKind::Choice(words) => other(words),
        VariableKind::Text => other(&["edge", "text"]),
        VariableKind::Path => other(&["/etc/tidegate/file"]),
        VariableKind::Secret => other(&["secret"]),
        VariableKind::Url => other(&["redis://localhost:6379"]),
        // Twice the default is as good a port or power of two.
        VariableKind::Integer(_) => match default.parse() {
            Ok(0) | Err(_) => "1".to_owned(),
            Ok(number) => u64::saturating_mul(number, 2).to_string(),
        },
        VariableKind::Bytes => other(&["64M", "128M"]),
        VariableKind::Float => other(&["0.5", "0.25"]),
        VariableKind::Duration => other(&["20s", "30s"]),
        VariableKind::Retention => other(&["succeeded=1d,failed=14d"]),
        VariableKind::List => other(&["first,second"]),
        VariableKind::Map | VariableKind::Headers => other(&["name:value,other:value"]),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::super::SECTIONS;
    use super::*;
    use crate::settings::Settings;

    const REDIS: (&str, &str) = ("REDIS_URL", "localhost:6379");

    /// Other settings without which the server does not read those of a section.
    fn needed(section: &str, name: &str) -> Vec<(&'static str, &'static str)> {
        match section {
            _ if name == "TIDEGATE_STORE_URL" => vec![],
            _ if name.starts_with("TIDEGATE_STORE_") => vec![("TIDEGATE_STORE_URL", "localhost:1")],
            _ if name == "TIDEGATE_TEST_CLOCK" => vec![("TIDEGATE_STORE_URL", "memory")],
            _ if name == "MEMCACHE_SRV" => vec![("BACKEND_TYPE", "memcache")],
            _ if name == "TIDEGATE_DNS_SERVERS" => {
                vec![("BACKEND_TYPE", "memcache"), ("MEMCACHE_SRV", "_a._tcp.b")]
            }
            _ if name.contains("XDS") => vec![("CONFIG_TYPE", "GRPC_XDS_SOTW")],
            _ if name.starts_with("STATS") => vec![("USE_STATSD", "true")],
            _ if name.starts_with("PROMETHEUS") => vec![("USE_PROMETHEUS", "true")],
            "Redis" => vec![REDIS],
            "Second Redis, for limits per second" => {
                vec![
                    REDIS,
                    ("REDIS_PERSECOND", "true"),
                    ("REDIS_PERSECOND_URL", "localhost:1"),
                ]
            }
            "Memcached" | "Counting" => {
                vec![
                    ("BACKEND_TYPE", "memcache"),
                    ("MEMCACHE_HOST_PORT", "localhost:1"),
                ]
            }
            "Tracing" => vec![("TRACING_ENABLED", "true")],
            _ => vec![],
        }
    }

    #[test]
    fn the_server_accepts_each_example() {
        let mut refused = Vec::new();
        for section in SECTIONS {
            for row in section.rows {
                let example = example(row);
                let is_other = row.support == Support::Full;
                assert_eq!(example != row.default, is_other, "{}", row.name);
                let mut given: HashMap<String, String> = needed(section.title, row.name)
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect();
                given.insert(row.name.to_owned(), example);
                let problems = Settings::parse(&given).err().map(|error| error.problems);
                for problem in problems.into_iter().flatten() {
                    // The files of examples do not exist, and TLS needs a certificate and its key.
                    let is_known = row.kind == VariableKind::Path
                        || problem.variable != row.name && problem.variable.contains("TLS");
                    if !is_known {
                        refused.push(format!("{given:?}: {}", problem.reason));
                    }
                }
            }
        }
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }
}
