//! Tags of the workflows that were listed or created here. No register of the store has them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::match_rank::MatchRank;
use crate::model::Label;

/// Maximum number of tags, of at most 200 bytes each. Later ones are not kept.
const MAX_TAGS: usize = 10_000;

/// Tags that were seen.
#[derive(Debug, Default)]
pub(crate) struct SeenTags(Mutex<BTreeSet<String>>);

impl SeenTags {
    pub(crate) fn record<'a>(&self, labels: impl Iterator<Item = &'a Label>) {
        let mut tags = labels.flat_map(|label| &label.tags).peekable();
        if tags.peek().is_none() {
            return;
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for tag in tags {
            if seen.len() < MAX_TAGS && !seen.contains(tag) {
                seen.insert(tag.clone());
            }
        }
    }

    /// All tags that contain a text in lower case, with their ranks.
    pub(crate) fn ranked(&self, lowercase: &str) -> Vec<(MatchRank, String)> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ranked = |tag: &String| Some((MatchRank::for_name(tag, lowercase)?, tag.clone()));
        seen.iter().filter_map(ranked).collect()
    }
}
