//! The layers of the crate, highest first: imports go down only.

#[path = "../../../layers.rs"]
mod checker;

const LAYERS: &[&[&str]] = &[
    &["commands"],
    &["run"],
    &["workflows"],
    &["rls"],
    &["telemetry"],
    &["net"],
    &["supervise"],
    &["settings"],
    &["tls"],
    &["base"],
];
const NEVER: &[(&str, &str)] = &[];
const MIN_IMPORTS: usize = 500;
/// Today's exceptions, in the words of `crates/layers.rs`.
const KNOWN: &[&str] = &[
    "server belongs to run",
    "drain belongs to run",
    "version belongs to base",
    "telemetry/banner belongs to run",
    "reload belongs to rls",
    "net/clock belongs to base",
    "net/runtime belongs to supervise",
    "tls/follow belongs to net",
    "tls/counts belongs to net",
    "telemetry/health belongs to supervise",
    "regular_file belongs to base",
    "quote belongs to base",
    "error belongs to supervise",
    "net/certificate_reload imports telemetry/metrics",
    "net/connection imports rls/grpc",
    "net/cores imports rls/call",
    "net/cores imports rls/grpc",
    "settings imports net/dial",
    "settings/files/xds imports net/dial",
    "settings/workflows imports net/certificate_reload",
    "telemetry/health imports telemetry/metrics/method_counts",
    "telemetry/health imports telemetry/metrics/shard",
    "tls imports net/certificate_reload",
    "tls imports tls/counts",
    "tls/store imports net/certificate_reload",
    "commands/audit is in a circle of 4 files",
    "net/certificate_reload is in a circle of 43 files",
    "src has 13 entries",
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
