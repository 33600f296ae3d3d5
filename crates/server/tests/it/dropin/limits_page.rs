//! The page of a server that was started as `ratelimit`: the limits, which it shows and does not change.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::operate::process::Process;
use crate::support::Limits;
use crate::workflows::ask;

#[test]
fn one_variable_shows_the_limits_and_nothing_can_be_changed() {
    let limits = Limits::new(
        "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}\n",
    );
    let redis = crate::workflows::redis();
    let url = redis.address().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg0("/bin/ratelimit");
    let server = Process::start_by(
        command,
        &[
            ("RUNTIME_ROOT", limits.root()),
            ("USE_STATSD", "false"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", &url),
            ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ],
    );
    assert!(
        server.banner.contains("off; the page shows limits"),
        "{}",
        server.banner
    );
    let api = server.address("API");
    let get = |path: &str| ask(api, "GET", path, &[], "");
    assert!(get("/").body.contains("<script"), "the page is there");
    let shown = get("/v1/limits/configuration").body;
    assert!(shown.contains("\"rule\":\"shop.user\""), "{shown}");
    let status = get("/v1/status").body;
    assert!(status.contains("\"enabled\":false"), "{status}");
    assert_eq!(get("/readyz").status, 200);
    let found = get("/v1/search?q=user").body;
    assert!(found.contains("\"domain\":\"shop\""), "{found}");
    let workflows = get("/v1/workflows");
    assert_eq!(workflows.status, 404, "{workflows:?}");
    assert!(
        workflows.body.contains("TIDEGATE_STORE_URL=off"),
        "{workflows:?}"
    );
    let test = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}"#;
    assert_eq!(ask(api, "POST", "/v1/limits/check", &[], test).status, 200);
    let drain = ask(api, "POST", "/v1/workers/w:drain", &[], "");
    assert_eq!(drain.status, 404, "{drain:?}");
    let pause = r#"{"rule":"shop.user","pause":true}"#;
    let pause = ask(api, "PUT", "/v1/limits/overrides", &[], pause);
    assert_eq!(pause.status, 403, "{pause:?}");
}
