//! Output of results: formats, colours and width.

pub(crate) mod bar;
pub(crate) mod counted;
pub(crate) mod exit;
pub(crate) mod file;
pub(crate) mod json;
pub(crate) mod moment;
pub(crate) mod printable;
pub(crate) mod table;
mod yaml;

use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd;

use clap::ValueEnum;
use serde_json::value::RawValue;

use self::exit::{CommandResult, Details, Exit, Failure};
use self::moment::Moment;
use crate::environment::{Colour, Glyphs, Locale};
use printable::{escaped_json, indented, printable};

/// A line for each fact that is known and not empty. Names take `width` columns.
pub(crate) fn facts<'a>(
    width: usize,
    facts: impl IntoIterator<Item = (&'a str, Option<String>)>,
) -> String {
    let mut out = String::new();
    for (name, text) in facts {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            out += &format!("{name:<width$} {text}\n");
        }
    }
    out
}

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// Tables with all columns and exact times
    Wide,
    /// The server's answer as JSON; lists are arrays
    Json,
    /// The server's answer as YAML
    Yaml,
    /// Only ids or names, one on a line
    Name,
}

/// The width of an output that is not a terminal: above any line, and small enough that sums do not
/// overflow.
const UNLIMITED_WIDTH: usize = u32::MAX as usize;
/// Width of a terminal that does not report one, in columns.
const DEFAULT_WIDTH: usize = 80;

/// Standard output.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    pub(crate) format: Format,
    /// The format that the user requested.
    pub(crate) requested: Option<Format>,
    /// Width in columns.
    pub(crate) width: usize,
    pub(crate) glyphs: Glyphs,
    pub(crate) colour: Colour,
    /// Whether standard output is a terminal.
    pub(crate) is_terminal: bool,
}

/// An item of a list.
pub(crate) trait ListItem: Sized {
    /// Text for people if the list is empty.
    const NOTHING: &str;

    /// Text for programs: the id or the name of the item.
    fn name(&self) -> String;

    /// Text for people: a table of the items.
    fn text(items: &[Self], screen: &Screen) -> String;
}

impl Screen {
    /// Uses tables, unless the user requested another format.
    pub(crate) fn new(requested: Option<Format>, locale: Locale) -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        let format = requested.unwrap_or(Format::Table);
        let colour = if is_terminal {
            locale.colour
        } else {
            Colour::None
        };
        // Wide tables are not wrapped.
        let width = if is_terminal && format != Format::Wide {
            columns(&out)
        } else {
            UNLIMITED_WIDTH
        };
        Self {
            format,
            requested,
            width,
            glyphs: locale.glyphs,
            colour,
            is_terminal,
        }
    }

    /// Whether the output is for people.
    #[must_use]
    pub fn is_table(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    /// The details that a failure is printed with: a program gets all of them.
    #[must_use]
    pub fn failure_details(&self) -> Details {
        if self.is_table() {
            Details::Request
        } else {
            Details::All
        }
    }

    /// Prints an object: the JSON of the server, its name, or the text of `table`.
    ///
    /// # Errors
    /// The errors of [`print()`] and of `table`.
    pub fn object(
        &self,
        json: &str,
        name: &str,
        table: impl FnOnce() -> CommandResult<String>,
    ) -> CommandResult {
        match self.format {
            Format::Table | Format::Wide => print(&table()?)?,
            Format::Json => self.json(json)?,
            Format::Yaml => print(&as_yaml(json)?)?,
            Format::Name => self.line(&indented(name, 0))?,
        }
        Ok(Exit::Done)
    }

    /// Prints a list. `more` is a remark that there are other items. In tables it is the last line;
    /// otherwise it goes to standard error, since a program reads standard output.
    pub(crate) fn list<T: ListItem>(
        &self,
        items: &[Box<RawValue>],
        more: Option<&str>,
        parse: impl Fn(&str) -> CommandResult<T>,
    ) -> CommandResult {
        let parsed = items.iter().map(|item| parse(item.get()));
        match self.format {
            Format::Table | Format::Wide if items.is_empty() => print(T::NOTHING)?,
            Format::Table | Format::Wide => {
                print(&T::text(&parsed.collect::<Result<Vec<T>, _>>()?, self))?;
            }
            Format::Json => self.json(&array(items))?,
            Format::Yaml => print(&as_yaml(&array(items))?)?,
            Format::Name => {
                let names = parsed.map(|item| Ok(printable(&item?.name()) + "\n"));
                print(&names.collect::<CommandResult<String>>()?)?;
            }
        }
        if let Some(more) = more {
            let remark = format!("{} {more}", self.dots());
            if self.is_table() {
                self.line(&remark)?;
            } else {
                // The list is complete without this remark.
                let _ = writeln!(io::stderr(), "{remark}");
            }
        }
        Ok(Exit::Done)
    }

    pub(crate) fn is_name(&self) -> bool {
        self.format == Format::Name
    }

    fn json(&self, json: &str) -> CommandResult<()> {
        serde_json::from_str::<&RawValue>(json)
            .map_err(|error| Failure::unavailable(format!("the answer is not JSON: {error}")))?;
        if self.is_terminal {
            self.line(&escaped_json(json))
        } else {
            self.line(json)
        }
    }

    pub(crate) fn is_wide(&self) -> bool {
        self.format == Format::Wide
    }

    /// A moment: exact in a wide table, otherwise its distance from `now`.
    pub(crate) fn moment(&self, at: Moment, now: Moment) -> String {
        if self.is_wide() {
            at.to_string()
        } else {
            at.relative(now)
        }
    }

    /// Writes a line, as [`print()`] does.
    ///
    /// # Errors
    /// The errors of [`print()`].
    pub fn line(&self, text: &str) -> CommandResult<()> {
        print(&format!("{text}\n"))
    }

    /// `text`, made safe, in the colour of the state or status that `word` names.
    pub(crate) fn paint(&self, text: &str, word: &str) -> String {
        let text = printable(text);
        match (self.colour, colour(word)) {
            (Colour::Ansi, Some(code)) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            _ => text,
        }
    }

    /// The mark for something that was left out.
    pub(crate) fn dots(&self) -> &'static str {
        if self.glyphs == Glyphs::Unicode {
            "…"
        } else {
            ".."
        }
    }
}

/// An array with an item on each line, so that tools can process it by lines.
fn array(items: &[Box<RawValue>]) -> String {
    let items: Vec<&str> = items.iter().map(|item| item.get()).collect();
    if items.is_empty() {
        "[]".to_owned()
    } else {
        format!("[\n{}\n]", items.join(",\n"))
    }
}

fn as_yaml(json: &str) -> CommandResult<String> {
    yaml::document(json).map_err(|error| {
        Failure::unavailable(format!("the answer cannot be shown as YAML: {error}"))
    })
}

/// The code of the colour of a state or status.
fn colour(word: &str) -> Option<u8> {
    Some(match word {
        "succeeded" => 32,
        "failed" => 31,
        "running" => 33,
        "ready" => 36,
        "scheduled" | "paused" => 35,
        "waiting" | "blocked" | "pending" | "cancelled" | "skipped" => 90,
        _ => return None,
    })
}

/// The current width of a terminal in columns.
pub(crate) fn columns(out: &impl AsFd) -> usize {
    let reported = rustix::termios::tcgetwinsize(out)
        .ok()
        .map(|size| usize::from(size.ws_col));
    reported
        .filter(|&columns| columns > 0)
        .unwrap_or(DEFAULT_WIDTH)
}

/// Writes to standard output. A reader that closed it ends the program without a message.
///
/// # Errors
/// It cannot be written, or its reader closed it.
pub fn print(text: &str) -> CommandResult<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| write_failure(&error))
}

/// The failure to write to standard output.
#[must_use]
pub fn write_failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            Failure::new(Exit::OutputClosed, "the reader of the output closed it")
        }
        _ => Failure::new(
            Exit::Output,
            format!("the output cannot be written: {error}"),
        ),
    }
}
