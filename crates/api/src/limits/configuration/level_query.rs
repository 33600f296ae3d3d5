//! Query for a part of the configuration.

use tidegate_ratelimit::{Configuration, Domain, Entry, Level};

use super::shown::exact_entry;
use crate::http::problem::Problem;
use crate::http::query::Query;

/// Most domains and descriptors in an answer.
const MAX_ITEMS: usize = 1_000;

/// Parsed query.
pub(super) struct LevelQuery {
    pub(super) find: Option<String>,
    pub(super) domain: Option<String>,
    /// Keys and values from the domain down to the level.
    entries: Vec<(String, String)>,
    pub(super) limit: usize,
    /// Indexes of a cursor. Empty if the page is the first.
    pub(super) from: Vec<usize>,
}

impl LevelQuery {
    pub(super) fn parse(text: Option<&str>) -> Result<Self, Problem> {
        let mut query = Query::new(text)?;
        let find = query.remove("find");
        let domain = query.remove("domain");
        let entries = query
            .remove("entries")
            .map(|text| entries(&text))
            .transpose()?
            .unwrap_or_default();
        if domain.is_none() && !entries.is_empty() {
            return Err(Problem::field(
                "domain",
                "'entries' are those of a 'domain'",
            ));
        }
        if find.is_some() && domain.is_some() {
            return Err(Problem::field(
                "find",
                "all domains are searched: leave 'domain' out",
            ));
        }
        let limit = query.limit(100, MAX_ITEMS)?;
        let places = |text: &str| text.split('.').map(|place| place.parse().ok()).collect();
        let from = query
            .cursor("a page of this level", places)?
            .unwrap_or_default();
        query.finish()?;
        Ok(Self {
            find,
            domain,
            entries,
            limit,
            from,
        })
    }

    /// Returns the index in the level at which the page starts.
    pub(super) fn start(&self) -> usize {
        self.from.first().copied().unwrap_or(0)
    }

    /// Returns the only entries that lead to the level. `None` if there are more.
    pub(super) fn only_entries(&self) -> Option<Vec<Entry>> {
        let entry = |(key, value): &(String, String)| exact_entry(key, value);
        self.entries.iter().map(entry).collect()
    }

    /// Explains why there is no such level, and names a similar domain, key or value.
    pub(super) fn explain_missing(&self, configuration: &Configuration) -> Option<String> {
        let entry = |(key, value): &(String, String)| Entry {
            key: key.clone(),
            value: value.clone(),
        };
        let entries: Vec<Entry> = self.entries.iter().map(entry).collect();
        let domain = self.domain.as_deref()?;
        configuration.lookup().explain_missing(domain, &entries)
    }

    /// Returns the level that the entries lead to, and its file. The file is `None` if the level is
    /// the domain's own: then each descriptor has a file of its own.
    pub(super) fn level<'c>(&self, domain: &'c Domain) -> Option<(&'c Level, Option<&'c str>)> {
        let mut level = &domain.level;
        let mut file = None;
        for (key, value) in &self.entries {
            let place = level.index_of(key, value)?;
            file = file.or_else(|| Some(domain.file_of(place)));
            level = &level.nodes()[place].below;
        }
        Some((level, file))
    }
}

/// Parses `[["key","value"],["key"]]`.
fn entries(text: &str) -> Result<Vec<(String, String)>, Problem> {
    let wrong = || {
        Problem::field(
            "entries",
            r#"expected keys and their values, such as [["tenant","acme"],["path"]]"#,
        )
    };
    let entries: Vec<Vec<String>> = serde_json::from_str(text).map_err(|_| wrong())?;
    let pair = |entry: Vec<String>| {
        let mut parts = entry.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(key), value, None) => Ok((key, value.unwrap_or_default())),
            _ => Err(wrong()),
        }
    };
    entries.into_iter().map(pair).collect()
}
