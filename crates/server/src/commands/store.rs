//! `tidegate store`: the store of the workflows, opened without a server.

mod info;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use serde_json::json;
use tidegate_workflow::{
    Engine, EngineError, EngineOptions, Filter, PartialResult, SqliteOptions, SqliteStore, Status,
    Store as Opened, StoreError,
};

use super::audit::{self, OnFinding};
use super::migrate::{self, MigrateArgs};
use crate::settings::{Settings, WorkflowSettings};
use crate::telemetry::logging::{self, Logging};
use crate::workflows::clock::StoreClock;
use crate::workflows::store::{self, StoreLocation};
use info::StoreInfo;
use tidegate_cli::{CommandResult, Exit, Failure, Screen};

/// Shows, migrates, checks and copies the store of the workflows, without a server. The settings of
/// the server say where it is.
#[derive(Debug, Args)]
pub(crate) struct StoreCommand {
    #[command(subcommand)]
    verb: StoreVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum StoreVerb {
    /// Shows where the store is and what is in it
    Info,
    /// Migrates the store to the layout of this version, while servers of this version use it
    Migrate(MigrateArgs),
    /// Reads all of the store and reports rows that contradict each other
    Check {
        /// Writes the rows that are missing again, and removes those that are left over
        #[arg(long)]
        repair: bool,
    },
    /// Writes a store that is a file anew, as small as it can be, while no server has it open
    Compact,
    /// Copies a store that is a file, also while a server has it open
    Backup {
        /// The copy. It must not exist, and appears only when it is complete
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// A store that this command has opened. A SQLite file is locked against other processes meanwhile.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) engine: Engine,
    pub(crate) clock: StoreClock,
    /// Number of replicas that must acknowledge a write.
    replicas: u16,
    /// Location of the store for people, without credentials.
    pub(crate) location: String,
    /// Flushes the log when it is dropped.
    _logging: Option<Logging>,
}

/// Handling of a store that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Refuse,
    Make,
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

/// Reads the settings of the server.
fn settings() -> CommandResult<Settings> {
    Settings::from_environment().map_err(|error| settings_failure(&error))
}

fn settings_failure(error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{error}\n`tidegate settings` lists all settings"))
}

/// The settings of the workflows, if the API is enabled.
fn workflow_settings(settings: &Settings) -> CommandResult<&WorkflowSettings> {
    let none =
        || settings_failure(&"TIDEGATE_HTTP_ADDR is set but empty, which means no workflows");
    settings.workflows.as_ref().ok_or_else(none)
}

/// Refuses a store in memory, which only its own server can open.
fn refuse_memory(settings: &WorkflowSettings) -> CommandResult<()> {
    let reason = "TIDEGATE_STORE_URL=memory: workflows are in the memory of the server, and nothing else can open them; `tidegate workflow \
                  list` asks the server";
    if settings.in_process {
        Err(Failure::usage(reason))
    } else {
        Ok(())
    }
}

fn no_store(shown: &str, settings: &WorkflowSettings) -> Failure {
    let named = match settings.redis {
        Some(_) => "TIDEGATE_STORE_URL (or REDIS_URL) and TIDEGATE_STORE_PREFIX say",
        None => "TIDEGATE_DATA_DIR says",
    };
    Failure::new(
        Exit::NotFound,
        format!("there is no store at {shown}; {named} where to look"),
    )
}

impl OpenStore {
    /// Opens the store of the settings.
    pub(crate) async fn open(missing: IfMissing) -> CommandResult<Self> {
        let settings = settings()?;
        let no_thread = |error| {
            Failure::new(
                Exit::Unavailable,
                format!("cannot start the thread that writes the log: {error}"),
            )
        };
        let logging = Some(logging::start(settings.log).map_err(no_thread)?);
        let workflows = workflow_settings(&settings)?;
        let shown = store::location_text(workflows);
        refuse_memory(workflows)?;
        let failed = |error: &StoreError| open_failure(&shown, error, workflows);
        let place = StoreLocation::new(workflows).map_err(|error| failed(&error))?;
        if missing == IfMissing::Refuse && !place.exists().await.map_err(|error| failed(&error))? {
            return Err(no_store(&shown, workflows));
        }
        let store = place.open().await.map_err(|error| failed(&error))?;
        let clock = StoreClock::default();
        clock.start(&store).await;
        let options = EngineOptions {
            retention: workflows.retention,
            memory_bytes: workflows.memory,
            attempt_observer: None,
        };
        let engine = Engine::start(store, options)
            .await
            .map_err(|error| store_failure(&shown, &error))?;
        Ok(Self {
            engine,
            clock,
            replicas: workflows.replicas,
            location: shown,
            _logging: logging,
        })
    }

    /// Opens an empty store in memory, which ends with the process.
    pub(crate) async fn in_memory() -> CommandResult<Self> {
        let options = SqliteOptions::new(1).expect("a power of two");
        let store = SqliteStore::in_memory(&options)
            .map(Opened::Sqlite)
            .map_err(|error| store_failure("memory", &error))?;
        let engine = Engine::start(store, EngineOptions::default())
            .await
            .map_err(|error| store_failure("memory", &error))?;
        Ok(Self {
            engine,
            clock: StoreClock::default(),
            replicas: 0,
            location: "memory".to_owned(),
            _logging: None,
        })
    }

    pub(crate) async fn close(&self) {
        store::close(&self.engine).await;
    }

    /// The result of a call of the store, or the failure of the command.
    pub(crate) fn checked<T>(&self, result: Result<T, StoreError>) -> CommandResult<T> {
        result.map_err(|error| self.store_failure(&error))
    }

    pub(crate) fn store_failure(&self, error: &StoreError) -> Failure {
        store_failure(&self.location, error)
    }

    pub(crate) fn engine_failure(&self, error: &EngineError) -> Failure {
        match error {
            EngineError::Store(error) => self.store_failure(error),
            error => Failure::unavailable(format!("{}: {error}", self.location)),
        }
    }

    /// Returns the result of a read if all partitions answered.
    ///
    /// # Errors
    /// The read failed, or a partition did not answer.
    pub(crate) fn require_complete<T>(
        &self,
        read: Result<PartialResult<T>, EngineError>,
    ) -> CommandResult<T> {
        let PartialResult { found, missing } = read.map_err(|error| self.engine_failure(&error))?;
        missing
            .0
            .values()
            .next()
            .map_or(Ok(found), |error| Err(self.store_failure(error)))
    }

    /// Number of workflows by status.
    pub(crate) async fn counts(&self) -> CommandResult<Vec<(Status, u64)>> {
        self.require_complete(self.engine.count(&Filter::default()).await)
    }

    fn kind(&self) -> &'static str {
        match self.engine.store() {
            Opened::Redis(_) => "redis",
            _ => "sqlite",
        }
    }
}

fn store_failure(shown: &str, error: &StoreError) -> Failure {
    let exit = match error {
        StoreError::Unavailable { .. }
        | StoreError::Unknown { .. }
        | StoreError::PartialWrite { .. } => Exit::Unavailable,
        StoreError::Corrupt { .. } => Exit::Failed,
        StoreError::Schema { .. } => Exit::Refused,
    };
    Failure::new(exit, format!("{shown}: {error}"))
}

/// The failure to open a store, with advice.
fn open_failure(shown: &str, error: &StoreError, settings: &WorkflowSettings) -> Failure {
    let failure = store_failure(shown, error);
    let advice = store::advice(settings, &failure.text);
    match settings.redis {
        Some(_) if !advice.is_empty() => Failure::new(
            failure.exit,
            format!("{}\n{}", failure.text, advice.trim_end()),
        ),
        _ => failure,
    }
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
