//! Settings of traces.

use tidegate::settings::{Settings, TraceProtocol};

use crate::support::variables;

#[track_caller]
fn parse(more: &[(&str, &str)]) -> Result<Settings, String> {
    let more = [&[("TRACING_ENABLED", "true")], more].concat();
    Settings::parse(&variables(&more).into_iter().collect()).map_err(|error| error.to_string())
}

/// Where traces go: with TLS or not, address, path.
#[track_caller]
fn check(more: &[(&str, &str)], expected: (bool, &str, &str)) {
    let collector = parse(more).unwrap().traces.unwrap().collector;
    let found = (
        collector.tls.is_some(),
        &*collector.address(),
        &*collector.path,
    );
    assert_eq!(found, expected, "{more:?}");
}

#[test]
fn the_endpoint_is_read_as_opentelemetry_says() {
    const GRPC: (&str, &str) = ("TRACING_EXPORTER_PROTOCOL", "grpc");
    const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let endpoint = |text| ("OTEL_EXPORTER_OTLP_ENDPOINT", text);
    let of_traces = |text| ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", text);
    check(&[], (false, "localhost:4318", "/v1/traces"));
    check(&[endpoint("")], (false, "localhost:4318", "/v1/traces"));
    check(
        &[endpoint("http://otel:1")],
        (false, "otel:1", "/v1/traces"),
    );
    check(
        &[endpoint("https://otel/")],
        (true, "otel:4318", "/v1/traces"),
    );
    check(
        &[endpoint("https://otel/base/")],
        (true, "otel:4318", "/base/v1/traces"),
    );
    check(
        &[endpoint("http://[::1]:9")],
        (false, "[::1]:9", "/v1/traces"),
    );
    check(
        &[endpoint("http://a"), of_traces("http://b:1/x?y=z")],
        (false, "b:1", "/x?y=z"),
    );
    check(&[of_traces("http://b:1")], (false, "b:1", "/"));
    check(&[GRPC], (false, "localhost:4317", EXPORT));
    check(
        &[GRPC, endpoint("http://otel:1/ignored")],
        (false, "otel:1", EXPORT),
    );
    check(&[GRPC, endpoint("otel:1")], (true, "otel:1", EXPORT));
    check(
        &[
            GRPC,
            endpoint("otel:1"),
            ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
        ],
        (false, "otel:1", EXPORT),
    );
    check(
        &[
            GRPC,
            endpoint("https://otel"),
            ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
        ],
        (true, "otel:4317", EXPORT),
    );
}

#[test]
fn defaults_are_those_of_the_reference() {
    let traces = parse(&[]).unwrap().traces.unwrap();
    assert_eq!(
        (&*traces.service[0], &*traces.service[1]),
        ("RateLimit", "")
    );
    let instance: Vec<_> = traces.service[2].split('-').map(str::len).collect();
    assert_eq!(instance, [8, 4, 4, 4, 12], "{}", traces.service[2]);
    assert!(
        traces.service[2].as_bytes()[14] == b'4',
        "{}",
        traces.service[2]
    );
    assert_eq!(
        (traces.sampling_rate, traces.collector.protocol),
        (1.0, TraceProtocol::Http)
    );
    assert_eq!(
        (traces.delay.as_secs(), traces.collector.timeout.as_secs()),
        (5, 10)
    );
}

#[test]
fn mistakes_are_told_all_at_once_and_only_when_traces_are_wanted() {
    let wrong = [
        ("TRACING_SAMPLING_RATE", "2"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "otel:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret-token"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0"),
    ];
    let text = parse(&wrong).unwrap_err();
    for (name, _) in wrong {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(!text.contains("secret-token"), "{text}");
    let others = [&[("TRACING_ENABLED", "false")], &wrong[1..]].concat();
    assert!(
        Settings::parse(&variables(&others).into_iter().collect())
            .unwrap()
            .traces
            .is_none()
    );
    let protocol = parse(&[("TRACING_EXPORTER_PROTOCOL", "udp")]).unwrap_err();
    assert!(protocol.contains("TRACING_EXPORTER_PROTOCOL"), "{protocol}");
}

#[test]
fn headers_are_never_printed() {
    let settings = parse(&[(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "authorization=Bearer%20secret",
    )])
    .unwrap();
    assert!(!format!("{settings:?}").contains("secret"));
}

#[test]
fn the_password_of_an_endpoint_is_never_printed() {
    for name in [
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    ] {
        let text = parse(&[(name, "http://ada:hunter2@otel:4318")]).unwrap_err();
        assert!(
            text.contains(&format!("{name}='http://*****@otel:4318': expected")),
            "{text}"
        );
        assert!(
            text.ends_with("what is secret belongs in OTEL_EXPORTER_OTLP_HEADERS"),
            "{text}"
        );
    }
}
