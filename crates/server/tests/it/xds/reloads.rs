//! Many reloads under load.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::management::{Management, limits};
use super::{await_limit, start_at};
use crate::support::{ask, await_that, channel, request};

#[test]
fn a_thousand_reloads_fail_no_call() {
    let management = Management::start();
    management.publish("v0", &[limits(1_000_000)]);
    let server = start_at(&management, &[]);
    let (done, grpc) = (AtomicBool::new(false), server.grpc());
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..2).map(|_| scope.spawn(|| calls(grpc, &done))).collect();
        for version in 1..=1000 {
            management.publish(&format!("v{version}"), &[limits(1_000_000 + version)]);
            await_that("the version", || {
                management.requests().last().unwrap().version_info == format!("v{version}")
            });
        }
        done.store(true, Relaxed);
        for caller in callers {
            assert!(caller.join().unwrap() > 0, "there was load");
        }
    });
    await_limit(&server, 1_001_000);
    assert_eq!(server.stat("ratelimit.service.config_load_success"), 1001);
    assert_eq!(server.stat("ratelimit.service.config_load_error"), 0);
}

/// Asks until told to stop; no call may fail, and none is refused.
fn calls(address: std::net::SocketAddr, done: &AtomicBool) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let channel = channel(address).await;
        let mut calls = 0;
        while !done.load(Relaxed) {
            let answer = ask(&channel, request("shop", &[&[("user", "ada")]]))
                .await
                .unwrap();
            assert_eq!(answer.overall_code, 1, "{answer:?}");
            assert!(
                answer.statuses[0].current_limit.is_some(),
                "there was a moment without a limit: {answer:?}"
            );
            calls += 1;
        }
        calls
    })
}
