//! All comparisons in one run, and the tables of documents made of it.
//!
//! Figures of different hours are not comparable, so published ones come from one run, in one file.

mod document;
mod machine;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::compare;
use crate::figures::{Table, read_tables, write_tables};
use crate::service;

/// Arguments of `tidegate-bench all`.
#[derive(Args)]
pub(crate) struct AllArguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// The folder that the figures go to as JSON: a file for each comparison, and run.json with all
    /// of them.
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
    /// Turns so short that the figures say nothing: to try the commands.
    #[arg(long)]
    quick: bool,
}

/// Arguments of `tidegate-bench tables`.
#[derive(Args)]
pub(crate) struct TablesArguments {
    /// The figures of a run.
    #[arg(long, default_value = "bench-results/run.json")]
    run: PathBuf,
    /// Put the tables into this Markdown file instead of printing them: each between its `<!--
    /// table NAME -->` and the next `<!-- end -->`.
    #[arg(long)]
    document: Option<PathBuf>,
    /// Put the few figures of the README into this Markdown file, in the same way.
    #[arg(long)]
    readme: Option<PathBuf>,
}

/// The comparisons of the run: command, arguments, and those of a quick run.
const STEPS: [[&str; 3]; 7] = [
    [
        "compare",
        "--rounds 5 --turn 3s",
        "--keys 1000 --idle 100ms --delays 0",
    ],
    ["round-trips", "", "--rate 200"],
    ["pipelines", "", "--one-way 2ms"],
    ["callers", "", ""],
    [
        "connections",
        "--turn 4s",
        "--callers 8 --calm-callers 2 --idle-timeout 100ms",
    ],
    ["pipelining", "--turn 1s", "--depths 1,4"],
    [
        "workflow",
        "",
        "--workflows 1000 --pages 5 --executed 2000 --parents 100 --many-parents 1000",
    ],
];

/// Runs every comparison in a separate process, and writes the tables of all.
pub(crate) fn all(arguments: &AllArguments) -> Result<()> {
    let mut tables = vec![machine::describe()?];
    for step in STEPS {
        eprintln!("== {}", step[0]);
        run(step, arguments)?;
        let file = arguments.results.join(step[0]);
        tables.append(&mut read_tables(&file.with_extension("json"))?);
    }
    write_tables(&arguments.results.join("run.json"), &tables)
}

/// Prints the tables of a run, or puts them into a document.
pub(crate) fn tables(arguments: &TablesArguments) -> Result<()> {
    let tables = read_tables(&arguments.run)?;
    if let Some(path) = &arguments.document {
        put(path, &tables)?;
    }
    if let Some(path) = &arguments.readme {
        put(path, &[summary(&tables)?])?;
    }
    if arguments.document.is_none() && arguments.readme.is_none() {
        for table in tables {
            println!("{}:\n\n{table}", table.name);
        }
    }
    Ok(())
}

/// Returns the figures of the README.
fn summary(tables: &[Table]) -> Result<Table> {
    let find = |name: &str| {
        let table = tables.iter().find(|table| table.name == name);
        table.with_context(|| format!("the run has no table '{name}'"))
    };
    let mut rows = compare::summary(find("decisions")?);
    rows.push(service::summary(find("round-trips")?));
    let mut summary = Table::new("figures", &["", "Tidegate", "compared with"]);
    for [what, ours, theirs] in rows {
        summary.row(&[&what, &ours, &theirs]);
    }
    Ok(summary)
}

fn put(path: &Path, tables: &[Table]) -> Result<()> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("could not read {}", path.display()))?;
    let filled = document::fill(&text, tables)
        .with_context(|| format!("{} was not changed", path.display()))?;
    std::fs::write(path, filled).with_context(|| format!("could not write {}", path.display()))
}

/// Runs a comparison in a separate process, because it may pin its threads to one core.
fn run([name, arguments, quick]: [&str; 3], all: &AllArguments) -> Result<()> {
    let program = std::env::current_exe().context("this program has no path")?;
    let mut command = Command::new(program);
    command.arg(name).arg("--results").arg(&all.results);
    command.arg("--server").arg(&all.server);
    if all.quick {
        command.args(["--rounds", "1", "--turn", "60ms"]);
        command.args(quick.split_whitespace());
    } else {
        command.args(arguments.split_whitespace());
    }
    let status = command
        .status()
        .with_context(|| format!("could not start {name}"))?;
    ensure!(status.success(), "{name} failed: {status}");
    Ok(())
}
