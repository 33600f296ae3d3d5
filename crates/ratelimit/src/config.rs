//! Configuration files: what the limits are.

use std::fmt;

/// One configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The name used in messages, and the order of files: `config.basic.yaml`.
    pub name: String,
    /// The file's bytes.
    pub text: Vec<u8>,
}

/// What to do with a second file of the same domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SameDomain {
    /// Report an error.
    #[default]
    Refuse,
    /// Add its descriptors to those of the first.
    Merge,
}

/// The limits of all domains.
#[derive(Debug)]
pub struct Configuration {}

impl Configuration {
    /// Reads all files, in the order of their names.
    ///
    /// # Errors
    /// Every mistake of every file, sorted by file, then line.
    pub fn load(sources: &[Source], same_domain: SameDomain) -> Result<Self, Vec<ConfigError>> {
        let _ = (sources, same_domain);
        Ok(Self {})
    }

    /// The number of domains.
    #[must_use]
    pub fn domain_count(&self) -> usize {
        0
    }

    /// One line per configured limit, sorted: the text of `/rlconfig`.
    #[must_use]
    pub fn dump(&self) -> String {
        String::new()
    }

    /// The stats key of every configured limit, sorted.
    pub fn stats_keys(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }
}

/// One mistake in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// The file's name.
    pub file: String,
    /// Line, from 1; 0 when unknown.
    pub line: u32,
    /// Column in characters, from 1; 0 when unknown.
    pub column: u32,
    /// Where in the tree: `descriptors[0].rate_limit.unit`. Empty at the top.
    pub path: String,
    /// What is wrong, in the reference's words.
    pub message: String,
}

impl ConfigError {
    /// The text with which the reference refuses the same file.
    #[must_use]
    pub fn reference_text(&self) -> String {
        format!("{}: {}", self.file, self.message)
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        None
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

impl std::error::Error for ConfigError {}
