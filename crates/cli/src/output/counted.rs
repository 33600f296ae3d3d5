//! Numbers with nouns.

/// A number with its noun, such as `1 workflow` or `2 workflows`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(
            [0, 1, 2].map(|number| counted(number, "job")),
            ["0 jobs", "1 job", "2 jobs"]
        );
    }
}
