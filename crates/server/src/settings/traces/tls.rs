//! TLS to the collector.

use super::{TraceProtocol, given};
use crate::settings::read::Values;
use crate::tls::{CertificateAndKey, NamedFile, PeerTls};

const AUTHORITY: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
];
const CERTIFICATE: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
];
const KEY: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
];

/// Builds TLS from the files of the settings. The files are read once, so that mistakes are
/// reported at start.
pub(super) fn build(values: &mut Values, protocol: TraceProtocol) -> PeerTls {
    let file = |names| {
        given(values, names).map(|(variable, path)| NamedFile {
            variable,
            path: path.into(),
        })
    };
    let authorities = file(AUTHORITY);
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

fn lonely(
    values: &mut Values,
    file: &NamedFile,
    needed: [&'static str; 2],
) -> Option<CertificateAndKey> {
    let reason = format!("it is used together with {}: set that as well", needed[1]);
    values.problem(file.variable, &file.path.to_string_lossy(), reason);
    None
}
