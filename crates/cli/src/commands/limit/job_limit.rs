//! Limits of jobs, as the server shows them.

use std::fmt;

use serde::Deserialize;

use crate::output::counted::counted;
use crate::output::printable::printable;

/// A rate limit or a concurrency limit of a job. Of an unknown kind, only the entries are shown.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct JobLimit {
    domain: Option<String>,
    hits: Option<u64>,
    concurrency: Option<u64>,
    of: Option<String>,
    #[serde(default)]
    entries: Vec<(String, String)>,
}

/// The limit in one line.
impl fmt::Display for JobLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(domain) = &self.domain {
            parts.push(format!(
                "{} of {domain}",
                counted(self.hits.unwrap_or(1), "unit")
            ));
        }
        if let Some(max_jobs) = self.concurrency {
            let of = match self.of.as_deref() {
                Some("workflow") => " of the workflow",
                Some("queue") => " of the queue",
                _ => "",
            };
            parts.push(format!(
                "at most {}{of} at a time",
                counted(max_jobs, "job")
            ));
        }
        parts.extend(
            self.entries
                .iter()
                .map(|(key, value)| format!("{key}={value}")),
        );
        f.write_str(&printable(&parts.join("  ")))
    }
}
