//! Errors in configuration files, as they are reported.

use std::fmt;

use tidegate_yaml::Position;

use super::problem::Problem;

/// Maximum number of errors that are reported for one file. No reader needs more.
const MAX_PER_FILE: usize = 1_000;

/// One error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// The name of the file or resource.
    pub file: String,
    /// Line, from 1. 0 in a resource, which has no lines.
    pub line: u32,
    /// Column in characters, from 1. 0 in a resource.
    pub column: u32,
    /// The path to the value, such as `descriptors[0].rate_limit.unit`. Empty at the top of the
    /// file.
    pub path: String,
    /// The error, in the reference's words.
    pub message: String,
    prefix: String,
    hint: Option<String>,
}

impl ConfigError {
    /// Returns the message with which the reference refuses a file that has only this error.
    ///
    /// Messages about YAML syntax have the words of the library used here.
    #[must_use]
    pub fn reference_text(&self) -> String {
        format!("{}: {}{}", self.file, self.prefix, self.message)
    }

    /// Returns advice on how to correct the error.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message)?,
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message)?,
        }
        if self.path.is_empty() {
            Ok(())
        } else {
            write!(f, " (at {})", self.path)
        }
    }
}

impl std::error::Error for ConfigError {}

/// The path to a value in a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'a> {
    Top,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    pub(super) fn key<'a>(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(super) fn index(&self, index: usize) -> Path<'_> {
        Path::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Key(Self::Top, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The errors found in one file so far.
#[derive(Debug)]
pub(super) struct Report<'f> {
    file: &'f str,
    errors: Vec<ConfigError>,
    /// Number of errors that earlier passes over the file found.
    earlier: usize,
}

impl<'f> Report<'f> {
    pub(super) fn new(file: &'f str) -> Self {
        Self {
            file,
            errors: Vec::new(),
            earlier: 0,
        }
    }

    /// Starts another pass over the file. It does not repeat errors that an earlier pass reported
    /// at the same position or below it.
    pub(super) fn next_pass(&mut self) {
        self.earlier = self.errors.len();
    }

    /// Returns the name of the file.
    pub(super) fn file(&self) -> &'f str {
        self.file
    }

    pub(super) fn add(&mut self, at: Position, path: &Path<'_>, problem: Problem) {
        if self.errors.len() >= MAX_PER_FILE {
            return;
        }
        let path = path.to_string();
        let earlier = &self.errors[..self.earlier];
        let repeated = earlier.iter().any(|error| {
            let below = error
                .path
                .strip_prefix(&path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
            (error.line, error.column) == (at.line, at.column) || (below && !path.is_empty())
        });
        let follows = !earlier.is_empty() && problem.may_follow();
        if repeated || follows {
            return;
        }
        self.errors.push(ConfigError {
            file: self.file.to_owned(),
            line: at.line,
            column: at.column,
            path,
            message: problem.to_string(),
            prefix: problem.prefix(at.line),
            hint: problem.hint(),
        });
    }

    /// Returns the errors in the order of the file.
    pub(super) fn into_errors(mut self) -> Vec<ConfigError> {
        self.errors.sort_by_key(|error| (error.line, error.column));
        self.errors
    }
}
