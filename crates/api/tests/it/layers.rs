//! The layers of the crate, highest first: imports go down only.

#[path = "../../../layers.rs"]
mod checker;

const LAYERS: &[&[&str]] = &[
    &["routes"],
    &["page"],
    &["events"],
    &["limits"],
    &["jobs"],
    &["workflows"],
    &["workers"],
    &["status"],
    &["views"],
    &["state"],
    &["http"],
];
const NEVER: &[(&str, &str)] = &[];
const MIN_IMPORTS: usize = 300;
/// Today's exceptions, in the words of `crates/layers.rs`.
const KNOWN: &[&str] = &[
    "openapi belongs to routes",
    "http/route belongs to routes",
    "live belongs to events",
    "queues belongs to workers",
    "policies belongs to workers",
    "overview belongs to status",
    "readiness belongs to status",
    "test_clock belongs to status",
    "workflows/limits belongs to views",
    "jobs/view belongs to views",
    "workflows/view belongs to views",
    "store_gate belongs to state",
    "error_log belongs to state",
    "traces belongs to state",
    "metrics belongs to state",
    "limits/configuration/loads belongs to state",
    "duration_text belongs to http",
    "http/auth imports routes/route",
    "http/request imports events/follower",
    "http/request imports limits",
    "http/request imports routes/route",
    "http/request imports state/config_status",
    "http/request imports state/error_log",
    "http/request imports state/feeds",
    "http/request imports state/history",
    "http/request imports state/metrics",
    "http/request imports state/store_gate",
    "http/request imports state/traces",
    "http/request imports state/worker_registry",
    "http/request imports status/readiness",
    "state/feeds/frames imports events",
    "state/feeds/frames imports views/workflow",
    "status/overview imports limits",
    "views/job imports jobs/why",
    "workers imports jobs/claims",
    "workers/queues imports jobs/claims",
    "events is in a circle of 10 files",
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
