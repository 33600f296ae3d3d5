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
    "codec/records imports store/error",
    "graph imports codec/graph_record",
    "machine/rebase imports store/error",
    "machine/workflow imports store/error",
    "model/json imports graph/trace",
    "model/workflow_state imports codec/change",
    "model/workflow_state imports graph/definition",
    "queue/blocked_limits imports engine/limits",
    "queue/ready_jobs/limit_group imports engine/limits",
    "queue/waiting imports engine/actor/answer",
    "queue/waiting/waiting_claim imports engine/actor/answer",
    "store imports engine/membership",
    "store/redis/messaging/servers imports engine/membership",
    "codec/change is in a circle of 14 files",
    "codec/format is in a circle of 4 files",
    "engine is in a circle of 70 files",
    "engine/claim/refill has 520 lines",
    "engine/limits/charge has 539 lines",
    "engine/membership/notifications has 518 lines",
    "queue/ready_jobs has 537 lines",
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
