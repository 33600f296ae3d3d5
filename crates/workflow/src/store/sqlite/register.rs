//! The registers in a SQLite file. The entries of a register are accompanied by a second set of
//! rows: the times at which names were last registered.

use rusqlite::{Connection, params};

use super::SqliteStore;
use super::column::{micros, register_number, timestamp};
use super::read::{many, one, sql_limit};
use super::write::WriteRequest;
use crate::codec::StoreError;
use crate::model::Timestamp;
use crate::store::{PAUSED, Register, RegisteredName};

/// The number of the rows that have the times of a register's names.
fn times_of(register: Register) -> i64 {
    register_number(register) + 2
}

/// The number of the rows with policies of queues and handlers. They are in no register, so they
/// are never forgotten.
const POLICIES: i64 = 4;

/// A change of rows.
pub(super) enum RegisterWrite {
    /// Writes one row, or removes it.
    Set {
        number: i64,
        name: String,
        value: Option<String>,
    },
    Add {
        register: Register,
        entries: Vec<(String, String)>,
        at: Timestamp,
    },
    Remove {
        register: Register,
        names: Vec<RegisteredName>,
    },
}

impl RegisterWrite {
    /// Number of entries that the change affects.
    pub(super) fn entries(&self) -> usize {
        match self {
            Self::Set { .. } => 1,
            Self::Add { entries, .. } => entries.len(),
            Self::Remove { names, .. } => names.len(),
        }
    }

    /// Returns the number of removed entries.
    pub(super) fn write(&self, connection: &Connection) -> Result<u64, StoreError> {
        match self {
            Self::Set {
                number,
                name,
                value: Some(value),
            } => put(connection, *number, name, value).map(|()| 0),
            Self::Set { number, name, .. } => delete(connection, *number, name),
            Self::Add {
                register,
                entries,
                at,
            } => {
                let mut insert = connection
                    .prepare_cached("INSERT OR IGNORE INTO register VALUES (?1, ?2, ?3)")?;
                let at = micros(*at).to_string();
                for (name, value) in entries {
                    insert.execute(params![register_number(*register), name, value])?;
                    put(connection, times_of(*register), name, &at)?;
                }
                Ok(0)
            }
            Self::Remove { register, names } => remove_unused(connection, *register, names),
        }
    }
}

fn put(connection: &Connection, number: i64, name: &str, value: &str) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO register VALUES (?1, ?2, ?3)";
    connection
        .prepare_cached(sql)?
        .execute(params![number, name, value])?;
    Ok(())
}

fn delete(connection: &Connection, number: i64, name: &str) -> Result<u64, StoreError> {
    let sql = "DELETE FROM register WHERE register = ?1 AND name = ?2";
    Ok(connection
        .prepare_cached(sql)?
        .execute(params![number, name])? as u64)
}

fn remove_unused(
    connection: &Connection,
    register: Register,
    names: &[RegisteredName],
) -> Result<u64, StoreError> {
    let mut removed = 0;
    for (name, at) in names {
        let is_paused =
            value(connection, register_number(register), name)?.as_deref() == Some(PAUSED);
        if !is_paused && read_registered_at(connection, register, name)? == *at {
            removed += delete(connection, register_number(register), name)?;
            delete(connection, times_of(register), name)?;
        }
    }
    Ok(removed)
}

fn value(connection: &Connection, number: i64, name: &str) -> Result<Option<String>, StoreError> {
    let sql = "SELECT value FROM register WHERE register = ?1 AND name = ?2";
    one(connection, sql, params![number, name], |row| row.get(0))
}

fn read_registered_at(
    connection: &Connection,
    register: Register,
    name: &str,
) -> Result<Option<Timestamp>, StoreError> {
    let text = value(connection, times_of(register), name)?;
    Ok(text.and_then(|text| text.parse().ok()).map(timestamp))
}

impl SqliteStore {
    pub(crate) async fn register_page(
        &self,
        register: Register,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, String)>, StoreError> {
        // No name is empty.
        let after = after.unwrap_or_default().to_owned();
        self.lookup(move |connection| {
            let sql = "SELECT name, value FROM register WHERE register = ?1 AND name > ?2 ORDER BY name LIMIT ?3";
            let bounds = params![register_number(register), after, sql_limit(limit)];
            many(connection, sql, bounds, |row| Ok((row.get(0)?, row.get(1)?)))
        })
        .await
    }

    pub(crate) async fn registered(
        &self,
        register: Register,
        names: &[String],
    ) -> Result<Vec<Option<String>>, StoreError> {
        let number = register_number(register);
        self.lookup_each(names, move |connection, name| {
            value(connection, number, name)
        })
        .await
    }

    pub(crate) async fn paused_queues(&self) -> Result<Vec<String>, StoreError> {
        self.lookup(|connection| {
            let sql = "SELECT name FROM register WHERE register = ?1 AND value = ?2";
            let paused = params![register_number(Register::Queues), PAUSED];
            many(connection, sql, paused, |row| row.get(0))
        })
        .await
    }

    pub(crate) async fn set_entry(
        &self,
        register: Register,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        self.set_register_row(register_number(register), name, value)
            .await
    }

    async fn set_register_row(
        &self,
        number: i64,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        let change = RegisterWrite::Set {
            number,
            name: name.to_owned(),
            value: value.map(str::to_owned),
        };
        self.write(change, WriteRequest::Register).await.map(drop)
    }

    pub(crate) async fn add_entries(
        &self,
        register: Register,
        entries: &[(String, String)],
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let change = RegisterWrite::Add {
            register,
            entries: entries.to_vec(),
            at,
        };
        self.write(change, WriteRequest::Register).await.map(drop)
    }

    pub(crate) async fn registered_at(
        &self,
        register: Register,
        names: &[String],
    ) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.lookup_each(names, move |connection, name| {
            read_registered_at(connection, register, name)
        })
        .await
    }

    pub(crate) async fn remove_unused(
        &self,
        register: Register,
        names: &[RegisteredName],
    ) -> Result<u64, StoreError> {
        let change = RegisterWrite::Remove {
            register,
            names: names.to_vec(),
        };
        self.write(change, WriteRequest::Register).await
    }

    pub(crate) async fn policy_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.lookup(|connection| {
            let sql = "SELECT name, value FROM register WHERE register = ?1 ORDER BY name";
            many(connection, sql, [POLICIES], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
        })
        .await
    }

    pub(crate) async fn set_policy_row(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), StoreError> {
        self.set_register_row(POLICIES, name, value).await
    }
}
