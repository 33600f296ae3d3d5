//! The services of the gRPC port. Calls of ShouldRateLimit skip the router.

pub(crate) mod health_service;

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use hyper::body::Incoming;
use prost::Message as _;
use prost::bytes::Buf as _;
use tidegate_ratelimit::Error;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::codegen::{BoxFuture, Service as _};
use tonic::server::{Grpc, UnaryService};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_prost::ProstEncoder;
use tonic_reflection::server::Builder;

use self::health_service::HealthService;
use crate::net::bounds::body::{BodyKind, Framing, PendingResponse, RequestBody};
use crate::net::bounds::{ConnState, ConnectionMemory, RateRule};
use crate::rls::bounds::{RequestBounds, RequestExcess};
use crate::rls::call::Calls;
use crate::rls::proto::COMPLETE_DESCRIPTORS;
use crate::rls::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::telemetry::metrics::Method;
use crate::telemetry::traces::Trace;

/// The path of ShouldRateLimit: nearly every request.
const HOT_PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The name of ShouldRateLimit in traces.
const TRACED_METHOD: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The path of a health watch, which is a stream without an end.
const WATCH_PATH: &str = "/grpc.health.v1.Health/Watch";

/// Maximum of bytes of a message to health or reflection, which is a name.
const MAX_NAME_BYTES: usize = 4 * 1024;
/// Maximum of bytes of a compression name that a refusal repeats. The longest known one has 15.
const MAX_ENCODING_BYTES: usize = 16;

static GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// A message must arrive within 10 s once it is awaited. Every caller sends it in one piece.
const MESSAGE_BODY: BodyKind = BodyKind {
    rule: RateRule {
        window: Duration::from_secs(10),
        min_bytes: 0,
        max_windows: 1,
    },
    framing: Framing::Grpc,
};
/// Messages of tools that keep a stream open while a person thinks may take 300 s.
const REFLECTION_BODY: BodyKind = BodyKind {
    rule: RateRule {
        window: Duration::from_secs(300),
        ..MESSAGE_BODY.rule
    },
    ..MESSAGE_BODY
};

/// The start of the paths of every version of reflection.
const REFLECTION_PATH: &str = "/grpc.reflection.";

/// Both versions of reflection, for all cores. Decoded at the first use, because it is rare and
/// takes megabytes.
static REFLECTION: LazyLock<Routes> = LazyLock::new(|| {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(COMPLETE_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let valid = "committed descriptors are valid, as a test shows";
    let v1 = builder()
        .build_v1()
        .expect(valid)
        .max_decoding_message_size(MAX_NAME_BYTES);
    let v1alpha = builder()
        .build_v1alpha()
        .expect(valid)
        .max_decoding_message_size(MAX_NAME_BYTES);
    Routes::new(v1).add_service(v1alpha).prepare()
});

/// The services of one core. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    calls: Calls,
    other_services: Routes,
}

impl Services {
    /// Rate limits and health. Reflection is shared by all cores.
    pub(crate) fn new(calls: Calls, health: HealthService) -> Self {
        let health = HealthServer::new(health).max_decoding_message_size(MAX_NAME_BYTES);
        Self {
            calls,
            other_services: Routes::new(health).prepare(),
        }
    }
}

impl Services {
    /// Answers a call of the connection of `conn_state`, whose unfinished messages and answers are
    /// counted in `memory`.
    pub(crate) fn answer(
        &self,
        request: http::Request<Incoming>,
        memory: &Arc<ConnectionMemory>,
        conn_state: &Arc<ConnState>,
    ) -> CallFuture {
        let path = request.uri().path();
        if path == HOT_PATH {
            let timeout = request
                .headers()
                .get(&GRPC_TIMEOUT)
                .and_then(|text| parse_timeout(text.as_bytes()));
            let trace = self
                .calls
                .traces()
                .and_then(|traces| traces.begin(TRACED_METHOD, request.headers()));
            let method = ShouldRateLimit {
                calls: self.calls.clone(),
                timeout,
                trace,
            };
            let request = without_head(request, |body| {
                RequestBody::new(body, MESSAGE_BODY, memory, conn_state)
            });
            // Compression is off, because a small message could become 4 MiB.
            let answer = Box::pin(async move {
                let mut grpc = Grpc::new(CallCodec(method.calls.bounds()));
                Ok(grpc.unary(method, request).await)
            });
            return PendingResponse::new(answer, memory, None);
        }
        let reflection = path.starts_with(REFLECTION_PATH);
        let open = if reflection || path == WATCH_PATH {
            let Some(open) = memory.open_stream() else {
                let refusal =
                    Status::resource_exhausted("too many open streams of this connection")
                        .into_http();
                return PendingResponse::new(Box::pin(ready(Ok(refusal))), memory, None);
            };
            Some(open)
        } else {
            None
        };
        let (mut routes, kind) = if reflection {
            (REFLECTION.clone(), REFLECTION_BODY)
        } else {
            (self.other_services.clone(), MESSAGE_BODY)
        };
        let path = path.parse().unwrap_or_default();
        let mut request = without_head(request, |body| {
            tonic::body::Body::new(RequestBody::new(body, kind, memory, conn_state))
        });
        *request.uri_mut() = path;
        PendingResponse::new(Box::pin(routes.call(request)), memory, open)
    }
}

/// A call in progress.
type CallFuture = PendingResponse<BoxFuture<http::Response<tonic::body::Body>, Infallible>>;

/// Drops the head of a request, which would take memory while its message is awaited. It has up to
/// 16 KiB as HPACK counts it, and three times as much here.
///
/// The name of a compression stays, because calls with one are refused at once.
fn without_head<B, C>(request: http::Request<B>, body: impl FnOnce(B) -> C) -> http::Request<C> {
    let (head, incoming) = request.into_parts();
    let mut request = http::Request::new(body(incoming));
    if let Some(encoding) = head
        .headers
        .get(&GRPC_ENCODING)
        .filter(|encoding| *encoding != "identity")
    {
        let name = if encoding.len() <= MAX_ENCODING_BYTES {
            encoding.clone()
        } else {
            HeaderValue::from_static("unknown")
        };
        request.headers_mut().insert(&GRPC_ENCODING, name);
    }
    request
}

/// The initial size of a message buffer, and the bytes of an answer that are sent at once. Nearly
/// all messages are smaller, and calls that wait for theirs hold little.
fn buffers() -> BufferSettings {
    BufferSettings::new(1_024, 32 * 1024)
}

/// Checks the bounds of a request before it is decoded, and encodes responses.
#[derive(Debug, Clone, Copy)]
struct CallCodec(RequestBounds);

/// A request, unless it was not decoded because of its size.
type Decoded = Result<RateLimitRequest, RequestExcess>;

impl Codec for CallCodec {
    type Encode = RateLimitResponse;
    type Decode = Decoded;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(buffers())
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Decoder for CallCodec {
    type Item = Decoded;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Decoded>, Status> {
        if let Err(excess) = self.0.check_protobuf(message.chunk()) {
            message.advance(message.remaining());
            return Ok(Some(Err(excess)));
        }
        let request = RateLimitRequest::decode(message)
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some(Ok(request)))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

/// The method ShouldRateLimit.
struct ShouldRateLimit {
    calls: Calls,
    timeout: Option<Duration>,
    /// `None` if the call is not sampled.
    trace: Option<Box<Trace>>,
}

impl UnaryService<Decoded> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = BoxFuture<Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: Request<Decoded>) -> Self::Future {
        let calls = self.calls.clone();
        let timeout = self.timeout;
        let mut trace = self.trace.take();
        Box::pin(async move {
            let counted = calls.metrics().time(Method::ShouldRateLimit);
            let answer = match request.into_inner() {
                Ok(message) => calls
                    .decide(message, counted.started, timeout, trace.as_deref_mut())
                    .await
                    .map(Response::new)
                    .map_err(|error| error_status(&error)),
                Err(excess) => Err(Status::invalid_argument(calls.refuse(excess))),
            };
            match (trace, &answer) {
                (Some(mut trace), Ok(_)) => trace.grpc_ended(Code::Ok, None),
                (Some(mut trace), Err(status)) => {
                    trace.grpc_ended(status.code(), Some(status.message()));
                }
                (None, _) => {}
            }
            answer
        })
    }
}

/// UNKNOWN for every error, as in the reference. INVALID_ARGUMENT only for requests that make the
/// reference crash or hang.
fn error_status(error: &Error) -> Status {
    match error {
        Error::InvalidOverride { .. } | Error::LongValues { .. } => {
            Status::invalid_argument(error.to_string())
        }
        _ => Status::unknown(error.to_string()),
    }
}

/// Parses a `grpc-timeout` header: up to eight digits and a unit.
fn parse_timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(number * 3600)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        for (text, expected) in [
            ("20m", Some(Duration::from_millis(20))),
            ("1S", Some(Duration::from_secs(1))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("", None),
            ("m", None),
            ("123456789m", None),
            ("-1m", None),
            ("1s", None),
        ] {
            assert_eq!(parse_timeout(text.as_bytes()), expected, "{text}");
        }
    }
}
