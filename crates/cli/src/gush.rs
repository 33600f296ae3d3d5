//! The verbs of Gush's command line, each translated to a verb of `tidegate workflow`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::client::which::Which;
use crate::definition::source::Source;
use crate::workflow::list::List;
use crate::workflow::show::{Form, Graph, Show};
use crate::workflow::targets::Targets;
use crate::workflow::{Create, Restart, Verb, Workflow};

#[derive(Debug, Subcommand)]
pub enum Gush {
    /// Creates a workflow and does not start it: workflow create --manual
    #[command(hide = true)]
    Create(Source),
    /// Creates a workflow and starts it: workflow create --start
    #[command(hide = true, name = "create_and_start")]
    CreateAndStart(Source),
    /// Starts a workflow, or runs jobs of it again: workflow start, workflow restart
    #[command(hide = true)]
    Start(Start),
    /// Stops workflows, which may go on later: workflow pause
    #[command(hide = true)]
    Stop(Named),
    /// Shows a workflow: workflow show
    #[command(hide = true)]
    Show(Shown),
    /// Removes workflows: workflow rm
    #[command(hide = true)]
    Rm(Named),
    /// Lists workflows: workflow list
    #[command(hide = true)]
    List(List),
    /// Draws a workflow into a file: workflow graph --form svg --file
    #[command(hide = true)]
    Viz(Viz),
}

#[derive(Debug, Args)]
pub struct Named {
    /// Workflows: ids or their first characters, key:KEY, or name:NAME for the newest of this name
    #[arg(required = true, value_name = "ID", value_hint = ValueHint::Other)]
    ids: Vec<Which>,
}

#[derive(Debug, Args)]
pub struct Start {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(value_hint = ValueHint::Other)]
    id: Which,
    /// Names of jobs to run again; none starts the workflow
    #[arg(value_hint = ValueHint::Other)]
    jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Shown {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(value_hint = ValueHint::Other)]
    id: Which,
    /// Leave out everything but the jobs
    #[arg(long, alias = "skip_overview")]
    skip_overview: bool,
    /// Leave out the jobs
    #[arg(long, alias = "skip_jobs")]
    skip_jobs: bool,
    /// Only jobs of this state, or all
    #[arg(long, default_value = "all", value_parser = crate::workflow::show::shown_states())]
    jobs: String,
}

#[derive(Debug, Args)]
pub struct Viz {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(value_hint = ValueHint::Other)]
    id: Which,
    /// File to write
    #[arg(long, short, default_value = "graph.svg", value_hint = ValueHint::FilePath)]
    filename: PathBuf,
}

impl Gush {
    pub(crate) fn said_again(self) -> Workflow {
        let verb = match self {
            Self::Create(source) => Verb::Create(Create::manual(source)),
            Self::CreateAndStart(source) => Verb::Create(Create::started(source)),
            Self::Start(start) => start.said_again(),
            Self::Stop(Named { ids }) => Verb::Pause(Targets::named(ids)),
            Self::Show(shown) => shown.said_again(),
            Self::Rm(Named { ids }) => Verb::Rm(Targets::named(ids)),
            Self::List(list) => Verb::List(list),
            Self::Viz(Viz { id, filename }) => Verb::Graph(Graph {
                id,
                form: Form::Svg,
                file: Some(filename),
            }),
        };
        Workflow { verb }
    }
}

impl Start {
    fn said_again(self) -> Verb {
        if self.jobs.is_empty() {
            Verb::Start(Targets::named(vec![self.id]))
        } else {
            Verb::Restart(Restart {
                id: self.id,
                jobs: self.jobs,
                cascade: false,
            })
        }
    }
}

impl Shown {
    fn said_again(self) -> Verb {
        let jobs = if self.skip_jobs {
            "none".to_owned()
        } else {
            self.jobs
        };
        let no_overview = self.skip_overview;
        Verb::Show(Show {
            id: self.id,
            jobs: vec![jobs],
            no_graph: no_overview,
            no_overview,
        })
    }
}
