//! Configuration from a management server.

mod envoy;
mod faults;
mod floods;
pub(crate) mod management;
mod reloads;
pub(crate) mod tls;

use management::{Management, TYPE, limits, mistaken};
use prost_types::Any;
use tidegate::discovery::ratelimit::config::ratelimit::v3::{RateLimitConfig, RateLimitDescriptor};

use crate::support::{Server, await_that, get};

/// A server that asks the management server at `address`, with short waits.
fn start(address: &str, more: &[(&str, &str)]) -> Server {
    let settings = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", address),
        ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "20ms"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "20ms"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "100ms"),
    ];
    Server::start_bare(&[&settings, more].concat())
}

fn start_at(management: &Management, more: &[(&str, &str)]) -> Server {
    start(&management.address.to_string(), more)
}

/// Waits until the limit is `requests`.
#[track_caller]
fn await_limit(server: &Server, requests: u32) {
    let line = format!("shop.user: unit=HOUR requests_per_unit={requests},");
    await_that(&line, || {
        get(server.debug(), "/rlconfig").body.contains(&line)
    });
}

#[test]
fn ports_wait_for_the_first_configuration() {
    let management = Management::start();
    let address = management.address.to_string();
    let starting = std::thread::spawn(move || start(&address, &[]));
    let first = management.await_request("the first request", |_| true);
    assert_eq!(
        (
            &*first.version_info,
            &*first.response_nonce,
            &*first.type_url
        ),
        ("", "", TYPE)
    );
    assert!(first.resource_names.is_empty() && first.error_detail.is_none());
    assert!(
        !starting.is_finished(),
        "it started without a configuration"
    );
    management.publish("v1", &[limits(1)]);
    let server = starting.join().unwrap();
    await_limit(&server, 1);
    assert_eq!(
        server.started.configuration,
        format!("management server {}", management.address)
    );
    assert_eq!(server.stat("ratelimit.service.config_load_success"), 1);
    assert_eq!(server.stat("tidegate.config.server_connected"), 1);
}

#[test]
fn a_start_that_is_forced_waits_for_nobody_and_health_for_the_configuration() {
    let management = Management::start();
    let forced = [
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
    ];
    let server = start_at(&management, &forced);
    assert_eq!(get(server.http(), "/healthcheck").status, 500);
    management.publish("v1", &[limits(1)]);
    await_that("health", || {
        get(server.http(), "/healthcheck").status == 200
    });
    management.publish("v2", &[]);
    await_that("there are no limits", || {
        get(server.http(), "/healthcheck").status == 500
    });
    management.await_acknowledged("v2");
}

#[test]
fn updates_are_acknowledged_and_the_server_is_told_who_asks() {
    let management = Management::start();
    management.publish("v1", &[limits(1)]);
    let server = start_at(
        &management,
        &[
            ("CONFIG_GRPC_XDS_NODE_ID", "node-7"),
            ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a,left out,team=b=c"),
            (
                "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
                "Authorization:Bearer t,x-more:1,x-raw-bin:ab",
            ),
        ],
    );
    for requests in [2, 3] {
        management.publish(&format!("v{requests}"), &[limits(requests)]);
        await_limit(&server, requests);
        management.await_acknowledged(&format!("v{requests}"));
    }
    let requests = management.requests();
    let told: Vec<_> = requests
        .iter()
        .map(|each| (&*each.version_info, &*each.response_nonce))
        .collect();
    assert_eq!(told, [("", ""), ("v1", "n0"), ("v2", "n1"), ("v3", "n2")]);
    let node = requests[0].node.clone().unwrap();
    let metadata = node.metadata.unwrap().fields;
    assert_eq!(node.id, "node-7");
    assert_eq!(metadata.len(), 2);
    assert_eq!(metadata["team"], prost_types::Value::from("b=c"));
    let [headers] = &management.headers()[..] else {
        panic!("one stream")
    };
    assert_eq!(
        (&headers["authorization"], &headers["x-more"]),
        (&"Bearer t".parse().unwrap(), &"1".parse().unwrap())
    );
    assert_eq!(
        headers["x-raw-bin"], "YWI",
        "a binary header is sent as base64"
    );
    assert!(
        headers["user-agent"]
            .to_str()
            .unwrap()
            .starts_with("tidegate/")
    );
}

#[test]
fn a_refused_version_is_named_by_its_nonce_only_and_changes_nothing() {
    let management = Management::start();
    management.publish("v1", &[limits(1)]);
    let server = start_at(&management, &[]);
    management.publish("v2", &[mistaken()]);
    let refusal = management.await_request("the refusal", |request| request.error_detail.is_some());
    assert_eq!(
        (&*refusal.version_info, &*refusal.response_nonce),
        ("v1", "n1")
    );
    assert_eq!(
        refusal.error_detail.unwrap().message,
        "shop limits: invalid rate limit unit 'UNKNOWN'"
    );
    await_limit(&server, 1);
    assert_eq!(server.stat("ratelimit.service.config_load_error"), 1);
    management.publish("v3", &[limits(3)]);
    await_limit(&server, 3);
    management.await_acknowledged("v3");
}

/// The reference claims the version that it has refused when it connects again.
#[test]
fn a_new_stream_claims_the_version_in_force_and_not_the_one_that_was_refused() {
    let first = Management::start();
    first.publish("v1", &[limits(1)]);
    let server = start_at(&first, &[]);
    first.publish("v2", &[mistaken()]);
    first.await_request("the refusal", |request| request.error_detail.is_some());
    let address = first.address;
    drop(first);
    await_that("the loss is noticed", || {
        server.stat("tidegate.config.server_connected") == 0
    });
    await_limit(&server, 1);

    let second = Management::start_at(address, None);
    let again = second.await_request("the first request", |_| true);
    assert_eq!((&*again.version_info, &*again.response_nonce), ("v1", ""));
    assert!(again.error_detail.is_none());
    second.publish("v3", &[limits(3)]);
    await_limit(&server, 3);
}

#[test]
fn resources_of_one_domain_are_merged_only_when_told_so() {
    let other = RateLimitConfig {
        name: "other".into(),
        domain: "shop".into(),
        descriptors: vec![RateLimitDescriptor {
            key: "other".into(),
            ..RateLimitDescriptor::default()
        }],
    };
    for (merge, expected) in [
        ("true", None),
        (
            "false",
            Some("shop limits: duplicate domain 'shop' in config file"),
        ),
    ] {
        let management = Management::start();
        management.publish("v1", &[limits(1), other.clone()]);
        let server = start_at(&management, &[("MERGE_DOMAIN_CONFIG", merge)]);
        let answer =
            management.await_request("an answer", |request| !request.response_nonce.is_empty());
        assert_eq!(
            answer.error_detail.map(|detail| detail.message).as_deref(),
            expected
        );
        assert_eq!(
            get(server.debug(), "/rlconfig").body.is_empty(),
            expected.is_some()
        );
    }
}

#[test]
fn what_is_no_configuration_of_limits_is_refused() {
    let management = Management::start();
    let server = start_at(
        &management,
        &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")],
    );
    let refused = |version: &str, type_url: &str, resource: Any, expected: &str| {
        management.send(version, type_url, vec![resource]);
        management.await_request(expected, |request| {
            request
                .error_detail
                .as_ref()
                .is_some_and(|detail| detail.message.starts_with(expected))
        });
    };
    let any = |type_url: &str, value: &[u8]| Any {
        type_url: type_url.into(),
        value: value.to_vec(),
    };
    refused(
        "a",
        "type.googleapis.com/x.Y",
        any(TYPE, b""),
        "the response is of type 'type.googleapis.com/x.Y'",
    );
    refused(
        "b",
        TYPE,
        any("type.googleapis.com/x.Y", b""),
        "resource 0 is of type 'type.googleapis.com/x.Y'",
    );
    refused(
        "c",
        TYPE,
        any(TYPE, b"nonsense"),
        "resource 0 cannot be decoded: ",
    );
    assert_eq!(server.stat("ratelimit.service.config_load_error"), 3);
    management.publish("d", &[limits(4)]);
    await_limit(&server, 4);
}
