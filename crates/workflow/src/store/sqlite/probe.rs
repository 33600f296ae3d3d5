//! Whether the file can be written: asked with a row that does not stay.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::presence::Presence;
use crate::store::error::StoreError;

/// Whether something can be removed, and whether something can be added.
pub(super) type Probed = (Result<(), StoreError>, Result<(), StoreError>);

/// More than fits on the pages that a row would find free by chance.
const LARGE: usize = 64 << 10;

/// Asks for one small write that reaches the disk, and then for room as a workflow would.
pub(super) fn probe(connection: &Connection, presence: &Presence) -> Probed {
    let removals = presence.check().and_then(|()| small(connection));
    (removals.clone(), removals.and_then(|()| large(connection)))
}

/// Writes pages that are taken back.
fn large(connection: &Connection) -> Result<(), StoreError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    insert(&transaction, &" ".repeat(LARGE))?;
    Ok(transaction.rollback()?)
}

/// A row comes and goes within one transaction, which writes its page.
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
