//! Every comparison, run small: that it starts its servers, measures each variant and leaves its figures.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Builds the server that is to be measured, and returns its program. It is built with all tests: alone it would have other features, and
/// so would most of what it depends on.
fn server() -> PathBuf {
    let bench = Path::new(env!("CARGO_BIN_EXE_tidegate-bench"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["test", "--quiet", "--workspace", "--no-run"]);
    // What cargo tells a running test of its package would look like a change to some build scripts, and be built for.
    for about in ["NAME", "VERSION", "VERSION_MAJOR", "VERSION_MINOR", "VERSION_PATCH", "VERSION_PRE"] {
        build.env_remove(format!("CARGO_PKG_{about}"));
    }
    build.env_remove("CARGO_MANIFEST_DIR");
    if bench.parent().unwrap().ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    bench.with_file_name("tidegate")
}

/// Runs a comparison and returns its figures.
fn measure(name: &str, arguments: &[&str], shown: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args([&[name, "--results", results, "--turn", "60ms"], arguments].concat())
        .output()
        .unwrap();
    let (table, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {errors}");
    for text in shown {
        assert!(table.contains(text), "{name} does not show '{text}':\n{table}");
    }
    let json = std::fs::read(folder.path().join(format!("{name}.json"))).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// The number of figures of an array, each of them above zero.
fn positive(figures: &Value, name: &str) -> usize {
    let figures = figures.as_array().unwrap();
    assert!(figures.iter().all(|figure| figure[name].as_f64().unwrap() > 0.0), "{name}: {figures:?}");
    figures.len()
}

// One after the other, because each of them would have the machine for itself.
#[test]
fn every_comparison_measures_all_of_its_variants() {
    let one = ["--rounds", "1"];
    let figures = measure("pipelining", &[&one[..], &["--depths", "1,4"]].concat(), &["redis-benchmark", "blocking"]);
    assert_eq!(figures["rows"].as_array().unwrap().len(), 4);
    for row in figures["rows"].as_array().unwrap() {
        assert_eq!(positive(&row["engine"], "commands_per_second"), 1);
        assert_eq!(positive(&row["engine"], "commands_per_write"), 1);
    }

    let figures = measure("pipelines", &[&one[..], &["--one-way", "2ms"]].concat(), &["serial by key", "Saturated"]);
    let cells = figures["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 7);
    for cell in cells {
        assert_eq!(positive(&cell["serial_by_key"], "mean_ms"), 1);
        assert_eq!(positive(&cell["parallel_by_node"], "p99_ms"), 1);
    }
    // Five round trips against one: whatever else the machine does, the order is plain.
    let mean = |design: &str| cells[2][design][0]["mean_ms"].as_f64().unwrap();
    assert!(mean("serial_by_key") > 20.0 && mean("serial_by_key") > mean("parallel_by_node"), "{}", cells[2]);

    let spike = ["--callers", "8", "--calm-callers", "2", "--idle-timeout", "100ms"];
    let figures = measure("connections", &spike, &["random", "linear"]);
    assert_eq!(figures["rows"].as_array().unwrap().len(), 12);

    let figures = measure("layout", &["--jobs", "110,120", "--most", "1000"], &["crossings", "fan out and in"]);
    let rows = figures["rows"].as_array().unwrap();
    assert_eq!((rows.len(), positive(&json!(rows), "dependencies")), (12, 12));
    for row in rows {
        assert!(row["crossings"]["after"].as_u64() <= row["crossings"]["before"].as_u64(), "{row}");
        assert!(row["svg_bytes"].as_u64() > Some(1_000), "{row}");
    }

    let program = server();
    let through = [&one[..], &["--server", program.to_str().unwrap()]].concat();
    let figures = measure("round-trips", &[&through[..], &["--rate", "200"]].concat(), &["33.9", "parallel"]);
    assert_eq!(figures["rows"].as_array().unwrap().len(), 5);
    for row in figures["rows"].as_array().unwrap() {
        assert_eq!((positive(&row["serial"], "mean_ms"), positive(&row["parallel"], "mean_ms")), (1, 1));
    }
    let figures = measure("callers", &through, &["service, parallel", "engine, parallel by node"]);
    for variant in figures["variants"].as_array().unwrap() {
        for cell in variant["cells"].as_array().unwrap() {
            assert_eq!(positive(&cell["turns"], "per_second"), 1, "{variant}");
        }
    }

    let program = program.to_str().unwrap();
    let builds = ["--a", program, "--b", program, "--rounds", "2", "--only", "workflows"];
    let figures = measure("ab", &builds, &["job, Redis", "page of 100, SQLite", "95 % interval"]);
    // Created, executed and listed: with rate and server's time each, and Redis's where there is one.
    assert_eq!(figures["rows"].as_array().unwrap().len(), 3 * 3 + 3 * 2);
    for row in figures["rows"].as_array().unwrap() {
        assert_eq!(row["pairs"].as_array().unwrap().len(), 2, "{row}");
        assert!(row["ratio"]["low"].as_f64() <= row["ratio"]["high"].as_f64(), "{row}");
    }
}
