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
    // Variables that cargo sets for a running test would look like a change to some build scripts.
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

/// The rows of a table: labels, and the values of each figure by its head.
struct Rows(Vec<Row>);

struct Row {
    labels: String,
    figures: Vec<(String, Vec<f64>)>,
}

impl Rows {
    fn find(tables: &Value, name: &str) -> Self {
        let table = array(tables).iter().find(|table| table["name"] == name);
        let table = table.unwrap_or_else(|| panic!("there is no table {name}"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let heads = array(&table["figures"])
            .iter()
            .map(|figure| text(&figure["head"]));
        let heads: Vec<String> = heads.collect();
        let row = |row: &Value| {
            let labels: Vec<String> = array(&row["labels"]).iter().map(text).collect();
            let values = array(&row["values"]).iter();
            let numbers = |values: &Value| {
                array(values)
                    .iter()
                    .map(|value| value.as_f64().unwrap())
                    .collect()
            };
            let figures = heads.iter().cloned().zip(values.map(numbers));
            Row {
                labels: labels.join(", "),
                figures: figures.collect(),
            }
        };
        Self(array(&table["rows"]).iter().map(row).collect())
    }

    /// The values of a figure in each row that has some, with the labels of the row.
    fn values(&self, head: &str) -> Vec<(&str, &[f64])> {
        let mut found = Vec::new();
        for row in &self.0 {
            let figure = row.figures.iter().find(|(name, _)| name == head);
            if let Some((_, values)) = figure.filter(|(_, values)| !values.is_empty()) {
                found.push((row.labels.as_str(), values.as_slice()));
            }
        }
        found
    }

    /// `rows` rows have the figure, each with one value for each round, which is above zero.
    fn positive(&self, head: &str, rows: usize, rounds: usize) {
        let values = self.values(head);
        assert_eq!(values.len(), rows, "{head}: {values:?}");
        for (labels, values) in values {
            assert!(
                values.iter().all(|value| *value > 0.0),
                "{head} of {labels}: {values:?}"
            );
            assert_eq!(values.len(), rounds, "{head} of {labels}");
        }
    }
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
    decisions(&run);
    engine(&run);
    service(&run);
    workflows(&run);

    let tables = bench(&["tables", "--run", file.to_str().unwrap()]);
    for text in [
        "Tidegate, Redis",
        "Zipf",
        "redis-benchmark",
        "blocks",
        "linear, 16",
        "no-op jobs/s",
    ] {
        assert!(tables.contains(text), "no table has '{text}':\n{tables}");
    }

    let small = ["--rounds", "2", "--turn", "60ms", "--results", results];
    let builds = ["ab", "--a", program, "--b", program, "--only", "workflows"];
    let shown = bench(&[&builds[..], &small].concat());
    assert!(
        shown.contains("job, Redis") && shown.contains("page of 100, SQLite"),
        "{shown}"
    );
    two_builds(&read(&folder.path().join("ab.json")));

    let limits = [
        "workflow",
        "--limits",
        "--executed",
        "1000",
        "--waiting",
        "2000",
    ];
    bench(&[&limits[..], &["--server", program], &small].concat());
    limits_of_jobs(&read(&folder.path().join("limits.json")));
}

fn decisions(run: &Value) {
    let decisions = Rows::find(run, "decisions");
    // Memory and Redis, one descriptor and ten, four kinds of load; memcached with one kind. The reference may be there, too.
    let ours = decisions.values("decisions/s");
    let ours = ours
        .iter()
        .filter(|(labels, _)| labels.starts_with("Tidegate"));
    assert_eq!(ours.count(), 18);
    let rows = decisions.0.len();
    decisions.positive("decisions/s", rows, 1);
    decisions.positive("server CPU, us/decision", rows, 1);
    for row in &decisions.0 {
        let has_redis = row
            .figures
            .iter()
            .any(|(head, values)| head == "Redis CPU, us/decision" && !values.is_empty());
        assert_eq!(has_redis, row.labels.contains("Redis"), "{}", row.labels);
    }
    Rows::find(run, "idle").positive("resident MiB", 1, 1);
    Rows::find(run, "million-keys").positive("at most", 1, 1);
}

fn engine(run: &Value) {
    let pipelining = Rows::find(run, "pipelining");
    pipelining.positive("engine/s", 4, 1);
    pipelining.positive("commands/write", 4, 1);
    assert_eq!(Rows::find(run, "single").values("commands/s").len(), 3);
    let pipelines = Rows::find(run, "pipelines");
    pipelines.positive("p99 ms, by node", 7, 1);
    pipelines.positive("mean ms, serial by key", 7, 1);
    // Five round trips against one: whatever else the machine does, the order is plain.
    let mean = |design: &str| pipelines.values(&format!("mean ms, {design}"))[2].1[0];
    let (serial, parallel) = (mean("serial by key"), mean("by node"));
    assert!(
        serial > 20.0 && serial > parallel,
        "{serial} and {parallel} ms"
    );
    Rows::find(run, "connections").positive("connections in the spike", 6, 1);
}

fn service(run: &Value) {
    let round_trips = Rows::find(run, "round-trips");
    round_trips.positive("mean ms, serial", 5, 1);
    round_trips.positive("mean ms, parallel", 5, 1);
    Rows::find(run, "callers").positive("calls/s", 8, 1);
    Rows::find(run, "proxy").positive("p50 us", 3, 1);
}

fn workflows(run: &Value) {
    let creation = Rows::find(run, "creation");
    let execution = Rows::find(run, "execution");
    // BullMQ may be there, too.
    let with_bullmq = creation.0.len();
    assert!((2..=3).contains(&with_bullmq));
    creation.positive("bulk of 1,000, workflows/s", with_bullmq, 1);
    creation.positive("server CPU, us/workflow", 2, 1);
    execution.positive("no-op jobs/s", with_bullmq, 1);
    execution.positive("next of a chain p99, ms", 2, 1);
    Rows::find(run, "large").positive("all jobs done, s", 2, 1);
    Rows::find(run, "listing").positive("newest p50, ms", 3, 1);
    Rows::find(run, "recovery").positive("until a claim, ms", 1, 1);
}

fn two_builds(figures: &Value) {
    // Workflows created, executed and listed: each with its rate and the server's time, and Redis's where there is one.
    let rows = Rows::find(figures, "ab");
    rows.positive("A", 3 * 2 + 3 * 3, 2);
    let (low, high) = (rows.values("95 % from"), rows.values("to"));
    assert!(
        low.iter()
            .zip(&high)
            .all(|(low, high)| low.1[0] <= high.1[0])
    );
}

fn limits_of_jobs(figures: &Value) {
    Rows::find(figures, "limits").positive("no-op jobs/s", 6, 2);
    let behind = Rows::find(figures, "behind");
    behind.positive("wait p99, ms", 4, 2);
    behind.positive("server CPU, us/claim", 4, 2);
    behind.positive("Redis commands/claim", 2, 2);
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
