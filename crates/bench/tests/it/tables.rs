//! Every comparison, run small: that it starts its servers, measures each variant and leaves its figures.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Builds the server that is to be measured, and returns its program. It is built with all tests: alone it would have other features, and
/// so would most of what it depends on.
fn server() -> PathBuf {
    let bench = Path::new(env!("CARGO_BIN_EXE_tidegate-bench"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["test", "--quiet", "--workspace", "--no-run"]);
    // What cargo tells a running test of its package would look like a change to some build scripts, and be built for.
    for about in [
        "NAME",
        "VERSION",
        "VERSION_MAJOR",
        "VERSION_MINOR",
        "VERSION_PATCH",
        "VERSION_PRE",
    ] {
        build.env_remove(format!("CARGO_PKG_{about}"));
    }
    build.env_remove("CARGO_MANIFEST_DIR");
    if bench.parent().unwrap().ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    bench.with_file_name("tidegate")
}

/// Runs a command of the bench and returns what it printed.
fn bench(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

/// Each figure of an array is above zero, and there is one for each round.
fn positive(figures: &Value, name: &str, rounds: usize) {
    let figures = array(figures);
    assert!(
        figures
            .iter()
            .all(|figure| figure[name].as_f64().unwrap() > 0.0),
        "{name}: {figures:?}"
    );
    assert_eq!(figures.len(), rounds, "{name}");
}

// One test, because each of the comparisons would have the machine for itself.
#[test]
fn every_comparison_measures_all_of_its_variants() {
    let program = server();
    let program = program.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().to_str().unwrap();
    bench(&["all", "--quick", "--server", program, "--results", results]);
    let file = folder.path().join("run.json");
    let run = read(&file);
    decisions(&run["compare"]);
    engine(&run);
    service(&run);
    graphs(&run);

    let tables = bench(&["tables", "--run", file.to_str().unwrap()]);
    for text in [
        "Tidegate, Redis",
        "Zipf",
        "redis-benchmark",
        "blocks",
        "linear, 16",
        "no-op jobs/s",
        "crossings",
    ] {
        assert!(tables.contains(text), "no table has '{text}':\n{tables}");
    }

    let builds = [
        "--a",
        program,
        "--b",
        program,
        "--rounds",
        "2",
        "--turn",
        "60ms",
        "--results",
        results,
    ];
    let builds = [&builds[..], &["--only", "workflows"]].concat();
    let shown = bench(&[&["ab"][..], &builds].concat());
    assert!(
        shown.contains("job, Redis") && shown.contains("page of 100, SQLite"),
        "{shown}"
    );
    two_builds(&read(&folder.path().join("ab.json")));

    let small = [
        "--scale",
        "0.02",
        "--turn",
        "60ms",
        "--server",
        program,
        "--results",
        results,
    ];
    bench(
        &[
            &["hostile", "--only", "slow,large-replaces,domains"][..],
            &small,
        ]
        .concat(),
    );
    attacks(&read(&folder.path().join("hostile.json")));

    let short = [
        "--rounds",
        "1",
        "--turn",
        "60ms",
        "--server",
        program,
        "--results",
        results,
    ];
    bench(&[&["features"][..], &short].concat());
    let features = read(&folder.path().join("features.json"));
    assert_eq!(array(&features["rows"]).len(), 8, "{features}");
    array(&features["rows"])
        .iter()
        .for_each(|row| positive(&row["turns"], "server_us", 1));

    let few = [
        "--reloads",
        "200",
        "--server",
        program,
        "--results",
        results,
    ];
    bench(&[&["reloads"][..], &few].concat());
    let reloads = read(&folder.path().join("reloads.json"));
    assert_eq!(
        (
            reloads["reloads"].as_u64(),
            reloads["with"]["failed"].as_u64()
        ),
        (Some(200), Some(0)),
        "{reloads}"
    );
}

fn attacks(hostile: &Value) {
    let rows = array(&hostile["rows"]);
    assert_eq!(rows.len(), 3);
    for row in rows {
        for turn in ["before", "during", "after"] {
            assert!(row[turn]["answered"].as_u64().unwrap() > 0, "{row}");
        }
        assert!(
            (1..=row["counted"].as_u64().unwrap()).contains(&row["charged"].as_u64().unwrap()),
            "{row}"
        );
        assert!(
            !row["got"]["counts"].as_object().unwrap().is_empty(),
            "{row}"
        );
    }
}

fn decisions(compare: &Value) {
    // Memory and Redis, one descriptor and ten, four kinds of load; memcached with one kind.
    assert_eq!(array(&compare["decisions"]).len(), 18);
    for row in array(&compare["decisions"]) {
        positive(&row["turns"], "per_second", 1);
        positive(&row["turns"], "server_us", 1);
        assert_eq!(
            row["store"] == "redis",
            row["turns"][0]["redis_us"].is_f64(),
            "{row}"
        );
    }
}

fn engine(run: &Value) {
    assert_eq!(array(&run["pipelining"]["rows"]).len(), 4);
    for row in array(&run["pipelining"]["rows"]) {
        positive(&row["engine"], "commands_per_second", 1);
        positive(&row["engine"], "commands_per_write", 1);
    }
    let cells = array(&run["pipelines"]["cells"]);
    assert_eq!(cells.len(), 7);
    for cell in cells {
        positive(&cell["serial_by_key"]["latency"], "mean_ms", 1);
        positive(&cell["parallel_by_node"]["latency"], "p99_ms", 1);
    }
    // Five round trips against one: whatever else the machine does, the order is plain.
    let mean = |design: &str| cells[2][design]["latency"][0]["mean_ms"].as_f64().unwrap();
    assert!(
        mean("serial_by_key") > 20.0 && mean("serial_by_key") > mean("parallel_by_node"),
        "{}",
        cells[2]
    );
    let rows = array(&run["connections"]["rows"]);
    assert_eq!(rows.len(), 12);
    for row in rows {
        positive(&row["turns"], "connections_in_spike", 1);
    }
}

fn service(run: &Value) {
    let rows = array(&run["round_trips"]["rows"]);
    assert_eq!(rows.len(), 5);
    for row in rows {
        positive(&row["serial"], "mean_ms", 1);
        positive(&row["parallel"], "mean_ms", 1);
    }
    let cells = array(&run["callers"]["cells"]);
    assert_eq!(cells.len(), 8);
    for cell in cells {
        positive(&cell["turns"], "per_second", 1);
    }
}

fn graphs(run: &Value) {
    for part in ["creation", "execution"] {
        assert_eq!(array(&run["workflow"][part]).len(), 2);
    }
    let rows = array(&run["layout"]["rows"]);
    assert_eq!(rows.len(), 12);
    for row in rows {
        assert!(row["dependencies"].as_u64() > Some(0), "{row}");
        assert!(
            row["crossings_as_drawn"].as_u64() <= row["crossings_by_definition"].as_u64(),
            "{row}"
        );
        assert!(row["svg_bytes"].as_u64() > Some(1_000), "{row}");
    }
}

fn two_builds(figures: &Value) {
    // Workflows created, executed and listed: each with its rate and the server's time, and Redis's where there is one.
    let rows = array(&figures["rows"]);
    assert_eq!(rows.len(), 3 * 2 + 3 * 3);
    for row in rows {
        assert_eq!(array(&row["pairs"]).len(), 2, "{row}");
        assert!(
            row["ratio"]["low"].as_f64() <= row["ratio"]["high"].as_f64(),
            "{row}"
        );
    }
}

#[test]
fn the_tables_of_the_document_are_those_of_its_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let run = root.join("docs/benchmarks.json");
    for (option, name) in [
        ("--document", "docs/benchmarks.md"),
        ("--readme", "README.md"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy.md");
        std::fs::copy(root.join(name), &copy).unwrap();
        bench(&[
            "tables",
            "--run",
            run.to_str().unwrap(),
            option,
            copy.to_str().unwrap(),
        ]);
        let filled = std::fs::read_to_string(copy).unwrap();
        let committed = std::fs::read_to_string(root.join(name)).unwrap();
        assert!(
            filled == committed,
            "{name} does not have the figures of docs/benchmarks.json: make publish"
        );
    }
}
