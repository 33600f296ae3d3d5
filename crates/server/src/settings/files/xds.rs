//! Settings of the xDS management server, a source of the configuration.

use std::fmt;
use std::time::Duration;

use tokio_rustls::rustls::pki_types::ServerName;
use tonic::metadata::{
    AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue, MetadataMap,
};

use crate::settings::read::Values;
use crate::tls::{CertificateAndKey, PeerTls};

const SERVER: &str = "CONFIG_GRPC_XDS_SERVER_URL";
const HEADERS: &str = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS";

const SERVER_NAME: &str = "CONFIG_GRPC_XDS_SERVER_TLS_SAN";

/// Default size limit of a message in bytes, as in gRPC.
const DEFAULT_MESSAGE_BYTES: usize = 4 << 20;
/// ALPN protocol of gRPC.
const PROTOCOL: &[u8] = b"h2";

/// Management server, and options of its client.
#[derive(Clone)]
pub struct Xds {
    /// Address and TLS of the server.
    pub peer: GrpcPeer,
    /// Address of the server as it is in the settings.
    pub shown: String,
    /// Id of this server at the management server.
    pub node_id: String,
    /// Metadata of this server.
    pub node_metadata: Vec<(String, String)>,
    /// Headers of the stream.
    pub headers: MetadataMap,
    /// Back-off between attempts.
    pub retries: Retries,
    /// Silence after which the server is pinged. None for never.
    pub ping: Option<Duration>,
    /// Size limit of a message in bytes.
    pub max_message: usize,
}

/// Another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcPeer {
    /// The name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// TLS towards the server. `None` if the connection is not encrypted.
    pub tls: Option<PeerTls>,
}

/// Back-off between attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retries {
    /// Wait after a failed attempt to connect.
    pub connect: Duration,
    /// Wait after the first lost stream.
    pub first: Duration,
    /// Longest wait after lost streams.
    pub longest: Duration,
    /// Random variation of a wait, as a fraction from 0 to 1.
    pub variation: f64,
}

impl fmt::Debug for Xds {
    /// Omits the headers, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xds")
            .field("peer", &self.peer)
            .field("node_id", &self.node_id)
            .finish_non_exhaustive()
    }
}

/// Builds the settings of xDS. None if the configuration comes from files.
pub(crate) fn build(values: &mut Values) -> Option<Xds> {
    if values.text("CONFIG_TYPE") == "FILE" {
        return None;
    }
    let shown = values.text(SERVER);
    let address = values.reported(
        SERVER,
        &shown,
        host_and_port(&shown).ok_or("expected host:port"),
    );
    let tls = tls(values);
    let headers = headers(values);
    let retries = retries(values);
    let max_message = max_message(values);
    let (host, port) = address?;
    Some(Xds {
        peer: GrpcPeer { host, port, tls },
        shown,
        node_id: values.text("CONFIG_GRPC_XDS_NODE_ID"),
        node_metadata: node_metadata(&values.text("CONFIG_GRPC_XDS_NODE_METADATA")),
        headers,
        retries,
        ping: values.duration_unless_zero("TIDEGATE_XDS_PING"),
        max_message,
    })
}

/// Size limit of a message in bytes.
fn max_message(values: &mut Values) -> usize {
    match values.integer("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", 0..=i64::from(i32::MAX)) {
        0 => DEFAULT_MESSAGE_BYTES,
        bytes => bytes as usize,
    }
}

/// Parses a name or address, and a port. The schemes for name resolution of gRPC libraries are
/// ignored.
pub(crate) fn host_and_port(text: &str) -> Option<(String, u16)> {
    let text = text
        .strip_prefix("dns:///")
        .or_else(|| text.strip_prefix("passthrough:///"))
        .unwrap_or(text);
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        None if host.contains([':', '/', '@']) => return None,
        None => host,
    };
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Parses `name=value` pairs. As in the reference, an item without `=` is ignored.
fn node_metadata(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

fn retries(values: &mut Values) -> Retries {
    let variation = values.fraction("XDS_CLIENT_BACKOFF_RANDOM_FACTOR");
    Retries {
        connect: values.positive_duration("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL"),
        first: values.positive_duration("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL"),
        longest: values.positive_duration("XDS_CLIENT_BACKOFF_MAX_INTERVAL"),
        variation: if values.boolean("XDS_CLIENT_BACKOFF_JITTER") {
            variation
        } else {
            0.0
        },
    }
}

fn headers(values: &mut Values) -> MetadataMap {
    let mut headers = MetadataMap::new();
    for (number, (name, value)) in (1..).zip(values.map(HEADERS)) {
        let name = name.trim().to_ascii_lowercase();
        let is_valid = if name.ends_with("-bin") {
            BinaryMetadataKey::from_bytes(name.as_bytes())
                .map(|key| {
                    headers.append_bin(key, BinaryMetadataValue::from_bytes(value.as_bytes()))
                })
                .is_ok()
        } else {
            let pair = (
                AsciiMetadataKey::from_bytes(name.as_bytes()),
                AsciiMetadataValue::try_from(&*value),
            );
            match pair {
                (Ok(key), Ok(value)) => Some(headers.append(key, value)).is_some(),
                _ => false,
            }
        };
        if !is_valid {
            values.problem(
                HEADERS,
                &value,
                format!("pair {number} is no header of HTTP/2"),
            );
        }
    }
    headers
}

fn tls(values: &mut Values) -> Option<PeerTls> {
    if !values.boolean("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
        return None;
    }

    // As in the reference, the certificate is used only if both files are set.
    let pair = values
        .file("CONFIG_GRPC_XDS_CLIENT_TLS_CERT")
        .zip(values.file("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"))
        .map(|(chain, key)| CertificateAndKey { chain, key });
    let name = values.filled(SERVER_NAME).and_then(|name| {
        let parsed = ServerName::try_from(name.clone());
        values.reported(
            SERVER_NAME,
            &name,
            parsed.map_err(|_| "expected a DNS name or an IP address"),
        )
    });
    let tls = PeerTls {
        authorities: values.file("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
        pair,
        name,
        protocol: PROTOCOL,
    };
    // The files are read again for each connection. Reading them now reports mistakes at start.
    values.file_errors(tls.load().err().unwrap_or_default());
    Some(tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_metadata_without_an_equals_sign_is_left_out() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            node_metadata("a=b, c=d=e,f:g,"),
            [pair("a", "b"), pair("c", "d=e")]
        );
        assert!(node_metadata("").is_empty());
    }

    #[test]
    fn addresses_are_a_host_and_a_port() {
        for (text, expected) in [
            ("envoy-gateway:18001", Some(("envoy-gateway", 18001))),
            ("localhost:18000", Some(("localhost", 18000))),
            ("[::1]:1", Some(("::1", 1))),
            ("dns:///a.b:1", Some(("a.b", 1))),
            ("passthrough:///a:1", Some(("a", 1))),
            ("a", None),
            (":1", None),
            ("a:0", None),
            ("a:70000", None),
            ("::1:1", None),
            ("http://a:1", None),
            ("unix:///a", None),
            ("name@a:1", None),
        ] {
            assert_eq!(
                host_and_port(text),
                expected.map(|(host, port)| (host.to_owned(), port)),
                "{text}"
            );
        }
    }
}
