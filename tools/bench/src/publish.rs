//! All comparisons in one run, and the tables of documents made of it.
//!
//! Figures of different hours do not compare, so what is published comes from one run, in one file.

mod document;
mod machine;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::{connections, pipelines, pipelining};
use crate::figures::{Results, Sheet, Table, read_json, write_json};
use crate::service::{callers, round_trips};
use crate::workflow::layout;
use crate::{compare, workflow};
use machine::Machine;

/// Arguments of `tidegate-bench all`.
#[derive(Args)]
pub(crate) struct AllArguments {
    /// The server's program.
    #[arg(long, default_value = "target/release/tidegate")]
    server: PathBuf,
    /// The folder that the figures go to as JSON: a file for each comparison, and run.json with all of them.
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
    /// Put the tables into this Markdown file instead of printing them: each between its `<!-- table NAME -->` and the next
    /// `<!-- end -->`.
    #[arg(long)]
    document: Option<PathBuf>,
    /// Put the few figures of the README into this Markdown file, in the same way.
    #[arg(long)]
    readme: Option<PathBuf>,
}

/// A comparison of the run.
struct Step {
    command: &'static str,
    /// Whether it starts the server.
    through_server: bool,
    arguments: &'static [&'static str],
    /// More arguments of a quick run; of those that are given twice the last counts.
    quick: &'static [&'static str],
}

const STEPS: [Step; 8] = [
    Step::server(
        compare::Results::NAME,
        &[
            "--rounds", "1", "--turn", "60ms", "--keys", "1000", "--idle", "100ms", "--looks", "0",
        ],
    ),
    Step::server(
        round_trips::Results::NAME,
        &["--rounds", "1", "--turn", "60ms", "--rate", "200"],
    ),
    Step::engine(
        pipelines::Results::NAME,
        &[],
        &["--rounds", "1", "--turn", "60ms", "--one-way", "2ms"],
    ),
    Step::server(callers::Results::NAME, &["--rounds", "1", "--turn", "60ms"]),
    Step::engine(
        connections::Results::NAME,
        &[],
        &[
            "--rounds",
            "1",
            "--turn",
            "60ms",
            "--callers",
            "8",
            "--calm-callers",
            "2",
            "--idle-timeout",
            "100ms",
        ],
    ),
    Step::engine(
        pipelining::Results::NAME,
        &["--turn", "1s"],
        &["--rounds", "1", "--turn", "60ms", "--depths", "1,4"],
    ),
    Step::server(
        workflow::Results::NAME,
        &[
            "--rounds",
            "1",
            "--workflows",
            "1000",
            "--pages",
            "5",
            "--executed",
            "2000",
            "--parents",
            "100",
            "--many-parents",
            "1000",
            "--names",
            "1000",
        ],
    ),
    Step::engine(
        layout::Results::NAME,
        &["--turn", "500ms"],
        &[
            "--rounds", "1", "--turn", "60ms", "--jobs", "110,120", "--most", "1000",
        ],
    ),
];

/// The figures of one run.
#[derive(Serialize, Deserialize)]
struct Run {
    machine: Machine,
    compare: compare::Results,
    round_trips: round_trips::Results,
    pipelines: pipelines::Results,
    callers: callers::Results,
    connections: connections::Results,
    pipelining: pipelining::Results,
    workflow: workflow::Results,
    layout: layout::Results,
}

/// Runs every comparison, each in a process of its own, and writes the figures of all.
pub(crate) fn all(arguments: &AllArguments) -> anyhow::Result<()> {
    let machine = Machine::describe()?;
    for step in STEPS {
        eprintln!("== {}", step.command);
        step.run(arguments)?;
    }
    let run = Run::of(machine, &arguments.results)?;
    write_json(&arguments.results.join("run.json"), &run)
}

/// Prints the tables of a run, or puts them into a document.
pub(crate) fn tables(arguments: &TablesArguments) -> anyhow::Result<()> {
    let run = read_json::<Run>(&arguments.run)?;
    if let Some(path) = &arguments.document {
        put(path, &run.tables())?;
    }
    if let Some(path) = &arguments.readme {
        put(path, &[run.summary()])?;
    }
    if arguments.document.is_none() && arguments.readme.is_none() {
        for table in run.tables() {
            println!("{}:\n\n{}", table.name, table.sheet);
        }
    }
    Ok(())
}

fn put(path: &Path, tables: &[Table]) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("could not read {}", path.display()))?;
    let filled = document::fill(&text, tables)
        .with_context(|| format!("{} was not changed", path.display()))?;
    std::fs::write(path, filled).with_context(|| format!("could not write {}", path.display()))
}

impl Step {
    const fn server(command: &'static str, quick: &'static [&'static str]) -> Self {
        Self {
            command,
            through_server: true,
            arguments: &[],
            quick,
        }
    }

    const fn engine(
        command: &'static str,
        arguments: &'static [&'static str],
        quick: &'static [&'static str],
    ) -> Self {
        Self {
            command,
            through_server: false,
            arguments,
            quick,
        }
    }

    /// A process of its own, because a comparison may keep its threads on one core.
    fn run(&self, all: &AllArguments) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("this program has no path")?;
        let mut command = Command::new(program);
        command.arg(self.command).arg("--results").arg(&all.results);
        if self.through_server {
            command.arg("--server").arg(&all.server);
        }
        command.args(if all.quick {
            self.quick
        } else {
            self.arguments
        });
        let status = command
            .status()
            .with_context(|| format!("could not start {}", self.command))?;
        ensure!(status.success(), "{} failed: {status}", self.command);
        Ok(())
    }
}

impl Run {
    /// Reads what the comparisons wrote.
    fn of(machine: Machine, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            machine,
            compare: read(folder)?,
            round_trips: read(folder)?,
            pipelines: read(folder)?,
            callers: read(folder)?,
            connections: read(folder)?,
            pipelining: read(folder)?,
            workflow: read(folder)?,
            layout: read(folder)?,
        })
    }

    /// The figures of the README.
    fn summary(&self) -> Table {
        let mut sheet = Sheet::new(&["", "Tidegate", "compared with"]);
        self.compare
            .summary()
            .into_iter()
            .chain(self.round_trips.summary())
            .for_each(|row| sheet.row(row));
        Table::new("figures", sheet)
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![self.machine.table()];
        tables.extend(self.compare.tables());
        tables.extend(self.round_trips.tables());
        tables.extend(self.pipelines.tables());
        tables.extend(self.callers.tables());
        tables.extend(self.connections.tables());
        tables.extend(self.pipelining.tables());
        tables.extend(self.workflow.tables());
        tables.extend(self.layout.tables());
        tables
    }
}

fn read<R: Results + DeserializeOwned>(folder: &Path) -> anyhow::Result<R> {
    read_json(&folder.join(R::NAME).with_extension("json"))
}
