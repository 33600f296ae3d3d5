//! Tables. A text that is wider than its column continues in the next line; nothing is cut.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::environment::Colour;
use crate::output::Screen;
use crate::output::moment::Moment;
use crate::output::printable::printable;

/// Columns between two columns of the table.
const COLUMN_GAP: usize = 2;
/// Indent of a note in columns, and the minimum width of a note.
const NOTE_INDENT: usize = 4;
const MIN_NOTE_WIDTH: usize = 20;
/// Minimum width of a column while the table fits, and if it does not fit.
const MIN_COLUMN_WIDTH: usize = 8;
const MIN_NARROW_WIDTH: usize = 4;

/// Rows under a header. A column without any text is omitted.
#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<TableRow>,
}

#[derive(Debug)]
struct TableRow {
    cells: Vec<Cell>,
    note: Vec<String>,
}

/// A text, and the state whose colour it has.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    lines: Vec<String>,
    state: Option<String>,
    wrap: Wrap,
}

/// The cells that may be broken, and the minimum width of their columns, in the order of trial.
const NARROWINGS: [(Wrap, usize); 4] = [
    (Wrap::Early, MIN_COLUMN_WIDTH),
    (Wrap::Early, MIN_NARROW_WIDTH),
    (Wrap::Late, MIN_COLUMN_WIDTH),
    (Wrap::Late, MIN_NARROW_WIDTH),
];

/// Order in which cells are broken into lines on a narrow screen, the first first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Wrap {
    #[default]
    Early,
    /// Short text that is read as a unit, such as a status.
    Late,
    /// Text to copy, such as an id.
    Never,
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        // A line break in a name must not look like a second row.
        Self {
            lines: vec![line(text.as_ref())],
            state: None,
            wrap: Wrap::Early,
        }
    }
}

impl Cell {
    /// A text in the colour of a state.
    #[must_use]
    pub fn of_state(text: &str, state: &str) -> Self {
        Self {
            state: Some(state.to_owned()),
            ..Self::short(text)
        }
    }

    /// A short text, which is broken only after all other texts are.
    pub(crate) fn short(text: &str) -> Self {
        Self {
            wrap: Wrap::Late,
            ..Self::from(text)
        }
    }

    /// A text whose line breaks stay.
    pub(crate) fn lines(text: &str) -> Self {
        Self {
            lines: lines(text),
            ..Self::default()
        }
    }

    /// A moment with a resolution of one second, or nothing.
    pub(crate) fn moment(moment: Option<Moment>) -> Self {
        Self::from(moment.map(Moment::to_the_second).unwrap_or_default())
    }

    /// A text that is never broken.
    pub(crate) fn whole(text: &str) -> Self {
        Self {
            wrap: Wrap::Never,
            ..Self::from(text)
        }
    }

    fn width(&self) -> usize {
        self.lines
            .iter()
            .map(|line| line.width())
            .max()
            .unwrap_or(0)
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(line).collect()
}

fn line(text: &str) -> String {
    printable(&text.replace('\t', "    "))
}

impl Table {
    /// A table with this head and no rows.
    #[must_use]
    pub fn new(head: &[&'static str]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, with a cell for each column.
    pub fn add_row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.head.len());
        self.rows.push(TableRow {
            cells,
            note: Vec::new(),
        });
    }

    /// Adds a note below the last row, on lines of its own.
    pub(crate) fn add_note(&mut self, text: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.note = lines(text);
        }
    }

    /// The text of the table, as wide as the screen allows.
    #[must_use]
    pub fn text(&self, screen: &Screen) -> String {
        let used: Vec<usize> = (0..self.head.len())
            .filter(|&at| self.text_width(at) > 0)
            .collect();
        let widths = self.widths(&used, screen.width);
        let head: Vec<Cell> = used.iter().map(|&at| Cell::from(self.head[at])).collect();
        let mut out = match screen.colour {
            Colour::Ansi => format!(
                "\u{1b}[1m{}\u{1b}[0m\n",
                block(&head, &widths, screen).trim_end()
            ),
            Colour::None => block(&head, &widths, screen),
        };
        for row in &self.rows {
            let cells: Vec<Cell> = used.iter().map(|&at| row.cells[at].clone()).collect();
            out += &block(&cells, &widths, screen);
            out += &row.note_text(screen);
        }
        out
    }

    /// Widths of the columns: as wide as their text, and the widest ones reduced to fit the screen.
    fn widths(&self, used: &[usize], max_width: usize) -> Vec<usize> {
        let widths: Vec<usize> = used
            .iter()
            .map(|&at| self.text_width(at).max(self.head[at].width()))
            .collect();
        let room = max_width.saturating_sub(COLUMN_GAP * used.len().saturating_sub(1));
        let narrowed = |(latest, least): (Wrap, usize)| {
            let least = |&at: &usize| {
                if self.wrap(at) <= latest {
                    least.max(self.head[at].width())
                } else {
                    usize::MAX
                }
            };
            let least: Vec<usize> = used.iter().map(least).collect();
            narrow(widths.clone(), &least, room)
        };
        let tried = NARROWINGS.map(narrowed);
        // If no variant fits, the narrow ones are no better than the first.
        let fitting = tried
            .iter()
            .find(|widths| widths.iter().sum::<usize>() <= room);
        fitting.unwrap_or(&tried[0]).clone()
    }

    /// The width of the widest cell of a column, without its head.
    fn text_width(&self, at: usize) -> usize {
        let widths = self.rows.iter().map(|row| row.cells[at].width());
        widths.max().unwrap_or(0)
    }

    /// The wrap of a column, which is the strictest of its cells.
    fn wrap(&self, at: usize) -> Wrap {
        self.rows
            .iter()
            .map(|row| row.cells[at].wrap)
            .max()
            .unwrap_or_default()
    }
}

impl TableRow {
    /// Lines of the note, broken to fit the screen.
    fn note_text(&self, screen: &Screen) -> String {
        let max_width = screen.width.saturating_sub(NOTE_INDENT).max(MIN_NOTE_WIDTH);
        self.note
            .iter()
            .flat_map(|line| wrapped(line, max_width))
            .map(|line| format!("{}{line}\n", " ".repeat(NOTE_INDENT)))
            .collect()
    }
}

/// Reduces the widest columns until the row fits, or until each has its minimum width.
fn narrow(mut widths: Vec<usize>, least: &[usize], room: usize) -> Vec<usize> {
    while let total = widths.iter().sum::<usize>()
        && total > room
        && let Some(place) = (0..widths.len())
            .filter(|&place| widths[place] > least[place])
            .max_by_key(|&place| widths[place])
    {
        let wanted = widths[place]
            .saturating_sub(total - room)
            .max(widths[place] / 2);
        widths[place] = wanted.max(least[place]);
    }
    widths
}

/// One row of the table, with as many lines as its highest cell.
fn block(cells: &[Cell], widths: &[usize], screen: &Screen) -> String {
    let wrap = |(cell, &most): (&Cell, &usize)| -> Vec<String> {
        cell.lines
            .iter()
            .flat_map(|line| wrapped(line, most))
            .collect()
    };
    let columns: Vec<Vec<String>> = cells.iter().zip(widths).map(wrap).collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = String::new();
    for at in 0..height {
        let mut padding = 0;
        for ((cell, column), most) in cells.iter().zip(&columns).zip(widths) {
            let text = column.get(at).map_or("", String::as_str);
            if !text.is_empty() {
                out += &" ".repeat(padding);
                padding = 0;
            }
            padding += most - text.width().min(*most) + COLUMN_GAP;
            out += &cell
                .state
                .as_ref()
                .map_or_else(|| text.to_owned(), |state| screen.paint(text, state));
        }
        out.push('\n');
    }
    out
}

/// `text` in lines of at most `max_width` columns, broken between words where that is possible.
pub(crate) fn wrapped(text: &str, max_width: usize) -> Vec<String> {
    if text.width() <= max_width {
        return vec![text.to_owned()];
    }
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for part in text
        .split_inclusive(' ')
        .flat_map(|word| parts(word, max_width))
    {
        if used > 0 && used + part.trim_end().width() > max_width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        for character in part.chars() {
            let width = character.width().unwrap_or(0);
            // A space at the end of a line may exceed the width; it is trimmed.
            if character != ' ' && used > 0 && used + width > max_width {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(character);
            used += width;
        }
    }
    lines.push(line);
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Parts of a word between which a line may break. A word that fits into a line has one part.
fn parts(word: &str, max_width: usize) -> Vec<&str> {
    if word.trim_end().width() <= max_width {
        return vec![word];
    }
    word.split_inclusive(['-', '_', '.', '/', ':', ','])
        .collect()
}

/// `text`, or as much of it as fits before `dots`.
pub(crate) fn cut(text: &str, max_width: usize, dots: &str) -> String {
    if text.width() <= max_width {
        return text.to_owned();
    }
    let room = max_width.saturating_sub(dots.width());
    let mut short = String::new();
    for character in text.chars() {
        if short.width() + character.width().unwrap_or(0) > room {
            break;
        }
        short.push(character);
    }
    short + dots
}

#[cfg(test)]
mod tests {
    use crate::environment::Glyphs;
    use crate::output::Format;

    use super::*;

    fn check(most: usize, colour: Colour, expected: &str) {
        let mut table = Table::new(&["ID", "STATE", "EMPTY", "TEXT"]);
        table.add_row(vec![
            "1".into(),
            Cell::of_state("failed", "failed"),
            "".into(),
            "what is long goes on".into(),
        ]);
        table.add_note("a note that is long, too\nof two lines");
        table.add_row(vec![
            "漢字".into(),
            "".into(),
            "".into(),
            "e\u{301}\u{1b}[2J".into(),
        ]);
        assert_eq!(
            table.text(&Screen {
                format: Format::Table,
                requested: None,
                width: most,
                glyphs: Glyphs::Unicode,
                colour,
                is_terminal: true
            }),
            expected
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_text_and_the_screen_allow() {
        let whole = "ID    STATE   TEXT\n1     failed  what is long goes on\n    a note that is long, too\n    of two lines\n漢字          e\u{301}\u{FFFD}[2J\n";
        check(usize::MAX, Colour::None, whole);
        check(34, Colour::None, whole);
        let narrow = "ID    STATE   TEXT\n1     failed  what is long\n              goes on\n    a note that is long,\n    too\n    of two lines\n漢字          e\u{301}\u{FFFD}[2J\n";
        check(26, Colour::None, narrow);
        // Columns have a least width.
        check(
            3,
            Colour::None,
            "ID    STATE   TEXT\n1     failed  what is\n              long\n              goes on\n    a note that is long,\n    too\n    of two lines\n漢字          e\u{301}\u{FFFD}[2J\n",
        );
    }

    fn at_width(table: &Table, width: usize) -> String {
        table.text(&Screen {
            format: Format::Table,
            requested: None,
            width,
            glyphs: Glyphs::Unicode,
            colour: Colour::None,
            is_terminal: true,
        })
    }

    #[test]
    fn ids_and_statuses_stay_whole_and_names_give_way() {
        let mut table = Table::new(&["ID", "NAME", "STATUS", "SUCCEEDED", "CREATED", "DURATION"]);
        let id = "01M7Z85C8H08RJZ5Q5JGPKMY04";
        let status = "running 50%";
        let jobs = "0/2, 1 failed";
        let ago = "23h59m ago".into();
        let name = "a-long-name-of-a-workflow".into();
        table.add_row(vec![
            Cell::whole(id),
            name,
            Cell::of_state(status, "running"),
            Cell::short(jobs),
            ago,
            "59m59s".into(),
        ]);
        let text = at_width(&table, 80);
        assert!(text.lines().all(|line| line.width() <= 80), "{text}");
        assert!(
            [id, status, jobs].iter().all(|part| text.contains(part)),
            "{text}"
        );
        // There is no room for all of it: the id is still whole.
        let text = at_width(&table, 75);
        assert!(
            text.lines().all(|line| line.width() <= 75) && text.contains(id),
            "{text}"
        );
        let mut table = Table::new(&[
            "NAME",
            "PENDING",
            "RUNNING",
            "PAUSED",
            "SUCCEEDED",
            "FAILED",
            "CANCELLED",
            "TOTAL",
        ]);
        let cells = [
            "a-long-name-of-a-workflow",
            "1",
            "2",
            "3",
            "4",
            "5",
            "6",
            "7",
        ];
        table.add_row(cells.into_iter().map(Cell::from).collect());
        let text = at_width(&table, 80);
        assert!(text.lines().all(|line| line.width() <= 80), "{text}");
    }

    #[test]
    fn states_have_colours() {
        let expected = "\u{1b}[1mID    STATE   TEXT\u{1b}[0m\n1     \u{1b}[31mfailed\u{1b}[0m  what is long goes on\n    a note that is long, too\n    of two lines\n漢字          e\u{301}\u{FFFD}[2J\n";
        check(80, Colour::Ansi, expected);
    }

    #[test]
    fn lines_are_broken_between_words_and_lose_nothing() {
        assert_eq!(
            wrapped("waits for a, bcdefghijkl and 145 more", 10),
            ["waits for", "a,", "bcdefghijk", "l and 145", "more"]
        );
        assert_eq!(
            wrapped("nightly-report-of-all", 9),
            ["nightly-", "report-", "of-all"]
        );
        assert_eq!(wrapped("漢字漢字", 5), ["漢字", "漢字"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(
            (cut("漢字漢字", 5, "…"), cut("ab", 2, "…")),
            ("漢字…".to_owned(), "ab".to_owned())
        );
    }
}
