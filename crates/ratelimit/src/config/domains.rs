//! The domains of a configuration, and the files that they come from.

use hashbrown::HashMap;

use crate::tree::Level;

/// All domains, by name and in the order of the files.
#[derive(Debug, Default)]
pub(super) struct Domains {
    by_name: HashMap<String, Domain>,
    order: Vec<Box<str>>,
}

/// A domain of a configuration.
#[derive(Debug, Default)]
pub struct Domain {
    /// The descriptors at its top.
    pub level: Level,
    /// The files or resources with descriptors of this domain, each with the number of top
    /// descriptors before its own.
    files: Vec<(Box<str>, usize)>,
}

impl Domain {
    /// Returns the names of the files or resources that define this domain, in their order.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &str> {
        self.files.iter().map(|(name, _)| &**name)
    }

    /// Returns the file or resource of the top descriptor with this index.
    #[must_use]
    pub fn file_of(&self, place: usize) -> &str {
        let after = self.files.partition_point(|(_, first)| *first <= place);
        self.files
            .get(after.saturating_sub(1))
            .map_or("", |(name, _)| name)
    }
}

impl Domains {
    /// Returns the top level of a domain, to which the descriptors of this file are added next.
    pub(super) fn begin(&mut self, name: &str, file: &str) -> &mut Level {
        let domain = self.by_name.entry_ref(name).or_insert_with(|| {
            self.order.push(name.into());
            Domain::default()
        });
        domain.files.push((file.into(), domain.level.nodes().len()));
        &mut domain.level
    }

    pub(super) fn get(&self, name: &str) -> Option<&Domain> {
        self.by_name.get(name)
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the domains from an index on.
    pub(super) fn from(&self, place: usize) -> impl ExactSizeIterator<Item = (&str, &Domain)> {
        let names = self.order.get(place..).unwrap_or_default();
        names.iter().map(|name| (&**name, &self.by_name[&**name]))
    }

    pub(super) fn levels(&self) -> impl Iterator<Item = &Level> {
        self.by_name.values().map(|domain| &domain.level)
    }

    pub(super) fn levels_mut(&mut self) -> impl Iterator<Item = &mut Level> {
        self.by_name.values_mut().map(|domain| &mut domain.level)
    }
}
