//! Users of Redis that may not do all.

use super::*;

#[test]
fn a_redis_user_that_may_only_count_is_enough_for_limits() {
    let redis = redis();
    redis_cli(
        &redis,
        &[
            "ACL", "SETUSER", "gate", "on", ">secret", "~*", "+incrby", "+expire", "+ping",
        ],
    );
    let url = redis.address().to_string();
    let flows = Flows::start(&[("REDIS_URL", &url), ("REDIS_AUTH", "gate:secret")]);
    check_limits(flows.server.http());
    check_unavailable(flows.api(), "NOPERM");
    // Permitted more, the server needs no restart. It looks every 10 s.
    redis_cli(&redis, &["ACL", "SETUSER", "gate", "+@all", "&*"]);
    await_available(flows.api());
}

/// The user that docs/redis-keys.md describes.
#[test]
fn a_redis_user_with_the_documented_commands_is_enough_for_workflows() {
    let redis = redis();
    let text = std::fs::read_to_string(repository().join("docs/redis-keys.md")).unwrap();
    let (_, rest) = text
        .split_once("ACL SETUSER tidegate reset on >SECRET ~rl:* ~tg:* ")
        .unwrap();
    // The counters of this server have no prefix, so the line has to say `~*`, as the page tells.
    let user = ["ACL", "SETUSER", "gate", "reset", "on", ">secret", "~*"];
    redis_cli(
        &redis,
        &user
            .into_iter()
            .chain(rest.lines().next().unwrap().split(' '))
            .collect::<Vec<_>>(),
    );
    let url = redis.address().to_string();
    let flows = Flows::start(&[
        ("REDIS_URL", &url),
        ("REDIS_AUTH", "gate:secret"),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ]);
    check_limits(flows.server.http());
    let id = flows.create(workflow("w", "a b<a"));
    for _ in 0..2 {
        flows.succeed(&flows.claim(1)[0], Value::from(1));
    }
    assert_eq!(
        flows.get(&format!("/v1/workflows/{id}"))["status"],
        "succeeded"
    );
    assert_eq!(flows.get("/v1/workflows")["items"][0]["id"], *id);
    // It is written and read in pieces.
    let jobs: Vec<String> = (0..5_000).map(|number| format!("j{number}")).collect();
    let large = flows.create(workflow("large", &jobs.join(" ")));
    flows.succeed(&flows.claim(1)[0], Value::from(1));
    assert_eq!(
        flows.get(&format!("/v1/workflows/{large}?view=full"))["job_counts"]["succeeded"],
        1
    );
    assert!(redis_cli(&redis, &["INFO", "commandstats"]).contains("cmdstat_hscan"));
}

#[test]
fn a_redis_that_lacks_what_workflows_need_is_enough_for_limits() {
    let redis = redis();
    redis_cli(
        &redis,
        &[
            "ACL", "SETUSER", "old", "on", ">secret", "~*", "+@all", "-zrange",
        ],
    );
    let url = redis.address().to_string();
    let flows = Flows::start(&[("REDIS_URL", &url), ("REDIS_AUTH", "old:secret")]);
    check_limits(flows.server.http());
    check_unavailable(flows.api(), "workflows need Redis 6.2 or later");
}
