//! How well names match a text.

/// How well a name matches a text, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchRank {
    /// The text is the name.
    Whole,
    /// The name begins with the text.
    Start,
    /// The name contains the text.
    Inside,
    /// Something else than the name has the text.
    Other,
}

impl MatchRank {
    /// The rank of a name that contains a text in lower case.
    #[must_use]
    pub fn for_name(name: &str, lowercase: &str) -> Option<Self> {
        let name = name.to_lowercase();
        match name.find(lowercase)? {
            0 if name.len() == lowercase.len() => Some(Self::Whole),
            0 => Some(Self::Start),
            _ => Some(Self::Inside),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_is_before_its_beginning_and_a_part_of_it() {
        let rank = |name| MatchRank::for_name(name, "ord");
        assert_eq!(rank("Ord"), Some(MatchRank::Whole));
        assert_eq!(rank("ORDER"), Some(MatchRank::Start));
        assert_eq!(rank("reorder"), Some(MatchRank::Inside));
        assert_eq!(rank("report"), None);
        assert!(MatchRank::Whole < MatchRank::Start && MatchRank::Start < MatchRank::Inside);
    }
}
