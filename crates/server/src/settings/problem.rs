//! Mistakes in the settings, and what people read about them.

use std::fmt;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The variable.
    pub variable: String,
    /// Its value, masked when it is secret. None: no value would be right.
    pub value: Option<String>,
    /// What is wrong with it, or what is expected.
    pub reason: String,
}

/// Every mistake in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// At least one, in the order of the table.
    pub problems: Vec<Problem>,
    /// What else an operator should know, a sentence each.
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
