//! `tidegate status`: whether a server, its limits and its store of workflows are well.

use serde::Deserialize;

use crate::client::api_client::ApiClient;
use crate::client::model::LimitMistake;
use crate::output::counted::counted;
use crate::output::exit::{CommandResult, Exit};
use crate::output::moment::Moment;
use crate::output::printable::printable;
use crate::output::{Screen, facts};

#[derive(Debug, Deserialize)]
struct ServerStatus {
    /// `ok`, `degraded` or `draining`.
    state: String,
    drains_until: Option<Moment>,
    /// `yes`, `partly` or `no`.
    limits: String,
    workflows: WorkflowStatus,
}

#[derive(Debug, Deserialize)]
struct WorkflowStatus {
    #[serde(default = "enabled")]
    enabled: bool,
    ready: bool,
    open: bool,
    reason: Option<String>,
    reads: String,
    writes: String,
    partitions: u64,
    #[serde(default)]
    troubles: Vec<Trouble>,
    #[serde(default)]
    risks: Vec<String>,
    #[serde(default)]
    servers: Vec<serde::de::IgnoredAny>,
}

/// The default of `enabled`: a server that does not send it has workflows.
fn enabled() -> bool {
    true
}

#[derive(Debug, Deserialize)]
struct Trouble {
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
}

#[derive(Debug, Deserialize)]
struct Configuration {
    load: Load,
}

/// The configuration in force, and the later one that was refused.
#[derive(Debug, Deserialize)]
struct Load {
    place: String,
    loaded_at: Option<Moment>,
    domains: u64,
    limits: u64,
    refused: Option<Refused>,
}

#[derive(Debug, Deserialize)]
struct Refused {
    at: Moment,
    #[serde(default)]
    mistakes: Vec<LimitMistake>,
}

/// Prints the status. The exit code is 1 if anything does not work, or a configuration was refused.
pub(crate) async fn show(remote: &ApiClient, screen: &Screen) -> CommandResult {
    let text = remote.get("/v1/status").await?;
    let status: ServerStatus = remote.parse(&text)?;
    let configuration: Configuration = remote.get_json("/v1/limits/configuration?limit=1").await?;
    let version: Version = remote.get_json("/v1/version").await?;
    let word = status.word(&configuration.load);
    let shown = || {
        let server = format!(
            "{}  {}  {}",
            printable(&version.version),
            screen.paint(word, if word == "ok" { "succeeded" } else { "failed" }),
            remote.address()
        );
        let now = Moment::now();
        let mut lines = vec![
            ("server", Some(server)),
            (
                "draining",
                status
                    .drains_until
                    .map(|at| format!("stops {}", at.relative(now))),
            ),
            ("limits", Some(configuration.load.text(&status.limits, now))),
        ];
        lines.extend(configuration.load.mistakes(now));
        lines.extend(status.workflows.lines());
        Ok(facts(9, lines))
    };
    screen.object(&text, word, shown)?;
    Ok(if word == "ok" {
        Exit::Done
    } else {
        Exit::Failed
    })
}

impl ServerStatus {
    fn word(&self, load: &Load) -> &'static str {
        let works = |word: &str| word == "yes";
        let workflows = &self.workflows;
        if self.state == "draining" {
            "draining"
        } else if self.limits == "no" || !workflows.ready {
            "not serving"
        } else if works(&self.limits)
            && works(&workflows.reads)
            && works(&workflows.writes)
            && load.refused.is_none()
        {
            "ok"
        } else {
            "degraded"
        }
    }
}

impl Load {
    fn text(&self, answers: &str, now: Moment) -> String {
        let loaded = self
            .loaded_at
            .map(|at| format!(", loaded {}", at.relative(now)));
        let answers = match answers {
            "yes" => "",
            "partly" => "; some calls are not answered",
            _ => "; calls are not answered",
        };
        printable(&format!(
            "{} in {}{} from {}{answers}",
            counted(self.limits, "limit"),
            counted(self.domains, "domain"),
            loaded.unwrap_or_default(),
            self.place
        ))
    }

    /// The mistakes of a refused configuration, a line each.
    fn mistakes(&self, now: Moment) -> Vec<(&'static str, Option<String>)> {
        let Some(refused) = &self.refused else {
            return Vec::new();
        };
        let in_force = match self.loaded_at {
            Some(_) => "the limits before it stay in force",
            None => "no limits are in force",
        };
        let head = format!(
            "{}, a new configuration; {in_force}",
            refused.at.relative(now)
        );
        let mistakes = refused
            .mistakes
            .iter()
            .map(|mistake| ("", Some(mistake.to_string())));
        std::iter::once(("refused", Some(head)))
            .chain(mistakes)
            .collect()
    }
}

impl WorkflowStatus {
    fn lines(&self) -> Vec<(&'static str, Option<String>)> {
        let store = match (&self.reason, self.open) {
            (Some(reason), _) => format!("cannot be opened: {reason}"),
            (None, false) if !self.enabled => "off: this server shows limits only".to_owned(),
            (None, false) => "not used yet".to_owned(),
            (None, true) => format!(
                "{}; reads: {}, writes: {}",
                counted(self.partitions, "partition"),
                self.reads,
                self.writes
            ),
        };
        let mut lines = vec![("store", Some(printable(&store)))];
        let troubles = self
            .troubles
            .iter()
            .map(|trouble| ("trouble", &trouble.reason));
        let risks = self.risks.iter().map(|risk| ("risk", risk));
        lines.extend(
            troubles
                .chain(risks)
                .map(|(name, text)| (name, Some(printable(text)))),
        );
        let servers = self.servers.len();
        lines.push(("servers", (servers > 1).then(|| servers.to_string())));
        lines
    }
}
