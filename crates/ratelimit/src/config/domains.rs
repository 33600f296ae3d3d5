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
    /// The files or resources with descriptors of it, and how many descriptors at the top came before those of each.
    files: Vec<(Box<str>, usize)>,
}

impl Domain {
    /// The names of the files or resources that it is written in, in their order.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &str> {
        self.files.iter().map(|(name, _)| &**name)
    }

    /// The file or resource with the descriptor at this place of the top.
    #[must_use]
    pub fn file_of(&self, place: usize) -> &str {
        let after = self.files.partition_point(|(_, first)| *first <= place);
        self.files
            .get(after.saturating_sub(1))
            .map_or("", |(name, _)| name)
    }
}

impl Domains {
    /// The top of a domain, to which descriptors of this file are added now.
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

    /// From a place on.
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
