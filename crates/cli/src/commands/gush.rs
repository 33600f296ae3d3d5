//! The verbs of Gush's command line, each translated to a verb of `tidegate workflow`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::workflow::list::WorkflowListArgs;
use super::workflow::show::{DrawingFormat, GraphArgs, WorkflowShowArgs};
use super::workflow::targets::Targets;
use super::workflow::{Create, Restart, WorkflowCommand, WorkflowVerb};
use crate::client::complete;
use crate::client::workflow_ref::WorkflowRef;
use crate::definition::source::Source;

#[derive(Debug, Subcommand)]
pub enum Gush {
    /// Create a workflow without starting it: workflow create --manual
    #[command(hide = true)]
    Create(Source),
    /// Create a workflow and start it: workflow create --start
    #[command(hide = true, name = "create_and_start")]
    CreateAndStart(Source),
    /// Start a workflow, or run jobs of it again: workflow start, workflow restart
    #[command(hide = true)]
    Start(Start),
    /// Stop workflows, which may go on later: workflow pause
    #[command(hide = true)]
    Stop(GushWorkflows),
    /// Show a workflow: workflow show
    #[command(hide = true)]
    Show(GushShowArgs),
    /// Remove workflows: workflow rm
    #[command(hide = true)]
    Rm(GushWorkflows),
    /// List workflows: workflow list
    #[command(hide = true)]
    List(WorkflowListArgs),
    /// Draw a workflow into a file: workflow graph --form svg --file
    #[command(hide = true)]
    Viz(Viz),
}

#[derive(Debug, Args)]
pub struct GushWorkflows {
    /// Workflows: ids or their first characters, key:KEY, or name:NAME for the newest of this name
    #[arg(required = true, value_name = "ID", add = complete::workflow())]
    ids: Vec<WorkflowRef>,
}

#[derive(Debug, Args)]
pub struct Start {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(add = complete::workflow())]
    id: WorkflowRef,
    /// Names of jobs to run again; none starts the workflow
    jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct GushShowArgs {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(add = complete::workflow())]
    id: WorkflowRef,
    /// Leave out everything but the jobs
    #[arg(long, alias = "skip_overview")]
    skip_overview: bool,
    /// Leave out the jobs
    #[arg(long, alias = "skip_jobs")]
    skip_jobs: bool,
    /// Only jobs of this state, or all
    #[arg(long, default_value = "all", value_parser = crate::commands::workflow::show::shown_states())]
    jobs: String,
}

#[derive(Debug, Args)]
pub struct Viz {
    /// The workflow: its id or first characters of it, key:KEY, or name:NAME for the newest of this
    /// name
    #[arg(add = complete::workflow())]
    id: WorkflowRef,
    /// File to write
    #[arg(long, short, default_value = "graph.svg", value_hint = ValueHint::FilePath)]
    filename: PathBuf,
}

impl Gush {
    pub(crate) fn into_workflow_command(self) -> WorkflowCommand {
        let verb = match self {
            Self::Create(source) => WorkflowVerb::Create(Create::manual(source)),
            Self::CreateAndStart(source) => WorkflowVerb::Create(Create::started(source)),
            Self::Start(start) => start.into_verb(),
            Self::Stop(GushWorkflows { ids }) => WorkflowVerb::Pause(Targets::named(ids)),
            Self::Show(shown) => shown.into_verb(),
            Self::Rm(GushWorkflows { ids }) => WorkflowVerb::Rm(Targets::named(ids)),
            Self::List(list) => WorkflowVerb::List(list),
            Self::Viz(Viz { id, filename }) => WorkflowVerb::Graph(GraphArgs {
                id,
                form: DrawingFormat::Svg,
                file: Some(filename),
            }),
        };
        WorkflowCommand { verb }
    }
}

impl Start {
    fn into_verb(self) -> WorkflowVerb {
        if self.jobs.is_empty() {
            WorkflowVerb::Start(Targets::named(vec![self.id]))
        } else {
            WorkflowVerb::Restart(Restart {
                id: self.id,
                jobs: self.jobs,
                cascade: false,
            })
        }
    }
}

impl GushShowArgs {
    fn into_verb(self) -> WorkflowVerb {
        let jobs = if self.skip_jobs {
            "none".to_owned()
        } else {
            self.jobs
        };
        let no_overview = self.skip_overview;
        WorkflowVerb::Show(WorkflowShowArgs {
            id: self.id,
            jobs: vec![jobs],
            no_graph: no_overview,
            no_overview,
        })
    }
}
