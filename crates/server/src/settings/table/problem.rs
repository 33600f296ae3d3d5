//! Mistakes in the settings, and their messages.

use std::fmt;

/// A mistake in a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Name of the variable.
    pub variable: String,
    /// Its value, masked if it is secret. None if no value would be accepted.
    pub value: Option<String>,
    /// The reason, or the expected values.
    pub reason: String,
}

/// All mistakes in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// At least one, in the order of the table.
    pub problems: Vec<Problem>,
    /// Warnings for the operator, a sentence each.
    pub warnings: Vec<String>,
}

impl std::error::Error for SettingsError {}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        write!(
            f,
            "{count} setting{} wrong",
            if count == 1 { " is" } else { "s are" }
        )?;
        for Problem {
            variable,
            value,
            reason,
        } in &self.problems
        {
            match value {
                Some(value) => write!(f, "\n  {variable}='{value}': {reason}")?,
                None => write!(f, "\n  {variable}: {reason}")?,
            }
        }
        Ok(())
    }
}
