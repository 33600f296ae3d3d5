//! The store in one SQLite file, or in the memory of this process. One thread writes all waiting
//! requests in one transaction. Other threads read a file at the same time. A store in memory has
//! one connection, on which the writing thread also reads.

mod backup;
mod column;
mod depths;
mod file;
mod lookups;
mod notes;
mod permits;
mod probe;
mod read;
mod register;
mod worker;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use thiserror::Error;
use tokio::sync::oneshot;

use self::depths::Depths;
use self::file::presence::Presence;
use self::worker::WorkerThread;
pub(super) use self::write::GROUP_CHANGES;
use self::write::space::can_shrink;
use self::write::{PendingWrite, WriteRequest, WriterState};
use super::query::probe::Probe;
use super::{SharedTables, StoreError};
use crate::codec::{Applied, Change, Format, Schema};
use crate::model::{MAX_PARTITIONS, Partition};

/// Number of writes or reads that may wait for their thread. Further callers wait until the queue
/// has capacity.
const QUEUE_LENGTH: usize = 1_024;

/// Workflows in SQLite. Only one process can have a file open as a store. Clones share it.
///
/// Dropping the last clone writes all waiting requests, ends the threads and closes the file.
/// [`SqliteStore::close`] does so without blocking the caller's thread.
#[derive(Clone)]
pub struct SqliteStore {
    partitions: u16,
    schema: Schema,
    threads: Arc<Threads>,
    pub(super) shared_tables: SharedTables,
}

/// Options of a store in SQLite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    partitions: u16,
}

/// The error for a number of partitions that is not a power of two from 1 to 256.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{partitions} partitions: it must be a power of two from 1 to {MAX_PARTITIONS}")]
pub struct SqliteOptionsError {
    /// The number of partitions in the options.
    pub partitions: u16,
}

impl SqliteOptions {
    /// Partitions of a new file, unless the operator sets another number. Only one server uses the
    /// file, and each partition costs pages with every write: with 16, a job takes a fifth more
    /// time of the server.
    pub const PARTITIONS: u16 = 4;

    /// A new store has `partitions` partitions, a power of two. An existing store keeps its number.
    ///
    /// # Errors
    /// `partitions` is no power of two from 1 to 256.
    pub fn new(partitions: u16) -> Result<Self, SqliteOptionsError> {
        if !partitions.is_power_of_two() || partitions > MAX_PARTITIONS {
            return Err(SqliteOptionsError { partitions });
        }
        Ok(Self { partitions })
    }
}

impl Default for SqliteOptions {
    /// [`SqliteOptions::PARTITIONS`] partitions.
    fn default() -> Self {
        Self {
            partitions: Self::PARTITIONS,
        }
    }
}

/// The size of a store's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSpace {
    /// Size of the file in bytes, without its log.
    pub bytes: u64,
    /// Bytes of the file that are free.
    pub free: u64,
    /// Whether the file shrinks by itself when workflows are deleted. Files of earlier versions do
    /// not.
    pub shrinks: bool,
}

/// A read. It sends its own answer.
type ReadRequest = Box<dyn FnOnce(&Connection) + Send>;

/// The fields are dropped in this order. The connection that writes is closed last, so that SQLite
/// merges its log into the file.
struct Threads {
    path: PathBuf,
    presence: Arc<Presence>,
    depths: Arc<Depths>,
    /// Reads that may take long, because they read many rows. `None` if the thread that writes also
    /// reads.
    scans: Option<WorkerThread<ReadRequest>>,
    /// Reads that workers wait for. `None` if the thread that writes also reads.
    lookups: Option<WorkerThread<ReadRequest>>,
    writes: WorkerThread<WriteRequest>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SqliteStore")
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store at `path`. If it is missing, creates it, and its directory with access for
    /// this user only. Blocks for at most half a second while it checks for damage, enough for a
    /// file of 100 MB. [`SqliteStore::check`] checks any file completely.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if another process has the file open, or it cannot be used;
    /// [`StoreError::Corrupt`] if it is damaged or no store; [`StoreError::Schema`] if another
    /// version created it.
    pub fn open(path: &Path, options: &SqliteOptions) -> Result<Self, StoreError> {
        Self::start(path, file::open(path, options.partitions)?)
    }

    /// Creates an empty store in the memory of this process. Its data is lost when it is closed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when a thread cannot be started.
    pub fn in_memory(options: &SqliteOptions) -> Result<Self, StoreError> {
        Self::start(
            Path::new(file::IN_MEMORY),
            file::open_in_memory(options.partitions)?,
        )
    }

    fn start(path: &Path, opened: file::OpenedFile) -> Result<Self, StoreError> {
        let file::OpenedFile {
            writer,
            readers,
            lock,
            partitions,
            schema,
            presence,
        } = opened;
        let presence = Arc::new(presence);
        let depths = Arc::<Depths>::default();
        let (watched, counted) = (Arc::clone(&presence), Arc::clone(&depths));
        let writes = move |requests: &mut worker::RequestQueue<WriteRequest>| {
            write::run(WriterState::new(&writer, &watched, &counted), requests);
            // The lock is released after the file is closed.
            drop(writer);
            drop(lock);
        };
        let readers = readers.map(spawn_readers).transpose()?;
        let (scans, lookups) = readers.unzip();
        Ok(Self {
            partitions,
            schema,
            threads: Arc::new(Threads {
                path: path.to_owned(),
                presence,
                depths,
                scans,
                lookups,
                writes: spawn("store-writes", writes)?,
            }),
            shared_tables: SharedTables::default(),
        })
    }

    /// Reads the whole file and checks for damage, about 4 s for each gigabyte. Scans wait during
    /// that time; other calls do not.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] says what is damaged.
    ///
    /// # Cancellation
    /// When the future is dropped, the check continues to its end.
    pub async fn check(&self) -> Result<(), StoreError> {
        let path = self.threads.path.clone();
        self.scan(move |connection| file::check(connection, &path).map(drop))
            .await
    }

    /// Copies the store at `from`, as it is at one moment, into the new file `to`. Returns the size
    /// of the copy in bytes. A server may have the store open and continue to write; its writes
    /// stay in the log until the copy is done. Blocks for about as long as reading and writing the
    /// whole file takes.
    ///
    /// # Errors
    /// `to` exists or cannot be written, or `from` is not a store. Then no new file exists at `to`.
    pub fn backup(from: &Path, to: &Path) -> Result<u64, StoreError> {
        backup::backup(from, to)
    }

    /// Rewrites the store at `path`, so that its file is as small as possible and shrinks by itself
    /// from then on. Returns the sizes of the file in bytes before and after. No server may have it
    /// open.
    ///
    /// The disk must have room for two more copies of the file. An interrupted call leaves the
    /// store as it was. Blocks for about as long as reading and writing the whole file twice takes.
    ///
    /// # Errors
    /// The errors of [`SqliteStore::open`], and an error if the disk has too little room.
    pub fn compact(path: &Path) -> Result<(u64, u64), StoreError> {
        file::compact(path)
    }

    /// The size of the store's file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn space(&self) -> Result<FileSpace, StoreError> {
        self.lookup(|connection| {
            let number = |pragma| {
                connection
                    .pragma_query_value(None, pragma, |row| row.get(0).map(i64::cast_unsigned))
            };
            let page = number("page_size")?;
            Ok(FileSpace {
                bytes: number("page_count")? * page,
                free: number("freelist_count")? * page,
                shrinks: can_shrink(connection)?,
            })
        })
        .await
    }

    /// Writes all waiting requests, closes the file and releases its lock. Later calls fail with
    /// [`StoreError::Unavailable`].
    ///
    /// # Cancellation
    /// When the future is dropped, the store is closed anyway, or remains open for writes.
    pub async fn close(&self) {
        for reader in [&self.threads.scans, &self.threads.lookups]
            .into_iter()
            .flatten()
        {
            reader.close().await;
        }
        self.threads.writes.close().await;
    }

    /// Limits the file to this number of pages of 4 KiB, which simulates a full disk. A larger file
    /// does not grow.
    ///
    /// # Errors
    /// The store was closed.
    pub async fn limit_pages(&self, pages: u32) -> Result<(), StoreError> {
        self.write(pages, WriteRequest::LimitPages).await
    }

    pub(crate) fn partitions(&self) -> u16 {
        self.partitions
    }

    pub(crate) fn format(&self) -> Format {
        self.schema.format()
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Records in the file the schema that it is migrated from, and writes the latest format from
    /// now on.
    pub(crate) async fn begin_migration(&self) -> Result<(), StoreError> {
        let from = self.schema.origin();
        self.write(Some(from), WriteRequest::Migrate).await?;
        self.schema.set(Format::LATEST, Some(from));
        Ok(())
    }

    /// Records that nothing of an earlier format is left.
    pub(crate) async fn end_migration(&self) -> Result<(), StoreError> {
        self.write(None, WriteRequest::Migrate).await?;
        self.schema.set(Format::LATEST, None);
        Ok(())
    }

    async fn read<T: Send + 'static>(
        &self,
        reader: Option<&WorkerThread<ReadRequest>>,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let read: ReadRequest = Box::new(move |connection| {
            // The caller may have dropped its future.
            if !answer.is_closed() {
                let _ = answer.send(read::in_transaction(connection, read));
            }
        });
        match reader {
            Some(reader) => reader.send(read).await?,
            None => self.threads.writes.send(WriteRequest::Read(read)).await?,
        }
        answered.await.map_err(|_| worker::ended())?
    }

    async fn lookup<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read(self.threads.lookups.as_ref(), read).await
    }

    async fn scan<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read(self.threads.scans.as_ref(), read).await
    }

    async fn write<I, T>(
        &self,
        input: I,
        request: fn(PendingWrite<I, T>) -> WriteRequest,
    ) -> Result<T, StoreError> {
        let (pending, answered) = PendingWrite::new(input);
        self.threads.writes.send(request(pending)).await?;
        // The thread had the request when it ended, so the request may be committed.
        answered
            .await
            .map_err(|_| StoreError::unknown("the thread that writes has ended"))?
    }

    pub(crate) async fn apply(
        &self,
        partition: Partition,
        changes: Arc<[Change]>,
    ) -> Result<Vec<Applied>, StoreError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        self.write((partition, changes), WriteRequest::Apply).await
    }

    pub(crate) async fn probe(&self, _: Partition) -> Probe {
        let reads = self.lookup(|connection| {
            Ok(connection.query_row("SELECT count(*) FROM store", [], |_| Ok(()))?)
        });
        let (reads, written) = tokio::join!(reads, self.write((), WriteRequest::Probe));
        let (removals, writes) = written.unwrap_or_else(|error| (Err(error.clone()), Err(error)));
        Probe {
            reads,
            removals,
            writes,
        }
    }
}

fn spawn<J: Send + 'static>(
    name: &str,
    run: impl FnOnce(&mut worker::RequestQueue<J>) + Send + 'static,
) -> Result<WorkerThread<J>, StoreError> {
    let failed = |error| StoreError::unavailable(format!("starting a thread: {error}"));
    WorkerThread::spawn(name, QUEUE_LENGTH, run).map_err(failed)
}

/// Starts a thread for scans and one for lookups, each with its own connection.
fn spawn_readers(
    [for_lookups, for_scans]: [Connection; 2],
) -> Result<(WorkerThread<ReadRequest>, WorkerThread<ReadRequest>), StoreError> {
    let reader = |name, connection: Connection| {
        spawn(
            name,
            move |requests: &mut worker::RequestQueue<ReadRequest>| {
                while let Some(read) = requests.next() {
                    read(&connection);
                }
            },
        )
    };
    Ok((
        reader("store-scans", for_scans)?,
        reader("store-lookups", for_lookups)?,
    ))
}

impl From<rusqlite::Error> for StoreError {
    /// The error for a failure after which nothing is committed.
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let unreadable = matches!(
            error.sqlite_error_code(),
            Some(DatabaseCorrupt | NotADatabase)
        ) || matches!(
            error,
            rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
        );
        if unreadable {
            Self::Corrupt {
                what: "a row".to_owned(),
                reason: error.to_string(),
            }
        } else {
            Self::Unavailable {
                reason: format!("sqlite: {error}"),
            }
        }
    }
}
