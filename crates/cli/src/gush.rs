//! The verbs of Gush's own command line, for hands that know them: each is said again in the words of `tidegate workflow`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::ask::options::Options;
use crate::definition::Source;
use crate::workflow::list::List;
use crate::workflow::show::{Form, Graph, Show};
use crate::workflow::{Create, Ids, Restart, Verb, Workflow};

#[derive(Debug, Subcommand)]
pub enum Gush {
    /// Creates a workflow and does not start it: workflow create --manual
    #[command(hide = true)]
    Create(With<Source>),
    /// Creates a workflow and starts it: workflow create --start
    #[command(hide = true, name = "create_and_start")]
    CreateAndStart(With<Source>),
    /// Starts a workflow, or runs jobs of it again: workflow start, workflow restart
    #[command(hide = true)]
    Start(With<Start>),
    /// Stops workflows, which may go on later: workflow pause
    #[command(hide = true)]
    Stop(With<Ids>),
    /// Shows a workflow: workflow show
    #[command(hide = true)]
    Show(With<Shown>),
    /// Removes workflows: workflow rm
    #[command(hide = true)]
    Rm(With<Ids>),
    /// Lists workflows: workflow list
    #[command(hide = true)]
    List(With<List>),
    /// Draws a workflow into a file: workflow graph --form svg --file
    #[command(hide = true)]
    Viz(With<Viz>),
}

/// Arguments, and the options of all commands.
#[derive(Debug, Args)]
pub struct With<T: Args> {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    rest: T,
}

#[derive(Debug, Args)]
pub struct Start {
    /// Id of the workflow
    id: String,
    /// Names of jobs to run again; none starts the workflow
    jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Shown {
    /// Id of the workflow
    id: String,
    /// Leave out everything but the jobs
    #[arg(long, alias = "skip_overview")]
    skip_overview: bool,
    /// Leave out the jobs
    #[arg(long, alias = "skip_jobs")]
    skip_jobs: bool,
    /// Only jobs of this state, or all
    #[arg(long, default_value = "all")]
    jobs: String,
}

#[derive(Debug, Args)]
pub struct Viz {
    /// Id of the workflow
    id: String,
    /// File to write
    #[arg(long, short, default_value = "graph.svg")]
    filename: PathBuf,
}

impl Gush {
    pub(crate) fn said_again(self) -> Workflow {
        let (options, verb) = match self {
            Self::Create(With { options, rest }) => (options, Verb::Create(Create::manual(rest))),
            Self::CreateAndStart(With { options, rest }) => (options, Verb::Create(Create::started(rest))),
            Self::Start(With { options, rest }) => (options, rest.said_again()),
            Self::Stop(With { options, rest }) => (options, Verb::Pause(rest)),
            Self::Show(With { options, rest }) => (options, rest.said_again()),
            Self::Rm(With { options, rest }) => (options, Verb::Rm(rest)),
            Self::List(With { options, rest }) => (options, Verb::List(rest)),
            Self::Viz(With { options, rest: Viz { id, filename } }) => {
                (options, Verb::Graph(Graph { id, form: Form::Svg, file: Some(filename) }))
            }
        };
        Workflow { options, verb }
    }
}

impl Start {
    fn said_again(self) -> Verb {
        match self.jobs.is_empty() {
            true => Verb::Start(Ids { ids: vec![self.id] }),
            false => Verb::Restart(Restart { id: self.id, jobs: self.jobs, cascade: false }),
        }
    }
}

impl Shown {
    fn said_again(self) -> Verb {
        let jobs = if self.skip_jobs { "none".to_owned() } else { self.jobs };
        let no_overview = self.skip_overview;
        Verb::Show(Show { id: self.id, jobs: vec![jobs], no_graph: no_overview, no_overview })
    }
}
