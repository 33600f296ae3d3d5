//! The name of the worker that runs a job.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a worker. Clones share its text, because all jobs of one claim have the same worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerName(Arc<str>);

impl Deref for WorkerName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for WorkerName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl Serialize for WorkerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for WorkerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<str>::deserialize(deserializer)?.into()))
    }
}
