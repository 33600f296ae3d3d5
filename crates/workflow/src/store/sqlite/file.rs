//! The file of a store: its lock, its tables, and the settings of SQLite. A store in memory has the
//! same tables and no file.

pub(crate) mod presence;

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior};
use tracing::info;

use self::presence::Presence;
use crate::codec::{Format, Schema, StoreError};

/// The path that SQLite takes for a database in memory.
pub(super) const IN_MEMORY: &str = ":memory:";

/// `Tdgt`, which marks the files of this program.
const APPLICATION_ID: u32 = u32::from_be_bytes(*b"Tdgt");

/// The longest wait of a write for another program, such as a backup, that locks the file.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest check for damage when a server starts: a server killed by -9 is back within a
/// second. It covers about 120 MiB on a small machine, where 440 MiB took 2.0 s.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

/// Prepared statements that a connection caches: more than exist.
const MAX_CACHED_STATEMENTS: usize = 64;

/// Tables with rows that may exceed a page have row numbers. To find a key in a table without them,
/// SQLite reads each compared row completely.
const TABLES: &str = "
    CREATE TABLE store (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE workflow (id BLOB PRIMARY KEY, meta BLOB NOT NULL, label BLOB NOT NULL, timer INTEGER, expiry INTEGER)
        STRICT, WITHOUT ROWID;
    CREATE TABLE graph (id BLOB PRIMARY KEY NOT NULL, graph BLOB NOT NULL) STRICT;
    CREATE TABLE job (id BLOB, job INTEGER, state BLOB NOT NULL, PRIMARY KEY (id, job)) STRICT, WITHOUT ROWID;
    CREATE TABLE result (id BLOB NOT NULL, field INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (id, field)) STRICT;
    CREATE TABLE ready_row (partition INTEGER, entry BLOB, PRIMARY KEY (partition, entry)) STRICT, WITHOUT ROWID;
    CREATE TABLE index_row (partition INTEGER, entry BLOB, PRIMARY KEY (partition, entry)) STRICT, WITHOUT ROWID;
    CREATE TABLE timer (partition INTEGER, at INTEGER, id BLOB, PRIMARY KEY (partition, at, id)) STRICT, WITHOUT ROWID;
    CREATE TABLE expiry (partition INTEGER, at INTEGER, id BLOB, PRIMARY KEY (partition, at, id)) STRICT, WITHOUT ROWID;
    CREATE TABLE idempotency (partition INTEGER, key TEXT, id BLOB NOT NULL, PRIMARY KEY (partition, key))
        STRICT, WITHOUT ROWID;
    CREATE TABLE register (register INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (register, name))
        STRICT;
    CREATE TABLE holder (name TEXT, lease TEXT, until INTEGER NOT NULL, PRIMARY KEY (name, lease)) STRICT, WITHOUT ROWID;
    CREATE INDEX holder_until ON holder (until);
";

/// A store that is open.
pub(super) struct OpenedFile {
    pub(super) writer: Connection,
    /// `None` for a store in memory.
    pub(super) readers: Option<[Connection; 2]>,
    /// The lock. Another process may open the file when it is dropped. `None` for a store in
    /// memory.
    pub(super) lock: Option<Lock>,
    pub(super) partitions: u16,
    pub(super) schema: Schema,
    pub(super) presence: Presence,
}

/// The lock of the one process that uses the store.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is being started has it open, too,
        // until it runs its own program.
        let _ = self.0.unlock();
    }
}

/// Opens the store at `path`, or creates one with `partitions` partitions.
pub(super) fn open(path: &Path, partitions: u16) -> Result<OpenedFile, StoreError> {
    let lock = prepare(path)?;
    let writer = connect(path)?;
    let is_new = is_empty(&writer, path)?;
    if is_new {
        // Only possible before anything is in the file, or by `compact`.
        enable_shrinking(&writer)?;
    }
    tune(&writer, path)?;
    if is_new {
        create(&writer, partitions)?;
    } else {
        check_with_timeout(&writer, path)?;
    }
    let partitions = writer.query_row(
        "SELECT value FROM store WHERE name = 'partitions'",
        [],
        |row| row.get(0),
    )?;
    Ok(OpenedFile {
        schema: read_schema(&writer)?,
        readers: Some([connect_reader(path)?, connect_reader(path)?]),
        presence: Presence::for_file(path).map_err(|error| open_failed(path, error))?,
        writer,
        lock: Some(lock),
        partitions,
    })
}

fn read_schema(connection: &Connection) -> Result<Schema, StoreError> {
    let schema = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let format = Format::from_schema(schema).ok_or_else(|| StoreError::other_schema(schema))?;
    let from = "SELECT value FROM store WHERE name = 'migrates_from'";
    let from = connection
        .query_row(from, [], |row| row.get(0))
        .optional()?;
    Ok(Schema::new(format, from))
}

fn connect_reader(path: &Path) -> Result<Connection, StoreError> {
    let reader = connect(path)?;
    reader.pragma_update(None, "query_only", true)?;
    reader.pragma_update(None, "cache_size", -8_192)?;
    Ok(reader)
}

/// Creates a store with `partitions` partitions in memory. It has one connection. With two, a write
/// during an open read fails, because the database is locked.
pub(super) fn open_in_memory(partitions: u16) -> Result<OpenedFile, StoreError> {
    let writer = connect(Path::new(IN_MEMORY))?;
    // By default SQLite sorts in temporary files.
    writer.pragma_update(None, "temp_store", "MEMORY")?;
    create(&writer, partitions)?;
    Ok(OpenedFile {
        writer,
        readers: None,
        lock: None,
        partitions,
        schema: Schema::new(Format::LATEST, None),
        presence: Presence::default(),
    })
}

/// Lets a new or rewritten file return its free pages to the file system.
fn enable_shrinking(writer: &Connection) -> Result<(), StoreError> {
    Ok(writer.pragma_update(None, "auto_vacuum", "INCREMENTAL")?)
}

/// Rewrites the file without free pages, so that it is as small as possible and shrinks by itself
/// from then on. Returns its sizes in bytes before and after.
pub(super) fn compact(path: &Path) -> Result<(u64, u64), StoreError> {
    let size = || {
        fs::metadata(path)
            .map(|about| about.len())
            .map_err(|error| open_failed(path, error))
    };
    let before = size()?;
    let OpenedFile {
        writer,
        readers,
        lock,
        ..
    } = open(path, 1)?;
    drop(readers);
    enable_shrinking(&writer)?;
    writer.execute_batch("VACUUM")?;
    // Closing copies the log into the file.
    writer
        .close()
        .map_err(|(_, error)| StoreError::from(error))?;
    let after = size()?;
    drop(lock);
    Ok((before, after))
}

/// Creates the directory and an empty file if they are missing, and locks the store.
fn prepare(path: &Path) -> Result<Lock, StoreError> {
    let failed = |error: io::Error| open_failed(path, error);
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed)?;
    let lock = lock(path)?;
    refuse_changes_without_file(path)?;
    // Created here and not by SQLite, which gives its other files the mode of this one.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    // After a loss of power, the names of the new files must exist as their content does.
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(failed)?;
    Ok(lock)
}

/// Fails if the latest changes of a store are there and its file is not. SQLite would delete them.
fn refuse_changes_without_file(path: &Path) -> Result<(), StoreError> {
    let length = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
    let changes = PathBuf::from(format!("{}-wal", path.display()));
    if length(path) > 0 || length(&changes) == 0 {
        return Ok(());
    }
    let reason = format!(
        "{} has changes of a store whose file is missing. Put the file back, or move the changes \
         away to begin a new store",
        changes.display()
    );
    Err(open_failed(path, reason))
}

/// Sets how the connection that writes uses the file.
fn tune(writer: &Connection, path: &Path) -> Result<(), StoreError> {
    let mode: String = writer.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(open_failed(
            path,
            "its file system cannot share memory between processes; choose a local disk",
        ));
    }
    // A commit is on the disk before it is acknowledged.
    writer.pragma_update(None, "synchronous", "FULL")?;
    // 16 MiB of changes between checkpoints: a row that changes often is copied into the file once
    // for many changes.
    writer.pragma_update(None, "wal_autocheckpoint", 4_096)?;
    writer.pragma_update(None, "journal_size_limit", 64 << 20)?;
    // In KiB: the upper pages of every tree for a million workflows.
    writer.pragma_update(None, "cache_size", -32_768)?;
    Ok(())
}

/// The error for a store whose lock another process has.
fn in_use(path: &Path, mut lock: File) -> StoreError {
    let mut holder = String::new();
    // The process number is only a hint for people: it may be missing or outdated.
    let _ = lock.read_to_string(&mut holder);
    let holder = holder.trim();
    open_failed(
        path,
        format_args!(
            "it is in use by process {holder}. Stop that process, or set TIDEGATE_DATA_DIR to another folder"
        ),
    )
}

/// Locks the store.
fn lock(path: &Path) -> Result<Lock, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let failed = |error: io::Error| open_failed(path, format_args!("locking it: {error}"));
    let mut file = OpenOptions::new();
    let mut file = file
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&name)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use(path, file)),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    Ok(Lock(file))
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path).map_err(|error| open_failed(path, error))?;
    connection.busy_timeout(LOCK_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
    // By default SQLite prepares a statement again when the variable of its limit changes, which
    // costs more than the read.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Whether the file is empty. Fails if it is not a store, or has another version.
fn is_empty(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let application = application_id(connection, path)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application == 0 && version == 0 && tables == 0 {
        return Ok(true);
    }
    ensure_own_file(connection, path)?;
    let found = u32::try_from(version).unwrap_or(u32::MAX);
    if Format::from_schema(found).is_some() {
        Ok(false)
    } else {
        Err(StoreError::other_schema(found))
    }
}

/// Fails if the file belongs to another program.
pub(super) fn ensure_own_file(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    if application_id(connection, path)? == i64::from(APPLICATION_ID) {
        return Ok(());
    }
    Err(StoreError::corrupt(
        path.display().to_string(),
        "it is a database of another program; choose another directory",
    ))
}

/// The number of the program that owns the file. Fails if it is no database.
fn application_id(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    connection
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(|error| StoreError::corrupt(path.display().to_string(), error.to_string()))
}

/// Creates all tables or none.
fn create(connection: &Connection, partitions: u16) -> Result<(), StoreError> {
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    transaction.execute_batch(TABLES)?;
    transaction.execute("INSERT INTO store VALUES ('partitions', ?1)", [partitions])?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", Format::LATEST.schema())?;
    Ok(transaction.commit()?)
}

/// Checks for damage for at most [`CHECK_TIMEOUT`], and logs whether the check was complete.
fn check_with_timeout(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let started = Instant::now();
    let complete = thread::scope(|scope| {
        let (done, waiting) = mpsc::channel::<()>();
        let interrupt = connection.get_interrupt_handle();
        // The thread ends with the scope, so it cannot interrupt later statements.
        scope.spawn(move || {
            if waiting.recv_timeout(CHECK_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                interrupt.interrupt();
            }
        });
        let checked = check(connection, path);
        drop(done);
        checked
    })?;
    let bytes = fs::metadata(path).map_or(0, |about| about.len());
    info!(path = %path.display(), bytes, complete, took = ?started.elapsed(), "store checked");
    Ok(())
}

/// Reads every page once. Returns false if it was interrupted before it found damage or the end.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let damaged = |reason: String| StoreError::corrupt(path.display().to_string(), reason);
    match connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0)) {
        Ok(verdict) if verdict == "ok" => Ok(true),
        Ok(verdict) => Err(damaged(format!("{}; restore a backup", verdict.trim()))),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(false)
        }
        Err(error) => Err(damaged(error.to_string())),
    }
}

pub(super) fn open_failed(path: &Path, reason: impl Display) -> StoreError {
    StoreError::unavailable(format!("opening {}: {reason}", path.display()))
}
