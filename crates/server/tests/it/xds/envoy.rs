//! Real Envoy in front of a server that is configured over mutual TLS.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::management::{Management, limits};
use super::start_at;
use super::tls::{guarded, put, settings};
use crate::rls::envoy::{OnOutage, front, get};
use crate::support::await_that;
use crate::tls::authority::{Authority, Folder, borrowed};

/// Far above the second within which a new limit is in force on a machine with time.
const SOON: Duration = Duration::from_secs(10);

/// Publishes a limit of the domain of examples/envoy.
fn publish(management: &Management, version: &str, requests: u32) {
    let mut config = limits(requests);
    config.domain = "example".into();
    management.publish(version, &[config]);
}

#[test]
fn a_limit_that_changes_under_load_fails_no_request_and_is_soon_in_force() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    put(&folder, &authority, &authority);
    let management = guarded(&authority, "127.0.0.1");
    publish(&management, "v0", 1_000_000);
    let server = start_at(&management, &borrowed(&settings(&folder)));
    management.await_acknowledged("v0");
    // A failed call would be a status of 500.
    let (_envoy, port) = front(server.grpc().port(), OnOutage::Refuse);

    let (done, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let users = ["ada", "grace"].map(|user| {
            let (done, sent) = (&done, &sent);
            scope.spawn(move || {
                let mut statuses = Vec::new();
                while !done.load(Relaxed) {
                    statuses.push(get(port, Some(user)));
                    sent.fetch_add(1, Relaxed);
                }
                statuses
            })
        });
        for version in 1..=10 {
            let (requests, expected) = if version % 2 == 1 {
                (0, 429)
            } else {
                (1_000_000, 200)
            };
            let started = Instant::now();
            publish(&management, &format!("v{version}"), requests);
            while get(port, Some("probe")) != Some(expected) {
                assert!(
                    started.elapsed() < SOON,
                    "version {version} is not in force"
                );
            }
            println!("version {version} in force after {:?}", started.elapsed());
            let before = sent.load(Relaxed);
            await_that("requests under this version", || {
                sent.load(Relaxed) >= before + 20
            });
        }
        done.store(true, Relaxed);
        for user in users {
            let statuses = user.join().unwrap();
            let failed: Vec<_> = statuses
                .iter()
                .filter(|status| !matches!(status, Some(200 | 429)))
                .collect();
            assert!(
                failed.is_empty() && statuses.contains(&Some(200)) && statuses.contains(&Some(429)),
                "{failed:?}"
            );
            println!("{} requests, none failed", statuses.len());
        }
    });
}
