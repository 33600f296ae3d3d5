//! `tidegate check`: configuration files, read as a compiler reads programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_ratelimit::{ConfigError, Configuration, SameDomain, Source};

use super::Check;

/// What is printed, and how many errors are in it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) errors: usize,
}

/// Reads all files and reports on them.
pub(crate) fn check(arguments: &Check) -> Report {
    let mut report = Report::default();
    let mut sources = Vec::new();
    for path in arguments.paths.iter().flat_map(|path| report.files(path)).collect::<Vec<_>>() {
        match fs::read(&path) {
            Ok(text) => sources.push(Source { name: path.display().to_string(), text }),
            Err(error) => report.unreadable(&path, &error),
        }
    }
    let same_domain = if arguments.merge_domain_configs { SameDomain::Merge } else { SameDomain::Refuse };
    let loaded = Configuration::load(&sources, same_domain);
    let texts: BTreeMap<_, _> = sources.iter().map(|source| (source.name.as_str(), source.text.as_slice())).collect();
    let mut faulty = BTreeSet::new();
    for error in loaded.as_ref().err().into_iter().flatten() {
        faulty.insert(error.file.clone());
        report.error(error, texts.get(error.file.as_str()).copied().unwrap_or_default());
    }
    report.summary(sources.len(), faulty.len(), loaded.ok().as_ref());
    report
}

impl Report {
    /// `path` itself, or the files of the folder that it is.
    fn files(&mut self, path: &Path) -> Vec<PathBuf> {
        if !path.is_dir() {
            return vec![path.to_owned()];
        }
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => {
                self.unreadable(path, &error);
                return Vec::new();
            }
        };
        let mut files: Vec<_> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|file| {
                file.is_file() && !file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
            })
            .collect();
        files.sort();
        files
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        self.errors += 1;
        let _ = writeln!(self.text, "{}: error: cannot be read: {error}", path.display());
    }

    fn error(&mut self, error: &ConfigError, text: &[u8]) {
        self.errors += 1;
        let ConfigError { file, line, column, message, .. } = error;
        let _ = match line {
            0 => writeln!(self.text, "{file}: error: {message}"),
            _ => writeln!(self.text, "{file}:{line}:{column}: error: {}", printable(message)),
        };
        let text = String::from_utf8_lossy(text);
        if let Some(source) = line.checked_sub(1).and_then(|line| text.lines().nth(line as usize)) {
            let number = line.to_string();
            let margin = " ".repeat(number.len());
            // Tabs stay tabs, so that the caret is below its character however wide they are shown.
            let before = source.chars().take((*column as usize).saturating_sub(1));
            let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let source = printable(source);
            let _ = writeln!(self.text, " {number} | {source}\n {margin} | {indent}^");
        }
        if !error.path.is_empty() {
            let _ = writeln!(self.text, "   = at: {}", error.path);
        }
        if let Some(hint) = error.hint() {
            let _ = writeln!(self.text, "   = hint: {hint}");
        }
    }

    fn summary(&mut self, files: usize, faulty: usize, loaded: Option<&Configuration>) {
        let _ = match loaded {
            Some(configuration) if self.errors == 0 => {
                let (domains, limits) = (configuration.domain_count(), configuration.dump().lines().count());
                writeln!(
                    self.text,
                    "ok: {}, {}, {}",
                    counted(files, "file"),
                    counted(domains, "domain"),
                    counted(limits, "limit")
                )
            }
            _ if faulty > 0 => {
                writeln!(self.text, "{} in {} of {}", counted(self.errors, "error"), faulty, counted(files, "file"))
            }
            _ => writeln!(self.text, "{}", counted(self.errors, "error")),
        };
    }
}

/// A line of a file, whose tabs stay.
fn printable(text: &str) -> String {
    text.split('\t').map(tidegate_cli::printable).collect::<Vec<_>>().join("\t")
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
