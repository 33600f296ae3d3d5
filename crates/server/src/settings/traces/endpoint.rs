//! Endpoint of the collector.

use http::Uri;

use super::{TraceProtocol, given};
use crate::settings::read::Values;

/// Path of the gRPC method of a collector.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Endpoint of the collector, parsed.
pub(super) struct CollectorEndpoint {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: String,
    pub(super) is_secure: bool,
}

/// The endpoint of the settings, or the default one.
pub(super) fn build(values: &mut Values, protocol: TraceProtocol) -> Option<CollectorEndpoint> {
    let is_secure = is_secure(values)?;
    let Some((name, text)) = given(values, "ENDPOINT") else {
        return read("http://localhost", false, protocol, false);
    };
    let secret = if text.contains('@') {
        "; what is secret belongs in OTEL_EXPORTER_OTLP_HEADERS"
    } else {
        ""
    };
    let port = default_port(protocol);
    let parsed = read(&text, is_secure, protocol, name.contains("TRACES")).ok_or_else(|| {
        format!("expected an address such as http://collector:{port} or https://collector:{port}{secret}")
    });
    values.reported(name, &text, parsed)
}

/// Whether an address without a scheme uses TLS. None if the setting is not a boolean.
fn is_secure(values: &mut Values) -> Option<bool> {
    match given(values, "INSECURE") {
        Some((_, text)) if text.eq_ignore_ascii_case("true") => Some(false),
        Some((name, text)) if !text.eq_ignore_ascii_case("false") => {
            values.problem(name, &text, "expected true or false");
            None
        }
        _ => Some(true),
    }
}

fn default_port(protocol: TraceProtocol) -> u16 {
    match protocol {
        TraceProtocol::Http => 4318,
        TraceProtocol::Grpc => 4317,
    }
}

/// Parses an address. Only gRPC allows one without a scheme, which uses TLS unless `is_secure` is
/// false.
fn read(
    text: &str,
    is_secure: bool,
    protocol: TraceProtocol,
    is_for_traces: bool,
) -> Option<CollectorEndpoint> {
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
    let authority = uri
        .authority()
        .filter(|authority| !authority.as_str().contains('@'))?;
    let port = match authority.port_u16() {
        None if authority.as_str().ends_with(':') => return None,
        port => port.unwrap_or_else(|| default_port(protocol)),
    };
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    (!host.is_empty()).then(|| CollectorEndpoint {
        host,
        port,
        path: path(&uri, protocol, is_for_traces),
        is_secure,
    })
}

/// Path of requests. That of an address for all signals is below the path of the address.
fn path(uri: &Uri, protocol: TraceProtocol, is_for_traces: bool) -> String {
    match (protocol, is_for_traces) {
        (TraceProtocol::Grpc, _) => METHOD.to_owned(),
        (TraceProtocol::Http, true) => uri
            .path_and_query()
            .map_or_else(|| "/".to_owned(), ToString::to_string),
        (TraceProtocol::Http, false) => format!("{}/v1/traces", uri.path().trim_end_matches('/')),
    }
}
