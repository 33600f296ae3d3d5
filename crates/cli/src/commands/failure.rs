//! `tidegate failure`: failed jobs by handler and kind of error, and their retry.

use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::watch::WatchOption;
use super::workflow::failure_filter::FailureFilter;
use super::workflow::targets::{BulkAction, Confirmation, Targets};
use crate::client::address::Query;
use crate::client::api_client::ApiClient;
use crate::client::model::Incomplete;
use crate::client::workflow_ref::{SHORT_ID_LENGTH, short_id};
use crate::output::exit::CommandResult;
use crate::output::moment::Moment;
use crate::output::table::{Cell, Table};
use crate::output::{ListItem, Screen};

/// List failures by handler and kind of error, and retry them.
#[derive(Debug, Args)]
pub struct FailureCommand {
    #[command(subcommand)]
    verb: FailureVerb,
}

#[derive(Debug, Subcommand)]
enum FailureVerb {
    /// List failures by handler and kind of error, the latest first
    List(FailureListArgs),
    /// Run the failed jobs of all workflows again in which a job failed with an error
    Retry(FailureRetryArgs),
}

#[derive(Debug, Args)]
#[command(
    mut_arg("yes", |option| option.help("Do not ask whether to go on; needed without a terminal")),
    mut_arg("dry_run", |option| option.help("Only say how many workflows there are"))
)]
struct FailureRetryArgs {
    #[command(flatten)]
    failure: FailureFilter,
    #[command(flatten)]
    confirmation: Confirmation,
}

#[derive(Debug, Args)]
struct FailureListArgs {
    /// Only failures of this time up to now
    #[arg(long, value_name = "RANGE", default_value = "24h")]
    range: FailureRange,
    #[command(flatten)]
    watch: WatchOption,
}

/// Times that the server groups failures over.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FailureRange {
    #[value(name = "5m")]
    FiveMinutes,
    #[value(name = "15m")]
    QuarterHour,
    #[value(name = "1h")]
    Hour,
    #[value(name = "24h")]
    Day,
}

impl FailureRange {
    const fn text(self) -> &'static str {
        match self {
            Self::FiveMinutes => "5m",
            Self::QuarterHour => "15m",
            Self::Hour => "1h",
            Self::Day => "24h",
        }
    }
}

/// The answer of the server.
#[derive(Debug, Deserialize)]
struct FailureAnswer {
    items: Vec<Box<RawValue>>,
    workflows: u64,
    more: bool,
    unread: u64,
    incomplete: Option<Incomplete>,
}

/// Jobs of one handler that failed with one kind of error.
#[derive(Debug, Deserialize)]
struct FailureGroup {
    handler: String,
    kind: Option<String>,
    message: Option<String>,
    jobs: u64,
    first_at: Moment,
    last_at: Moment,
    sample: FailureSample,
}

/// The latest failure of a group.
#[derive(Debug, Deserialize)]
struct FailureSample {
    workflow: String,
    name: String,
    job: String,
}

impl FailureCommand {
    pub(crate) async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        match self.verb {
            FailureVerb::List(wanted) => wanted.run(remote, screen).await,
            FailureVerb::Retry(wanted) => wanted.run(remote, screen).await,
        }
    }
}

impl FailureRetryArgs {
    async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        Targets::failed(self.failure, self.confirmation)
            .run_action(BulkAction::Retry, remote, screen)
            .await
    }
}

impl FailureListArgs {
    async fn run(self, remote: &ApiClient, screen: &Screen) -> CommandResult {
        let query = Query::default().with("range", Some(self.range.text()));
        let address = query.append_to("/v1/failures");
        self.watch
            .run(screen, async || list(&address, remote, screen).await)
            .await
    }
}

async fn list(address: &str, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let answer: FailureAnswer = remote.get_json(address).await?;
    let mut more = format!("{} failed workflows were read", answer.workflows);
    if answer.more {
        more.insert_str(0, "only the newest ");
    }
    if answer.unread > 0 {
        more = format!("{more}, without {} that are too large", answer.unread);
    }
    let more = (answer.more || answer.unread > 0).then_some(&*more);
    screen.list::<FailureGroup>(&answer.items, more, |item| remote.parse(item))?;
    Incomplete::exit(answer.incomplete.as_ref())
}

impl ListItem for FailureGroup {
    const NOTHING: &str = "no failures\n";

    /// The latest workflow, which commands take.
    fn name(&self) -> String {
        self.sample.workflow.clone()
    }

    fn text(items: &[Self], screen: &Screen) -> String {
        let now = Moment::now();
        let mut table = Table::new(&["ERROR", "HANDLER", "JOBS", "FIRST", "LAST", "LATEST"]);
        for group in items {
            let sample = &group.sample;
            let workflow = if screen.is_wide() {
                sample.workflow.clone()
            } else {
                short_id(&sample.workflow, SHORT_ID_LENGTH)
            };
            let latest = format!("{workflow} {}/{}", sample.name, sample.job);
            table.add_row(vec![
                Cell::of_state(group.kind.as_deref().unwrap_or("unknown"), "failed"),
                Cell::short(&group.handler),
                group.jobs.to_string().into(),
                screen.moment(group.first_at, now).into(),
                screen.moment(group.last_at, now).into(),
                Cell::from(latest),
            ]);
            let message = group.message.as_deref().unwrap_or_default();
            table.add_note(message.lines().next().unwrap_or_default());
        }
        table.text(screen)
    }
}
