//! `tidegate demo`: what somebody sees who looks at the page for the first time.

use std::process::Command;

use serde_json::Value;

use super::process::Process;
use crate::support::{await_that, http_with};

fn demo(more: &[(&str, &str)]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("demo");
    Process::start_by(
        command,
        &[&[("TIDEGATE_HTTP_ADDR", "127.0.0.1:0")], more].concat(),
    )
}

#[test]
fn the_demo_has_workflows_with_logs_and_limits_that_refuse() {
    let server = demo(&[]);
    let api = server.address("API");
    assert!(
        server
            .banner
            .contains(&format!("  page           http://{api}/ ")),
        "{}",
        server.banner
    );
    let get = |path: &str| http_with(api, "GET", path, &[("host", "localhost")], b"").body;
    assert!(get("/").contains("<html"), "the page");
    let asked = |path: &str| serde_json::from_str::<Value>(&get(path)).unwrap();
    await_that(
        "an order that has ended well, and a limit that has refused",
        || {
            let ended = asked("/v1/workflows?status=succeeded&name=order");
            let refused = asked("/v1/limits/top");
            ended["items"][0].is_object()
                && refused["refusals"]
                    .as_array()
                    .is_some_and(|refusals| !refusals.is_empty())
        },
    );
    await_that("a paused key with its reason", || {
        let paused = asked("/v1/limits/overrides");
        paused["items"][0]["reason"] == "reported for abuse"
            && paused["items"][0]["gateway"] == true
    });
    for name in ["order", "thumbnails", "crawl", "report"] {
        let created = || asked(&format!("/v1/workflows?name={name}"))["items"][0].is_object();
        await_that(&format!("a workflow {name}"), created);
    }
    let order = asked("/v1/workflows?status=succeeded&name=order")["items"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let log = get(&format!("/v1/workflows/{order}/jobs/reserve/log"));
    assert!(
        log.contains("reserve: attempt 1") && log.contains("reserve has ended"),
        "{log}"
    );
}

/// Variables of a real server may be set where somebody tries the demo.
#[test]
fn the_demo_leaves_the_stores_of_others_alone() {
    let server = demo(&[
        ("REDIS_URL", "127.0.0.1:1"),
        ("TIDEGATE_STORE_URL", "redis://127.0.0.1:1"),
    ]);
    assert!(
        server
            .banner
            .contains("store          memory of this process"),
        "{}",
        server.banner
    );
    assert!(
        server
            .banner
            .contains("workflows      memory of this process"),
        "{}",
        server.banner
    );
}
