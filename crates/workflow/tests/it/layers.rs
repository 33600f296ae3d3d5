//! The layers of the crate, highest first: imports go down only.

#[path = "../../../layers.rs"]
mod checker;

const LAYERS: &[&[&str]] = &[
    &["gush"],
    &["engine"],
    &["queue"],
    &["store"],
    &["machine"],
    &["codec"],
    &["drawing"],
    &["graph"],
    &["model"],
];
const NEVER: &[(&str, &str)] = &[("transition", "codec"), ("workflow/reachability", "codec")];
const MIN_IMPORTS: usize = 1020;
/// Today's exceptions, in the words of `crates/layers.rs`.
const KNOWN: &[&str] = &[
    "id belongs to model",
    "time belongs to model",
    "state belongs to model",
    "graph/json belongs to model",
    "codec/lease belongs to model",
    "graph/stored belongs to codec",
    "transition belongs to machine",
    "workflow belongs to machine",
    "engine/queues belongs to queue",
    "engine/membership/partitions belongs to queue",
    "engine/post/thread_map belongs to queue",
    "codec/compact_state imports store/error",
    "codec/job_note imports store/error",
    "codec/record imports store/error",
    "engine/queues/blocked_limits imports engine/limits",
    "engine/queues/dequeue imports engine/dispatch/thread_map",
    "engine/queues/known_jobs imports engine/dispatch/thread_map",
    "engine/queues/ready_jobs/limit_group imports engine/limits",
    "engine/queues/scheduler imports engine/dispatch/thread_map",
    "engine/queues/waiting imports engine/actor/answer",
    "engine/queues/waiting_claim imports engine/actor/answer",
    "graph/json imports graph/trace",
    "state imports codec/change",
    "state imports graph/definition",
    "store imports engine/membership",
    "store/redis/servers imports engine/membership",
    "workflow imports store/error",
    "workflow/rebase imports store/error",
    "codec/change is in a circle of 13 files",
    "codec/format is in a circle of 4 files",
    "engine is in a circle of 70 files",
    "engine has 17 entries",
    "engine/actor has 13 entries",
    "engine/queues has 20 entries",
    "graph has 14 entries",
    "store has 15 entries",
    "store/redis has 17 entries",
    "store/sqlite has 13 entries",
    "engine/claim/refill has 520 lines",
    "engine/limits/charge has 539 lines",
    "engine/membership/notifications has 517 lines",
    "engine/queues/ready_jobs has 535 lines",
];

#[test]
fn imports_go_down() {
    checker::check(
        env!("CARGO_MANIFEST_DIR"),
        &checker::Rules {
            layers: LAYERS,
            never: NEVER,
            min_imports: MIN_IMPORTS,
            known: KNOWN,
        },
    );
}
