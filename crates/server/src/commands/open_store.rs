//! The store of the workflows, opened by a command without a server.

use std::io;

use tidegate_api::Scope;
use tidegate_workflow::{
    Engine, EngineError, EngineOptions, Filter, Member, PartialResult, SqliteOptions, SqliteStore,
    Status, Store as Opened, StoreError,
};

use crate::settings::{Settings, WorkflowSettings};
use crate::telemetry::logging::{self, Logging};
use crate::workflows::clock::StoreClock;
use crate::workflows::store::{self, StoreLocation};
use tidegate_cli::{CommandResult, Exit, Failure};

/// A store that this command has opened. A SQLite file is locked against other processes meanwhile.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) engine: Engine,
    pub(crate) clock: StoreClock,
    /// Number of replicas that must acknowledge a write.
    pub(super) replicas: u16,
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

impl OpenStore {
    /// Opens the store of the settings.
    pub(crate) async fn open(missing: IfMissing) -> CommandResult<Self> {
        let settings = settings()?;
        let logging = Some(logging::start(settings.log).map_err(no_log_thread)?);
        let workflows = workflow_settings(&settings)?;
        let shown = store::location_text(workflows);
        let store = open_location(workflows, &shown, missing).await?;
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

    /// The servers that use the store.
    pub(super) async fn members(&self) -> CommandResult<Vec<Member>> {
        self.checked(self.engine.read_members(self.clock.now()).await)
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

    pub(super) fn kind(&self) -> &'static str {
        match self.engine.store() {
            Opened::Redis(_) => "redis",
            _ => "sqlite",
        }
    }
}

pub(super) fn store_failure(shown: &str, error: &StoreError) -> Failure {
    let exit = match error {
        StoreError::Unavailable { .. }
        | StoreError::Unknown { .. }
        | StoreError::PartialWrite { .. } => Exit::Unavailable,
        StoreError::Corrupt { .. } => Exit::Failed,
        StoreError::Schema { .. } => Exit::Refused,
    };
    Failure::new(exit, format!("{shown}: {error}"))
}

fn no_log_thread(error: io::Error) -> Failure {
    Failure::unavailable(format!(
        "cannot start the thread that writes the log: {error}"
    ))
}

/// Opens the store of the settings, which is at `shown`.
async fn open_location(
    settings: &WorkflowSettings,
    shown: &str,
    missing: IfMissing,
) -> CommandResult<Opened> {
    refuse_memory(settings)?;
    let failed = |error| open_failure(shown, &error, settings);
    let location = StoreLocation::new(settings).map_err(failed)?;
    if missing == IfMissing::Refuse && !location.exists().await.map_err(failed)? {
        return Err(no_store(shown, settings));
    }
    location.open().await.map_err(failed)
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

/// Reads the settings of the server.
pub(super) fn settings() -> CommandResult<Settings> {
    Settings::from_environment().map_err(|error| settings_failure(&error))
}

fn settings_failure(error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{error}\n`tidegate settings` lists all settings"))
}

/// The settings of the workflows, if the API is enabled.
pub(super) fn workflow_settings(settings: &Settings) -> CommandResult<&WorkflowSettings> {
    let none =
        || settings_failure(&"TIDEGATE_HTTP_ADDR is set but empty, which means no workflows");
    settings.workflows.as_ref().ok_or_else(none)
}

/// Refuses a store in memory, which only its own server can open, and one that is off.
pub(super) fn refuse_memory(settings: &WorkflowSettings) -> CommandResult<()> {
    let reason = "TIDEGATE_STORE_URL=memory: workflows are in the memory of the server, and nothing else can open them; `tidegate workflow \
                  list` asks the server";
    if settings.scope == Scope::LimitsReadOnly {
        return Err(Failure::usage(
            "TIDEGATE_STORE_URL=off: there is no store of workflows",
        ));
    }
    if settings.in_process {
        Err(Failure::usage(reason))
    } else {
        Ok(())
    }
}

pub(super) fn no_store(shown: &str, settings: &WorkflowSettings) -> Failure {
    let named = match settings.redis {
        Some(_) => "TIDEGATE_STORE_URL (or REDIS_URL) and TIDEGATE_STORE_PREFIX say",
        None => "TIDEGATE_DATA_DIR says",
    };
    Failure::new(
        Exit::NotFound,
        format!("there is no store at {shown}; {named} where to look"),
    )
}
