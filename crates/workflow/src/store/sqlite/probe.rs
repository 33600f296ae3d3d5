//! Probes whether the file can be written, with a row that does not stay.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::file::presence::Presence;
use crate::codec::StoreError;

/// Whether a removal succeeds, and whether an addition succeeds.
pub(super) type ProbeResult = (Result<(), StoreError>, Result<(), StoreError>);

/// More bytes than pages with free space can take by luck.
const PROBE_BYTES: usize = 64 << 10;

/// Probes with one small write that reaches the disk, and then with as much data as a workflow
/// needs.
pub(super) fn probe(connection: &Connection, presence: &Presence) -> ProbeResult {
    let removals = presence.check().and_then(|()| small(connection));
    (removals.clone(), removals.and_then(|()| large(connection)))
}

/// Writes pages and rolls them back.
fn large(connection: &Connection) -> Result<(), StoreError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    insert(&transaction, &" ".repeat(PROBE_BYTES))?;
    Ok(transaction.rollback()?)
}

/// Adds and removes a row within one transaction, which writes its page.
fn small(connection: &Connection) -> Result<(), StoreError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    insert(&transaction, "")?;
    transaction
        .prepare_cached("DELETE FROM register WHERE register = -1")?
        .execute([])?;
    Ok(transaction.commit()?)
}

fn insert(connection: &Connection, value: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO register VALUES (-1, '', ?1)")?
        .execute([value])?;
    Ok(())
}
