//! `tidegate store`: the store of the workflows, opened without a server.

mod info;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use serde_json::json;
use tidegate_workflow::{
    Engine, EngineError, EngineOptions, Filter, Partial, RetentionDefaults, SqliteOptions,
    SqliteStore, Status, Store as Opened, StoreError,
};

use super::audit::{self, OnFinding};
use super::migrate::{self, Migrate};
use crate::settings::{Settings, Workflows};
use crate::telemetry::logging::{self, Logging};
use crate::workflows::clock::StoreClock;
use crate::workflows::store::{self, StoreLocation};
use info::Info;
use tidegate_cli::{Exit, Failure, Screen};

/// Shows, migrates, checks and copies the store of the workflows, without a server. The settings of
/// the server say where it is.
#[derive(Debug, Args)]
pub(crate) struct Store {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Verb {
    /// Shows where the store is and what is in it
    Info,
    /// Migrates the store to the layout of this version, while servers of this version use it
    Migrate(Migrate),
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
    pub(crate) shown: String,
    /// Flushes the log when it is dropped.
    _logging: Option<Logging>,
}

/// Handling of a store that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Refuse,
    Make,
}

impl Store {
    pub(crate) async fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        run(self.verb, screen).await
    }
}

pub(crate) async fn run(verb: Verb, screen: &Screen) -> Result<Exit, Failure> {
    match &verb {
        Verb::Backup { file } => return backup(file, screen).await,
        Verb::Compact => return compact(screen).await,
        _ => {}
    }
    let here = OpenStore::open(IfMissing::Refuse).await?;
    let done = match verb {
        Verb::Info => info(&here, screen).await,
        Verb::Migrate(asked) => migrate::run(&here, asked, screen).await,
        Verb::Check { repair: false } => audit::check(&here, OnFinding::Tell, screen).await,
        Verb::Check { repair: true } => audit::check(&here, OnFinding::Repair, screen).await,
        Verb::Backup { .. } | Verb::Compact => unreachable!("it opens no engine"),
    };
    here.close().await;
    done
}

/// Reads the settings of the server.
fn settings() -> Result<Settings, Failure> {
    Settings::from_environment().map_err(|error| wrong(&error))
}

fn wrong(error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{error}\n`tidegate settings` lists all settings"))
}

/// The settings of the workflows, if the API is enabled.
fn workflows(settings: &Settings) -> Result<&Workflows, Failure> {
    let none = || wrong(&"TIDEGATE_HTTP_ADDR is set but empty, which means no workflows");
    settings.workflows.as_ref().ok_or_else(none)
}

/// Refuses a store in memory, which only its own server can open.
fn refuse_memory(settings: &Workflows) -> Result<(), Failure> {
    let reason = "TIDEGATE_STORE_URL=memory: workflows are in the memory of the server, and nothing else can open them; `tidegate workflow \
                  list` asks the server";
    if settings.in_process {
        Err(Failure::usage(reason))
    } else {
        Ok(())
    }
}

fn no_store(shown: &str, settings: &Workflows) -> Failure {
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
    pub(crate) async fn open(missing: IfMissing) -> Result<Self, Failure> {
        let settings = settings()?;
        let no_thread = |error| {
            Failure::new(
                Exit::Unavailable,
                format!("cannot start the thread that writes the log: {error}"),
            )
        };
        let logging = Some(logging::start(settings.log).map_err(no_thread)?);
        let workflows = workflows(&settings)?;
        let shown = store::shown(workflows);
        refuse_memory(workflows)?;
        let failed = |error: &StoreError| not_opened(&shown, error, workflows);
        let place = StoreLocation::new(workflows).map_err(|error| failed(&error))?;
        if missing == IfMissing::Refuse && !place.exists().await.map_err(|error| failed(&error))? {
            return Err(no_store(&shown, workflows));
        }
        let store = place.open().await.map_err(|error| failed(&error))?;
        let clock = StoreClock::default();
        clock.start(&store).await;
        let options = EngineOptions {
            retention: workflows.retention,
            memory: workflows.memory,
            attempts: None,
        };
        let engine = Engine::start(store, options)
            .await
            .map_err(|error| refused(&shown, &error))?;
        Ok(Self {
            engine,
            clock,
            replicas: workflows.replicas,
            shown,
            _logging: logging,
        })
    }

    /// Opens an empty store in memory, which ends with the process.
    pub(crate) async fn nowhere() -> Result<Self, Failure> {
        let options = SqliteOptions::new(1).expect("a power of two");
        let store = SqliteStore::in_memory(&options)
            .map(Opened::Sqlite)
            .map_err(|error| refused("memory", &error))?;
        let options = EngineOptions {
            retention: RetentionDefaults::default(),
            ..EngineOptions::default()
        };
        let engine = Engine::start(store, options)
            .await
            .map_err(|error| refused("memory", &error))?;
        Ok(Self {
            engine,
            clock: StoreClock::default(),
            replicas: 0,
            shown: "memory".to_owned(),
            _logging: None,
        })
    }

    pub(crate) async fn close(&self) {
        self.engine.close().await;
        if let Opened::Sqlite(store) = self.engine.store() {
            store.close().await;
        }
    }

    pub(crate) fn refused(&self, error: &StoreError) -> Failure {
        refused(&self.shown, error)
    }

    pub(crate) fn failed(&self, error: &EngineError) -> Failure {
        match error {
            EngineError::Store(error) => self.refused(error),
            error => Failure::unavailable(format!("{}: {error}", self.shown)),
        }
    }

    /// Returns the result of a read if all partitions answered.
    ///
    /// # Errors
    /// The read failed, or a partition did not answer.
    pub(crate) fn complete<T>(&self, read: Result<Partial<T>, EngineError>) -> Result<T, Failure> {
        let Partial { found, missing } = read.map_err(|error| self.failed(&error))?;
        missing
            .0
            .values()
            .next()
            .map_or(Ok(found), |error| Err(self.refused(error)))
    }

    /// Number of workflows by status.
    pub(crate) async fn counts(&self) -> Result<Vec<(Status, u64)>, Failure> {
        self.complete(self.engine.count(&Filter::default()).await)
    }

    fn kind(&self) -> &'static str {
        match self.engine.store() {
            Opened::Redis(_) => "redis",
            _ => "sqlite",
        }
    }
}

fn refused(shown: &str, error: &StoreError) -> Failure {
    let exit = match error {
        StoreError::Unavailable { .. } | StoreError::Unknown { .. } | StoreError::Torn { .. } => {
            Exit::Unavailable
        }
        StoreError::Corrupt { .. } => Exit::Failed,
        StoreError::Schema { .. } => Exit::Refused,
    };
    Failure::new(exit, format!("{shown}: {error}"))
}

/// The failure to open a store, with advice.
fn not_opened(shown: &str, error: &StoreError, settings: &Workflows) -> Failure {
    let failure = refused(shown, error);
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
fn file_of_store(instead: &str) -> Result<(PathBuf, String), Failure> {
    let settings = settings()?;
    let workflows = workflows(&settings)?;
    let shown = store::shown(workflows);
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
async fn apart<T: Send + 'static>(
    shown: &str,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::unavailable(format!("{shown}: {error}")))?
        .map_err(|error| refused(shown, &error))
}

/// Copies the SQLite file without the lock of a server, so one may have it open.
async fn backup(file: &Path, screen: &Screen) -> Result<Exit, Failure> {
    let instead = "copy a store in redis with its own means: BGSAVE, or the log of appendonly";
    let (from, shown) = file_of_store(instead)?;
    let to = file.to_owned();
    if to.exists() {
        return Err(Failure::new(
            Exit::Refused,
            format!("{} exists: name a new file", to.display()),
        ));
    }
    let bytes = apart(&shown, move || SqliteStore::backup(&from, &to)).await?;
    let json = json!({ "store": shown, "file": file, "bytes": bytes }).to_string();
    screen.object(&json, &shown, || {
        Ok(format!(
            "{shown} was copied to {}, {bytes} bytes\n",
            file.display()
        ))
    })?;
    Ok(Exit::Done)
}

/// Rewrites the SQLite file so that it becomes as small as possible.
async fn compact(screen: &Screen) -> Result<Exit, Failure> {
    let (file, shown) = file_of_store("redis gives memory back by itself")?;
    let (before, after) = apart(&shown, move || SqliteStore::compact(&file)).await?;
    let json = json!({ "store": shown, "bytes_before": before, "bytes": after }).to_string();
    screen.object(&json, &shown, || {
        Ok(format!("{shown} has {after} bytes, it had {before}\n"))
    })?;
    Ok(Exit::Done)
}

async fn info(here: &OpenStore, screen: &Screen) -> Result<Exit, Failure> {
    let info = Info::read(here).await?;
    let json = info.json(here).to_string();
    screen.object(&json, &here.shown, || Ok(info.text(here, screen)))?;
    Ok(Exit::Done)
}
