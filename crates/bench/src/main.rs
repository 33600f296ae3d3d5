//! The `tidegate-bench` binary.
fn main() {}
