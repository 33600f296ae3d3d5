//! Loads of the configuration that the server reports: the active one, and the errors of a refused
//! one.

use std::collections::HashMap;

use tidegate_ratelimit::Timestamp;

/// Source of the configuration, the active load, and the errors of later loads.
#[derive(Debug, Clone)]
pub struct Loads {
    /// Kind of the source.
    pub source: ConfigurationSource,
    /// Folder, address, or words.
    pub place: String,
    /// Time at which this server began to count.
    pub counting_since: Timestamp,
    /// Active load. `None` before there is a configuration.
    pub active: Option<ActiveLoad>,
    /// Latest load, if it was refused.
    pub refused: Option<RefusedLoad>,
    /// Files and folders that could not be read. Their last texts stay in use.
    pub unreadable: Vec<Mistake>,
    /// Paths of the files by the names that they have in the configuration.
    pub paths: HashMap<String, String>,
}

impl Loads {
    /// Returns the path of a file, or the name of a resource.
    pub(crate) fn path_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.paths.get(name).map_or(name, |path| path)
    }
}

#[cfg(test)]
impl Default for Loads {
    fn default() -> Self {
        let source = ConfigurationSource::BuiltIn;
        let counting_since = Timestamp(0);
        Self {
            source,
            place: String::new(),
            counting_since,
            active: None,
            refused: None,
            unreadable: Vec::new(),
            paths: HashMap::new(),
        }
    }
}

/// Kinds of sources of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigurationSource {
    /// Configuration that is part of the program.
    BuiltIn,
    /// Files of a folder.
    Files,
    /// A management server.
    ManagementServer,
}

/// Load of the active configuration.
#[derive(Debug, Clone, Copy)]
pub struct ActiveLoad {
    /// Number of configurations that were activated so far, with this one.
    pub version: u64,
    /// Time at which it was activated.
    pub at: Timestamp,
    /// Number of its files or resources.
    pub sources: usize,
}

/// Load that was refused, so that the configuration did not change.
#[derive(Debug, Clone)]
pub struct RefusedLoad {
    /// Time of the load.
    pub at: Timestamp,
    /// First mistakes, each of a bounded length.
    pub mistakes: Vec<Mistake>,
    /// Number of further mistakes.
    pub more: usize,
}

/// Mistake in a configuration, and its position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mistake {
    /// Name of the file or resource. It is empty if the mistake is about all of them.
    pub file: String,
    /// Line, from 1; 0 if there is none.
    pub line: u32,
    /// Column in characters, from 1; 0 if there is none.
    pub column: u32,
    /// Path to the value; may be empty.
    pub path: String,
    /// Explanation of the mistake.
    pub text: String,
    /// Advice how to correct it; may be empty.
    pub hint: String,
}

/// Counts of a limit since the server started, or since it has the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitUse {
    /// All hits.
    pub hits: u64,
    /// Hits within the limit.
    pub within_limit: u64,
    /// Hits within the limit and near its end.
    pub near_limit: u64,
    /// Hits over the limit.
    pub over_limit: u64,
    /// Hits over the limit that passed, because the limit is in shadow mode.
    pub shadow_mode: u64,
}
