//! How the program ends, and what it says when it was not able to do as asked.

use std::fmt;
use std::process::ExitCode;

use super::screen::printable;

/// The codes with which the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// As asked; where a workflow was waited for, it succeeded.
    Done = 0,
    /// The workflow failed, or the check found something.
    Failed = 1,
    /// The workflow was cancelled.
    Cancelled = 2,
    /// The time to wait is over, and the workflow is not.
    TimedOut = 3,
    /// There is no such workflow, job or queue.
    NotFound = 4,
    /// The server understood and refused.
    Refused = 5,
    /// Arguments, settings or files are wrong, as in sysexits.h.
    Usage = 64,
    /// The server or the store is out of reach, as in sysexits.h.
    Unavailable = 69,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why something was not done.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) exit: Exit,
    text: String,
    /// What the server calls it.
    pub(super) code: Option<String>,
    /// Where in what was sent.
    path: Option<String>,
}

impl Failure {
    pub(super) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into(), code: None, path: None }
    }

    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    pub(super) fn unavailable(text: impl Into<String>) -> Self {
        Self::new(Exit::Unavailable, text)
    }

    /// What the server called it, and where it found it.
    pub(super) fn by_server(self, code: Option<String>, path: Option<String>) -> Self {
        Self { code, path, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Texts of several lines are our own; names in them come from anywhere.
        let lines: Vec<String> = self.text.lines().map(printable).collect();
        write!(f, "error: {}", lines.join("\n"))?;
        let details = [("code", &self.code), ("path", &self.path)];
        for (name, value) in details.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            write!(f, "\n  {name}: {}", printable(value))?;
        }
        Ok(())
    }
}
