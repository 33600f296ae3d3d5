//! What servers with a feature need: files of certificates and rules, and somebody who takes what they send.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::service::reloads::Management;

/// The name in the certificate.
const NAME: &str = "localhost";
const MAPPING: &str = "\
mappings:
  - match: 'ratelimit.service.rate_limit.*.*.*'
    name: bench_rate_limit
    labels: { domain: $1, key: $2, kind: $3 }
";

/// All of them, as long as servers need them.
pub(super) struct Peers {
    folder: PathBuf,
    /// Takes statistics, and drops them when nobody reads them.
    statsd: UdpSocket,
    collector: std::net::SocketAddr,
    management: Management,
}

impl Peers {
    pub(super) fn start(folder: &Path) -> anyhow::Result<Self> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([NAME.to_owned()])?;
        let files = [
            ("cert.pem", cert.pem()),
            ("key.pem", signing_key.serialize_pem()),
            ("mapping.yaml", MAPPING.to_owned()),
        ];
        for (name, text) in files {
            std::fs::write(folder.join(name), text)
                .with_context(|| format!("could not write {name}"))?;
        }
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let collector = listener.local_addr()?;
        // Ends with the program, as the collector of a system outlives its servers.
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                std::thread::spawn(move || collect(socket));
            }
        });
        Ok(Self {
            folder: folder.to_owned(),
            statsd: UdpSocket::bind("127.0.0.1:0").context("no free port")?,
            collector,
            management: Management::start(Duration::from_millis(100))?,
        })
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    pub(super) fn tls(&self) -> Vec<(&'static str, String)> {
        vec![
            ("GRPC_SERVER_USE_TLS", "true".to_owned()),
            ("GRPC_SERVER_TLS_CERT", self.file("cert.pem")),
            ("GRPC_SERVER_TLS_KEY", self.file("key.pem")),
        ]
    }

    pub(super) fn statsd(&self) -> Vec<(&'static str, String)> {
        let port = self.statsd.local_addr().map_or(0, |address| address.port());
        vec![
            ("STATSD_HOST", "127.0.0.1".to_owned()),
            ("STATSD_PORT", port.to_string()),
            ("STATSD_PROTOCOL", "udp".to_owned()),
            ("STATS_FLUSH_INTERVAL", "1s".to_owned()),
        ]
    }

    pub(super) fn rule(&self) -> Vec<(&'static str, String)> {
        vec![
            ("USE_DOG_STATSD_MOGRIFIERS", "LIMITS".to_owned()),
            (
                "DOG_STATSD_MOGRIFIER_LIMITS_PATTERN",
                r"^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$".to_owned(),
            ),
            ("DOG_STATSD_MOGRIFIER_LIMITS_NAME", "bench.$3".to_owned()),
            (
                "DOG_STATSD_MOGRIFIER_LIMITS_TAGS",
                "domain:$1,key:$2".to_owned(),
            ),
        ]
    }

    pub(super) fn mapping(&self) -> Vec<(&'static str, String)> {
        vec![
            ("PROMETHEUS_ADDR", "127.0.0.1:0".to_owned()),
            ("PROMETHEUS_MAPPER_YAML", self.file("mapping.yaml")),
        ]
    }

    /// Of this share of the calls.
    pub(super) fn traces(&self, share: &str) -> Vec<(&'static str, String)> {
        vec![
            ("TRACING_ENABLED", "true".to_owned()),
            ("TRACING_SAMPLING_RATE", share.to_owned()),
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                format!("http://{}", self.collector),
            ),
        ]
    }

    pub(super) fn xds(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CONFIG_TYPE", "GRPC_XDS_SOTW".to_owned()),
            (
                "CONFIG_GRPC_XDS_SERVER_URL",
                self.management.address.to_string(),
            ),
        ]
    }
}

/// Answers every request of a connection and drops what it brings. Ends with the connection.
fn collect(socket: TcpStream) -> Option<()> {
    let mut requests = BufReader::new(socket);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            requests
                .read_line(&mut line)
                .ok()
                .filter(|bytes| *bytes > 0)?;
            if line == "\r\n" {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        std::io::copy(&mut requests.by_ref().take(length), &mut std::io::sink()).ok()?;
        requests
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .ok()?;
    }
}
