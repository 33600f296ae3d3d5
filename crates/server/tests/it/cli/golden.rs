//! What commands show on terminals of 80 and 200 columns, beside the files in `golden`.
//! `TIDEGATE_GENERATE=1 cargo test -p tidegate --test it cli::golden` writes the files.

use super::*;
use crate::support::{Limits, await_that};

const LIMITS: &str = "\
domain: vendor
descriptors:
  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 10}}
  - key: plan
    value: free
    descriptors:
      - {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}
";

/// Commands in the order in which they are run. `ID` stands for a workflow that failed.
const COMMANDS: [&str; 34] = [
    "status",
    "workflow list",
    "workflow list -o wide",
    "workflow list --status running -o name",
    "workflow count",
    "workflow count --by-name",
    "workflow show ID",
    "workflow graph ID",
    "workflow logs ID",
    "job list ID",
    "job list ID --state blocked",
    "job show ID fetch",
    "job log ID fetch",
    "failure list",
    "queue list",
    "queue pause default",
    "queue list -o wide",
    "queue resume default",
    "worker list",
    "worker show w",
    "worker drain w",
    "limit check vendor plan=free user=ada",
    "limit check vendr tenant=acme",
    "limit pause --rule vendor.tenant --reason down --for 30d",
    "limit overrides",
    "limit list",
    "limit waiting",
    "limit resume --rule vendor.tenant",
    "workflow retry ID",
    "workflow pause ID",
    "workflow cancel --status paused --dry-run",
    "workflow cancel ID",
    "workflow show nope",
    "workflow lst",
];

/// A text without what differs from run to run: ids, times, and the widths of columns that follow from them.
fn settled(text: &str) -> String {
    let line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let cells = line.trim().split("  ").filter(|cell| !cell.is_empty());
        let cells: Vec<String> = cells.map(|cell| settled_cell(cell.trim())).collect();
        format!("{}{}\n", " ".repeat(indent), cells.join("  "))
    };
    plain(text).lines().map(line).collect()
}

fn settled_cell(cell: &str) -> String {
    let words: Vec<String> = cell.split(' ').map(settled_word).collect();
    let text = words.join(" ").replace("DATE TIME", "TIME");
    text.replace("just now", "SPAN ago")
}

fn settled_word(word: &str) -> String {
    let bare = word.trim_end_matches([',', ':', ')']);
    let rest = &word[bare.len()..];
    let is_id = bare.len() >= 12
        && bare.starts_with("01")
        && bare
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let is_span = bare.starts_with(|c: char| c.is_ascii_digit())
        && bare.ends_with(['s', 'm', 'h', 'd'])
        && bare
            .chars()
            .all(|c| c.is_ascii_digit() || ".usmhd".contains(c));
    let is_date = bare.len() == 10 && bare.matches('-').count() == 2;
    let is_time = bare.ends_with('Z') && bare.matches(':').count() == 2;
    let is_address = bare.contains("127.0.0.1:");
    let is_version = bare.starts_with("0.1.0");
    let known = [
        (is_id, "ID"),
        (is_span, "SPAN"),
        (is_date, "DATE"),
        (is_time, "TIME"),
        (is_address, "ADDRESS"),
        (is_version, "VERSION"),
    ];
    let name = known
        .into_iter()
        .find_map(|(is_it, name)| is_it.then_some(name));
    name.map_or_else(|| word.to_owned(), |name| format!("{name}{rest}"))
}

/// Runs all commands on a terminal of so many columns.
fn session(columns: u16) -> String {
    let limits = Limits::new(LIMITS);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    let failed = failing(&flows);
    let running = flows.claim(1);
    flows.post(
        "/v1/jobs/extend",
        serde_json::json!({"leases": [], "notes": [{"lease": running[0]["lease"], "log": ["first line"]}]}),
    );
    flows.fail(&running[0]);
    flows.create(workflow("report", "fetch send<fetch mail<send"));
    flows.claim(1);
    await_that("rates are known", || {
        let shown = flows.get("/v1/limits/configuration");
        shown["domains"][0]["descriptors"][0]["limit"]["now"].is_object()
    });
    let mut text = String::new();
    for line in COMMANDS {
        let line = line.replace("ID", &failed);
        let words: Vec<&str> = line.split(' ').collect();
        let (code, shown) = on_terminal(&mut ask(&flows, &words), columns);
        let width = shown.lines().map(|line| plain(line).chars().count()).max();
        let has_long_lines = line.contains("-o wide");
        assert!(
            has_long_lines || width.unwrap_or_default() <= columns.into(),
            "{line}: {shown}"
        );
        let code = code.unwrap();
        let shown = shown.replace(limits.root(), "FOLDER");
        text += &settled(&format!("$ tidegate {line}\n{shown}"));
        text += &format!("-> {code}\n\n");
    }
    text
}

#[expect(
    clippy::disallowed_methods,
    reason = "whoever runs the test says whether to write the files"
)]
fn check(columns: u16) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/it/cli/golden/{columns}.txt"));
    let found = session(columns);
    if std::env::var_os("TIDEGATE_GENERATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    for (found, expected) in found.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(found, expected, "{}", file.display());
    }
    assert_eq!(found.len(), expected.len(), "{}", file.display());
}

#[test]
fn commands_look_as_they_should_on_80_columns() {
    check(80);
}

#[test]
fn commands_look_as_they_should_on_200_columns() {
    check(200);
}
