//! Configuration in the form of values instead of the text of a file, such as from a management
//! server.

use serde_json::{Map, Value as Json};

use super::{Field, Metadata, ParsedDescriptor, ParsedFile, ParsedRateLimit};

/// The limits of a domain, as a file has them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resource {
    /// The name. Messages show it, and resources are read in the order of their names.
    pub name: String,
    /// The domain.
    pub domain: String,
    /// The descriptors at the top.
    pub descriptors: Vec<ResourceDescriptor>,
}

/// A descriptor, with those below it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResourceDescriptor {
    /// The key.
    pub key: String,
    /// The value; may be empty, or contain `*`.
    pub value: String,
    /// The limit, if there is one.
    pub rate_limit: Option<ResourceLimit>,
    /// The descriptors below.
    pub descriptors: Vec<ResourceDescriptor>,
    /// Hits are counted, but never refused.
    pub shadow_mode: bool,
    /// The limit refuses a request only if all such limits of the request are exceeded.
    pub quota_mode: bool,
    /// The stats key includes all values of the request.
    pub detailed_metric: bool,
    /// Metadata that answers carry.
    pub metadata: Map<String, Json>,
}

/// The limit of a descriptor, as a management server sends it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceLimit {
    /// The unit's name in any letter case, such as `minute`.
    pub unit: String,
    /// The hits that are allowed in a unit.
    pub requests_per_unit: u32,
    /// Whether there is no limit.
    pub unlimited: bool,
    /// The name.
    pub name: String,
    /// The names of the limits that this one replaces.
    pub replaces: Vec<String>,
}

impl From<Resource> for ParsedFile {
    fn from(resource: Resource) -> Self {
        let descriptors = resource
            .descriptors
            .into_iter()
            .map(ParsedDescriptor::from)
            .collect();
        Self {
            domain: field(resource.domain),
            descriptors,
            ..Self::default()
        }
    }
}

impl From<ResourceDescriptor> for ParsedDescriptor {
    fn from(descriptor: ResourceDescriptor) -> Self {
        Self {
            key: field(descriptor.key),
            value: field(descriptor.value),
            rate_limit: descriptor.rate_limit.map(ParsedRateLimit::from),
            descriptors: descriptor.descriptors.into_iter().map(Self::from).collect(),
            shadow_mode: descriptor.shadow_mode,
            quota_mode: descriptor.quota_mode,
            detailed_metric: descriptor.detailed_metric,
            metadata: Some(Metadata::Ready(descriptor.metadata)),
            ..Self::default()
        }
    }
}

impl From<ResourceLimit> for ParsedRateLimit {
    fn from(limit: ResourceLimit) -> Self {
        Self {
            requests_per_unit: limit.requests_per_unit,
            unit: field(limit.unit),
            unlimited: limit.unlimited,
            name: field(limit.name),
            replaces: limit.replaces.into_iter().map(field).collect(),
            ..Self::default()
        }
    }
}

/// A field without a position.
fn field(text: String) -> Field {
    Field {
        text,
        ..Field::default()
    }
}
