//! The verbs of Gush's own command line, for hands that know them.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::definition::Source;
use super::exit::{Exit, Failure};
use super::list::{self, List};
use super::remote::{Ask, Options};
use super::show;
use super::workflow::{Create, Deed, Form, Graph, Ids, act, path};

/// One definition, and where to.
#[derive(Debug, Args)]
pub(super) struct New {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    source: Source,
}

#[derive(Debug, Args)]
pub(super) struct Start {
    #[command(flatten)]
    options: Options,
    /// Id of the workflow
    id: String,
    /// Names of jobs to run again; none starts the workflow
    jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct Several {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    ids: Ids,
}

#[derive(Debug, Args)]
pub(super) struct Listing {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    options: Options,
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
pub(super) struct Picture {
    #[command(flatten)]
    options: Options,
    /// Id of the workflow
    id: String,
    /// File to write
    #[arg(long, short, default_value = "graph.svg")]
    filename: PathBuf,
}

impl New {
    /// Creates and does not start, as Gush does.
    pub(super) async fn create(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        Create::manual(self.source).run(&mut remote, &screen).await
    }

    pub(super) async fn create_and_start(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        Create::started(self.source).run(&mut remote, &screen).await
    }
}

impl Start {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        let path = path(&self.id);
        let ask = match self.jobs.is_empty() {
            true => Ask::post(format!("{path}:start"), ""),
            false => Ask::post(format!("{path}:restart"), json!({ "jobs": self.jobs }).to_string()),
        };
        act(&ask, &mut remote, &screen).await
    }
}

impl Several {
    /// Stops as Gush means it: nothing more starts, and it may go on later.
    pub(super) async fn stop(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        self.ids.each(Deed::Pause, &mut remote, &screen).await
    }

    pub(super) async fn remove(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        self.ids.remove(&mut remote, &screen).await
    }
}

impl Listing {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        list::list(&self.list, &mut remote, &screen).await
    }
}

impl Show {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        let jobs = if self.skip_jobs { "none".to_owned() } else { self.jobs };
        let no_overview = self.skip_overview;
        let show = show::Show { id: self.id, jobs: vec![jobs], no_graph: no_overview, no_overview };
        show::show(&show, &mut remote, &screen).await
    }
}

impl Picture {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let (mut remote, screen) = self.options.open()?;
        let shown = self.filename.display().to_string();
        let graph = Graph { id: self.id, form: Form::Svg, file: Some(self.filename) };
        show::graph(&graph, &mut remote, &screen).await?;
        if !screen.is_json() {
            screen.line(&format!("written to {shown}"));
        }
        Ok(Exit::Done)
    }
}
