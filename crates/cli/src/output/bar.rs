//! Progress bar on standard error, if that is a terminal. Standard output is for the result.

use std::io::{self, IsTerminal as _, Write as _};

use crate::environment::Glyphs;
use crate::output::table::cut;
use crate::output::{Screen, columns};

/// Width of the bar in characters.
const BAR_WIDTH: usize = 20;
/// Escape sequence that returns to the start of the line and clears it.
const CLEAR_LINE: &str = "\r\u{1b}[2K";

/// One line that is overwritten repeatedly, with remarks above it.
#[derive(Debug)]
pub(crate) struct Bar<'a> {
    screen: &'a Screen,
    shown: Option<String>,
}

impl<'a> Bar<'a> {
    pub(crate) fn new(screen: &'a Screen) -> Self {
        Self {
            screen,
            shown: None,
        }
    }

    /// Draws the bar up to `percent`, with `text` behind it in the colour of `status`, if standard
    /// error is a terminal.
    pub(crate) fn draw(&mut self, percent: u64, status: &str, text: &str) {
        let out = io::stderr();
        if !out.is_terminal() {
            return;
        }
        let filled = BAR_WIDTH * percent as usize / 100;
        let (full, empty) = if self.screen.glyphs == Glyphs::Unicode {
            ("█", "░")
        } else {
            ("#", ".")
        };
        let bar = format!(
            "{}{}",
            full.repeat(filled),
            empty.repeat(BAR_WIDTH - filled)
        );
        let text = format!("{bar} {status} {text}");
        // A line that wraps cannot be overwritten. The terminal may be narrower now, so its width
        // is read each time.
        let text = cut(&text, columns(&out).saturating_sub(1), self.screen.dots());
        let text = self.screen.paint(&text, status);
        // A failure to show progress must not end the wait.
        let _ = write!(out.lock(), "{CLEAR_LINE}{text}");
        self.shown = Some(text);
    }

    /// Writes a line that stays, above the bar if it is shown.
    pub(crate) fn remark(&self, text: &str) {
        let (before, after) = self
            .shown
            .as_ref()
            .map_or(("", ""), |shown| (CLEAR_LINE, shown.as_str()));
        let _ = write!(io::stderr().lock(), "{before}{text}\n{after}");
    }
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "{CLEAR_LINE}");
        }
    }
}
