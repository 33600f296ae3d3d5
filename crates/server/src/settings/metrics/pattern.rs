//! Regular expressions of the settings.

use regex_lite::{Regex, RegexBuilder};

/// Size limit of a compiled pattern in bytes. Typical patterns take some thousand.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The compiled pattern, or the reason why it is invalid, with an alternative for the one construct
/// that other implementations accept.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    let compiled = RegexBuilder::new(text)
        .size_limit(MAX_PATTERN_BYTES)
        .build();
    compiled.map_err(|error| {
        let error = error.to_string();
        if error.contains("Unicode") {
            return r"classes of Unicode (\p and \P) are not supported: write the letters, as in [A-Za-z] or [^.]"
                .to_owned();
        }
        format!("not a regular expression: {error}")
    })
}
