//! Permits in a SQLite file: a row for each holder. Expired permits of all limits are removed with
//! the next write of any permit.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::column::{micros, moment};
use super::{SqliteStore, write};
use crate::codec::lease::LeaseRef;
use crate::store::error::StoreError;
use crate::store::permits::{Extended, PermitCount, PermitHolders, PermitRequest, term};
use crate::time::Timestamp;

/// A limit, and the lease that has or requests one of its permits.
type Place = (String, LeaseRef);

/// A change of holders.
pub(super) struct Change {
    now: Timestamp,
    what: What,
}

enum What {
    PermitRequest {
        holds: Vec<Wanted>,
        until: Timestamp,
    },
    Extend {
        places: Vec<Place>,
        until: Timestamp,
    },
    Release {
        places: Vec<Place>,
    },
}

/// A [`PermitRequest`] that can be sent to another thread.
struct Wanted {
    set: String,
    most: u32,
    leases: Vec<LeaseRef>,
}

impl Change {
    /// Number of permits that the change affects.
    pub(super) fn places(&self) -> usize {
        match &self.what {
            What::PermitRequest { holds, .. } => holds.iter().map(|hold| hold.leases.len()).sum(),
            What::Extend { places, .. } | What::Release { places } => places.len(),
        }
    }

    /// Whether the change only removes rows.
    pub(super) fn frees(&self) -> bool {
        matches!(self.what, What::Release { .. })
    }

    /// Returns the state of the limit of each request or permit.
    pub(super) fn write(&self, connection: &Connection) -> Result<Vec<PermitCount>, StoreError> {
        connection
            .prepare_cached("DELETE FROM holder WHERE until <= ?1")?
            .execute([micros(self.now)])?;
        match &self.what {
            What::PermitRequest { holds, until } => holds
                .iter()
                .map(|wanted| hold(connection, wanted, self.now, *until))
                .collect(),
            What::Extend { places, until } => {
                let standing = |(set, lease): &Place| {
                    let granted = usize::from(prolong(connection, set, *lease, *until)?);
                    Ok(PermitCount {
                        granted,
                        ..PermitCount::default()
                    })
                };
                places.iter().map(standing).collect()
            }
            What::Release { places } => {
                let mut remove = connection
                    .prepare_cached("DELETE FROM holder WHERE name = ?1 AND lease = ?2")?;
                for (set, lease) in places {
                    remove.execute(params![set, lease.text()])?;
                }
                let standing = |(set, _): &Place| {
                    Ok(PermitCount {
                        number: number(connection, set)?,
                        ..PermitCount::default()
                    })
                };
                places.iter().map(standing).collect()
            }
        }
    }
}

fn hold(
    connection: &Connection,
    wanted: &Wanted,
    now: Timestamp,
    until: Timestamp,
) -> Result<PermitCount, StoreError> {
    let Wanted { set, most, leases } = wanted;
    let mut number = number(connection, set)?;
    let mut granted = 0;
    for lease in leases {
        if number < *most {
            number += add(connection, set, *lease, until)?;
        } else if !prolong(connection, set, *lease, until)? {
            break;
        }
        granted += 1;
    }
    let next = if number < *most {
        None
    } else {
        first(connection, set)?.map(|first| first.since(now))
    };
    Ok(PermitCount {
        granted,
        number,
        next,
    })
}

/// Number of holders of a limit, after expired ones were removed.
fn number(connection: &Connection, set: &str) -> Result<u32, StoreError> {
    let mut count = connection.prepare_cached("SELECT count(*) FROM holder WHERE name = ?1")?;
    Ok(count.query_row([set], |row| row.get(0))?)
}

fn first(connection: &Connection, set: &str) -> Result<Option<Timestamp>, StoreError> {
    let mut first = connection.prepare_cached("SELECT min(until) FROM holder WHERE name = ?1")?;
    Ok(first
        .query_row([set], |row| row.get::<_, Option<i64>>(0))?
        .map(moment))
}

/// Returns the number of added holders: 0 if the lease had a permit, which is extended.
fn add(
    connection: &Connection,
    set: &str,
    lease: LeaseRef,
    until: Timestamp,
) -> Result<u32, StoreError> {
    let insert = "INSERT OR IGNORE INTO holder VALUES (?1, ?2, ?3)";
    let added =
        connection
            .prepare_cached(insert)?
            .execute(params![set, lease.text(), micros(until)])?;
    if added == 0 {
        prolong(connection, set, lease, until)?;
    }
    Ok(added as u32)
}

/// Extends a permit. Returns whether the lease has one.
fn prolong(
    connection: &Connection,
    set: &str,
    lease: LeaseRef,
    until: Timestamp,
) -> Result<bool, StoreError> {
    let update = "UPDATE holder SET until = max(until, ?3) WHERE name = ?1 AND lease = ?2";
    Ok(connection
        .prepare_cached(update)?
        .execute(params![set, lease.text(), micros(until)])?
        > 0)
}

fn list(
    connection: &Connection,
    set: &str,
    now: Timestamp,
    limit: i64,
) -> Result<PermitHolders, StoreError> {
    let mut count =
        connection.prepare_cached("SELECT count(*) FROM holder WHERE name = ?1 AND until > ?2")?;
    let number = count.query_row(params![set, micros(now)], |row| row.get(0))?;
    let mut select = connection.prepare_cached(
        "SELECT lease, until FROM holder WHERE name = ?1 AND until > ?2 ORDER BY until LIMIT ?3",
    )?;
    let found = select.query_map(params![set, micros(now), limit], |row| {
        Ok((row.get::<_, String>(0)?, row.get(1)?))
    })?;
    let first = found.map(|found| {
        let (lease, until) = found?;
        let corrupt = |error| StoreError::Corrupt {
            what: "a holder".to_owned(),
            reason: format!("{error}"),
        };
        Ok((
            lease
                .parse()
                .map_err(|error: crate::id::InvalidId| corrupt(error))?,
            moment(until),
        ))
    });
    Ok(PermitHolders {
        number,
        first: first.collect::<Result<_, StoreError>>()?,
    })
}

fn owned(places: &[(&str, LeaseRef)]) -> Vec<Place> {
    places
        .iter()
        .map(|(set, lease)| ((*set).to_owned(), *lease))
        .collect()
}

impl SqliteStore {
    pub(crate) async fn hold(
        &self,
        holds: &[PermitRequest<'_>],
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<PermitCount>, StoreError> {
        let wanted = |hold: &PermitRequest<'_>| Wanted {
            set: hold.set.to_owned(),
            most: hold.most,
            leases: hold.leases.to_vec(),
        };
        let holds = holds.iter().map(wanted).collect();
        self.change_holders(
            now,
            What::PermitRequest {
                holds,
                until: now + term(lease),
            },
        )
        .await
    }

    pub(crate) async fn extend_holds(
        &self,
        places: &[(&str, LeaseRef)],
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<Extended>, StoreError> {
        let what = What::Extend {
            places: owned(places),
            until: now + term(lease),
        };
        let each = self.change_holders(now, what).await?;
        Ok(each
            .iter()
            .map(|standing| {
                if standing.granted > 0 {
                    Extended::Yes
                } else {
                    Extended::Gone
                }
            })
            .collect())
    }

    pub(crate) async fn release(
        &self,
        places: &[(&str, LeaseRef)],
        now: Timestamp,
    ) -> Result<Vec<u32>, StoreError> {
        let each = self
            .change_holders(
                now,
                What::Release {
                    places: owned(places),
                },
            )
            .await?;
        Ok(each.into_iter().map(|standing| standing.number).collect())
    }

    async fn change_holders(
        &self,
        now: Timestamp,
        what: What,
    ) -> Result<Vec<PermitCount>, StoreError> {
        self.write(|answer| write::Request::Holders {
            change: Change { now, what },
            answer,
        })
        .await
    }

    pub(crate) async fn holders(
        &self,
        sets: &[&str],
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<PermitHolders>, StoreError> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.lookup(move |connection| {
            sets.iter()
                .map(|set| list(connection, set, now, limit))
                .collect()
        })
        .await
    }
}
