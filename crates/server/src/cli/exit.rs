//! How the program ends, and what it says when it was not able to do as asked.

use std::fmt;
use std::process::ExitCode;

use super::screen::printable;

/// The codes with which the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Done = 0,
    Failed = 1,
    Cancelled = 2,
    TimedOut = 3,
    NotFound = 4,
    Refused = 5,
    // From here on as in sysexits.h,
    Usage = 64,
    Unavailable = 69,
    Output = 74,
    // and from here on as shells say that a signal (SIGINT, SIGPIPE) ended a program.
    Interrupted = 130,
    Unread = 141,
}

impl Exit {
    const ALL: [Self; 11] = [
        Self::Done,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
        Self::NotFound,
        Self::Refused,
        Self::Usage,
        Self::Unavailable,
        Self::Output,
        Self::Interrupted,
        Self::Unread,
    ];

    const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done as asked; where a workflow was waited for, it succeeded",
            Self::Failed => "the workflow failed, or the check found something",
            Self::Cancelled => "the workflow was cancelled",
            Self::TimedOut => "the time to wait is over, and the workflow is not",
            Self::NotFound => "there is no such workflow, job, queue or store",
            Self::Refused => "the server understood and refused",
            Self::Usage => "arguments, settings or files are wrong",
            Self::Unavailable => "the server or the store is out of reach, or is no tidegate",
            Self::Output => "the output cannot be written",
            Self::Interrupted => "interrupted while waiting; the workflow goes on",
            Self::Unread => "whoever read the output went away",
        }
    }

    /// A line for each code.
    pub(super) fn listed() -> String {
        Self::ALL.map(|exit| format!("  {:>3}  {}\n", exit as u8, exit.meaning())).concat()
    }
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
    pub(super) text: String,
    /// What the server calls it.
    pub(super) code: Option<String>,
    /// Where in what was sent.
    pub(super) path: Option<String>,
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
