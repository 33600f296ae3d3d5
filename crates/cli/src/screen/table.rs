//! Columns of text.

use crate::ask::environment::Colour;
use crate::screen::{Screen, printable};

/// Between two columns.
const GAP: usize = 2;
/// A column is not cut below this.
const LEAST: usize = 8;

/// Rows under a head. A column without any text is left out.
#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// A text, and the word whose colour it has.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    text: String,
    state: Option<String>,
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: printable(text.as_ref()), state: None }
    }
}

impl Cell {
    /// A text in the colour of a state.
    #[must_use]
    pub fn of_state(text: &str, state: &str) -> Self {
        Self { state: Some(state.to_owned()), ..Self::from(text) }
    }
}

impl Table {
    /// A table with this head and no rows.
    #[must_use]
    pub fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, with a cell for each column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.head.len());
        self.rows.push(cells);
    }

    /// The lines, as wide as `screen` at most if it can be: what is too long loses its end.
    /// The text of the table, as wide as the screen allows.
    #[must_use]
    pub fn text(&self, screen: &Screen) -> String {
        let used: Vec<usize> =
            (0..self.head.len()).filter(|&at| self.rows.iter().any(|row| !row[at].text.is_empty())).collect();
        let widths = self.widths(&used, screen.terminal.width);
        let bold = |text: String| match screen.terminal.colour {
            Colour::Ansi => format!("\u{1b}[1m{text}\u{1b}[0m"),
            Colour::None => text,
        };
        let mut out = String::new();
        let head = used.iter().map(|&at| (self.head[at].to_owned(), None));
        out.push_str(&bold(line(head, &widths, screen)));
        out.push('\n');
        for row in &self.rows {
            let cells = used.iter().map(|&at| (row[at].text.clone(), row[at].state.as_deref()));
            out.push_str(&line(cells, &widths, screen));
            out.push('\n');
        }
        out
    }

    fn widths(&self, used: &[usize], most: usize) -> Vec<usize> {
        let of = |at: usize| self.rows.iter().map(|row| width(&row[at].text)).chain([width(self.head[at])]).max();
        let mut widths: Vec<usize> = used.iter().map(|&at| of(at).unwrap_or(0)).collect();
        let gaps = GAP * used.len().saturating_sub(1);
        // The first column names the row, and is not cut.
        while let total = widths.iter().sum::<usize>() + gaps
            && total > most
            && let Some(widest) = widths.iter_mut().skip(1).max()
            && *widest > LEAST
        {
            *widest = widest.saturating_sub(total - most).max(*widest / 2).max(LEAST);
        }
        widths
    }
}

fn line<'a>(cells: impl Iterator<Item = (String, Option<&'a str>)>, widths: &[usize], screen: &Screen) -> String {
    let mut out = String::new();
    let mut owed = 0;
    for ((text, state), &most) in cells.zip(widths) {
        let text = cut(&text, most, screen.dots());
        if !text.is_empty() {
            out.push_str(&" ".repeat(owed));
            owed = 0;
        }
        owed += most - width(&text) + GAP;
        match state {
            Some(state) => out.push_str(&screen.paint(&text, state)),
            None => out.push_str(&text),
        }
    }
    out
}

/// `text`, or as much of it as has room before `dots`.
pub(crate) fn cut(text: &str, most: usize, dots: &str) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(width(dots));
    let mut used = 0;
    let fits = text.chars().take_while(|&c| {
        used += columns(c);
        used <= room
    });
    let mut short: String = fits.collect();
    short.push_str(dots);
    short
}

/// The columns that a terminal uses for `text`, nearly.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Marks above letters have none, East Asian characters and emoji two.
fn columns(c: char) -> usize {
    match c {
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200d}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' => 2,
        '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{1f300}'..='\u{1faff}' | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use crate::ask::environment::Glyphs;
    use crate::screen::Terminal;

    use super::*;
    use crate::screen::Format;

    fn check(most: usize, colour: Colour, expected: &str) {
        let mut table = Table::new(&["ID", "STATE", "EMPTY", "TEXT"]);
        table.row(vec!["1".into(), Cell::of_state("failed", "failed"), "".into(), "what is long is cut".into()]);
        table.row(vec!["漢字".into(), "".into(), "".into(), "e\u{301}\u{1b}[2J".into()]);
        let terminal = Terminal { width: most, glyphs: Glyphs::Unicode, colour };
        assert_eq!(table.text(&Screen { format: Format::Table, terminal, live: true }), expected);
    }

    #[test]
    fn columns_are_as_wide_as_their_text_and_the_screen_allow() {
        let whole = "ID    STATE   TEXT\n1     failed  what is long is cut\n漢字          e\u{301}\u{FFFD}[2J\n";
        check(usize::MAX, Colour::None, whole);
        check(33, Colour::None, whole);
        check(25, Colour::None, "ID    STATE   TEXT\n1     failed  what is lo…\n漢字          e\u{301}\u{FFFD}[2J\n");
        // No narrower than this.
        check(3, Colour::None, "ID    STATE   TEXT\n1     failed  what is…\n漢字          e\u{301}\u{FFFD}[2J\n");
    }

    #[test]
    fn states_have_colours() {
        let expected = "\u{1b}[1mID    STATE   TEXT\u{1b}[0m\n1     \u{1b}[31mfailed\u{1b}[0m  what is long is cut\n漢字          e\u{301}\u{FFFD}[2J\n";
        check(80, Colour::Ansi, expected);
    }
}
