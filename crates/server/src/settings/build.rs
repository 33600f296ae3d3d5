//! From values to settings: what only holds between values, or within bounds, is checked here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_ratelimit::{Options, OverLimitKeys, SameDomain};
use tidegate_workflow::RetentionDefaults;

use super::read::Values;
use super::value::Value;
use super::{
    ConnectionAge, DotFiles, Drain, Endpoint, Files, FirstLoad, GrpcEndpoint, Log, LogFormat, Metrics, ResponseTime,
    Scope, Settings, redis, workflows,
};

pub(super) fn build(values: &mut Values) -> Settings {
    let cores = match values.integer("TIDEGATE_CORES", 0..=1024) as usize {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        cores => cores,
    };
    Settings {
        http: values.endpoint("HOST", "PORT"),
        debug: values.endpoint("DEBUG_HOST", "DEBUG_PORT"),
        grpc: match values.text("GRPC_UDS") {
            path if path.is_empty() => GrpcEndpoint::Tcp(values.endpoint("GRPC_HOST", "GRPC_PORT")),
            path => GrpcEndpoint::Unix(path.into()),
        },
        connection_age: ConnectionAge {
            limit: values.duration_unless_zero("GRPC_MAX_CONNECTION_AGE"),
            grace: values.duration_unless_zero("GRPC_MAX_CONNECTION_AGE_GRACE"),
        },
        log: log(values),
        files: files(values),
        metrics: metrics(values),
        limiter: options(values),
        header_names: ["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"]
            .map(|name| values.text(name)),
        redis: redis::build(values, cores),
        workflows: workflows::build(values),
        max_keys: values.integer("TIDEGATE_MAX_KEYS", 1..=i64::MAX) as usize,
        cores,
        call_timeout: values.positive_duration("TIDEGATE_CALL_TIMEOUT"),
        drain: Drain {
            delay: values.duration("TIDEGATE_DRAIN_DELAY"),
            timeout: values.duration("TIDEGATE_DRAIN_TIMEOUT"),
        },
        health_needs_domain: values.boolean("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
        warnings: std::mem::take(&mut values.warnings),
    }
}

fn log(values: &Values) -> Log {
    let level = match values.text("LOG_LEVEL").as_str() {
        "trace" => tracing::Level::TRACE,
        "debug" => tracing::Level::DEBUG,
        "info" => tracing::Level::INFO,
        "error" | "fatal" | "panic" => tracing::Level::ERROR,
        _ => tracing::Level::WARN,
    };
    let json = values.text("LOG_FORMAT").eq_ignore_ascii_case("json");
    Log { level, format: if json { LogFormat::Json } else { LogFormat::Text } }
}

fn files(values: &Values) -> Files {
    let either = |name, yes, no| if values.boolean(name) { yes } else { no };
    Files {
        root: values.text("RUNTIME_ROOT").into(),
        root_given: values.given.contains("RUNTIME_ROOT"),
        subdirectory: values.text("RUNTIME_SUBDIRECTORY").into(),
        app_directory: PathBuf::from(values.text("RUNTIME_APPDIRECTORY")),
        scope: if values.boolean("RUNTIME_WATCH_ROOT") { Scope::Subdirectory } else { Scope::AppDirectory },
        dot_files: if values.boolean("RUNTIME_IGNOREDOTFILES") { DotFiles::Skip } else { DotFiles::Read },
        same_domain: either("MERGE_DOMAIN_CONFIG", SameDomain::Merge, SameDomain::Refuse),
        first_load: if values.boolean("FORCE_START_WITHOUT_INITIAL_CONFIG") {
            FirstLoad::AfterPorts
        } else {
            FirstLoad::BeforePorts
        },
    }
}

fn metrics(values: &mut Values) -> Metrics {
    let enabled = values.boolean("USE_PROMETHEUS") && !values.boolean("DISABLE_STATS");
    let path = values.text("PROMETHEUS_PATH");
    if enabled && !path.starts_with('/') {
        values.problem("PROMETHEUS_PATH", &path, "expected a path that starts with /".to_owned());
    }
    let address = values.text("PROMETHEUS_ADDR");
    let endpoint = host_and_port(&address);
    if endpoint.is_none() && enabled {
        values.problem("PROMETHEUS_ADDR", &address, "expected host:port or :port".to_owned());
    }
    Metrics {
        prometheus: endpoint.filter(|_| enabled).map(|endpoint| (endpoint, path)),
        labels: values.map("EXTRA_TAGS"),
        response_time: if values.boolean("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS") {
            ResponseTime::Milliseconds
        } else {
            ResponseTime::Seconds
        },
        max_names: values.integer("TIDEGATE_MAX_METRIC_KEYS", 0..=i64::MAX) as usize,
    }
}

fn options(values: &mut Values) -> Options {
    for name in ["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"] {
        let text = values.text(name);
        if http::HeaderName::try_from(text.as_str()).is_err() {
            values.problem(name, &text, "expected the name of an HTTP header".to_owned());
        }
    }
    Options {
        key_prefix: values.text("CACHE_KEY_PREFIX"),
        near_limit_ratio: values.float("NEAR_LIMIT_RATIO") as f32,
        expiration_jitter: values.integer("EXPIRATION_JITTER_MAX_SECONDS", 0..=i64::from(u32::MAX)) as u32,
        over_limit_keys: if values.boolean("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") {
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

/// Reads `host:port`.
pub(super) fn host_and_port(text: &str) -> Option<Endpoint> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some(Endpoint { host: resolve(host)?, port: port.parse().ok()? })
}

/// The address of `host`; empty is every address, as in Go.
fn resolve(host: &str) -> Option<IpAddr> {
    match host {
        "" => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => host.parse().ok().or_else(|| Some((host, 0).to_socket_addrs().ok()?.next()?.ip())),
    }
}

// The table decides the kind of each name; asking for another kind is a bug that the first start shows.
impl Values {
    fn get(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or_else(|| unreachable!("{name} is not in the table"))
    }

    pub(super) fn text(&self, name: &str) -> String {
        match self.get(name) {
            Value::Text(text) => text.clone(),
            other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(super) fn boolean(&self, name: &str) -> bool {
        *self.get(name) == Value::Boolean(true)
    }

    fn float(&mut self, name: &'static str) -> f64 {
        match *self.get(name) {
            Value::Float(number) if (0.0..=1.0).contains(&number) => number,
            Value::Float(number) => {
                self.problem(name, &number.to_string(), "expected a number from 0 to 1".to_owned());
                0.0
            }
            ref other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(super) fn integer(&mut self, name: &'static str, range: std::ops::RangeInclusive<i64>) -> i64 {
        match *self.get(name) {
            Value::Integer(number) if range.contains(&number) => number,
            Value::Integer(number) => {
                let (low, high) = (range.start(), range.end());
                let reason = if *high == i64::MAX {
                    format!("expected {low} or more")
                } else {
                    format!("expected a number from {low} to {high}")
                };
                self.problem(name, &number.to_string(), reason);
                *low
            }
            ref other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(super) fn duration(&self, name: &str) -> Duration {
        match self.get(name) {
            Value::Duration(duration) => *duration,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(super) fn positive_duration(&mut self, name: &'static str) -> Duration {
        let duration = self.duration(name);
        if duration.is_zero() {
            self.problem(name, "0", "expected more than 0".to_owned());
        }
        duration
    }

    pub(super) fn retention(&self, name: &str) -> RetentionDefaults {
        match self.get(name) {
            Value::Retention(defaults) => *defaults,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn duration_unless_zero(&self, name: &str) -> Option<Duration> {
        Some(self.duration(name)).filter(|duration| !duration.is_zero())
    }

    fn map(&self, name: &str) -> Vec<(String, String)> {
        match self.get(name) {
            Value::Map(pairs) => pairs.clone(),
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn endpoint(&mut self, host: &'static str, port: &'static str) -> Endpoint {
        let text = self.text(host);
        let address = resolve(&text).unwrap_or_else(|| {
            self.problem(host, &text, "expected an address or a host name that resolves".to_owned());
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        });
        Endpoint { host: address, port: self.integer(port, 0..=65_535) as u16 }
    }
}
