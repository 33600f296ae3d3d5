//! Exit codes, and the messages of failures.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use crate::output::columns;
use crate::output::printable::printable;
use crate::output::table::wrapped;

/// The codes with which the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done as asked.
    Done = 0,
    /// The workflow failed, a check found something, or the server could not run or is not healthy.
    Failed = 1,
    /// The workflow was cancelled.
    Cancelled = 2,
    /// The timeout of a wait was reached.
    TimedOut = 3,
    /// The object does not exist.
    NotFound = 4,
    /// The server refused.
    Refused = 5,
    // The next codes are those of sysexits.h.
    /// Arguments, settings or files are wrong.
    Usage = 64,
    /// A server or a store does not answer.
    Unavailable = 69,
    /// The output cannot be written.
    Output = 74,
    // The last codes are those that shells give to a program that a signal (SIGINT, SIGPIPE) ended.
    /// Interrupted while waiting.
    Interrupted = 130,
    /// The reader of the output closed it.
    OutputClosed = 141,
}

impl Exit {
    const MEANINGS: [(Self, &str); 11] = [
        (
            Self::Done,
            "it was done; if a workflow was waited for, it succeeded",
        ),
        (
            Self::Failed,
            "the workflow failed, a check found mistakes, or the server could not run or is not healthy",
        ),
        (Self::Cancelled, "the workflow was cancelled"),
        (Self::TimedOut, "the workflow was not over within --timeout"),
        (
            Self::NotFound,
            "there is no such workflow, job, queue or store",
        ),
        (
            Self::Refused,
            "the state of the workflow or job does not allow it, or the token does not",
        ),
        (Self::Usage, "an argument, a setting or a file is wrong"),
        (
            Self::Unavailable,
            "cannot reach the server or the store, it has a fault, or it is not a Tidegate server",
        ),
        (Self::Output, "the output cannot be written"),
        (
            Self::Interrupted,
            "you interrupted the wait; the workflow continues",
        ),
        (Self::OutputClosed, "the reader of the output closed it"),
    ];

    /// A line for each code.
    #[must_use]
    pub fn listed() -> String {
        Self::MEANINGS
            .map(|(exit, meaning)| format!("  {:>3}  {meaning}\n", exit as u8))
            .concat()
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The exit code or another value of a command, or the reason why it was not carried out.
pub type CommandResult<T = Exit> = Result<T, Failure>;

/// The reason why a command was not carried out.
#[derive(Debug)]
pub struct Failure {
    /// Exit code of the program.
    pub exit: Exit,
    /// Message for people: the reason, and a remedy.
    pub text: String,
    /// The code that the server gave in its problem document.
    pub(crate) code: Option<String>,
    /// Path of the wrong field in the request.
    pub(crate) path: Option<String>,
    /// The id of the request in the server's log.
    pub(crate) request: Option<String>,
}

impl Failure {
    /// A failure that ends the program with `exit`.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self {
            exit,
            text: text.into(),
            code: None,
            path: None,
            request: None,
        }
    }

    /// Arguments, settings or files are wrong.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// A server or a store does not answer.
    pub fn unavailable(text: impl Into<String>) -> Self {
        Self::new(Exit::Unavailable, text)
    }

    fn message(&self, details: Details) -> String {
        // Line breaks are part of the message; other characters may come from a server.
        let lines: Vec<String> = self.text.lines().map(printable).collect();
        let mut message = format!("error: {}", lines.join("\n"));
        let (code, path) = match details {
            Details::Request => (None, None),
            Details::All => (self.code.as_deref(), self.path.as_deref()),
        };
        for (name, value) in [
            ("code", code),
            ("path", path),
            ("request", self.request.as_deref()),
        ] {
            if let Some(value) = value {
                message += &format!("\n  {name}: {}", printable(value));
            }
        }
        message
    }
}

/// Details below the message of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Details {
    /// Only the id of the request, to look for in the server's log.
    Request,
    /// The code and the field of the problem document as well.
    All,
}

/// Prints the failure on standard error.
pub fn print_failure(failure: &Failure, details: Details) {
    if failure.exit != Exit::OutputClosed {
        print_message(&failure.message(details));
    }
}

/// Prints a warning about something that was done. `text` may come from a server.
pub(crate) fn print_warning(text: &str) {
    print_message(&format!("warning: {}", printable(text)));
}

fn print_message(text: &str) {
    let out = io::stderr();
    let most = if out.is_terminal() {
        columns(&out)
    } else {
        usize::MAX
    };
    let lines: Vec<String> = text.lines().flat_map(|line| wrapped(line, most)).collect();
    // A failure to write this message cannot be reported.
    let _ = writeln!(out.lock(), "{}", lines.join("\n"));
}
