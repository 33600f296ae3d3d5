//! The services of the gRPC port. Calls of ShouldRateLimit skip the router.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::Duration;

use hyper::body::Incoming;
use tidegate_ratelimit::Error;
use tonic::codegen::{BoxFuture, Service as _};
use tonic::server::{Grpc, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder;

use crate::operate::health::HealthService;
use crate::operate::metrics::Method;
use crate::rls::call::Calls;
use crate::rls::codec::{BoundedCodec, Decoded};
use crate::rls::proto::COMPLETE_DESCRIPTORS;
use crate::rls::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// ShouldRateLimit: nearly every request.
const HOT_PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

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

impl hyper::service::Service<http::Request<Incoming>> for Services {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        if path == HOT_PATH {
            let calls = self.calls.clone();
            // Without compression, so that nobody makes 4 MiB of a message with fewer bytes.
            return Box::pin(async move {
                let mut grpc = Grpc::new(BoundedCodec(calls.bounds()));
                Ok(grpc.unary(ShouldRateLimit(calls), request).await)
            });
        }
        let mut routes = if path.starts_with(REFLECTION_PATH) { REFLECTION.clone() } else { self.rest.clone() };
        Box::pin(routes.call(request.map(tonic::body::Body::new)))
    }
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
