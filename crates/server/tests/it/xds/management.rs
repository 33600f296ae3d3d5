//! A management server over TCP: it sends what is published to every stream, and writes down what it is asked.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use prost_types::Any;
use tidegate::discovery::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tidegate::discovery::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::support::await_that;

pub(crate) const TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";
const PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// A configuration of the domain `shop` that allows each user so many hits an hour.
pub(crate) fn limits(requests_per_unit: u32) -> RateLimitConfig {
    let unit = RateLimitUnit::Hour as i32;
    let rate_limit = Some(RateLimitPolicy {
        unit,
        requests_per_unit,
        ..RateLimitPolicy::default()
    });
    let user = RateLimitDescriptor {
        key: "user".into(),
        rate_limit,
        ..RateLimitDescriptor::default()
    };
    RateLimitConfig {
        name: "shop limits".into(),
        domain: "shop".into(),
        descriptors: vec![user],
    }
}

/// The same with a mistake in it.
pub(crate) fn mistaken() -> RateLimitConfig {
    let mut config = limits(1);
    config.descriptors[0].rate_limit.as_mut().unwrap().unit = 0;
    config
}

/// What is sent, and what was asked. Clones are the same.
#[derive(Clone)]
pub(crate) struct Shared {
    state: watch::Sender<Option<DiscoveryResponse>>,
    requests: Arc<Mutex<Vec<DiscoveryRequest>>>,
    headers: Arc<Mutex<Vec<HeaderMap>>>,
    frozen: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
    nonces: Arc<AtomicU64>,
    /// Milliseconds after which streams end without a failure, and so do their connections; 0: they do not. Then what a client has is not sent again.
    life: Arc<AtomicU64>,
}

/// The server. Dropping it closes all of its connections, as a crash would.
pub(crate) struct Management {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Shared,
    runtime: Option<Runtime>,
}

impl Management {
    pub(crate) fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), None)
    }

    pub(crate) fn start_at(address: SocketAddr, acceptor: Option<TlsAcceptor>) -> Self {
        let shared = Shared {
            state: watch::Sender::new(None),
            requests: Arc::default(),
            headers: Arc::default(),
            frozen: Arc::default(),
            nonces: Arc::default(),
            life: Arc::default(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = shared.clone();
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(server.clone().connection(socket, acceptor.clone()));
            }
        });
        Self {
            address,
            shared,
            runtime: Some(runtime),
        }
    }

    /// Sends these resources to all streams, and to those that come.
    pub(crate) fn publish(&self, version: &str, resources: &[RateLimitConfig]) {
        let any = |config: &RateLimitConfig| Any {
            type_url: TYPE.into(),
            value: config.encode_to_vec(),
        };
        self.send(version, TYPE, resources.iter().map(any).collect());
    }

    pub(crate) fn send(&self, version: &str, type_url: &str, resources: Vec<Any>) {
        let nonce = format!("n{}", self.shared.nonces.fetch_add(1, Relaxed));
        let (version_info, type_url) = (version.to_owned(), type_url.to_owned());
        self.shared.state.send_replace(Some(DiscoveryResponse {
            version_info,
            resources,
            type_url,
            nonce,
        }));
    }

    pub(crate) fn requests(&self) -> Vec<DiscoveryRequest> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub(crate) fn headers(&self) -> Vec<HeaderMap> {
        self.shared.headers.lock().unwrap().clone()
    }

    /// Waits for a request like that, and returns the first.
    #[track_caller]
    pub(crate) fn await_request(
        &self,
        what: &str,
        is_it: impl Fn(&DiscoveryRequest) -> bool,
    ) -> DiscoveryRequest {
        await_that(what, || self.requests().iter().any(&is_it));
        self.requests().into_iter().find(is_it).unwrap()
    }

    /// Waits until a version is acknowledged.
    #[track_caller]
    pub(crate) fn await_acknowledged(&self, version: &str) -> DiscoveryRequest {
        self.await_request(version, |request| {
            request.version_info == version
                && !request.response_nonce.is_empty()
                && request.error_detail.is_none()
        })
    }

    /// From now on, streams that begin end after this time, as those of servers that spread their clients do.
    pub(crate) fn end_streams_after(&self, life: Duration) {
        self.shared.life.store(life.as_millis() as u64, Relaxed);
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.shared.frozen.lock().unwrap().len()
    }

    /// From now on, nothing is read from the connections that are open, and nothing is written to them.
    pub(crate) fn freeze(&self) {
        self.shared
            .frozen
            .lock()
            .unwrap()
            .iter()
            .for_each(|frozen| frozen.store(true, Relaxed));
    }
}

impl Drop for Management {
    fn drop(&mut self) {
        // Gives the port back before another server begins there.
        self.runtime
            .take()
            .unwrap()
            .shutdown_timeout(Duration::from_secs(20));
    }
}

impl Shared {
    async fn connection(self, socket: TcpStream, acceptor: Option<TlsAcceptor>) {
        let frozen = Arc::<AtomicBool>::default();
        self.frozen.lock().unwrap().push(frozen.clone());
        let socket = Freezing { socket, frozen };
        match acceptor {
            None => self.serve(socket).await,
            Some(acceptor) => {
                if let Ok(socket) = acceptor.accept(socket).await {
                    self.serve(socket).await;
                }
            }
        }
    }

    async fn serve(self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let shared = self.clone();
            async move {
                assert_eq!(request.uri().path(), PATH);
                let codec = ProstCodec::<DiscoveryResponse, DiscoveryRequest>::default();
                Ok::<_, std::convert::Infallible>(Grpc::new(codec).streaming(shared, request).await)
            }
        });
        // Clients leave without a word.
        let _ = Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(socket), service)
            .await;
    }

    async fn stream(
        self,
        mut requests: Streaming<DiscoveryRequest>,
        responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
    ) {
        let mut state = self.state.subscribe();
        state.mark_changed();
        let mut asked = false;
        let life = Duration::from_millis(self.life.load(Relaxed));
        let end = tokio::time::sleep(life);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = end.as_mut(), if !life.is_zero() => return,
                request = requests.message() => {
                    let Ok(Some(request)) = request else { return };
                    let known = |state: &DiscoveryResponse| state.version_info == request.version_info;
                    if !asked && !life.is_zero() && state.borrow().as_ref().is_some_and(known) {
                        state.mark_unchanged();
                    }
                    self.requests.lock().unwrap().push(request);
                    asked = true;
                }
                Ok(()) = state.changed(), if asked => {
                    let response = state.borrow_and_update().clone();
                    if let Some(response) = response && responses.send(Ok(response)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

impl StreamingService<DiscoveryRequest> for Shared {
    type Response = DiscoveryResponse;
    type ResponseStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type Future =
        Pin<Box<dyn Future<Output = Result<Response<Self::ResponseStream>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<DiscoveryRequest>>) -> Self::Future {
        self.headers
            .lock()
            .unwrap()
            .push(request.metadata().clone().into_headers());
        let (sender, responses) = mpsc::channel(1);
        tokio::spawn(self.clone().stream(request.into_inner(), sender));
        Box::pin(async move { Ok(Response::new(ReceiverStream::new(responses))) })
    }
}

/// A socket that can be told to do nothing any more.
struct Freezing {
    socket: TcpStream,
    frozen: Arc<AtomicBool>,
}

impl AsyncRead for Freezing {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if this.frozen.load(Relaxed) {
            Poll::Pending
        } else {
            Pin::new(&mut this.socket).poll_read(context, into)
        }
    }
}

impl AsyncWrite for Freezing {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        if this.frozen.load(Relaxed) {
            Poll::Pending
        } else {
            Pin::new(&mut this.socket).poll_write(context, from)
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}
