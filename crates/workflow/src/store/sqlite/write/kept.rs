//! A statement that is prepared once. Finding it again by its text costs a tenth of what it does.

use rusqlite::{Connection, OptionalExtension, Params, Row, Statement};

use crate::store::error::StoreError;

/// A statement of the connection that writes, prepared when it is first used.
pub(super) struct Kept<'c> {
    connection: &'c Connection,
    sql: &'static str,
    statement: Option<Statement<'c>>,
}

impl<'c> Kept<'c> {
    pub(super) fn new(connection: &'c Connection, sql: &'static str) -> Self {
        Self {
            connection,
            sql,
            statement: None,
        }
    }

    fn statement(&mut self) -> Result<&mut Statement<'c>, StoreError> {
        match &mut self.statement {
            Some(statement) => Ok(statement),
            unprepared => Ok(unprepared.insert(self.connection.prepare(self.sql)?)),
        }
    }

    /// Runs it, and says how many rows it changed.
    pub(super) fn run(&mut self, params: impl Params) -> Result<usize, StoreError> {
        Ok(self.statement()?.execute(params)?)
    }

    /// Runs it, and takes its row, if it has one.
    pub(super) fn find<T>(
        &mut self,
        params: impl Params,
        take: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.statement()?.query_row(params, take).optional()?)
    }
}
