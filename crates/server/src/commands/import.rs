//! `tidegate import`: imports workflows of other programs.

use std::collections::HashMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_pipeline::Client;
use tidegate_workflow::{GushReport, import_gush};

use super::open_store::{IfMissing, OpenStore};
use crate::settings::{RedisServer, Settings};
use tidegate_cli::{CommandResult, Failure, Screen, Table, counted, printable, span_of};

/// Import workflows of other programs.
#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    from: ImportSource,
}

#[derive(Debug, Subcommand)]
enum ImportSource {
    /// Import from Ruby's Gush; its Redis is only read
    Gush(Gush),
}

#[derive(Debug, Args)]
struct Gush {
    /// Gush's Redis, written as for REDIS_URL
    #[arg(long, value_name = "URL")]
    redis: String,
    /// How long to wait for each answer of Redis
    #[arg(long, value_name = "SPAN", value_parser = span_of, default_value = "30s")]
    timeout: Duration,
    /// Only print what would be imported
    #[arg(long)]
    dry_run: bool,
}

impl Import {
    pub(crate) async fn run(self, screen: &Screen) -> CommandResult {
        let ImportSource::Gush(gush) = self.from;
        gush.run(screen).await
    }
}

impl Gush {
    async fn run(&self, screen: &Screen) -> CommandResult {
        let server = self.server()?;
        let unavailable =
            |reason: String| Failure::unavailable(format!("redis at {}: {reason}", server.shown));
        let source =
            Client::new(server.config.clone()).map_err(|error| unavailable(error.to_string()))?;
        let open_store = if self.dry_run {
            OpenStore::in_memory().await?
        } else {
            OpenStore::open(IfMissing::Make).await?
        };
        let imported = import_gush(
            &source,
            &open_store.engine,
            self.timeout,
            open_store.clock.now(),
        )
        .await;
        open_store.close().await;
        let report = imported.map_err(|error| unavailable(error.to_string()))?;
        screen.object(&self.json(&report), &report.created.to_string(), || {
            Ok(self.table(&report, &open_store, screen))
        })
    }

    /// The server of Gush's Redis, parsed by the rules of the settings.
    fn server(&self) -> CommandResult<RedisServer> {
        let given = HashMap::from([("REDIS_URL".to_owned(), self.redis.clone())]);
        let settings = Settings::parse(&given);
        let reason = match settings {
            Ok(Settings {
                redis: Some(redis), ..
            }) => return Ok(redis.main),
            Ok(_) => "expected an address".to_owned(),
            Err(error) => error
                .problems
                .into_iter()
                .map(|problem| problem.reason)
                .collect::<Vec<_>>()
                .join("; "),
        };
        Err(Failure::usage(format!("--redis: {reason}")))
    }

    fn json(&self, report: &GushReport) -> String {
        let GushReport {
            created,
            existing,
            jobs,
            unfinished,
            skipped: left,
        } = report;
        let left: Vec<_> = left
            .iter()
            .map(|(key, reason)| json!({ "key": key, "reason": reason }))
            .collect();
        json!({
            "created": created, "existing": existing, "jobs": jobs, "unfinished_jobs": unfinished, "left": left,
            "dry_run": self.dry_run,
        })
        .to_string()
    }

    fn table(&self, report: &GushReport, open_store: &OpenStore, screen: &Screen) -> String {
        let GushReport {
            created,
            existing,
            jobs,
            unfinished,
            skipped: left,
        } = report;
        let workflows = counted(*created, "workflow");
        let jobs = counted(*jobs, "job");
        let mut out = if self.dry_run {
            format!("would create {workflows} with {jobs}\n")
        } else {
            let store = printable(&open_store.location);
            format!("created {workflows} with {jobs} in {store}\n")
        };
        if *existing > 0 {
            let exist = if *existing == 1 { "exists" } else { "exist" };
            out += &format!("{existing} {exist} from an earlier import\n");
        }
        if *unfinished > 0 {
            out += &format!(
                "ready here, although they were given to Gush's workers: {}. Stop those workers, or the jobs run twice\n",
                counted(*unfinished, "job")
            );
        }
        if !left.is_empty() {
            out += &format!("\n{}", skipped_table(left).text(screen));
        }
        out
    }
}

/// The workflows that were not imported, each with the reason.
fn skipped_table(skipped: &[(String, String)]) -> Table {
    let mut table = Table::new(&["NOT IMPORTED", "WHY"]);
    for (key, reason) in skipped {
        table.add_row(vec![key.into(), reason.into()]);
    }
    table
}
