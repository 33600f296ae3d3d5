//! A collector: OTLP over HTTP or gRPC, with or without TLS, that takes what it gets or does not.

use std::convert::Infallible;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tonic::codegen::BoxFuture;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Request};

use super::messages::{ExportRequest, ExportResponse, PartialSuccess, Resource, Span};
use crate::support::PATIENCE;

/// What the collector does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Take,
    /// HTTP 503 or UNAVAILABLE: to be sent again.
    Later,
    /// HTTP 400 or INVALID_ARGUMENT: never again.
    Refuse,
    /// One span is rejected.
    RejectOne,
    /// None at all.
    Silence,
}

/// One message, as it came.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) resource: Resource,
    pub(super) spans: Vec<Span>,
}

/// A collector on a free port, until it is dropped.
pub(super) struct Collector {
    pub(super) address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    received: Receiver<Received>,
    /// Its drop is the end.
    _end: oneshot::Sender<()>,
}

/// How it is spoken to.
#[derive(Clone)]
pub(super) enum Protocol {
    Http,
    Grpc,
    GrpcOverTls(TlsAcceptor),
}

#[derive(Clone)]
struct Desk {
    answer: Arc<Mutex<Answer>>,
    received: Sender<Received>,
}

impl Collector {
    pub(super) fn start(protocol: Protocol, answer: Answer) -> Self {
        let (sender, received) = channel();
        let (tell, told) = channel();
        let (end, ended) = oneshot::channel();
        let answer = Arc::new(Mutex::new(answer));
        let desk = Desk {
            answer: answer.clone(),
            received: sender,
        };
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = desk.listen(listener, protocol) => {}
                    _ = ended => {}
                }
            });
        });
        Self {
            address: told.recv_timeout(PATIENCE).unwrap(),
            answer,
            received,
            _end: end,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, answers so.
    pub(super) fn now(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// The next message.
    pub(super) fn next(&self) -> Received {
        self.received
            .recv_timeout(PATIENCE)
            .expect("a message comes")
    }

    /// Whether nothing has come that was not looked at.
    pub(super) fn has_nothing(&self) -> bool {
        self.received.try_recv().is_err()
    }

    /// At least so many spans, in the order in which they came.
    pub(super) fn spans(&self, least: usize) -> Vec<Span> {
        let (mut spans, until) = (Vec::new(), Instant::now() + PATIENCE);
        while spans.len() < least && Instant::now() < until {
            spans.extend(
                self.received
                    .recv_timeout(PATIENCE)
                    .map_or_else(|_| Vec::new(), |message| message.spans),
            );
        }
        assert!(spans.len() >= least, "{spans:?}");
        spans
    }
}

impl Desk {
    async fn listen(self, listener: TcpListener, protocol: Protocol) {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (desk, protocol) = (self.clone(), protocol.clone());
            tokio::spawn(async move {
                match protocol {
                    Protocol::Http => desk.serve_http(socket).await,
                    Protocol::Grpc => desk.serve_grpc(socket).await,
                    Protocol::GrpcOverTls(acceptor) => {
                        if let Ok(socket) = acceptor.accept(socket).await {
                            desk.serve_grpc(socket).await;
                        }
                    }
                }
            });
        }
    }

    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + 'static>(self, socket: S) {
        let service =
            service_fn(move |request: http::Request<Incoming>| self.clone().http(request));
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(socket), service)
            .await;
    }

    async fn http(
        self,
        request: http::Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return Ok(Response::default());
        };
        let mut body = body.to_bytes().to_vec();
        if head
            .headers
            .get("content-encoding")
            .is_some_and(|encoding| encoding == "gzip")
        {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&*body)
                .read_to_end(&mut plain)
                .unwrap();
            body = plain;
        }
        assert_eq!(head.headers["content-type"], "application/x-protobuf");
        let path = head.uri.path().to_owned();
        let answer = self
            .receive(path, head.headers, ExportRequest::decode(&*body).unwrap())
            .await;
        let status = match answer {
            Ok(answer) => return Ok(Response::new(Full::new(answer.encode_to_vec().into()))),
            Err(Code::Unavailable) => StatusCode::SERVICE_UNAVAILABLE,
            Err(_) => StatusCode::BAD_REQUEST,
        };
        Ok(Response::builder()
            .status(status)
            .body(Full::default())
            .unwrap())
    }

    async fn serve_grpc<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, socket: S) {
        let service = service_fn(move |request: http::Request<Incoming>| {
            assert_eq!(
                request.uri().path(),
                "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
            );
            let codec = tonic_prost::ProstCodec::<ExportResponse, ExportRequest>::default();
            let desk = self.clone();
            async move { Ok::<_, Infallible>(Grpc::new(codec).unary(desk, request).await) }
        });
        let _ = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(socket), service)
            .await;
    }

    async fn receive(
        &self,
        path: String,
        headers: HeaderMap,
        message: ExportRequest,
    ) -> Result<ExportResponse, Code> {
        let answer = *self.answer.lock().unwrap();
        match answer {
            Answer::Later => return Err(Code::Unavailable),
            Answer::Refuse => return Err(Code::InvalidArgument),
            Answer::Silence => tokio::time::sleep(Duration::from_secs(600)).await,
            Answer::Take | Answer::RejectOne => {}
        }
        let [mut of] = <[_; 1]>::try_from(message.resource_spans).unwrap();
        let spans = of
            .scope_spans
            .drain(..)
            .flat_map(|scope| scope.spans)
            .collect();
        let _ = self.received.send(Received {
            path,
            headers,
            resource: of.resource.unwrap(),
            spans,
        });
        let rejected = (answer == Answer::RejectOne).then(|| PartialSuccess {
            rejected_spans: 1,
            error_message: "one is too old".to_owned(),
        });
        Ok(ExportResponse {
            partial_success: rejected,
        })
    }
}

impl UnaryService<ExportRequest> for Desk {
    type Response = ExportResponse;
    type Future = BoxFuture<tonic::Response<ExportResponse>, tonic::Status>;

    fn call(&mut self, request: Request<ExportRequest>) -> Self::Future {
        let desk = self.clone();
        Box::pin(async move {
            let (metadata, _, message) = request.into_parts();
            let answer = desk
                .receive("gRPC".to_owned(), metadata.into_headers(), message)
                .await;
            answer
                .map(tonic::Response::new)
                .map_err(|code| tonic::Status::new(code, "the collector says no"))
        })
    }
}
