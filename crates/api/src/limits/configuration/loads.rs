//! What became of the configuration: what is in force, and what is wrong with the one that was refused. The server tells it.

use tidegate_ratelimit::Timestamp;

/// Where the configuration comes from, what is in force, and what is wrong with what is not.
#[derive(Debug, Clone)]
pub struct Loads {
    /// The kind of place that it comes from.
    pub source: ConfigurationSource,
    /// A folder, an address, or words.
    pub place: String,
    /// When this server began to count.
    pub counting_since: Timestamp,
    /// What is in force; `None` before there is a configuration.
    pub in_force: Option<InForce>,
    /// The latest load, when it was refused.
    pub refused: Option<Refused>,
    /// Files and folders that could not be read. Their last texts stay in use.
    pub unreadable: Vec<Mistake>,
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
            in_force: None,
            refused: None,
            unreadable: Vec::new(),
        }
    }
}

/// The kinds of places that a configuration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigurationSource {
    /// Part of the program.
    BuiltIn,
    /// Files of a folder.
    Files,
    /// A management server.
    ManagementServer,
}

/// The configuration that is in force.
#[derive(Debug, Clone, Copy)]
pub struct InForce {
    /// How many were put in force, with this one.
    pub version: u64,
    /// When it was put in force.
    pub at: Timestamp,
    /// The number of its files or resources.
    pub sources: usize,
}

/// A load that changed nothing.
#[derive(Debug, Clone)]
pub struct Refused {
    /// When that was.
    pub at: Timestamp,
    /// The first mistakes, each of a bounded length.
    pub mistakes: Vec<Mistake>,
    /// How many others there are.
    pub more: usize,
}

/// A mistake, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mistake {
    /// The name of the file or resource; empty when it is about all of them.
    pub file: String,
    /// The line, from 1; 0 when there is none.
    pub line: u32,
    /// The column in characters, from 1; 0 when there is none.
    pub column: u32,
    /// The path to the value; may be empty.
    pub path: String,
    /// What is wrong.
    pub text: String,
    /// How to correct it; may be empty.
    pub hint: String,
}

/// What was counted of a limit since the server started, or since it has the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitUse {
    /// All hits.
    pub hits: u64,
    /// Those within the limit.
    pub within_limit: u64,
    /// Those within it and near its end.
    pub near_limit: u64,
    /// Those over it.
    pub over_limit: u64,
    /// Those over it that were let through, since the limit is in shadow mode.
    pub shadow_mode: u64,
}
