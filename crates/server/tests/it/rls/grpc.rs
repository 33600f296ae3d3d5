//! What gRPC callers get.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use tidegate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::{Code as Grpc, Request};

use crate::support::{PATIENCE, Server, ask, request};

fn codes(response: &RateLimitResponse) -> (Code, Vec<Code>) {
    (
        response.overall_code(),
        response
            .statuses
            .iter()
            .map(DescriptorStatus::code)
            .collect(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_limit_lets_its_number_pass_and_refuses_the_next() {
    let server = Server::start(&[]);
    let channel = server.channel().await;
    for remaining in [2, 1, 0] {
        let answer = ask(&channel, request("shop", &[&[("user", "ada")]]))
            .await
            .unwrap();
        let [status] = &answer.statuses[..] else {
            panic!("{answer:?}")
        };
        assert_eq!(
            (answer.overall_code(), status.limit_remaining),
            (Code::Ok, remaining)
        );
        let limit = RateLimit {
            name: String::new(),
            requests_per_unit: 3,
            unit: Unit::Hour as i32,
        };
        assert_eq!(status.current_limit.as_ref(), Some(&limit));
        assert!((1..=3600).contains(&status.duration_until_reset.unwrap().seconds));
    }
    let answer = ask(&channel, request("shop", &[&[("user", "ada")]]))
        .await
        .unwrap();
    assert_eq!(codes(&answer), (Code::OverLimit, vec![Code::OverLimit]));
    assert!(answer.response_headers_to_add.is_empty() && answer.dynamic_metadata.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn statuses_keep_the_order_of_the_descriptors() {
    let server = Server::start(&[]);
    let channel = server.channel().await;
    let descriptors: [&[(&str, &str)]; 4] = [
        &[("free", "x")],
        &[("named", "x")],
        &[("nothing", "x")],
        &[("plan", "gold"), ("user", "x")],
    ];
    let answer = ask(&channel, request("shop", &descriptors)).await.unwrap();
    let limits: Vec<_> = answer
        .statuses
        .iter()
        .map(|status| {
            status
                .current_limit
                .as_ref()
                .map(|limit| limit.requests_per_unit)
        })
        .collect();
    assert_eq!(limits, [None, Some(100), None, Some(2)]);
    assert_eq!(answer.statuses[0].limit_remaining, u32::MAX);
    assert_eq!(
        answer.statuses[1].current_limit.as_ref().unwrap().name,
        "quota"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hits_of_the_request_and_of_a_descriptor_are_charged() {
    let server = Server::start(&[]);
    let channel = server.channel().await;
    let mut message = request("shop", &[&[("named", "a")], &[("named", "b")]]);
    message.hits_addend = 10;
    message.descriptors[1].hits_addend = Some(7);
    let answer = ask(&channel, message.clone()).await.unwrap();
    let remaining = |answer: &RateLimitResponse| {
        answer
            .statuses
            .iter()
            .map(|s| s.limit_remaining)
            .collect::<Vec<_>>()
    };
    assert_eq!(remaining(&answer), [90, 93]);
    message.descriptors[0].is_negative_hits = true;
    message.descriptors[0].hits_addend = Some(4);
    message.descriptors[1].hits_addend = Some(0);
    let answer = ask(&channel, message).await.unwrap();
    assert_eq!(remaining(&answer)[1], 93);
    let answer = ask(&channel, request("shop", &[&[("named", "a")]]))
        .await
        .unwrap();
    assert_eq!(remaining(&answer), [93], "10 - 4 + 1 are charged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn headers_and_metadata_come_when_they_are_asked_for() {
    let server = Server::start(&[
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
        ("RESPONSE_DYNAMIC_METADATA", "true"),
    ]);
    let answer = ask(
        &server.channel().await,
        request("shop", &[&[("user", "ada")]]),
    )
    .await
    .unwrap();
    let headers: Vec<_> = answer
        .response_headers_to_add
        .iter()
        .map(|header| (header.key.as_str(), header.value.as_str()))
        .collect();
    assert_eq!(
        headers[..2],
        [("RateLimit-Limit", "3"), ("RateLimit-Remaining", "2")]
    );
    assert_eq!(headers[2].0, "X-Reset");
    let metadata = answer.dynamic_metadata.unwrap();
    assert_eq!(
        metadata.fields["domain"].kind,
        Some(prost_types::value::Kind::StringValue("shop".into()))
    );
    assert!(metadata.fields.contains_key("descriptors"), "{metadata:?}");
}

async fn check_error(
    server: &Server,
    request: impl tonic::IntoRequest<RateLimitRequest>,
    code: Grpc,
    text: &str,
) {
    let error = ask(&server.channel().await, request).await.unwrap_err();
    assert_eq!(error.code(), code, "{error:?}");
    assert!(error.message().contains(text), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_that_make_no_sense_get_the_specified_error() {
    let server = Server::start(&[]);
    check_error(
        &server,
        request("", &[]),
        Grpc::Unknown,
        "rate limit domain must not be empty",
    )
    .await;
    check_error(
        &server,
        request("shop", &[]),
        Grpc::Unknown,
        "rate limit descriptor list must not be empty",
    )
    .await;
    for unit in [0, 8, i32::MAX, -1] {
        let mut message = request("shop", &[&[("user", "x")]]);
        message.descriptors[0].limit = Some(RateLimitOverride {
            requests_per_unit: 1,
            unit,
        });
        check_error(&server, message, Grpc::InvalidArgument, "unit").await;
    }
    assert_eq!(
        server.stat("ratelimit.service.call.should_rate_limit.service_error"),
        6
    );
    assert_eq!(
        server.stat("ratelimit_server.ShouldRateLimit.total_requests"),
        6
    );
}

/// Calls failed once a client had filled a counter, and Envoy lets a request pass whose call fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_fills_a_counter_is_over_its_limit_and_breaks_nothing() {
    let server = Server::start(&[]);
    let channel = server.channel().await;
    for hits in [u64::MAX, i64::MAX as u64, 1, u64::MAX] {
        let mut message = request("shop", &[&[("user", "x")]]);
        message.descriptors[0].hits_addend = Some(hits);
        assert_eq!(
            ask(&channel, message).await.unwrap().overall_code(),
            Code::OverLimit,
            "{hits}"
        );
    }
    for error in ["redis_error", "service_error"] {
        assert_eq!(
            server.stat(&format!("ratelimit.service.call.should_rate_limit.{error}")),
            0,
            "{error}"
        );
    }
    assert_eq!(
        server.stat("ratelimit.service.rate_limit.shop.user.total_hits"),
        u64::MAX,
        "and not less than before"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_override_with_a_known_unit_is_used() {
    let server = Server::start(&[]);
    let mut message = request("shop", &[&[("user", "x")]]);
    message.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit: 42,
        unit: Unit::Week as i32,
    });
    let answer = ask(&server.channel().await, message).await.unwrap();
    assert_eq!(
        answer.statuses[0].current_limit.as_ref().unwrap().unit(),
        Unit::Week
    );
    assert_eq!(answer.statuses[0].limit_remaining, 41);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_message_above_4_mib_is_refused_and_the_next_is_answered() {
    let server = Server::start(&[]);
    let channel = server.channel().await;
    let long = "x".repeat(4 << 20);
    let error = ask(&channel, request("shop", &[&[("user", &long)]]))
        .await
        .unwrap_err();
    assert!(
        matches!(error.code(), Grpc::OutOfRange | Grpc::ResourceExhausted),
        "{error:?}"
    );
    let nearly = "x".repeat((4 << 20) - 64);
    assert_eq!(
        ask(&channel, request("shop", &[&[("user", &nearly)]]))
            .await
            .unwrap()
            .overall_code(),
        Code::Ok
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_on_every_connection_is_answered() {
    let server = Server::start(&[]);
    let mut channels = Vec::new();
    for _ in 0..8 {
        channels.push(server.channel().await);
    }
    for channel in &channels {
        let mut message = Request::new(request("shop", &[&[("named", "shared")]]));
        message.set_timeout(Duration::from_secs(5));
        assert_eq!(
            ask(channel, message).await.unwrap().overall_code(),
            Code::Ok
        );
    }
    let answer = ask(&channels[0], request("shop", &[&[("named", "shared")]]))
        .await
        .unwrap();
    assert_eq!(
        answer.statuses[0].limit_remaining, 91,
        "all cores count in one store"
    );
    assert_eq!(
        server.stat("ratelimit.service.rate_limit.shop.named.total_hits"),
        9
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_unix_socket_serves_instead_of_the_port() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grpc.sock");
    for _ in 0..2 {
        let server = Server::start(&[("GRPC_UDS", path.to_str().unwrap())]);
        let endpoint =
            tonic::transport::Endpoint::try_from(format!("unix://{}", path.display())).unwrap();
        let channel = endpoint.connect().await.unwrap();
        assert!(
            ask(&channel, request("shop", &[&[("user", "x")]]))
                .await
                .is_ok()
        );
        server.stop();
        assert!(!path.exists());
        // What a killed process leaves behind does not stop the next one.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
    }
}

#[test]
fn a_connection_of_age_is_asked_to_go_away_and_then_closed() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const GOAWAY: u8 = 7;
    let server = Server::start(&[
        ("GRPC_MAX_CONNECTION_AGE", "50ms"),
        ("GRPC_MAX_CONNECTION_AGE_GRACE", "50ms"),
    ]);
    let mut stream = TcpStream::connect(server.grpc()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(PREFACE).unwrap();
    let mut frames = Vec::new();
    stream.read_to_end(&mut frames).unwrap();
    let mut kinds = Vec::new();
    let mut rest = frames.as_slice();
    while let [a, b, c, kind, ..] = *rest {
        kinds.push(kind);
        rest = &rest[9 + u32::from_be_bytes([0, a, b, c]) as usize..];
    }
    assert!(kinds.contains(&GOAWAY), "frames {kinds:?}");
}
