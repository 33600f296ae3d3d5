//! Requests: the input of a check.

/// Time since the Unix epoch, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

/// A rate limit request: may these descriptors be charged?
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The domain of the configuration to look in.
    pub domain: String,
    /// The descriptors. Each one finds its own limit and is charged separately.
    pub descriptors: Vec<Descriptor>,
    /// Hits for each descriptor without its own number; 0 means 1.
    pub hits_addend: u32,
}

/// A list of entries that may match one limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Descriptor {
    /// The path to look up, outermost first.
    pub entries: Vec<Entry>,
    /// A limit that replaces the configured one.
    pub limit: Option<Override>,
    /// Hits of this descriptor; 0 reads the counter without charging it.
    pub hits_addend: Option<u64>,
    /// Whether the hits are subtracted from the counter, which stops at zero.
    pub is_negative_hits: bool,
}

/// One key and value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value; may be empty.
    pub value: String,
}

/// A limit that the caller sends with a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Override {
    /// Hits allowed per unit; 0 refuses all.
    pub requests_per_unit: u32,
    /// The wire number of the unit, 1 to 7. [`crate::Limiter::check`] validates it.
    pub unit: i32,
}
