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
    "http/auth imports http/route",
    "http/request imports error_log",
    "http/request imports events/feeds",
    "http/request imports events/follower",
    "http/request imports http/route",
    "http/request imports limits",
    "http/request imports limits/configuration/loads",
    "http/request imports metrics",
    "http/request imports overview/history",
    "http/request imports readiness",
    "http/request imports store_gate",
    "http/request imports traces",
    "http/request imports workers/registry",
    "jobs/view imports jobs/why",
    "overview imports limits",
    "queues imports jobs/claims",
    "workers imports jobs/claims",
    "workflows/show imports events/feeds",
    "error_log is in a circle of 10 files",
    "src has 21 entries",
    "http has 13 entries",
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
