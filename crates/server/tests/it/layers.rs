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
const KNOWN: &[&str] = &[];

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
