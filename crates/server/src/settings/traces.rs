//! Which calls are traced, and the collector of the traces.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::read::Values;

const ENDPOINT: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const TIMEOUT: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const COMPRESSION: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
const INSECURE: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"];
const AUTHORITY: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const CERTIFICATE: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"];
const KEY: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"];
const DELAY: &str = "OTEL_BSP_SCHEDULE_DELAY";

/// The method of a collector's gRPC service.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Which calls are traced, and where traces go.
#[derive(Debug, Clone)]
pub struct Traces {
    /// The name, the namespace and the instance of this service.
    pub service: [String; 3],
    /// The share of calls that are traced when their caller has not decided.
    pub sampling_rate: f64,
    /// How long a call may wait for others that are sent with it.
    pub delay: Duration,
    /// Where traces go.
    pub collector: Collector,
}

/// A collector of OpenTelemetry.
#[derive(Clone)]
pub struct Collector {
    /// How it is spoken to.
    pub protocol: TraceProtocol,
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path of requests.
    pub path: String,
    /// Sent with every request. They may be secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// Whether messages are compressed.
    pub gzip: bool,
    /// None: without TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

/// How traces are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceProtocol {
    /// Protobuf over HTTP/1.1.
    Http,
    /// gRPC.
    Grpc,
}

impl Collector {
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
impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut collector = f.debug_struct("Collector");
        collector.field("protocol", &self.protocol).field("address", &self.address()).finish_non_exhaustive()
    }
}

/// What is needed for traces, if they are wanted. Other programs' variables are not looked at otherwise.
pub(super) fn build(values: &mut Values) -> Option<Traces> {
    if !values.boolean("TRACING_ENABLED") {
        return None;
    }
    let mut instance = values.text("TRACING_SERVICE_INSTANCE_ID");
    if instance.is_empty() {
        instance = random_uuid();
    }
    Some(Traces {
        service: [values.text("TRACING_SERVICE_NAME"), values.text("TRACING_SERVICE_NAMESPACE"), instance],
        sampling_rate: values.fraction("TRACING_SAMPLING_RATE"),
        delay: milliseconds(values, &[DELAY], 5_000),
        collector: collector(values)?,
    })
}

fn collector(values: &mut Values) -> Option<Collector> {
    let protocol = match values.text("TRACING_EXPORTER_PROTOCOL").as_str() {
        "grpc" => TraceProtocol::Grpc,
        _ => TraceProtocol::Http,
    };
    let gzip = match given(values, COMPRESSION) {
        Some((_, text)) if text.eq_ignore_ascii_case("gzip") => true,
        Some((name, text)) if !text.eq_ignore_ascii_case("none") => {
            values.problem(name, &text, "expected gzip or none".to_owned());
            false
        }
        _ => false,
    };
    let (headers, timeout) = (headers(values), milliseconds(values, &TIMEOUT, 10_000));
    let endpoint = endpoint(values, protocol);
    let tls = client(values, protocol);
    let Endpoint { host, port, path, is_secure } = endpoint?;
    let tls = if is_secure { Some(tls?) } else { None };
    Some(Collector { protocol, host, port, path, headers, timeout, gzip, tls })
}

/// The first of two variables that has a value: that of traces, else that of all signals.
fn given(values: &Values, names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().map(|name| (name, values.text(name))).find(|(_, text)| !text.trim().is_empty())
}

struct Endpoint {
    host: String,
    port: u16,
    path: String,
    is_secure: bool,
}

fn endpoint(values: &mut Values, protocol: TraceProtocol) -> Option<Endpoint> {
    let insecure = given(values, INSECURE);
    let is_secure = match &insecure {
        Some((_, text)) if text.eq_ignore_ascii_case("true") => false,
        Some((name, text)) if !text.eq_ignore_ascii_case("false") => {
            values.problem(name, text, "expected true or false".to_owned());
            return None;
        }
        _ => true,
    };
    let Some((name, text)) = given(values, ENDPOINT) else {
        let (port, path) = match protocol {
            TraceProtocol::Http => (4318, "/v1/traces"),
            TraceProtocol::Grpc => (4317, METHOD),
        };
        let host = "localhost".to_owned();
        return Some(Endpoint { host, port, path: path.to_owned(), is_secure: false });
    };
    let read = read(&text, is_secure, protocol, name == ENDPOINT[0]);
    if read.is_none() {
        let expected = match protocol {
            TraceProtocol::Http => "expected an address such as http://collector:4318 or https://collector:4318",
            TraceProtocol::Grpc => "expected an address such as http://collector:4317 or https://collector:4317",
        };
        values.problem(name, &text, expected.to_owned());
    }
    read
}

/// Reads an address. Only gRPC allows one without `http://`, which is with TLS unless told otherwise.
fn read(text: &str, is_secure: bool, protocol: TraceProtocol, is_for_traces: bool) -> Option<Endpoint> {
    let full = match protocol {
        TraceProtocol::Grpc if !text.contains("://") => {
            format!("{}://{text}", if is_secure { "https" } else { "http" })
        }
        _ => text.to_owned(),
    };
    let uri: Uri = full.trim().parse().ok()?;
    let is_secure = match uri.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let port = match (authority.port_u16(), protocol) {
        (Some(port), _) => port,
        (None, _) if authority.as_str().ends_with(':') => return None,
        (None, TraceProtocol::Http) => 4318,
        (None, TraceProtocol::Grpc) => 4317,
    };
    let path = match (protocol, is_for_traces) {
        (TraceProtocol::Grpc, _) => METHOD.to_owned(),
        (TraceProtocol::Http, true) => uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        (TraceProtocol::Http, false) => format!("{}/v1/traces", uri.path().trim_end_matches('/')),
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    (!host.is_empty()).then_some(Endpoint { host, port, path, is_secure })
}

/// `name=value,other=value`, with values as in URLs.
fn headers(values: &mut Values) -> Vec<(HeaderName, HeaderValue)> {
    let Some((variable, text)) = given(values, HEADERS) else { return Vec::new() };
    let header = |item: &str| {
        let (name, value) = item.split_once('=')?;
        let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8().ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((name.trim().parse().ok()?, value))
    };
    let items = text.split(',').filter(|item| !item.trim().is_empty());
    let headers: Option<Vec<_>> = items.map(header).collect();
    if headers.is_none() {
        values.problem(variable, &text, "expected name=value pairs, separated by commas".to_owned());
    }
    headers.unwrap_or_default()
}

/// OpenTelemetry writes time spans as numbers of milliseconds.
fn milliseconds(values: &mut Values, names: &[&'static str], default: u64) -> Duration {
    for &name in names {
        let text = values.text(name);
        if text.trim().is_empty() {
            continue;
        }
        match text.trim().parse() {
            Ok(milliseconds @ 1..) => return Duration::from_millis(milliseconds),
            _ => values.problem(name, &text, "expected a whole number of milliseconds, 1 or more".to_owned()),
        }
    }
    Duration::from_millis(default)
}

/// TLS by the files that are given. As in the SDKs, an authority that is given replaces those of the system.
fn client(values: &mut Values, protocol: TraceProtocol) -> Option<Arc<ClientConfig>> {
    let authority = file(values, AUTHORITY);
    let (chain, key) = (file(values, CERTIFICATE), file(values, KEY));
    let mut roots = RootCertStore::empty();
    match authority {
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        Some((name, path, pem)) => {
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            roots.add_parsable_certificates(certificates.unwrap_or_default());
            if roots.is_empty() {
                values.problem(name, &path, "no certificate in the file".to_owned());
                return None;
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(roots);
    let mut config = match (chain, key) {
        (Some((name, path, chain)), Some((key_name, key_path, key))) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
            let Ok(key) = PrivateKeyDer::from_pem_slice(&key) else {
                values.problem(key_name, &key_path, "no private key in the file".to_owned());
                return None;
            };
            match builder.with_client_auth_cert(chain.unwrap_or_default(), key) {
                Ok(config) => config,
                Err(error) => {
                    values.problem(name, &path, format!("cannot use this certificate with its key: {error}"));
                    return None;
                }
            }
        }
        (None, None) => builder.with_no_client_auth(),
        (Some((name, path, _)), None) => {
            values.problem(name, &path, format!("a certificate needs its key, in {}", KEY[1]));
            return None;
        }
        (None, Some((name, path, _))) => {
            values.problem(name, &path, format!("a key needs its certificate, in {}", CERTIFICATE[1]));
            return None;
        }
    };
    config.alpn_protocols = match protocol {
        TraceProtocol::Http => vec![b"http/1.1".to_vec()],
        TraceProtocol::Grpc => vec![b"h2".to_vec()],
    };
    Some(Arc::new(config))
}

type NamedFile = (&'static str, String, Vec<u8>);

fn file(values: &mut Values, names: [&'static str; 2]) -> Option<NamedFile> {
    let (name, path) = given(values, names)?;
    match std::fs::read(&path) {
        Ok(bytes) => Some((name, path, bytes)),
        Err(error) => {
            values.problem(name, &path, format!("cannot read the file: {error}"));
            None
        }
    }
}

fn random_uuid() -> String {
    let id = fastrand::u128(..);
    let (high, low) = ((id >> 64) as u64, id as u64);
    // Version 4, and the variant of RFC 9562.
    let (third, fourth) = (0x4000 | high & 0xfff, 0x8000 | low >> 48 & 0x3fff);
    format!("{:08x}-{:04x}-{third:04x}-{fourth:04x}-{:012x}", high >> 32, high >> 16 & 0xffff, low & 0xffff_ffff_ffff)
}
