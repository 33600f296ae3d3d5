//! Sampling of traces, and their collector.

mod endpoint;

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::read::{Values, environment, variable};
use super::{Settings, SettingsError};
use crate::tls::{CertificateAndKey, NamedFile, PeerTls};
use endpoint::CollectorEndpoint;

/// Prefixes of a variable for traces, and of the one for all signals.
const PREFIXES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"];

const CERTIFICATE: &str = "CLIENT_CERTIFICATE";
const KEY: &str = "CLIENT_KEY";

/// Sampling and export of traces.
#[derive(Debug, Clone)]
pub struct TraceSettings {
    /// Name, namespace and instance of this service.
    pub service: [String; 3],
    /// Fraction of calls to trace, if their caller has not decided.
    pub sampling_rate: f64,
    /// Longest time that a traced call waits to be sent in a batch.
    pub delay: Duration,
    /// Collector of the traces.
    pub collector: CollectorSettings,
}

impl TraceSettings {
    /// Settings for a program that traces its own call. The collector is that of the environment.
    ///
    /// # Errors
    /// All mistakes in the variables of OpenTelemetry.
    pub(crate) fn for_client(protocol: &str) -> Result<Self, SettingsError> {
        let mut given: HashMap<_, _> = environment()
            .into_iter()
            .filter(|(name, _)| name.starts_with("OTEL_"))
            .collect();
        let own = [
            ("TRACING_ENABLED", "true"),
            ("TRACING_EXPORTER_PROTOCOL", protocol),
            ("TRACING_SERVICE_NAME", "RateLimitClient"),
        ];
        given.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let settings = Settings::parse(&given)?;
        Ok(settings.traces.expect("traces are on"))
    }
}

/// Collector of OpenTelemetry.
#[derive(Clone)]
pub struct CollectorSettings {
    /// Protocol of requests.
    pub protocol: TraceProtocol,
    /// Host name or IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path of requests.
    pub path: String,
    /// Headers of each request, which may be secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Whether messages are compressed.
    pub gzip: bool,
    /// TLS to the collector. None for plaintext.
    pub tls: Option<PeerTls>,
}

/// Protocol of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceProtocol {
    /// Protobuf over HTTP/1.1.
    Http,
    /// gRPC.
    Grpc,
}

impl CollectorSettings {
    /// Host and port, as in a URL.
    #[must_use]
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

// Headers often hold tokens.
impl std::fmt::Debug for CollectorSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut collector = f.debug_struct("Collector");
        collector
            .field("protocol", &self.protocol)
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

/// Builds the settings of traces, if they are enabled. Otherwise the variables of other programs
/// are ignored.
pub(super) fn build(values: &mut Values) -> Option<TraceSettings> {
    if !values.boolean("TRACING_ENABLED") {
        return None;
    }
    let instance = values
        .filled("TRACING_SERVICE_INSTANCE_ID")
        .unwrap_or_else(random_uuid);
    Some(TraceSettings {
        service: [
            values.text("TRACING_SERVICE_NAME"),
            values.text("TRACING_SERVICE_NAMESPACE"),
            instance,
        ],
        sampling_rate: values.fraction("TRACING_SAMPLING_RATE"),
        delay: milliseconds(values, &["OTEL_BSP_SCHEDULE_DELAY"], 5_000),
        collector: collector(values)?,
    })
}

fn collector(values: &mut Values) -> Option<CollectorSettings> {
    let protocol = if values.text("TRACING_EXPORTER_PROTOCOL") == "grpc" {
        TraceProtocol::Grpc
    } else {
        TraceProtocol::Http
    };
    let gzip = match given(values, "COMPRESSION") {
        Some((_, text)) if text.eq_ignore_ascii_case("gzip") => true,
        Some((name, text)) if !text.eq_ignore_ascii_case("none") => {
            values.problem(name, &text, "expected gzip or none");
            false
        }
        _ => false,
    };
    let headers = headers(values);
    let timeout = milliseconds(values, &names("TIMEOUT"), 10_000);
    let endpoint = endpoint::build(values, protocol);
    let tls = tls(values, protocol);
    let CollectorEndpoint {
        host,
        port,
        path,
        is_secure,
    } = endpoint?;
    let tls = is_secure.then_some(tls);
    Some(CollectorSettings {
        protocol,
        host,
        port,
        path,
        headers,
        timeout,
        gzip,
        tls,
    })
}

/// Builds TLS from the files of the settings. The files are read once, so that mistakes are
/// reported at start.
fn tls(values: &mut Values, protocol: TraceProtocol) -> PeerTls {
    let file = |end| {
        given(values, end).map(|(variable, path)| NamedFile {
            variable,
            path: path.into(),
        })
    };
    let authorities = file("CERTIFICATE");
    let chain = file(CERTIFICATE);
    let key = file(KEY);
    let pair = match (chain, key) {
        (Some(chain), Some(key)) => Some(CertificateAndKey { chain, key }),
        (None, None) => None,
        (Some(alone), None) => lonely(values, &alone, KEY),
        (None, Some(alone)) => lonely(values, &alone, CERTIFICATE),
    };
    let protocol: &[u8] = match protocol {
        TraceProtocol::Http => b"http/1.1",
        TraceProtocol::Grpc => b"h2",
    };
    let tls = PeerTls {
        authorities,
        pair,
        name: None,
        protocol,
    };
    if tls.authorities.is_some() || tls.pair.is_some() {
        values.file_errors(tls.load().err().unwrap_or_default());
    }
    tls
}

fn lonely(values: &mut Values, file: &NamedFile, needed: &str) -> Option<CertificateAndKey> {
    let reason = format!("it is used together with OTEL_EXPORTER_OTLP_{needed}: set that as well");
    values.problem(file.variable, &file.path.to_string_lossy(), reason);
    None
}

/// The two variables whose names end with `end`.
fn names(end: &str) -> [&'static str; 2] {
    PREFIXES.map(|prefix| variable(&format!("{prefix}{end}")).name)
}

/// The first of the two variables that has a value.
fn given(values: &Values, end: &str) -> Option<(&'static str, String)> {
    names(end)
        .into_iter()
        .map(|name| (name, values.text(name)))
        .find(|(_, text)| !text.trim().is_empty())
}

/// Parses `name=value,other=value`, with percent-encoded values.
fn headers(values: &mut Values) -> Vec<(HeaderName, HeaderValue)> {
    let Some((variable, text)) = given(values, "HEADERS") else {
        return Vec::new();
    };
    let header = |item: &str| {
        let (name, value) = item.split_once('=')?;
        let value = percent_encoding::percent_decode_str(value.trim())
            .decode_utf8()
            .ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((name.trim().parse().ok()?, value))
    };
    let items = text.split(',').filter(|item| !item.trim().is_empty());
    let headers: Option<_> = items.map(header).collect();
    let headers = headers.ok_or("expected name=value pairs, separated by commas");
    values
        .reported(variable, &text, headers)
        .unwrap_or_default()
}

/// Parses a duration, which OpenTelemetry writes as a number of milliseconds.
fn milliseconds(values: &mut Values, names: &[&'static str], default: u64) -> Duration {
    for &name in names {
        let text = values.text(name);
        if text.trim().is_empty() {
            continue;
        }
        match text.trim().parse() {
            Ok(milliseconds @ 1..) => return Duration::from_millis(milliseconds),
            _ => values.problem(
                name,
                &text,
                "expected a whole number of milliseconds, 1 or more",
            ),
        }
    }
    Duration::from_millis(default)
}

fn random_uuid() -> String {
    let id = fastrand::u128(..);
    let high = (id >> 64) as u64;
    let low = id as u64;
    // Version 4, and the variant of RFC 9562.
    let third = 0x4000 | high & 0xfff;
    let fourth = 0x8000 | low >> 48 & 0x3fff;
    format!(
        "{:08x}-{:04x}-{third:04x}-{fourth:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        low & 0xffff_ffff_ffff
    )
}
