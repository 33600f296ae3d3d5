//! Composite keys with wildcards.

/// A composite key in which every `*` stands for any text, which may be empty.
#[derive(Debug)]
pub(super) struct Pattern {
    text: Box<str>,
    first: Box<str>,
    middle: Box<[Box<str>]>,
    last: Box<str>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let mut pieces: Vec<Box<str>> = text.split('*').map(Into::into).collect();
        let last = pieces.pop().unwrap_or_default();
        let middle = pieces.split_off(1.min(pieces.len())).into();
        Self { text: text.into(), first: pieces.pop().unwrap_or_default(), middle, last }
    }

    pub(super) fn matches(&self, probe: &str) -> bool {
        let Some(rest) = probe.strip_prefix(&*self.first) else { return false };
        let Some(mut rest) = rest.strip_suffix(&*self.last) else { return false };
        for piece in &self.middle {
            match rest.find(&**piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        true
    }

    /// The pattern without `key` and `_` at its start; the whole pattern when it does not start with them.
    pub(super) fn value_part(&self, key: &str) -> &str {
        self.text.strip_prefix(key).and_then(|rest| rest.strip_prefix('_')).unwrap_or(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let table: [(&str, &[&str], &[&str]); 8] = [
            ("foo*", &["foo1", "foo2", "foo"], &["bar", "fo"]),
            ("bar*b", &["barab", "bar123b", "barb"], &["bara", "xbarb", "bar"]),
            ("foo*bar*baz", &["foo123bar456baz", "foobarbaz"], &["foo123baz", "bar456baz", "foobaz"]),
            ("/api*v1", &["/api/v1", "/api-beta-v1", "/apiXYZv1"], &["/api/v2", "/ap/v1"]),
            ("svc*ep*rpc", &["svcAepBrpc", "svcXXXepYYYrpc", "svceprpc"], &["svcABCrpc"]),
            ("*", &["", "anything"], &[]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("*é*", &["é", "né"], &["e"]),
        ];
        for (pattern, matching, other) in table {
            let compiled = Pattern::new(pattern);
            for probe in matching {
                assert!(compiled.matches(probe), "{pattern} should match {probe}");
            }
            for probe in other {
                assert!(!compiled.matches(probe), "{pattern} should not match {probe}");
            }
        }
    }

    #[test]
    fn a_pattern_without_a_value_stands_whole() {
        assert_eq!(Pattern::new("files_files/*").value_part("files"), "files/*");
        assert_eq!(Pattern::new("foo*").value_part("foo"), "foo*");
    }
}
