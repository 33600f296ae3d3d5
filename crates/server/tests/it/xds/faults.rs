//! Management servers that fall silent, go away, or send too much.

use tidegate::discovery::ratelimit::config::ratelimit::v3::{RateLimitConfig, RateLimitDescriptor};

use super::management::{Management, limits};
use super::{await_limit, start, start_at};
use crate::operate::process::Process;
use crate::support::{await_that, get};

/// Descriptors that take about so many bytes together.
fn large(bytes: usize) -> RateLimitConfig {
    let descriptor = |number: usize| RateLimitDescriptor {
        key: format!("{number:01000}"),
        ..RateLimitDescriptor::default()
    };
    let mut config = limits(9);
    config
        .descriptors
        .extend((0..bytes / 1_000).map(descriptor));
    config
}

#[test]
fn a_server_that_is_not_there_is_asked_until_it_is() {
    let address = Management::start().address;
    let server = start(
        &address.to_string(),
        &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")],
    );
    let management = Management::start_at(address, None);
    management.publish("v1", &[limits(1)]);
    await_limit(&server, 1);
}

/// Its host is there and takes what is sent; the program does nothing.
#[test]
fn a_silent_server_is_left_and_asked_anew() {
    let management = Management::start();
    management.publish("v1", &[limits(1)]);
    let server = start_at(&management, &[("TIDEGATE_XDS_PING", "200ms")]);
    management.await_acknowledged("v1");
    management.freeze();
    await_that("another stream", || management.headers().len() == 2);
    management.publish("v2", &[limits(2)]);
    await_limit(&server, 2);
    let again = management
        .requests()
        .into_iter()
        .filter(|request| request.response_nonce.is_empty())
        .nth(1)
        .unwrap();
    assert_eq!(again.version_info, "v1");
}

/// Streams that had no news counted as failures, so that after some routine ends a change waited for the longest pause.
#[test]
fn a_server_that_ends_each_stream_after_a_second_is_asked_again_at_once() {
    let management = Management::start();
    management.publish("v1", &[limits(1)]);
    let long = [
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "1h"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1h"),
    ];
    management.end_streams_after(std::time::Duration::from_secs(1));
    let server = start_at(&management, &long);
    await_that("streams without news", || management.headers().len() >= 4);
    management.publish("v2", &[limits(2)]);
    await_limit(&server, 2);
}

#[test]
fn the_end_does_not_wait_for_a_silent_server() {
    let management = Management::start();
    let server = start_at(
        &management,
        &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")],
    );
    management.await_request("the first request", |_| true);
    management.freeze();
    let started = std::time::Instant::now();
    server.stop();
    assert!(
        started.elapsed() < std::time::Duration::from_secs(4),
        "the thread was waited for in vain"
    );
}

#[test]
fn a_message_above_the_bound_ends_the_stream_and_the_last_configuration_stays() {
    let management = Management::start();
    management.publish("v1", &[limits(1)]);
    let server = start_at(&management, &[]);
    management.publish("v2", &[large(5 << 20)]);
    await_that("another stream", || management.headers().len() >= 2);
    await_limit(&server, 1);
    management.publish("v3", &[limits(3)]);
    await_limit(&server, 3);
    assert!(
        management
            .requests()
            .iter()
            .all(|request| request.version_info != "v2")
    );
}

#[test]
fn a_larger_message_is_taken_when_the_bound_is_raised() {
    let management = Management::start();
    management.publish("v1", &[large(5 << 20)]);
    let server = start_at(
        &management,
        &[("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "8388608")],
    );
    await_limit(&server, 9);
}

/// A megabyte of empty descriptors would become 100 MB.
#[test]
fn more_objects_than_the_bound_are_refused_before_they_are_decoded() {
    let management = Management::start();
    let server = start_at(
        &management,
        &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")],
    );
    let descriptors = vec![RateLimitDescriptor::default(); 500_000];
    management.publish(
        "v1",
        &[RateLimitConfig {
            descriptors,
            ..limits(1)
        }],
    );
    let refusal = management.await_request("the refusal", |request| request.error_detail.is_some());
    let message = refusal.error_detail.unwrap().message;
    assert!(
        message.starts_with("the response has more than 500000 resources, descriptors,"),
        "{message}"
    );
    assert_eq!(
        (&*refusal.version_info, &*refusal.response_nonce),
        ("", "n0")
    );
    assert!(get(server.debug(), "/rlconfig").body.is_empty());
    management.publish("v2", &[limits(2)]);
    await_limit(&server, 2);
}

/// It comes again with each stream, and after some panics the server would end.
#[test]
fn a_version_at_which_the_thread_panics_is_refused_when_it_comes_again() {
    let management = Management::start();
    management.publish("v1", &[limits(1)]);
    let settings = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        (
            "CONFIG_GRPC_XDS_SERVER_URL",
            &*management.address.to_string(),
        ),
    ];
    let process = Process::start(&settings);
    management.await_acknowledged("v1");
    get(process.address("debug"), "/panic/xds");
    management.publish("v2", &[limits(2)]);
    let refusal = management.await_request("the refusal", |request| request.error_detail.is_some());
    assert_eq!(refusal.version_info, "v1");
    assert_eq!(
        refusal.error_detail.unwrap().message,
        "version v2 made a thread panic, and is not loaded again"
    );
    management.publish("v3", &[limits(3)]);
    management.await_acknowledged("v3");
}

/// Mistakes are bounded in number, for the log and for the answer.
#[test]
fn of_many_mistakes_the_first_are_told() {
    let management = Management::start();
    let _server = start_at(
        &management,
        &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")],
    );
    let many: Vec<_> = (0..1_000)
        .map(|number| RateLimitConfig {
            name: format!("{number:04}"),
            ..RateLimitConfig::default()
        })
        .collect();
    management.publish("v1", &many);
    let refusal = management.await_request("the refusal", |request| request.error_detail.is_some());
    let message = refusal.error_detail.unwrap().message;
    assert_eq!(message.lines().count(), 11, "{message}");
    assert!(
        message.starts_with("0000: config file cannot have empty domain\n0001: "),
        "{message}"
    );
    assert!(message.ends_with("\nand 90 more mistakes"), "{message}");
}
