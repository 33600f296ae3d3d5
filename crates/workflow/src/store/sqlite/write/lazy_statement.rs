//! A statement that is prepared once. Finding it again by its text costs a tenth of its execution.

use std::borrow::Cow;

use rusqlite::{Connection, OptionalExtension, Params, Row, Statement};

use crate::codec::StoreError;

/// A statement of the connection that writes. It is prepared when it is first used.
pub(super) struct LazyStatement<'c> {
    connection: &'c Connection,
    sql: Cow<'static, str>,
    statement: Option<Statement<'c>>,
}

impl<'c> LazyStatement<'c> {
    pub(super) fn new(connection: &'c Connection, sql: impl Into<Cow<'static, str>>) -> Self {
        Self {
            connection,
            sql: sql.into(),
            statement: None,
        }
    }

    fn statement(&mut self) -> Result<&mut Statement<'c>, StoreError> {
        match &mut self.statement {
            Some(statement) => Ok(statement),
            unprepared => Ok(unprepared.insert(self.connection.prepare(&self.sql)?)),
        }
    }

    /// Executes the statement, and returns the number of changed rows.
    pub(super) fn run(&mut self, params: impl Params) -> Result<usize, StoreError> {
        Ok(self.statement()?.execute(params)?)
    }

    /// Executes the statement, and reads its row, if it returns one.
    pub(super) fn find<T>(
        &mut self,
        params: impl Params,
        decode: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.statement()?.query_row(params, decode).optional()?)
    }
}
