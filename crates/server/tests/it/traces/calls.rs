//! What a trace shows of a call.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tidegate_memcache::test_util::MemcachedServer;
use tidegate_pipeline::test_util::RedisServer;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tonic::Request;

use super::collector::{Answer, Collector, Protocol, Received};
use super::messages::{Span, pairs};
use crate::support::{Limits, Server, ask, http_with, request};

const RPC: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Settings for traces over HTTP that are sent at once.
pub(super) fn traced(url: &str) -> Vec<(&str, &str)> {
    vec![
        ("TRACING_ENABLED", "true"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
    ]
}

#[track_caller]
fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    spans
        .iter()
        .find(|span| span.name == name)
        .unwrap_or_else(|| panic!("no {name} in {spans:?}"))
}

/// Asks once, as a caller whose trace is [`CALLER`].
async fn ask_as_caller(
    server: &Server,
    message: tidegate::proto::envoy::service::ratelimit::v3::RateLimitRequest,
) {
    let mut message = Request::new(message);
    message
        .metadata_mut()
        .insert("traceparent", CALLER.parse().unwrap());
    message
        .metadata_mut()
        .insert("tracestate", "vendor=1".parse().unwrap());
    message
        .metadata_mut()
        .insert("baggage", "user=ada".parse().unwrap());
    let _ = ask(&server.channel().await, message).await;
}

const OF_A_SECOND_AND_A_MINUTE: &str = "\
domain: d
descriptors:
  - {key: s, rate_limit: {unit: second, requests_per_unit: 9}}
  - {key: m, rate_limit: {unit: minute, requests_per_unit: 9}}
";

/// What the collector got of a call with three descriptors to a server on two Redis.
async fn trace_of_a_call() -> Received {
    let (redis, second) = (RedisServer::start().await, RedisServer::start().await);
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let limits = Limits::new(OF_A_SECOND_AND_A_MINUTE);
    let [redis, second] = [&redis, &second].map(|server| server.address().to_string());
    let url = collector.url();
    let more = [
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_URL", &redis),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", &second),
        ("TRACING_SERVICE_NAMESPACE", "edge"),
        ("TRACING_SERVICE_INSTANCE_ID", "one"),
    ];
    let server = Server::start_bare(&[&traced(&url)[..], &more].concat());
    let three = request("d", &[&[("s", "x")], &[("m", "x")], &[("none", "x")]]);
    ask_as_caller(&server, three).await;
    collector.next()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_through_redis_has_the_references_spans() {
    let message = trace_of_a_call().await;
    assert_eq!(message.path, "/v1/traces");
    let expected = [
        "service.name=RateLimit",
        "service.namespace=edge",
        "service.instance.id=one",
    ];
    assert_eq!(pairs(&message.resource.attributes), expected);
    let [call, execution, store] = [RPC, "ShouldRateLimit Execution", "Redis Pipeline Execution"]
        .map(|name| named(&message.spans, name));
    assert_eq!(message.spans.len(), 3);
    let text = r#"request string=domain:"d" descriptors:{entries:{key:"s" value:"x"}} descriptors:{entries:{key:"m" value:"x"}} descriptors:{entries:{key:"none" value:"x"}}"#;
    assert_eq!(pairs(&execution.attributes), ["domain=d", text]);
    let lengths = ["pipeline length=2", "perSecondPipeline length=2"];
    assert_eq!(pairs(&store.attributes), lengths);
    let expected = [
        "rpc.system=grpc",
        "rpc.service=envoy.service.ratelimit.v3.RateLimitService",
        "rpc.method=ShouldRateLimit",
        "rpc.grpc.status_code=0",
    ];
    assert_eq!(pairs(&call.attributes), expected);
    assert_eq!(call.status, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_spans_of_a_call_are_in_the_trace_of_its_caller() {
    let message = trace_of_a_call().await;
    let [call, execution, store] = [RPC, "ShouldRateLimit Execution", "Redis Pipeline Execution"]
        .map(|name| named(&message.spans, name));
    let id = u128::from_str_radix(&CALLER[3..35], 16).unwrap();
    for span in &message.spans {
        assert_eq!(span.trace_id, id.to_be_bytes(), "{span:?}");
        assert_eq!(span.trace_state, "vendor=1", "{span:?}");
        let inside = call.start <= span.start && span.end <= call.end;
        assert!(inside && span.start <= span.end, "{span:?}");
        assert_eq!(span.span_id.len(), 8);
    }
    let caller = u64::from_str_radix(&CALLER[36..52], 16).unwrap();
    assert_eq!(call.parent_span_id, caller.to_be_bytes());
    assert_eq!((call.kind, call.flags), (2, 0x301));
    assert_eq!(execution.parent_span_id, call.span_id);
    assert_eq!((execution.kind, execution.flags), (1, 0x101));
    assert_eq!(store.parent_span_id, execution.span_id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_through_memcached_has_the_references_span() {
    let (memcached, collector) = (
        MemcachedServer::start(),
        Collector::start(Protocol::Http, Answer::Take),
    );
    let (url, address) = (collector.url(), memcached.address().to_string());
    let server = Server::start(
        &[
            &traced(&url)[..],
            &[
                ("BACKEND_TYPE", "memcache"),
                ("MEMCACHE_HOST_PORT", &address),
            ],
        ]
        .concat(),
    );
    ask_as_caller(
        &server,
        request(
            "shop",
            &[&[("user", "ada")], &[("named", "x")], &[("free", "x")]],
        ),
    )
    .await;
    let spans = collector.spans(3);
    assert_eq!(
        pairs(&named(&spans, "Memcached Fetch Execution").attributes),
        ["keysToGet length=2"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_that_fails_says_so_in_its_span() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let server = Server::start(&traced(&collector.url()));
    ask_as_caller(&server, request("", &[&[("user", "ada")]])).await;
    let spans = collector.spans(2);
    let call = named(&spans, RPC);
    assert!(
        pairs(&call.attributes).contains(&"rpc.grpc.status_code=2".to_owned()),
        "{call:?}"
    );
    let status = call.status.clone().unwrap();
    assert_eq!(
        (status.code, &*status.message),
        (2, "rate limit domain must not be empty")
    );
    assert_eq!(named(&spans, "ShouldRateLimit Execution").status, None);
}

#[test]
fn a_call_of_json_has_the_references_spans() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let server = Server::start(&traced(&collector.url()));
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#;
    let headers = [("host", "test"), ("traceparent", CALLER)];
    assert_eq!(
        http_with(server.http(), "POST", "/json", &headers, body.as_bytes()).status,
        200
    );
    let spans = collector.spans(3);
    let (call, rest) = (
        named(&spans, "/json"),
        named(&spans, "NewJsonHandler Remaining Execution"),
    );
    let text = "response=overall_code:OK statuses:{code:OK current_limit:{requests_per_unit:3 unit:HOUR} limit_remaining:2 duration_until_reset:{seconds:";
    assert!(pairs(&rest.attributes)[0].starts_with(text), "{rest:?}");
    assert_eq!(pairs(&call.attributes), ["http.response.status_code=200"]);
    for part in [rest, named(&spans, "ShouldRateLimit Execution")] {
        assert_eq!(
            (&part.trace_id, &part.parent_span_id),
            (&call.trace_id, &call.span_id)
        );
    }
    // Counters in memory need no call of a store.
    assert_eq!(spans.len(), 3);
}

/// Writes an authority, and a certificate of ours with its key, into a folder. Returns how a collector of that authority serves.
fn checked_certificates(folder: &Path) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let issued = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let ((theirs, their_key), (ours, our_key)) = (issued("localhost"), issued("tidegate"));
    fs::write(folder.join("ca"), authority.pem()).unwrap();
    fs::write(folder.join("certificate"), ours.pem()).unwrap();
    fs::write(folder.join("key"), our_key.serialize_pem()).unwrap();

    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let key = PrivateKeyDer::try_from(their_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![theirs.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn traces_go_by_grpc_with_both_certificates_checked() {
    let folder = tempfile::tempdir().unwrap();
    let acceptor = checked_certificates(folder.path());
    let collector = Collector::start(Protocol::GrpcOverTls(acceptor), Answer::Take);
    let endpoint = format!("localhost:{}", collector.address.port());
    let [ca, certificate, key] = ["ca", "certificate", "key"]
        .map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let headers = "authorization=Bearer%20token,x-scope=edge";
    let more = [
        ("TRACING_EXPORTER_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", &*ca),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &certificate),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &key),
        ("OTEL_EXPORTER_OTLP_HEADERS", headers),
    ];
    let server = Server::start(&[&traced(&endpoint)[..], &more].concat());
    ask_as_caller(&server, request("shop", &[&[("user", "ada")]])).await;
    let message = collector.next();
    assert_eq!(message.headers["authorization"], "Bearer token");
    assert_eq!(message.headers["x-scope"], "edge");
    named(&message.spans, RPC);
    // A second message uses the same connection.
    ask_as_caller(&server, request("shop", &[&[("user", "ada")]])).await;
    named(&collector.spans(2), RPC);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn traces_are_compressed_when_told_so() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let url = collector.url() + "/somewhere";
    let mut more = traced("http://nowhere.invalid");
    more.extend([
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*url),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ]);
    let server = Server::start(&more);
    ask_as_caller(&server, request("shop", &[&[("user", "ada")]])).await;
    let message = collector.next();
    assert_eq!(
        (&*message.path, &message.headers["content-encoding"]),
        ("/somewhere", &"gzip".parse().unwrap())
    );
    named(&message.spans, RPC);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn grpc_without_tls_takes_the_same_messages() {
    let collector = Collector::start(Protocol::Grpc, Answer::Take);
    let url = collector.url();
    let mut more = traced(&url);
    more.extend([
        ("TRACING_EXPORTER_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
    ]);
    let server = Server::start(&more);
    ask_as_caller(&server, request("shop", &[&[("user", "ada")]])).await;
    named(&collector.spans(2), RPC);
    drop(server);
}
