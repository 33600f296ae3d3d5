//! Client of the collector: OTLP over HTTP/1.1 or gRPC, with or without TLS.

use std::error::Error;

use bytes::Bytes;

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tidegate_pipeline::dial;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::otlp;
use crate::settings::{self, TraceProtocol};
use crate::telemetry::profiles::gzip;
use crate::tls::CertificateFileError;

/// Size limit of an answer in bytes. It has a number and a sentence.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Limit of characters of the collector's message in the log.
const MAX_MESSAGE_CHARS: usize = 200;
/// Length in bytes of the prefix of a gRPC message: the compression flag and the length.
const MESSAGE_PREFIX_BYTES: usize = 5;

/// Answer to a message that the collector accepted, perhaps partially.
#[derive(Debug, Default)]
pub(super) struct ExportAnswer {
    pub(super) rejected: u64,
    /// Reason for the rejected spans.
    pub(super) reason: String,
}

/// Reason why a message was not accepted.
#[derive(Debug)]
pub(super) struct ExportError {
    pub(super) reason: String,
    pub(super) is_retryable: bool,
}

/// Collector, with its connection while there is one.
#[derive(Debug)]
pub(super) struct Collector {
    settings: settings::CollectorSettings,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    requests: Requests,
    /// Task that drives the connection.
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[derive(Debug)]
enum Requests {
    Http(http1::SendRequest<Full<Bytes>>),
    Grpc(http2::SendRequest<Full<Bytes>>),
}

type BoxError = Box<dyn Error + Send + Sync>;

impl Collector {
    pub(super) fn new(settings: settings::CollectorSettings) -> Self {
        Self {
            settings,
            connection: None,
        }
    }

    /// Encodes a message as the body of a request.
    pub(super) fn encode(&self, message: &otlp::ExportRequest) -> Vec<u8> {
        let mut body = message.encode_to_vec();
        if self.settings.gzip {
            body = gzip(&body);
        }
        if self.settings.protocol == TraceProtocol::Grpc {
            let mut frame = Vec::with_capacity(MESSAGE_PREFIX_BYTES + body.len());
            frame.push(u8::from(self.settings.gzip));
            frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
            frame.extend_from_slice(&body);
            body = frame;
        }
        body
    }

    /// Sends a body. A connection that fails is closed.
    pub(super) async fn send(&mut self, body: &[u8]) -> Result<ExportAnswer, ExportError> {
        let result = match timeout(self.settings.timeout, self.exchange(body)).await {
            Ok(Ok(answer)) => return read_answer(self.settings.protocol, answer),
            Ok(Err(error)) => error_chain(&*error),
            Err(_) => format!("no answer within {:?}", self.settings.timeout),
        };
        self.connection = None;
        Err(ExportError {
            reason: format!("{}: {result}", self.settings.address()),
            is_retryable: true,
        })
    }

    async fn exchange(&mut self, body: &[u8]) -> Result<Response<Collected<Bytes>>, BoxError> {
        let mut connection = match self.connection.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let request = self.request(body)?;
        let answer = match &mut connection.requests {
            Requests::Http(requests) => {
                requests.ready().await?;
                requests.send_request(request).await?
            }
            Requests::Grpc(requests) => {
                requests.ready().await?;
                requests.send_request(request).await?
            }
        };
        let (head, body) = answer.into_parts();
        let body = Limited::<Incoming>::new(body, MAX_ANSWER_BYTES)
            .collect()
            .await?;
        self.connection = Some(connection);
        Ok(Response::from_parts(head, body))
    }

    fn request(&self, body: &[u8]) -> Result<Request<Full<Bytes>>, http::Error> {
        let settings = &self.settings;
        let mut request = Request::post(&settings.path);
        let encoding = match settings.protocol {
            TraceProtocol::Http => {
                request = request
                    .header(header::HOST, settings.address())
                    .header(header::CONTENT_TYPE, "application/x-protobuf");
                header::CONTENT_ENCODING
            }
            TraceProtocol::Grpc => {
                let scheme = if settings.tls.is_some() {
                    "https"
                } else {
                    "http"
                };
                request = Request::post(format!(
                    "{scheme}://{}{}",
                    settings.address(),
                    settings.path
                ))
                .header(header::CONTENT_TYPE, "application/grpc")
                .header(header::TE, "trailers");
                header::HeaderName::from_static("grpc-encoding")
            }
        };
        if settings.gzip {
            request = request.header(encoding, "gzip");
        }
        let user_agent = HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        request = request.header(header::USER_AGENT, user_agent);
        for (name, value) in &settings.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(Bytes::copy_from_slice(body)))
    }

    async fn connect(&self) -> Result<Connection, BoxError> {
        let settings = &self.settings;
        let socket = dial(&settings.host, settings.port).await?;
        socket.set_nodelay(true)?;
        let Some(tls) = &settings.tls else {
            return self.handshake(socket).await;
        };
        let name = ServerName::try_from(settings.host.clone())?;
        let join = |errors: Vec<CertificateFileError>| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            errors.join("; ")
        };
        let connector = TlsConnector::from(tls.load().map_err(join)?);
        self.handshake(connector.connect(name, socket).await?).await
    }

    async fn handshake<S>(&self, socket: S) -> Result<Connection, BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let socket = TokioIo::new(socket);
        // Each request gets the error of its connection, so the driver drops it. The connection
        // owns the driver, and aborts it.
        Ok(match self.settings.protocol {
            TraceProtocol::Http => {
                let (requests, work) = http1::handshake(socket).await?;
                Connection {
                    requests: Requests::Http(requests),
                    driver: tokio::spawn(async { drop(work.await) }),
                }
            }
            TraceProtocol::Grpc => {
                let (requests, work) = http2::handshake(TokioExecutor::new(), socket).await?;
                Connection {
                    requests: Requests::Grpc(requests),
                    driver: tokio::spawn(async { drop(work.await) }),
                }
            }
        })
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        !match &self.requests {
            Requests::Http(requests) => requests.is_closed(),
            Requests::Grpc(requests) => requests.is_closed(),
        }
    }
}

/// Reads the answer of the collector.
fn read_answer(
    protocol: TraceProtocol,
    answer: Response<Collected<Bytes>>,
) -> Result<ExportAnswer, ExportError> {
    let (head, body) = answer.into_parts();
    if !head.status.is_success() {
        return Err(status_error(head.status));
    }
    let mut message = 0;
    if protocol == TraceProtocol::Grpc {
        let code = body
            .trailers()
            .and_then(|trailers| trailers.get("grpc-status"));
        let code = code
            .or_else(|| head.headers.get("grpc-status"))
            .map_or(tonic::Code::Unknown, |code| {
                tonic::Code::from_bytes(code.as_bytes())
            });
        check_code(code)?;
        message = MESSAGE_PREFIX_BYTES;
    }
    let body = body.to_bytes();
    let answer = body
        .get(message..)
        .and_then(|message| otlp::ExportResponse::decode(message).ok());
    let partial = answer.and_then(|answer| answer.partial_success);
    Ok(partial.map(rejection).unwrap_or_default())
}

/// The error for an HTTP status. OTLP defines those after which a message may be sent again.
fn status_error(status: StatusCode) -> ExportError {
    let again = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    ExportError {
        reason: format!("the collector answered with HTTP {status}"),
        is_retryable: again.contains(&status),
    }
}

/// The answer of a collector that accepted a part of the spans.
fn rejection(partial: otlp::PartialSuccess) -> ExportAnswer {
    let words: String = partial
        .error_message
        .chars()
        .take(MAX_MESSAGE_CHARS)
        .collect();
    ExportAnswer {
        rejected: u64::try_from(partial.rejected_spans).unwrap_or(0),
        reason: format!("the collector rejected them: {words:?}"),
    }
}

/// OTLP defines the codes after which a message may be sent again.
fn check_code(code: tonic::Code) -> Result<(), ExportError> {
    use tonic::Code;
    if code == Code::Ok {
        return Ok(());
    }
    Err(ExportError {
        reason: format!("the collector answered with {code:?}"),
        is_retryable: matches!(
            code,
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::ResourceExhausted
                | Code::Unavailable
                | Code::DataLoss
        ),
    })
}

fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}
