//! Permits in a SQLite file: a row for each holder. Expired permits of all limits are removed with
//! the next write of any permit.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::SqliteStore;
use super::column::{micros, timestamp};
use super::read::{many, one, sql_limit};
use super::write::WriteRequest;
use crate::codec::StoreError;
use crate::model::{InvalidId, LeaseRef, Timestamp};
use crate::store::{
    PermitCount, PermitExtension, PermitHolders, PermitRequest, ServerId, permit_duration,
};

/// A limit, and the lease that has or requests one of its permits.
type PermitKey = (String, LeaseRef);

/// A change of holders.
pub(super) struct PermitWrite {
    now: Timestamp,
    operation: PermitOperation,
}

enum PermitOperation {
    Acquire {
        requests: Vec<OwnedPermitRequest>,
        until: Timestamp,
    },
    Extend {
        permits: Vec<PermitKey>,
        until: Timestamp,
    },
    Release {
        permits: Vec<PermitKey>,
    },
}

/// A [`PermitRequest`] that can be sent to another thread.
struct OwnedPermitRequest {
    limit: String,
    permits: u32,
    leases: Vec<LeaseRef>,
}

impl PermitWrite {
    /// Number of permits that the change affects.
    pub(super) fn permits(&self) -> usize {
        match &self.operation {
            PermitOperation::Acquire { requests, .. } => {
                requests.iter().map(|request| request.leases.len()).sum()
            }
            PermitOperation::Extend { permits, .. } | PermitOperation::Release { permits } => {
                permits.len()
            }
        }
    }

    /// Whether the change only removes rows.
    pub(super) fn only_removes(&self) -> bool {
        matches!(self.operation, PermitOperation::Release { .. })
    }

    /// Returns the state of the limit of each request or permit.
    pub(super) fn write(&self, connection: &Connection) -> Result<Vec<PermitCount>, StoreError> {
        connection
            .prepare_cached("DELETE FROM holder WHERE until <= ?1")?
            .execute([micros(self.now)])?;
        match &self.operation {
            PermitOperation::Acquire { requests, until } => requests
                .iter()
                .map(|request| acquire(connection, request, self.now, *until))
                .collect(),
            PermitOperation::Extend { permits, until } => {
                let count = |(limit, lease): &PermitKey| {
                    let granted = usize::from(extend_permit(connection, limit, *lease, *until)?);
                    Ok(PermitCount {
                        granted,
                        ..PermitCount::default()
                    })
                };
                permits.iter().map(count).collect()
            }
            PermitOperation::Release { permits } => release(connection, permits),
        }
    }
}

fn release(connection: &Connection, permits: &[PermitKey]) -> Result<Vec<PermitCount>, StoreError> {
    let mut remove =
        connection.prepare_cached("DELETE FROM holder WHERE name = ?1 AND lease = ?2")?;
    for (limit, lease) in permits {
        remove.execute(params![limit, lease.text()])?;
    }
    let count = |(limit, _): &PermitKey| {
        Ok(PermitCount {
            in_use: count_holders(connection, limit)?,
            ..PermitCount::default()
        })
    };
    permits.iter().map(count).collect()
}

fn acquire(
    connection: &Connection,
    request: &OwnedPermitRequest,
    now: Timestamp,
    until: Timestamp,
) -> Result<PermitCount, StoreError> {
    let OwnedPermitRequest {
        limit,
        permits,
        leases,
    } = request;
    let mut in_use = count_holders(connection, limit)?;
    let mut granted = 0;
    for lease in leases {
        if in_use < *permits {
            in_use += add(connection, limit, *lease, until)?;
        } else if !extend_permit(connection, limit, *lease, until)? {
            break;
        }
        granted += 1;
    }
    let next_expiry = if in_use < *permits {
        None
    } else {
        first_expiry(connection, limit)?.map(|first| first.since(now))
    };
    Ok(PermitCount {
        granted,
        in_use,
        next_expiry,
    })
}

/// Number of holders of a limit, after expired ones were removed.
fn count_holders(connection: &Connection, limit: &str) -> Result<u32, StoreError> {
    let mut count = connection.prepare_cached("SELECT count(*) FROM holder WHERE name = ?1")?;
    Ok(count.query_row([limit], |row| row.get(0))?)
}

fn first_expiry(connection: &Connection, limit: &str) -> Result<Option<Timestamp>, StoreError> {
    let mut first = connection.prepare_cached("SELECT min(until) FROM holder WHERE name = ?1")?;
    Ok(first
        .query_row([limit], |row| row.get::<_, Option<i64>>(0))?
        .map(timestamp))
}

/// Returns the number of added holders: 0 if the lease had a permit, which is extended.
fn add(
    connection: &Connection,
    limit: &str,
    lease: LeaseRef,
    until: Timestamp,
) -> Result<u32, StoreError> {
    let insert = "INSERT OR IGNORE INTO holder VALUES (?1, ?2, ?3)";
    let added =
        connection
            .prepare_cached(insert)?
            .execute(params![limit, lease.text(), micros(until)])?;
    if added == 0 {
        extend_permit(connection, limit, lease, until)?;
    }
    Ok(added as u32)
}

/// Extends a permit. Returns whether the lease has one.
fn extend_permit(
    connection: &Connection,
    limit: &str,
    lease: LeaseRef,
    until: Timestamp,
) -> Result<bool, StoreError> {
    let update = "UPDATE holder SET until = max(until, ?3) WHERE name = ?1 AND lease = ?2";
    Ok(connection
        .prepare_cached(update)?
        .execute(params![limit, lease.text(), micros(until)])?
        > 0)
}

fn list(
    connection: &Connection,
    name: &str,
    now: Timestamp,
    limit: usize,
) -> Result<PermitHolders, StoreError> {
    let sql = "SELECT count(*) FROM holder WHERE name = ?1 AND until > ?2";
    let number = one(connection, sql, params![name, micros(now)], |row| {
        row.get(0)
    })?;
    let sql =
        "SELECT lease, until FROM holder WHERE name = ?1 AND until > ?2 ORDER BY until LIMIT ?3";
    let bounds = params![name, micros(now), sql_limit(limit)];
    let found = many(connection, sql, bounds, |row| {
        Ok((row.get::<_, String>(0)?, timestamp(row.get(1)?)))
    })?;
    let corrupt = |error: InvalidId| StoreError::corrupt("a holder", error.to_string());
    let holder = |(lease, until): (String, Timestamp)| {
        let lease = lease.parse().map_err(corrupt)?;
        Ok::<_, StoreError>((lease, until))
    };
    Ok(PermitHolders {
        number: number.unwrap_or_default(),
        first: found.into_iter().map(holder).collect::<Result<_, _>>()?,
    })
}

fn owned(permits: &[(&str, LeaseRef)]) -> Vec<PermitKey> {
    permits
        .iter()
        .map(|(limit, lease)| ((*limit).to_owned(), *lease))
        .collect()
}

impl SqliteStore {
    pub(crate) async fn acquire_permits(
        &self,
        requests: &[PermitRequest<'_>],
        _: ServerId,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<PermitCount>, StoreError> {
        let owned_request = |request: &PermitRequest<'_>| OwnedPermitRequest {
            limit: request.limit.to_owned(),
            permits: request.permits,
            leases: request.leases.to_vec(),
        };
        let requests = requests.iter().map(owned_request).collect();
        let until = now + permit_duration(lease);
        self.write_permits(now, PermitOperation::Acquire { requests, until })
            .await
    }

    pub(crate) async fn extend_permits(
        &self,
        permits: &[(&str, LeaseRef)],
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<PermitExtension>, StoreError> {
        let operation = PermitOperation::Extend {
            permits: owned(permits),
            until: now + permit_duration(lease),
        };
        let each = self.write_permits(now, operation).await?;
        Ok(each
            .iter()
            .map(|count| {
                if count.granted > 0 {
                    PermitExtension::Extended
                } else {
                    PermitExtension::Expired
                }
            })
            .collect())
    }

    pub(crate) async fn release_permits(
        &self,
        permits: &[(&str, LeaseRef)],
        _: ServerId,
        now: Timestamp,
    ) -> Result<Vec<u32>, StoreError> {
        let permits = owned(permits);
        let operation = PermitOperation::Release { permits };
        let each = self.write_permits(now, operation).await?;
        Ok(each.into_iter().map(|count| count.in_use).collect())
    }

    async fn write_permits(
        &self,
        now: Timestamp,
        operation: PermitOperation,
    ) -> Result<Vec<PermitCount>, StoreError> {
        self.write(PermitWrite { now, operation }, WriteRequest::Permits)
            .await
    }

    pub(crate) async fn permit_holders(
        &self,
        limits: &[&str],
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<PermitHolders>, StoreError> {
        let limits: Vec<String> = limits.iter().map(|name| (*name).to_owned()).collect();
        self.lookup_each(&limits, move |connection, name| {
            list(connection, name, now, limit)
        })
        .await
    }
}
