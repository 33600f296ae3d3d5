//! Report of `tidegate check`, in the form of compiler messages.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use tidegate_ratelimit::{ConfigError, Configuration};

use super::decode_text;

/// Limit of characters of a source line that are shown: two lines of a terminal.
const MAX_LINE_CHARS: usize = 160;
/// Mark for the omitted part of a source line.
const OMISSION_MARK: &str = "...";

/// Text of the report, and its number of errors.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) errors: usize,
    /// Number of paths that do not exist.
    pub(crate) missing_paths: usize,
    files_with_errors: BTreeSet<String>,
}

/// Totals of the files that were parsed.
#[derive(Debug, Default)]
pub(super) struct CheckedFiles {
    pub(super) files: usize,
    pub(super) definitions: usize,
    pub(super) configuration: Option<Configuration>,
}

/// A mistake in a file.
#[derive(Debug)]
pub(super) struct Mistake {
    file: String,
    /// Line and column, both counted from 1.
    place: Option<(usize, usize)>,
    message: String,
    path: String,
    hint: Option<String>,
}

impl Mistake {
    pub(super) fn new(
        file: &str,
        place: Option<(usize, usize)>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            file: file.to_owned(),
            place,
            message: message.into(),
            path: String::new(),
            hint: None,
        }
    }

    /// Sets the path within the structure of the file.
    pub(super) fn at(self, path: String) -> Self {
        Self { path, ..self }
    }
}

impl From<&ConfigError> for Mistake {
    fn from(error: &ConfigError) -> Self {
        let place = (error.line > 0).then_some((error.line as usize, error.column as usize));
        let hint = error.hint().map(|hint| hint.to_string());
        Self {
            path: error.path.clone(),
            hint,
            ..Self::new(&error.file, place, error.message.clone())
        }
    }
}

impl Report {
    pub(super) fn unreadable(&mut self, path: &Path, error: &io::Error) {
        self.errors += 1;
        self.missing_paths += usize::from(error.kind() == io::ErrorKind::NotFound);
        let _ = writeln!(
            self.text,
            "{}: error: cannot be read: {error}",
            printable(&path.display().to_string())
        );
    }

    pub(super) fn mistake(&mut self, mistake: &Mistake, text: &[u8]) {
        let Mistake {
            file,
            place,
            message,
            path,
            hint,
        } = mistake;
        self.errors += 1;
        self.files_with_errors.insert(file.clone());
        let file = printable(file);
        let message = printable(message);
        let _ = match place {
            None => writeln!(self.text, "{file}: error: {message}"),
            Some((line, column)) => writeln!(self.text, "{file}:{line}:{column}: error: {message}"),
        };
        if let Some((line, column)) = *place {
            self.excerpt(line, column, &decode_text(text));
        }
        if !path.is_empty() {
            let _ = writeln!(self.text, "   = at: {}", printable(path));
        }
        if let Some(hint) = hint {
            let _ = writeln!(self.text, "   = hint: {}", printable(hint));
        }
    }

    /// Adds the line of the file, with a caret below the column.
    fn excerpt(&mut self, line: usize, column: usize, text: &str) {
        let Some(source) = text.lines().nth(line.saturating_sub(1)) else {
            return;
        };
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let (source, column) = cut_around(source, column);
        let source = printable(&source);
        // Tabs stay tabs, so that the caret is below its character at any tab width.
        let before = source.chars().take(column.saturating_sub(1));
        let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let _ = writeln!(self.text, " {number} | {source}\n {margin} | {indent}^");
    }

    pub(super) fn summary(&mut self, checked: &CheckedFiles) {
        let errors = self.errors;
        let faulty = self.files_with_errors.len();
        let _ = match (errors, faulty) {
            (0, _) => writeln!(self.text, "ok: {checked}"),
            (_, 0) => writeln!(self.text, "{}", counted(errors, "error")),
            _ => writeln!(
                self.text,
                "{} in {faulty} of {}",
                counted(errors, "error"),
                counted(checked.files, "file")
            ),
        };
    }
}

impl std::fmt::Display for CheckedFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&counted(self.files, "file"))?;
        if let Some(configuration) = &self.configuration {
            let domains = configuration.domain_count();
            let limits = configuration.dump().lines().count();
            write!(
                f,
                ", {}, {}",
                counted(domains, "domain"),
                counted(limits, "limit")
            )?;
        }
        match self.definitions {
            0 => Ok(()),
            definitions => write!(f, ", {}", counted(definitions, "workflow definition")),
        }
    }
}

/// The part of a long line around a column, and the column within this part.
fn cut_around(source: &str, column: usize) -> (String, usize) {
    let length = source.chars().count();
    if length <= MAX_LINE_CHARS {
        return (source.to_owned(), column);
    }
    let first = column
        .saturating_sub(MAX_LINE_CHARS / 2)
        .min(length - MAX_LINE_CHARS);
    let dots = |is_cut: bool| if is_cut { OMISSION_MARK } else { "" };
    let before = dots(first > 0);
    let after = dots(first + MAX_LINE_CHARS < length);
    let shown: String = source.chars().skip(first).take(MAX_LINE_CHARS).collect();
    (
        [before, &shown, after].concat(),
        column.saturating_sub(first) + before.len(),
    )
}

/// A line of a file, made safe for a terminal. Its tabs stay.
fn printable(text: &str) -> String {
    text.split('\t')
        .map(tidegate_cli::printable)
        .collect::<Vec<_>>()
        .join("\t")
}

fn counted(count: usize, noun: &str) -> String {
    tidegate_cli::counted(count as u64, noun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_line_the_part_around_the_column_is_shown() {
        let check = |before: usize, after: usize, is_cut: [bool; 2]| {
            let source = format!("{}X{}", "é".repeat(before), "a".repeat(after));
            let (part, column) = cut_around(&source, before + 1);
            assert_eq!(part.chars().nth(column - 1), Some('X'), "{part}");
            assert!(
                part.chars().count() <= MAX_LINE_CHARS + 2 * OMISSION_MARK.len(),
                "{part}"
            );
            assert_eq!(
                [
                    part.starts_with(OMISSION_MARK),
                    part.ends_with(OMISSION_MARK)
                ],
                is_cut,
                "{part}"
            );
        };
        check(0, 0, [false, false]);
        check(80, 79, [false, false]);
        check(0, 160, [false, true]);
        check(100_000, 0, [true, false]);
        check(100_000, 100_000, [true, true]);
        // What ends in the middle of a line has a column after its end.
        assert_eq!(cut_around("a", 2), ("a".to_owned(), 2));
        let (long, column) = cut_around(&"a".repeat(1_000), 1_001);
        assert_eq!(
            (long.len(), column),
            (
                MAX_LINE_CHARS + OMISSION_MARK.len(),
                MAX_LINE_CHARS + OMISSION_MARK.len() + 1
            )
        );
    }
}
