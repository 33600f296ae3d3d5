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
const NEVER: &[(&str, &str)] = &[
    ("machine/transition", "codec"),
    ("machine/attempt", "codec"),
    ("machine/operate", "codec"),
    ("machine/reachability", "codec"),
];
const MIN_IMPORTS: usize = 1010;
/// Today's exceptions, in the words of `crates/layers.rs`.
const KNOWN: &[&str] = &[
    "queue/waiting imports engine/actor/answer",
    "engine is in a circle of 49 files",
    "graph is in a circle of 10 files",
    "store is in a circle of 29 files",
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
