//! `tidegate import`: imports workflows of other programs.

use std::collections::HashMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_pipeline::Client;
use tidegate_workflow::{GushReport, import_gush};

use super::store::{IfMissing, OpenStore};
use crate::settings::{RedisServer, Settings};
use tidegate_cli::Table;
use tidegate_cli::span_of;
use tidegate_cli::{Exit, Failure};
use tidegate_cli::{Screen, counted, printable};

/// Imports workflows of other programs.
#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// Imports from Ruby's Gush; its Redis is only read
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
    pub(crate) async fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let From::Gush(gush) = self.from;
        gush.run(screen).await
    }
}

impl Gush {
    async fn run(&self, screen: &Screen) -> Result<Exit, Failure> {
        let server = self.server()?;
        let unavailable =
            |reason: String| Failure::unavailable(format!("redis at {}: {reason}", server.shown));
        let source =
            Client::new(server.config.clone()).map_err(|error| unavailable(error.to_string()))?;
        let here = if self.dry_run {
            OpenStore::nowhere().await?
        } else {
            OpenStore::open(IfMissing::Make).await?
        };
        let imported = import_gush(&source, &here.engine, self.timeout, here.clock.now()).await;
        here.close().await;
        let report = imported.map_err(|error| unavailable(error.to_string()))?;
        screen.object(&self.json(&report), &report.created.to_string(), || {
            Ok(self.table(&report, &here, screen))
        })?;
        Ok(Exit::Done)
    }

    /// The server of Gush's Redis, parsed by the rules of the settings.
    fn server(&self) -> Result<RedisServer, Failure> {
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
            left,
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

    fn table(&self, report: &GushReport, here: &OpenStore, screen: &Screen) -> String {
        let GushReport {
            created,
            existing,
            jobs,
            unfinished,
            left,
        } = report;
        let all = format!(
            "{} with {}",
            counted(*created, "workflow"),
            counted(*jobs, "job")
        );
        let mut out = if self.dry_run {
            format!("would create {all}\n")
        } else {
            format!("created {all} in {}\n", printable(&here.shown))
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
            let mut table = Table::new(&["NOT IMPORTED", "WHY"]);
            left.iter()
                .for_each(|(key, reason)| table.row(vec![key.into(), reason.into()]));
            out += &format!("\n{}", table.text(screen));
        }
        out
    }
}
