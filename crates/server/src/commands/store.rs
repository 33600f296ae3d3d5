//! `tidegate store`: the store of the workflows, opened without a server.

mod info;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use serde_json::json;
use tidegate_workflow::{SqliteStore, StoreError};

use super::audit::{self, OnFinding};
use super::migrate::{self, MigrateArgs};
use super::open_store::{
    IfMissing, OpenStore, no_store, refuse_memory, settings, store_failure, workflow_settings,
};
use crate::workflows::store;
use info::StoreInfo;
use tidegate_cli::{CommandResult, Exit, Failure, Screen};

/// Show, migrate, check and copy the store of the workflows, without a server. The settings of
/// the server say where it is.
#[derive(Debug, Args)]
pub(crate) struct StoreCommand {
    #[command(subcommand)]
    verb: StoreVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum StoreVerb {
    /// Show where the store is and what is in it
    Info,
    /// Migrate the store to the layout of this version, while servers of this version use it
    Migrate(MigrateArgs),
    /// Read all of the store and report rows that contradict each other
    Check {
        /// Writes the rows that are missing again, and removes those that are left over
        #[arg(long)]
        repair: bool,
    },
    /// Write a store that is a file anew, as small as it can be, while no server has it open
    Compact,
    /// Copy a store that is a file, also while a server has it open
    Backup {
        /// The copy. It must not exist, and appears only when it is complete
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

impl StoreCommand {
    pub(crate) async fn run(self, screen: &Screen) -> CommandResult {
        run(self.verb, screen).await
    }
}

pub(crate) async fn run(verb: StoreVerb, screen: &Screen) -> CommandResult {
    match &verb {
        StoreVerb::Backup { file } => return backup(file, screen).await,
        StoreVerb::Compact => return compact(screen).await,
        _ => {}
    }
    let open_store = OpenStore::open(IfMissing::Refuse).await?;
    let done = match verb {
        StoreVerb::Info => info(&open_store, screen).await,
        StoreVerb::Migrate(arguments) => migrate::run(&open_store, arguments, screen).await,
        StoreVerb::Check { repair } => {
            let on_finding = if repair {
                OnFinding::Repair
            } else {
                OnFinding::Report
            };
            audit::check(&open_store, on_finding, screen).await
        }
        StoreVerb::Backup { .. } | StoreVerb::Compact => unreachable!("it opens no engine"),
    };
    open_store.close().await;
    done
}

/// The SQLite file of the settings, and its location for people. `instead` is the advice for a
/// store in Redis.
fn file_of_store(instead: &str) -> CommandResult<(PathBuf, String)> {
    let settings = settings()?;
    let workflows = workflow_settings(&settings)?;
    let shown = store::location_text(workflows);
    refuse_memory(workflows)?;
    if workflows.redis.is_some() {
        return Err(Failure::usage(format!("{shown}: {instead}")));
    }
    let file = store::file(workflows);
    if file.exists() {
        Ok((file, shown))
    } else {
        Err(no_store(&shown, workflows))
    }
}

/// Runs blocking work on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    shown: &str,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> CommandResult<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::unavailable(format!("{shown}: {error}")))?
        .map_err(|error| store_failure(shown, &error))
}

/// Copies the SQLite file without the lock of a server, so one may have it open.
async fn backup(file: &Path, screen: &Screen) -> CommandResult {
    let instead = "copy a store in redis with its own means: BGSAVE, or the log of appendonly";
    let (from, shown) = file_of_store(instead)?;
    let to = file.to_owned();
    if to.exists() {
        return Err(Failure::new(
            Exit::Refused,
            format!("{} exists: name a new file", to.display()),
        ));
    }
    let bytes = run_blocking(&shown, move || SqliteStore::backup(&from, &to)).await?;
    let json = json!({ "store": shown, "file": file, "bytes": bytes }).to_string();
    screen.object(&json, &shown, || {
        Ok(format!(
            "{shown} was copied to {}, {bytes} bytes\n",
            file.display()
        ))
    })
}

/// Rewrites the SQLite file so that it becomes as small as possible.
async fn compact(screen: &Screen) -> CommandResult {
    let (file, shown) = file_of_store("redis gives memory back by itself")?;
    let (before, after) = run_blocking(&shown, move || SqliteStore::compact(&file)).await?;
    let json = json!({ "store": shown, "bytes_before": before, "bytes": after }).to_string();
    screen.object(&json, &shown, || {
        Ok(format!("{shown} has {after} bytes, it had {before}\n"))
    })
}

async fn info(open_store: &OpenStore, screen: &Screen) -> CommandResult {
    let info = StoreInfo::read(open_store).await?;
    let json = info.json(open_store).to_string();
    screen.object(&json, &open_store.location, || {
        Ok(info.text(open_store, screen))
    })
}
