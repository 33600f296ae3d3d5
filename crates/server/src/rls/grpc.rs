//! The services of the gRPC port. Calls of ShouldRateLimit skip the router.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::BoxError;
use hyper::body::Incoming;
use tidegate_ratelimit::Error;
use tonic::codegen::{BoxFuture, Service as _};
use tonic::server::{Grpc, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder;

use crate::edge::bounds::body::{Answering, Arriving, Framing, Kind, Refusal};
use crate::edge::bounds::{Rule, Seat, Tab};
use crate::operate::health::HealthService;
use crate::operate::metrics::Method;
use crate::rls::call::Calls;
use crate::rls::codec::{BoundedCodec, Decoded};
use crate::rls::proto::COMPLETE_DESCRIPTORS;
use crate::rls::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// ShouldRateLimit: nearly every request.
const HOT_PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A stream of states without an end.
const WATCH_PATH: &str = "/grpc.health.v1.Health/Watch";

/// How long a message may take to arrive once it was waited for. Every caller sends it in one piece.
const MESSAGE: Kind =
    Kind { rule: Rule { window: Duration::from_secs(10), least: 0, windows: 1 }, framing: Framing::Grpc, refuse };
/// As above, for tools that keep a stream open while a person thinks.
const QUESTIONS: Kind = Kind { rule: Rule { window: Duration::from_secs(300), ..MESSAGE.rule }, ..MESSAGE };

/// The start of the paths of every version of reflection.
const REFLECTION_PATH: &str = "/grpc.reflection.";

/// Both versions of reflection, for all cores. Decoded at the first use: it is rare and takes megabytes.
static REFLECTION: LazyLock<Routes> = LazyLock::new(|| {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(COMPLETE_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let valid = "committed descriptors are valid, as a test shows";
    Routes::new(builder().build_v1().expect(valid)).add_service(builder().build_v1alpha().expect(valid)).prepare()
});

/// The services of one core. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    calls: Calls,
    rest: Routes,
}

impl Services {
    /// Rate limits and health. Reflection is the same for all cores.
    pub(crate) fn new(calls: Calls, health: HealthService) -> Self {
        Self { calls, rest: Routes::new(HealthServer::new(health)).prepare() }
    }
}

impl Services {
    /// Answers a call of the connection of `seat`, whose unfinished messages and answers are counted in `tab`.
    pub(crate) fn answer(&self, request: http::Request<Incoming>, tab: &Arc<Tab>, seat: &Arc<Seat>) -> Call {
        let path = request.uri().path();
        if path == HOT_PATH {
            let calls = self.calls.clone();
            let request = request.map(|body| Arriving::new(body, MESSAGE, tab, seat));
            // Without compression, so that nobody makes 4 MiB of a message with fewer bytes.
            let answer = Box::pin(async move {
                let mut grpc = Grpc::new(BoundedCodec(calls.bounds()));
                Ok(grpc.unary(ShouldRateLimit(calls), request).await)
            });
            return Answering::new(answer, Some(tab.clone()));
        }
        let reflection = path.starts_with(REFLECTION_PATH);
        let (mut routes, kind) =
            if reflection { (REFLECTION.clone(), QUESTIONS) } else { (self.rest.clone(), MESSAGE) };
        let counted = (!reflection && path != WATCH_PATH).then(|| tab.clone());
        let request = request.map(|body| tonic::body::Body::new(Arriving::new(body, kind, tab, seat)));
        Answering::new(Box::pin(routes.call(request)), counted)
    }
}

/// A call in progress.
type Call = Answering<BoxFuture<http::Response<tonic::body::Body>, Infallible>>;

fn refuse(refusal: Refusal) -> BoxError {
    let status = match refusal {
        Refusal::TooSlow => Status::deadline_exceeded("the message did not arrive within 10 s"),
        Refusal::NoRoom => Status::resource_exhausted("too many bytes of unfinished messages"),
    };
    status.into()
}

/// The method ShouldRateLimit.
struct ShouldRateLimit(Calls);

impl UnaryService<Decoded> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = BoxFuture<Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: Request<Decoded>) -> Self::Future {
        let calls = self.0.clone();
        Box::pin(async move {
            let counted = calls.metrics().time(Method::ShouldRateLimit);
            let timeout = request.metadata().get("grpc-timeout").and_then(|text| timeout(text.as_encoded_bytes()));
            let message = request.into_inner().map_err(|excess| Status::invalid_argument(calls.refuse(excess)))?;
            let answer = calls.decide(message, counted.started, timeout).await;
            answer.map(Response::new).map_err(|error| status(&error))
        })
    }
}

/// As the reference, UNKNOWN for every error. INVALID_ARGUMENT only for requests that make the reference crash or count backwards.
fn status(error: &Error) -> Status {
    match error {
        Error::InvalidOverride { .. } | Error::InvalidHits { .. } => Status::invalid_argument(error.to_string()),
        _ => Status::unknown(error.to_string()),
    }
}

/// Reads a `grpc-timeout` header: up to eight digits and a unit.
fn timeout(text: &[u8]) -> Option<Duration> {
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
            assert_eq!(timeout(text.as_bytes()), expected, "{text}");
        }
    }
}
