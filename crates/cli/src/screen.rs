//! Where output goes, and what may be written there.

pub(crate) mod moment;
pub(crate) mod table;

use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd;

use clap::ValueEnum;

use crate::ask::environment::{Colour, Glyphs, Locale};
use crate::ask::exit::{Exit, Failure};

/// The form of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs: what the server answered; lists are arrays.
    Json,
    /// Tables with all columns, and exact times.
    Wide,
}

/// Columns of what is no terminal: no line is as long, so nothing is cut, and sums of a few of these do not overflow.
const ENDLESS: usize = u32::MAX as usize;
/// Columns of a terminal that does not tell.
const USUAL: usize = 80;

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terminal {
    /// Columns.
    pub(crate) width: usize,
    pub(crate) glyphs: Glyphs,
    pub(crate) colour: Colour,
}

/// Standard output.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    pub(crate) format: Format,
    pub(crate) terminal: Terminal,
    /// Whether a person looks at it.
    pub(crate) live: bool,
}

impl Screen {
    /// Tables on a terminal and JSON elsewhere, unless asked otherwise.
    pub(crate) fn new(asked: Option<Format>, locale: Locale) -> Self {
        let out = io::stdout();
        let live = out.is_terminal();
        let format = asked.unwrap_or(if live { Format::Table } else { Format::Json });
        let colour = if live { locale.colour } else { Colour::None };
        // What is asked for in full is not cut either.
        let width = if live && format != Format::Wide { columns(&out) } else { ENDLESS };
        Self { format, terminal: Terminal { width, glyphs: locale.glyphs, colour }, live }
    }

    /// Whether output is for programs.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    pub(crate) fn is_wide(&self) -> bool {
        self.format == Format::Wide
    }

    /// Writes a line, as [`print`] does.
    ///
    /// # Errors
    /// As of [`print`].
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        print(&format!("{text}\n"))
    }

    /// `text` in the colour of the state or status that `word` names.
    pub(crate) fn paint(&self, text: &str, word: &str) -> String {
        match (self.terminal.colour, colour(word)) {
            (Colour::Ansi, Some(code)) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            _ => text.to_owned(),
        }
    }

    /// What stands where something is left out.
    pub(crate) fn dots(&self) -> &'static str {
        if self.terminal.glyphs == Glyphs::Unicode { "…" } else { ".." }
    }
}

/// The code of the colour of a state or status.
fn colour(word: &str) -> Option<u8> {
    Some(match word {
        "succeeded" => 32,
        "failed" => 31,
        "running" => 33,
        "ready" => 36,
        "scheduled" | "paused" => 35,
        "waiting" | "pending" | "cancelled" | "skipped" => 90,
        _ => return None,
    })
}

/// The columns of a terminal, as it is now.
pub(crate) fn columns(out: &impl AsFd) -> usize {
    let told = rustix::termios::tcgetwinsize(out).ok().map(|size| usize::from(size.ws_col));
    told.filter(|&columns| columns > 0).unwrap_or(USUAL)
}

/// Writes to standard output. That a reader went away is a failure to end with, and none to speak of.
///
/// # Errors
/// It cannot be written, or nobody reads it any more.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::Unread, "nobody reads the output any more"),
        _ => Failure::new(Exit::Output, format!("the output cannot be written: {error}")),
    })
}

/// One line of text that neither moves the cursor of a terminal, nor changes its colours, nor its direction of writing.
#[must_use]
pub fn printable(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.replace(steers, "\u{FFFD}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected);
        check("plain é 漢", "plain é 漢");
        check("\u{1b}[31mred\r\n\t", "\u{FFFD}[31mred\u{FFFD}\u{FFFD}\u{FFFD}");
        check("a\u{202e}b\u{9b}c\u{7f}", "a\u{FFFD}b\u{FFFD}c\u{FFFD}");
    }
}
