//! `tidegate check`: parses rate limit configuration and definitions of workflows as the server
//! does.

mod folder;
mod report;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use tidegate_api::check_definition;
use tidegate_cli::{Definition, field_names, file_name};
use tidegate_ratelimit::{Configuration, SameDomain, Source};

use super::Check;
use crate::base::file;
use crate::rls::reload::MAX_FILE_BYTES;
use folder::Folder;
pub(crate) use report::Report;
use report::{CheckedFiles, Mistake};

/// Message for a file that is neither limits nor a definition.
const UNKNOWN_FILE_TEXT: &str = "this is neither a rate limit configuration, which has `domain` and `descriptors`, nor a workflow definition, which \
                       has `name` and `jobs`";

/// Message for a folder without files to check.
const EMPTY_FOLDER_TEXT: &str =
    "this folder has no file to check: no limits, and no file that ends in .yaml, .yml or .json";

/// Message for another file in a folder of limits.
const NOT_LIMITS_TEXT: &str = "the server reads every file of this folder as limits, and this is not a rate limit configuration; move it to \
                             another folder";

/// Kinds of files that an argument may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Limits, as all files of a folder with limits.
    Limits,
    /// Limits or a definition of a workflow.
    Any,
}

/// Parses all files, and reports the mistakes.
pub(crate) fn check(arguments: &Check) -> Report {
    let mut report = Report::default();
    let mut checked = CheckedFiles::default();
    let mut configurations = Vec::new();
    for path in &arguments.paths {
        let (paths, expected) = files(path, &mut report);
        for path in paths {
            match read_file(&path) {
                Ok(text) => {
                    checked.files += 1;
                    let source = Source {
                        name: file_name(&path),
                        text,
                    };
                    configurations.extend(check_file(
                        &path,
                        source,
                        expected,
                        &mut checked,
                        &mut report,
                    ));
                }
                Err(error) => report.unreadable(&path, &error),
            }
        }
    }
    let same_domain = if arguments.merge_domain_configs {
        SameDomain::Merge
    } else {
        SameDomain::Refuse
    };
    checked.configuration = load_configuration(&configurations, same_domain, &mut report);
    report.summary(&checked);
    report
}

/// Checks one file. A file with limits is returned instead, since all limits are checked as one
/// configuration.
fn check_file(
    path: &Path,
    source: Source,
    expected: Expected,
    checked: &mut CheckedFiles,
    report: &mut Report,
) -> Option<Source> {
    let fields = field_names(path, &decode_text(&source.text));
    let is_definition = fields.iter().any(|field| field == "jobs");
    match expected {
        _ if is_configuration(&fields) => return Some(source),
        // A file that is not valid YAML: the parser of limits reports the position of the mistake.
        Expected::Limits if folder::is_yaml_or_json(path) && !is_definition => return Some(source),
        Expected::Limits => report.mistake(
            &Mistake::new(&source.name, None, NOT_LIMITS_TEXT),
            &source.text,
        ),
        Expected::Any => {
            let mistakes = definition(path, &source);
            checked.definitions += usize::from(mistakes.is_empty());
            for mistake in mistakes {
                report.mistake(&mistake, &source.text);
            }
        }
    }
    None
}

fn load_configuration(
    sources: &[Source],
    same_domain: SameDomain,
    report: &mut Report,
) -> Option<Configuration> {
    if sources.is_empty() {
        return None;
    }
    let texts: BTreeMap<_, _> = sources
        .iter()
        .map(|source| (source.name.as_str(), source.text.as_slice()))
        .collect();
    let loaded = Configuration::load(sources, same_domain);
    for error in loaded.as_ref().err().into_iter().flatten() {
        report.mistake(
            &Mistake::from(error),
            texts.get(error.file.as_str()).copied().unwrap_or_default(),
        );
    }
    loaded.ok()
}

/// `path` itself, or the files of the folder at `path`.
fn files(path: &Path, report: &mut Report) -> (Vec<PathBuf>, Expected) {
    if !path.is_dir() {
        return (vec![path.to_owned()], Expected::Any);
    }
    match Folder::read(path, has_limits) {
        Ok(Folder::Limits(files)) => (files, Expected::Limits),
        Ok(Folder::Others(files)) => {
            if files.is_empty() {
                report.mistake(
                    &Mistake::new(&file_name(path), None, EMPTY_FOLDER_TEXT),
                    b"",
                );
            }
            (files, Expected::Any)
        }
        Err((folder, error)) => {
            report.unreadable(&folder, &error);
            (Vec::new(), Expected::Any)
        }
    }
}

/// Whether a file is a rate limit configuration. An unreadable file is not.
fn has_limits(path: &Path) -> bool {
    read_file(path).is_ok_and(|bytes| is_configuration(&field_names(path, &decode_text(&bytes))))
}

/// Reads a file or standard input.
///
/// # Errors
/// The file cannot be read, is too large, or has no end that is certain to come.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // A file that a shell has opened, as for `<(..)`, has a writer.
    let is_open = ["/dev/fd", "/dev/stdin", "/proc/self/fd"];
    if path == Path::new("-") {
        return file::read_bounded(io::stdin().lock(), MAX_FILE_BYTES);
    }
    if is_open.iter().any(|folder| path.starts_with(folder)) {
        return file::read_bounded(File::open(path)?, MAX_FILE_BYTES);
    }
    refuse_endless(path)?;
    file::read(path, MAX_FILE_BYTES).map_err(|error| match error.kind() {
        // Such as /proc/kmsg, whose reader waits for more.
        io::ErrorKind::WouldBlock => io::Error::other("this file has no end"),
        _ => error,
    })
}

/// Refuses a named pipe, whose reader waits for a writer, and a device.
fn refuse_endless(path: &Path) -> io::Result<()> {
    let file_type = fs::metadata(path)?.file_type();
    let kind = if file_type.is_fifo() {
        "a named pipe"
    } else if file_type.is_char_device() || file_type.is_block_device() {
        "a device"
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!(
        "this is {kind}, not a file; `tidegate check -` reads standard input"
    )))
}

/// The text of a file. A byte order mark of UTF-16 selects that encoding; otherwise it is UTF-8.
fn decode_text(bytes: &[u8]) -> Cow<'_, str> {
    let unit: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return String::from_utf8_lossy(bytes),
    };
    let (pairs, _) = bytes[2..].as_chunks();
    char::decode_utf16(pairs.iter().copied().map(unit))
        .map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

fn is_configuration(fields: &[String]) -> bool {
    fields
        .iter()
        .any(|field| field == "domain" || field == "descriptors")
}

/// The text of a definition.
///
/// # Errors
/// It is neither UTF-8 nor UTF-16.
fn definition_text(source: &Source) -> Result<String, Mistake> {
    match decode_text(&source.text) {
        Cow::Borrowed(text) => Ok(text.to_owned()),
        Cow::Owned(text) if !text.contains(char::REPLACEMENT_CHARACTER) => Ok(text),
        Cow::Owned(_) => Err(Mistake::new(
            &source.name,
            None,
            "this is neither UTF-8 nor UTF-16",
        )),
    }
}

/// The mistakes in a definition.
fn definition(path: &Path, source: &Source) -> Vec<Mistake> {
    match parse_definition(path, source) {
        Ok(definition) => check_definition(&definition.json())
            .into_iter()
            .map(|found| {
                let path = found.path.unwrap_or_default();
                let mistake = definition.mistake(&path, &found.detail);
                Mistake::new(&source.name, mistake.position, mistake.reason).at(path)
            })
            .collect(),
        Err(mistake) => vec![mistake],
    }
}

fn parse_definition(path: &Path, source: &Source) -> Result<Definition, Mistake> {
    let file = &source.name;
    let text = definition_text(source)?;
    let unknown_file = || Mistake::new(file, None, UNKNOWN_FILE_TEXT);
    match Definition::parse(path, text) {
        Ok(definition) if !definition.has("jobs") => Err(unknown_file()),
        Ok(definition) => Ok(definition),
        Err(mistake) if mistake.position.is_none() => Err(unknown_file()),
        Err(mistake) => Err(Mistake::new(file, mistake.position, mistake.reason)),
    }
}
