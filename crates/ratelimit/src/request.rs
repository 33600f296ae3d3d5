//! What a caller asks.

/// Time since the Unix epoch, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

/// One rate limit question: may these descriptors be charged?
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The domain of the configuration to look in.
    pub domain: String,
    /// What to charge; each descriptor is looked up and charged by itself.
    pub descriptors: Vec<Descriptor>,
    /// Hits for each descriptor that names none of its own; 0 means 1.
    pub hits_addend: u32,
}

/// A list of entries that may match one limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Descriptor {
    /// The path to look up, outermost first.
    pub entries: Vec<Entry>,
    /// A limit that replaces the configured one.
    pub limit: Option<Override>,
    /// Hits of this descriptor; 0 looks without charging.
    pub hits_addend: Option<u64>,
    /// The hits are given back instead of charged. A counter never falls below zero.
    pub is_negative_hits: bool,
}

/// One key and value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value; may be empty.
    pub value: String,
}

/// A limit that the caller brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Override {
    /// Hits allowed per unit; 0 blocks everything.
    pub requests_per_unit: u32,
    /// The wire number of the unit, 1 to 7; checked when the request is.
    pub unit: i32,
}
