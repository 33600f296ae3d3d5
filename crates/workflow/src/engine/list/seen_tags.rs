//! Tags of the workflows that were listed or created here. No register of the store has them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::search::rank;
use crate::engine::Engine;
use crate::model::Label;

/// Maximum number of tags, of at most 200 bytes each. Later ones are not kept.
const MAX_TAGS: usize = 10_000;
/// Maximum number of tags that a search returns.
const MAX_FOUND: usize = 32;

/// Tags that were seen.
#[derive(Debug, Default)]
pub(crate) struct SeenTags(Mutex<BTreeSet<String>>);

impl SeenTags {
    pub(crate) fn record<'a>(&self, labels: impl Iterator<Item = &'a Label>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for tag in labels.flat_map(|label| &label.tags) {
            if seen.len() < MAX_TAGS && !seen.contains(tag) {
                seen.insert(tag.clone());
            }
        }
    }
}

impl Engine {
    /// At most 32 tags of workflows that were listed or created here and that contain a text, in
    /// upper or lower case, the best first.
    #[must_use]
    pub fn tags_with(&self, text: &str) -> Vec<String> {
        let lowercase = text.to_lowercase();
        let seen = &self.core.seen_tags.0;
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let ranked = |tag: &String| Some((rank(tag, &lowercase)?, tag.clone()));
        let mut found: Vec<(u8, String)> = seen.iter().filter_map(ranked).collect();
        drop(seen);
        found.sort_unstable();
        found.truncate(MAX_FOUND);
        found.into_iter().map(|(_, tag)| tag).collect()
    }
}
