//! Configuration from a management server: a stream of xDS resources, state of the world, over ADS.
//!
//! A thread holds the stream and loads the responses, so that neither cores nor health wait for it.
//! If the stream is lost, the last configuration stays in force.

mod codec;
mod cpu_budget;
mod log_limiter;
pub mod proto;
mod read;
mod reconnect_backoff;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use tidegate_ratelimit::Resource;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tonic::client::Grpc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Code, Request, Streaming};
use tracing::{debug, error, info, warn};

use super::{AppliedConfig, ConfigTarget};
use crate::base::text::{MAX_REASON_CHARS, quoted};
use crate::net::dial::{ConnectError, GrpcChannel, OverheadBytes, call_failure};
use crate::settings::Xds;
use crate::supervise::runtime::ThreadRuntime;
use crate::supervise::{Supervisor, failpoint};
use codec::{Received, ResponseCodec};
use cpu_budget::CpuBudget;
use log_limiter::LogLimiter;
use proto::envoy::config::core::v3::Node;
use proto::envoy::service::discovery::v3::DiscoveryRequest;
use proto::google::rpc::Status as Refusal;
use read::{TYPE, resources, shortened};
use reconnect_backoff::ReconnectBackoff;

/// The name of the thread.
const THREAD_NAME: &str = "xds";
const METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// The user agent that the management server sees.
const USER_AGENT: &str = "tidegate";
/// Maximum of mistakes of a refused response that are logged, and sent to the server.
const MAX_REPORTED_MISTAKES: usize = 10;
/// Maximum of log lines per minute for refused responses, and for loaded ones.
const MAX_LOG_LINES_PER_MINUTE: [u32; 2] = [10, 60];

/// The subscription to a management server.
pub(crate) struct Subscription {
    settings: Xds,
    target: ConfigTarget,
    /// Receives a message after the first response.
    loaded: Option<oneshot::Sender<()>>,
    /// The version in force. A refused version is never acknowledged.
    accepted: String,
    /// The version that is being loaded. It is still set when the thread restarts after a panic.
    loading_version: Option<String>,
    backoff: ReconnectBackoff,
    cpu_budget: CpuBudget,
    refusal_log: LogLimiter,
    load_log: LogLimiter,
    /// 1 while there is a stream.
    connected: Arc<AtomicU64>,
    /// The last stream failure that was logged as a warning.
    last_logged_error: String,
}

const ENDED: &str = "the stream of the management server has ended";

/// The reason why a stream was lost.
enum StreamLoss {
    ConnectFailed(ConnectError),
    /// The server ended the stream, which had this lifetime.
    Ended(String, Duration),
    /// The stream brought a message that is too large, or too much overhead.
    Refused(String),
}

/// The end of a stream that was open.
enum StreamEnd {
    Ended(String),
    Refused(String),
}

impl From<String> for StreamEnd {
    fn from(reason: String) -> Self {
        Self::Ended(reason)
    }
}

impl StreamEnd {
    fn into_loss(self, lifetime: Duration, overhead: &OverheadBytes) -> StreamLoss {
        match self {
            Self::Ended(reason) if !overhead.is_exceeded() => StreamLoss::Ended(reason, lifetime),
            Self::Ended(reason) | Self::Refused(reason) => StreamLoss::Refused(reason),
        }
    }
}

impl Subscription {
    pub(crate) fn new(settings: Xds, target: ConfigTarget, loaded: oneshot::Sender<()>) -> Self {
        let connected = Arc::<AtomicU64>::default();
        target.metrics.watch_management(connected.clone());
        let [refusal_log, load_log] = MAX_LOG_LINES_PER_MINUTE.map(LogLimiter::new);
        Self {
            backoff: ReconnectBackoff::new(settings.retries),
            settings,
            target,
            loaded: Some(loaded),
            accepted: String::new(),
            loading_version: None,
            cpu_budget: CpuBudget::new(Instant::now()),
            refusal_log,
            load_log,
            connected,
            last_logged_error: String::new(),
        }
    }

    /// Starts the thread, which ends with the drain.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start(mut self, supervisor: &Supervisor) -> io::Result<()> {
        let drain = supervisor.drain.clone();
        supervisor.restarting_thread(THREAD_NAME, move || match ThreadRuntime::new() {
            Ok(runtime) => drop(runtime.block_on(drain.run_until_cancelled(self.run()))),
            Err(error) => {
                warn!(%error, "the system refuses what the stream of the management server needs")
            }
        })
    }

    /// Opens a stream, and opens another one whenever it is lost.
    async fn run(&mut self) -> Infallible {
        loop {
            let Err(lost) = self.run_stream().await;
            let (pause, what, error) = match lost {
                StreamLoss::ConnectFailed(error) => (
                    self.backoff.after_connect_failure(),
                    "cannot connect to the management server",
                    error.to_string(),
                ),
                StreamLoss::Ended(error, lifetime) if reconnect_backoff::is_healthy(lifetime) => {
                    debug!(
                        server = self.settings.shown,
                        error, "{ENDED}, as servers do to spread their clients"
                    );
                    sleep(self.backoff.after_end(lifetime)).await;
                    continue;
                }
                StreamLoss::Ended(error, lifetime) => {
                    (self.backoff.after_end(lifetime), ENDED, error)
                }
                StreamLoss::Refused(error) => (self.backoff.after_loss(), ENDED, error),
            };
            self.log_loss(what, &error, pause);
            sleep(pause).await;
        }
    }

    /// Logs a failure as a warning once, and its repetitions as debug lines.
    fn log_loss(&mut self, what: &str, error: &str, pause: Duration) {
        let server = &self.settings.shown;
        if self.last_logged_error == error {
            return debug!(server, error, ?pause, "{what}");
        }
        let force = match self.target.limiter.configuration() {
            Some(_) => "the last configuration stays in force",
            None => "there is no configuration yet",
        };
        warn!(
            server,
            error,
            ?pause,
            "{what}; {force}, and the server is asked again after the pause"
        );
        error.clone_into(&mut self.last_logged_error);
    }

    /// Connects, opens a stream, and handles the responses.
    async fn run_stream(&mut self) -> Result<Infallible, StreamLoss> {
        let overhead = OverheadBytes::for_max_message(self.settings.max_message);
        let channel = self
            .settings
            .peer
            .connect(self.settings.ping, overhead.clone())
            .await
            .map_err(StreamLoss::ConnectFailed)?;
        let begun = Instant::now();
        let codec = ResponseCodec {
            overhead: overhead.clone(),
        };
        let ended = self.handle_responses(channel, codec).await;
        self.connected.store(0, Relaxed);
        ended.map_err(|end| end.into_loss(begun.elapsed(), &overhead))
    }

    async fn handle_responses(
        &mut self,
        channel: GrpcChannel,
        codec: ResponseCodec,
    ) -> Result<Infallible, StreamEnd> {
        let (requests, outgoing) = mpsc::channel(1);
        send(&requests, self.request(String::new(), None)).await?;
        let responses = self.open_stream(channel, codec, outgoing).await?;
        self.connected.store(1, Relaxed);
        info!(
            server = self.settings.shown,
            "the management server answers"
        );
        self.answer_responses(responses, requests).await
    }

    /// Handles the responses of an open stream, and answers each with a request.
    async fn answer_responses(
        &mut self,
        mut responses: Streaming<Received>,
        requests: mpsc::Sender<DiscoveryRequest>,
    ) -> Result<Infallible, StreamEnd> {
        loop {
            let received = responses
                .message()
                .await
                .map_err(|status| self.stream_end(&status))?;
            let received = received.ok_or_else(|| "the server ended it".to_owned())?;
            let begun = received.received_at;
            let answer = self.handle_response(received);
            let took = begun.elapsed();
            send(&requests, answer).await?;
            // During the pause, responses wait at the server, held by the flow-control window of
            // HTTP/2.
            sleep(self.cpu_budget.pause_after(took, Instant::now())).await;
        }
    }

    async fn open_stream(
        &self,
        channel: GrpcChannel,
        codec: ResponseCodec,
        outgoing: mpsc::Receiver<DiscoveryRequest>,
    ) -> Result<Streaming<Received>, StreamEnd> {
        let mut client = Grpc::with_origin(channel, self.settings.peer.origin())
            .max_decoding_message_size(self.settings.max_message);
        client.ready().await.map_err(|error| error.to_string())?;
        let mut request = Request::new(ReceiverStream::new(outgoing));
        *request.metadata_mut() = self.headers();
        let answer = client
            .streaming(request, PathAndQuery::from_static(METHOD), codec)
            .await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| self.stream_end(&status))
    }

    fn headers(&self) -> MetadataMap {
        let mut headers = self.settings.headers.clone();
        headers.insert(
            "user-agent",
            AsciiMetadataValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION"))),
        );
        headers
    }

    fn stream_end(&self, status: &tonic::Status) -> StreamEnd {
        // The text of the library for a message over the bound, which it refuses before the message
        // is received.
        match status.code() {
            Code::OutOfRange => StreamEnd::Refused(format!(
                "{}; raise XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES (now {})",
                quoted(status.message(), MAX_REASON_CHARS),
                self.settings.max_message
            )),
            _ => StreamEnd::Ended(call_failure(status)),
        }
    }

    /// Loads a response. Returns the request that acknowledges or refuses it.
    fn handle_response(&mut self, received: Received) -> DiscoveryRequest {
        let (nonce, version, loaded) = match received.response {
            Err(excess) => (excess.nonce.clone(), String::new(), Err(excess.to_string())),
            Ok(response) => {
                let nonce = response.nonce.clone();
                let version = response.version_info.clone();
                (nonce, version, resources(response))
            }
        };
        let loaded = match loaded {
            Ok(resources) => self.load(resources, &version),
            Err(reason) => self.refuse_unread(reason),
        };
        if let Some(loaded) = self.loaded.take() {
            // The starter may have stopped waiting.
            let _ = loaded.send(());
        }
        match loaded {
            Ok(applied) => {
                self.accept(version, &applied);
                self.request(nonce, None)
            }
            Err(reason) => {
                self.refuse(&shortened(&version), &reason);
                self.request(nonce, Some(reason))
            }
        }
    }

    /// Makes a version the accepted one, logs it, and forgets failures before it.
    fn accept(&mut self, version: String, applied: &AppliedConfig) {
        self.backoff.reset();
        self.last_logged_error.clear();
        self.refusal_log.forget_last();
        if let Some(suppressed) = self.load_log.admit(&version, Instant::now()) {
            applied.log(suppressed);
        }
        self.accepted = version;
    }

    /// Counts a refused response, and logs its mistakes: equal ones once in a minute, and a limited
    /// number in any case.
    fn refuse(&mut self, version: &str, reason: &str) {
        self.target.metrics.loads.error.fetch_add(1, Relaxed);
        let Some(suppressed) = self.refusal_log.admit(reason, Instant::now()) else {
            return;
        };
        for line in reason.lines() {
            error!("Error loading new configuration: {line}");
        }
        warn!(
            version,
            suppressed,
            "the configuration of the management server is refused; the one before stays in force. The same mistakes are \
             logged again after a minute"
        );
    }

    /// Refuses a response for a reason that concerns it as a whole.
    fn refuse_unread(&self, reason: String) -> Result<AppliedConfig, String> {
        self.target.status.refused_unread(&reason);
        Err(reason)
    }

    /// Applies resources. A version at which this thread panicked is not loaded again, because each
    /// stream brings it.
    fn load(&mut self, resources: Vec<Resource>, version: &str) -> Result<AppliedConfig, String> {
        if self.loading_version.as_deref() == Some(version) {
            let version = shortened(version);
            return self.refuse_unread(format!(
                "version {version} made a thread panic, and is not loaded again"
            ));
        }
        self.loading_version = Some(version.to_owned());
        failpoint::check(THREAD_NAME);
        let loaded = self.target.load_resources(resources, MAX_REPORTED_MISTAKES);
        self.loading_version = None;
        loaded
    }

    /// Creates a request that acknowledges the response with `nonce`, or refuses it for a reason.
    /// An empty nonce begins a stream.
    fn request(&self, nonce: String, refused: Option<String>) -> DiscoveryRequest {
        let error_detail = refused.map(|message| Refusal {
            code: Code::InvalidArgument as i32,
            message,
            details: Vec::new(),
        });
        DiscoveryRequest {
            version_info: self.accepted.clone(),
            node: Some(self.node()),
            resource_names: Vec::new(),
            type_url: TYPE.to_owned(),
            response_nonce: nonce,
            error_detail,
        }
    }

    fn node(&self) -> Node {
        let text = |text: &String| prost_types::Value::from(text.clone());
        let fields = self
            .settings
            .node_metadata
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect();
        Node {
            id: self.settings.node_id.clone(),
            metadata: Some(prost_types::Struct { fields }),
            user_agent_name: USER_AGENT.to_owned(),
        }
    }
}

/// Sends a request in the stream.
async fn send(
    requests: &mpsc::Sender<DiscoveryRequest>,
    request: DiscoveryRequest,
) -> Result<(), StreamEnd> {
    let sent = requests.send(request).await;
    sent.map_err(|_| "the server takes no more requests".to_owned().into())
}
