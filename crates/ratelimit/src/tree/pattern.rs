//! Composite keys with wildcards.

/// Maximum number of steps of matching for one call: bytes that are searched, and
/// [`STEPS_PER_PATTERN`] for each pattern that is tried. They take some tens of milliseconds, in
/// which the core answers no other call. A request of Envoy, whose headers have at most 60 KiB,
/// needs more only with 500 patterns for one of them.
const MAX_STEPS: usize = 32 << 20;
/// Steps for trying a pattern: one whose start does not match takes about as long as searching this
/// number of bytes.
const TRY_STEPS: usize = 16;

/// The remaining steps of matching of a call.
#[derive(Debug)]
pub(crate) struct StepBudget {
    left: Option<usize>,
}

impl StepBudget {
    /// Returns the budget of a call that any client may make.
    pub(crate) fn for_request() -> Self {
        Self {
            left: Some(MAX_STEPS),
        }
    }

    /// Returns an unlimited budget, for callers with other bounds.
    pub(crate) fn unbounded() -> Self {
        Self {
            left: Some(usize::MAX),
        }
    }

    /// Returns whether the steps were used up. A pattern that was not found may then match.
    pub(crate) fn is_used_up(&self) -> bool {
        self.left.is_none()
    }

    fn spend(&mut self, steps: usize) -> bool {
        self.left = self.left.and_then(|left| left.checked_sub(steps));
        self.left.is_some()
    }
}

/// A composite key in which every `*` matches any text, even an empty one.
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
        Self {
            text: text.into(),
            first: pieces.pop().unwrap_or_default(),
            middle,
            last,
        }
    }

    /// Returns whether `text` matches. False also if `steps` are used up before the result is
    /// known.
    ///
    /// The text is searched once from its start to its end, whatever the number of pieces: the
    /// first match of each piece is the right one.
    pub(super) fn matches(&self, text: &str, steps: &mut StepBudget) -> bool {
        if !steps.spend(TRY_STEPS) {
            return false;
        }
        let Some(rest) = text.strip_prefix(&*self.first) else {
            return false;
        };
        let Some(mut rest) = rest.strip_suffix(&*self.last) else {
            return false;
        };
        if !self.middle.is_empty() && !steps.spend(rest.len()) {
            return false;
        }
        for piece in &self.middle {
            match rest.find(&**piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        true
    }

    /// Returns the pattern without `key` and `_` at its start, or the whole pattern if it does not
    /// start with them.
    pub(super) fn value_part(&self, key: &str) -> &str {
        self.text
            .strip_prefix(key)
            .and_then(|rest| rest.strip_prefix('_'))
            .unwrap_or(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let table: [(&str, &[&str], &[&str]); 8] = [
            ("foo*", &["foo1", "foo2", "foo"], &["bar", "fo"]),
            (
                "bar*b",
                &["barab", "bar123b", "barb"],
                &["bara", "xbarb", "bar"],
            ),
            (
                "foo*bar*baz",
                &["foo123bar456baz", "foobarbaz"],
                &["foo123baz", "bar456baz", "foobaz"],
            ),
            (
                "/api*v1",
                &["/api/v1", "/api-beta-v1", "/apiXYZv1"],
                &["/api/v2", "/ap/v1"],
            ),
            (
                "svc*ep*rpc",
                &["svcAepBrpc", "svcXXXepYYYrpc", "svceprpc"],
                &["svcABCrpc"],
            ),
            ("*", &["", "anything"], &[]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("*é*", &["é", "né"], &["e"]),
        ];
        for (pattern, matching, other) in table {
            let compiled = Pattern::new(pattern);
            for probe in matching {
                assert!(
                    compiled.matches(probe, &mut StepBudget::unbounded()),
                    "{pattern} should match {probe}"
                );
            }
            for probe in other {
                assert!(
                    !compiled.matches(probe, &mut StepBudget::unbounded()),
                    "{pattern} should not match {probe}"
                );
            }
        }
    }

    #[test]
    fn matching_ends_with_the_steps_of_its_call() {
        let pattern = Pattern::new("a_*b*c");
        let text = format!("a_{}c", "x".repeat(1_000));
        let mut work = StepBudget {
            left: Some(1_000 + TRY_STEPS),
        };
        assert!(!pattern.matches(&text, &mut work) && !work.is_used_up());
        assert!(!pattern.matches(&text, &mut work) && work.is_used_up());
        assert!(
            !pattern.matches("a_bc", &mut work),
            "nothing matches after that"
        );
        let mut work = StepBudget {
            left: Some(3 * TRY_STEPS),
        };
        assert!(
            Pattern::new("a_*").matches(&text, &mut work),
            "a prefix is not searched for"
        );
        assert!(!pattern.matches("b_bc", &mut work) && !work.is_used_up());
    }

    #[test]
    fn a_pattern_without_a_value_stands_whole() {
        assert_eq!(Pattern::new("files_files/*").value_part("files"), "files/*");
        assert_eq!(Pattern::new("foo*").value_part("foo"), "foo*");
    }
}
