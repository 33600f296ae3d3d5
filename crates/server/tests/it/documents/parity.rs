//! docs/from-ratelimit.md: every variable of the reference has a row, and every test that a row names is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{ROOT, read};

/// Cells of the rows of all tables.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let lines = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| what |"));
    lines
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// All files of Rust in which a test may be.
pub(super) fn sources() -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            if entry.is_dir() {
                collect(&entry, found);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                found.push(entry);
            }
        }
    }
    let mut found = Vec::new();
    for krate in fs::read_dir(Path::new(ROOT).join("crates")).unwrap() {
        for folder in ["src", "tests/it"].map(|folder| krate.as_ref().unwrap().path().join(folder))
        {
            if folder.is_dir() {
                collect(&folder, &mut found);
            }
        }
    }
    found
}

/// Whether a function of this name is a test: what stands above it, up to an empty line, says so.
fn has_test(source: &str, function: &str) -> bool {
    let Some((before, _)) = source.split_once(&format!("fn {function}(")) else {
        return false;
    };
    let above = before.rsplit("\n\n").next().unwrap_or_default();
    ["#[test]", "#[tokio::test"]
        .iter()
        .any(|attribute| above.contains(attribute))
}

fn is_there(test: &str, sources: &[PathBuf]) -> bool {
    let Some((module, function)) = test.rsplit_once("::") else {
        return false;
    };
    let file = format!("/{}.rs", module.replace("::", "/"));
    let is_in = |path: &PathBuf| {
        let is_file = path.to_str().unwrap().ends_with(&file);
        is_file && has_test(&fs::read_to_string(path).unwrap(), function)
    };
    sources.iter().any(is_in)
}

#[test]
fn every_row_names_tests_that_exist() {
    let (page, sources) = (read("docs/from-ratelimit.md"), sources());
    let rows = rows(&page);
    assert!(rows.len() > 140, "{}", rows.len());
    let mut flaws = Vec::new();
    for row in rows {
        if row.len() != 3
            || row
                .iter()
                .any(|cell| cell.is_empty() || cell.contains("(to come)"))
        {
            flaws.push(format!(
                "three cells with text, none of it to come: {row:?}"
            ));
            continue;
        }
        let tests: Vec<&str> = quoted(row[2]).collect();
        if tests.is_empty() {
            flaws.push(format!("no test: {row:?}"));
        }
        let absent = tests.into_iter().filter(|test| !is_there(test, &sources));
        flaws.extend(absent.map(|test| format!("{test} is not there: {row:?}")));
    }
    assert!(flaws.is_empty(), "{}", flaws.join("\n"));
}

#[test]
fn every_variable_of_the_reference_has_a_row() {
    let (page, settings) = (read("docs/from-ratelimit.md"), read("docs/settings.md"));
    let parity: BTreeSet<&str> = rows(&page).iter().flat_map(|row| quoted(row[0])).collect();
    let rows = settings.lines().filter(|line| line.starts_with("| `"));
    let names: Vec<&str> = rows.map(|line| quoted(line).next().unwrap()).collect();
    assert!(names.len() > 100, "{names:?}");
    let ours =
        |name: &str| name.starts_with("TIDEGATE_") || ["NO_COLOR", "NOTIFY_SOCKET"].contains(&name);
    for name in names.into_iter().filter(|name| !ours(name)) {
        assert!(
            parity.contains(name),
            "{name} has no row in docs/from-ratelimit.md"
        );
    }
}
