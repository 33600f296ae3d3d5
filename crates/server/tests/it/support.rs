//! A server of our own on free ports, and clients to ask it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor,
};
use tidegate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tidegate::settings::Settings;
use tidegate::{GrpcAddress, ServeError, Started, StopSignal};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// Far above what anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One limit of each kind that tests ask for.
pub(crate) const LIMITS: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: named
    rate_limit: {name: quota, unit: day, requests_per_unit: 100}
  - key: free
    rate_limit: {unlimited: true}
  - key: plan
    value: gold
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 2}
";

/// Settings that every test server has, unless told otherwise.
const DEFAULTS: [(&str, &str); 9] = [
    ("HOST", "127.0.0.1"),
    ("PORT", "0"),
    ("DEBUG_HOST", "127.0.0.1"),
    ("DEBUG_PORT", "0"),
    ("GRPC_HOST", "127.0.0.1"),
    ("GRPC_PORT", "0"),
    ("TIDEGATE_CORES", "2"),
    // Nobody sends anything to a server whose test is over.
    ("TIDEGATE_DRAIN_DELAY", "0s"),
    // Workflows are there for the tests that ask for them.
    ("TIDEGATE_HTTP_ADDR", ""),
];

/// `DEFAULTS`, with `more` put over them.
pub(crate) fn variables(more: &[(&str, &str)]) -> Vec<(String, String)> {
    let given = |name: &str| more.iter().any(|(other, _)| *other == name);
    let defaults = DEFAULTS.iter().filter(|(name, _)| !given(name));
    defaults
        .chain(more)
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A folder with configuration files, as RUNTIME_ROOT.
pub(crate) struct Limits(TempDir);

impl Limits {
    pub(crate) fn new(text: &str) -> Self {
        stay_in_one_hour();
        let limits = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(limits.folder()).unwrap();
        limits.write("limits.yaml", text);
        limits
    }

    pub(crate) fn root(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.0.path().join("config")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder().join(name), text).unwrap();
    }
}

/// Waits for the next hour when this one ends soon: tests count hits against limits of an hour or a day, which begin again then.
#[expect(clippy::disallowed_methods, reason = "only time ends an hour")]
fn stay_in_one_hour() {
    const HOUR: u64 = 3_600;
    let second = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() % HOUR;
    if second > HOUR - 60 {
        std::thread::sleep(Duration::from_secs(HOUR - second));
    }
}

/// `server::run` on a thread of its own.
pub(crate) struct Server {
    pub(crate) started: Started,
    stop: CancellationToken,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
    _limits: Option<Limits>,
}

impl Server {
    /// A server with [`LIMITS`] and these settings.
    pub(crate) fn start(more: &[(&str, &str)]) -> Self {
        let limits = Limits::new(LIMITS);
        let root = limits.root().to_owned();
        let mut server = Self::start_bare(&[&[("RUNTIME_ROOT", root.as_str())], more].concat());
        server._limits = Some(limits);
        server
    }

    /// A server with these settings.
    pub(crate) fn start_bare(more: &[(&str, &str)]) -> Self {
        Self::start_with(Settings::parse(&variables(more).into_iter().collect()).unwrap())
    }

    pub(crate) fn start_with(settings: Settings) -> Self {
        // Ports that the system chose can be taken by others of the tests before the server listens there.
        for _ in 0..5 {
            match Self::try_start(settings.clone()) {
                Ok(server) => return server,
                Err(ServeError::Bind { source, .. })
                    if source.kind() == std::io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("the server does not start: {error}"),
            }
        }
        panic!("the server finds no free port")
    }

    fn try_start(settings: Settings) -> Result<Self, ServeError> {
        let stop = CancellationToken::new();
        let (tell, told) = mpsc::sync_channel(1);
        let (shutdown, mut was_asked) = (stop.clone(), false);
        let asked = async move || {
            if was_asked {
                std::future::pending::<()>().await;
            }
            shutdown.cancelled().await;
            was_asked = true;
            StopSignal::Manager
        };
        let thread = std::thread::spawn(move || {
            tidegate::run(settings, asked, move |started| {
                tell.send(started.clone()).unwrap()
            })
        });
        match told.recv_timeout(PATIENCE) {
            Ok(started) => Ok(Self {
                started,
                stop,
                thread: Some(thread),
                _limits: None,
            }),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("the server has not started in {PATIENCE:?}")
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(thread
                .join()
                .expect("the server does not panic")
                .expect_err("it ended before it had started")),
        }
    }

    pub(crate) fn grpc(&self) -> SocketAddr {
        match &self.started.addresses.grpc {
            GrpcAddress::Tcp(address) => *address,
            GrpcAddress::Unix(path) => panic!("gRPC is on {}", path.display()),
        }
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.started.addresses.http
    }

    pub(crate) fn debug(&self) -> SocketAddr {
        self.started.addresses.debug.unwrap()
    }

    pub(crate) async fn channel(&self) -> Channel {
        channel(self.grpc()).await
    }

    /// The value of a line of `/stats`.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        stat(self.debug(), name)
    }

    /// Asks the server to end, without waiting.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Ends the server and waits for it.
    pub(crate) fn stop(mut self) {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the server must fail its test, unless the test has failed already.
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the server panicked"
            );
        }
    }
}

/// The value of a line of `/stats` at a debug port.
pub(crate) fn stat(debug: SocketAddr, name: &str) -> u64 {
    let stats = get(debug, "/stats").body;
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in\n{stats}"))
        .parse()
        .unwrap()
}

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    tokio::time::timeout(PATIENCE, endpoint.connect())
        .await
        .unwrap()
        .unwrap()
}

/// A request with one descriptor for each list of pairs.
pub(crate) fn request(domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    let entry = |&(key, value): &(&str, &str)| rate_limit_descriptor::Entry {
        key: key.into(),
        value: value.into(),
    };
    let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: domain.into(),
        descriptors: descriptors.iter().map(descriptor).collect(),
        hits_addend: 0,
    }
}

/// ShouldRateLimit.
pub(crate) async fn ask(
    channel: &Channel,
    request: impl tonic::IntoRequest<RateLimitRequest>,
) -> Result<RateLimitResponse, tonic::Status> {
    let mut client =
        tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
    client
        .ready()
        .await
        .map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let path = http::uri::PathAndQuery::from_static(
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    );
    let codec = tonic_prost::ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    client
        .unary(request.into_request(), path, codec)
        .await
        .map(tonic::Response::into_inner)
}

/// An HTTP answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Lower-case names, in the order they came.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    http(address, "GET", path, b"")
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &str) -> Answer {
    http(address, "POST", path, body.as_bytes())
}

/// One HTTP/1.1 exchange on a connection of its own.
pub(crate) fn http(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Answer {
    http_with(address, method, path, &[("host", "test")], body)
}

/// As [`http`], with these headers.
pub(crate) fn http_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses a large body closes before it has read all of it.
    let _ = stream.write_all(body);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines
        .next()
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    });
    Answer {
        status,
        headers: headers.collect(),
        body: body.to_owned(),
    }
}

/// Asks again until `condition` holds.
#[track_caller]
pub(crate) fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A number that whoever starts the tests gives to some of them: how long to run, or what again.
#[expect(clippy::disallowed_methods, reason = "it is no setting of the server")]
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {value}"))
    })
}

/// The repository's folder.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
