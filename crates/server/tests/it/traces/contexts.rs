//! Whether a call is traced, by what its caller says.

use tonic::Request;
use tonic::metadata::AsciiMetadataKey;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::calls::traced;
use super::collector::{Answer, Collector, Protocol};
use crate::support::{Server, ask, http_with, request};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Asks for a limit of `user` with these headers.
async fn ask_with(channel: &Channel, user: &str, headers: &[(&str, String)]) {
    let mut message = Request::new(request("shop", &[&[("user", user)]]));
    for (name, value) in headers {
        let name: AsciiMetadataKey = name.parse().unwrap();
        message.metadata_mut().insert(name, value.parse().unwrap());
    }
    ask(channel, message).await.unwrap();
}

/// Headers of callers that have decided so.
fn decided(sampled: bool) -> Vec<Vec<(&'static str, String)>> {
    let bit = u8::from(sampled);
    let ids = [
        ("x-b3-traceid", TRACE.to_owned()),
        ("x-b3-spanid", SPAN.to_owned()),
    ];
    vec![
        vec![("traceparent", format!("00-{TRACE}-{SPAN}-0{bit}"))],
        vec![("b3", format!("{TRACE}-{SPAN}-{bit}"))],
        vec![("b3", format!("{}-{SPAN}-{bit}", &TRACE[16..]))],
        [&ids[..], &[("x-b3-sampled", bit.to_string())]].concat(),
        vec![("b3", bit.to_string())],
    ]
}

/// A caller that has decided, among others that have not, with a ratio that says the opposite.
async fn check(rate: &'static str, sampled: bool) {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let url = collector.url();
    let more = [traced(&url), vec![("TRACING_SAMPLING_RATE", rate)]].concat();
    let server = Server::start(&more);
    let channel = server.channel().await;
    let headers = decided(sampled);
    for (at, headers) in headers.iter().enumerate() {
        ask_with(&channel, &format!("decided-{at}"), headers).await;
    }
    ask_with(&channel, "undecided", &[]).await;
    // What was sampled is sent before the end of the server, so that nothing is waited for in vain.
    server.stop();
    let expected = if sampled { headers.len() } else { 1 };
    let spans = collector.spans(2 * expected);
    let texts: Vec<_> = spans
        .iter()
        .filter(|span| span.name == "ShouldRateLimit Execution")
        .map(|span| format!("{span:?}"))
        .collect();
    assert_eq!(texts.len(), expected, "{texts:?}");
    assert!(
        texts
            .iter()
            .all(|text| text.contains("undecided") != sampled),
        "{texts:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_caller_that_samples_is_followed_whatever_the_ratio() {
    check("0", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_caller_that_does_not_sample_is_followed_whatever_the_ratio() {
    check("1", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn health_checks_are_not_traced() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let server = Server::start(&traced(&collector.url()));
    let channel = server.channel().await;
    let health = HealthCheckRequest {
        service: "ratelimit".to_owned(),
    };
    HealthClient::new(channel.clone())
        .check(health)
        .await
        .unwrap();
    ask_with(&channel, "ada", &[]).await;
    drop(channel);
    server.stop();
    assert_eq!(collector.spans(2).len(), 2);
    assert!(collector.has_nothing());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hostile_contexts_are_none_and_calls_are_answered() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let server = Server::start(&traced(&collector.url()));
    let channel = server.channel().await;
    let hostile = [
        ("traceparent", "0".repeat(12 * 1024)),
        ("traceparent", format!("00-{}-{SPAN}-01", "g".repeat(32))),
        ("traceparent", format!("00-{TRACE}-{SPAN}-0")),
        ("b3", "-".repeat(12 * 1024)),
        ("x-b3-traceid", TRACE.repeat(300)),
        ("tracestate", "a=1,".repeat(3 * 1024)),
        ("baggage", "a=1,".repeat(3 * 1024)),
    ];
    for header in &hostile {
        ask_with(
            &channel,
            "ada-".repeat(4_000).as_str(),
            std::slice::from_ref(header),
        )
        .await;
    }
    let headers = [("host", "test"), ("traceparent", &*"0".repeat(64 * 1024))];
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#;
    {
        let refused = http_with(server.http(), "POST", "/json", &headers, body.as_bytes());
        assert_eq!(refused.status, 431, "{refused:?}");
    };
    let spans = collector.spans(2 * hostile.len());
    for span in &spans {
        assert!(
            span.trace_state.is_empty() && span.trace_id.iter().any(|byte| *byte != 0),
            "{span:?}"
        );
        assert_eq!(span.parent_span_id.is_empty(), span.kind == 2, "{span:?}");
        let text = format!("{span:?}");
        assert!(text.len() < 6_000, "{}", text.len());
    }
}
