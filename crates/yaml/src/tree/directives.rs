//! Directives `%YAML` and `%TAG`, and the resolution of tags.

use crate::error::Error;
use crate::scan::{Mark, Scanner, Token};

/// Most `%TAG` lines, because each tag is looked up among them.
const MAX_HANDLES: usize = 100;
/// Most bytes of such a prefix, because each tag with its handle repeats it.
const MAX_PREFIX_BYTES: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Directives {
    /// Handles with their prefixes.
    prefixes: Vec<(String, String)>,
}

impl Directives {
    /// Reads directives up to the beginning of the document.
    pub(super) fn read(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Error> {
        let mut has_version = false;
        loop {
            let mark = scanner.peek()?.0;
            match scanner.take() {
                Token::Version { .. } if has_version => {
                    return Err(mark.error("found duplicate %YAML directive"));
                }
                // yaml.v2 accepts 1.1 alone. A 1.2 document is read with the rules of 1.1.
                Token::Version {
                    major: 1,
                    minor: 1 | 2,
                } => has_version = true,
                Token::Version { .. } => return Err(mark.error("found incompatible YAML document")),
                Token::TagDirective { handle, .. } if self.prefix(&handle).is_some() => {
                    return Err(mark.error("found duplicate %TAG directive"));
                }
                Token::TagDirective { .. } if self.prefixes.len() >= MAX_HANDLES => {
                    return Err(mark.error("found too many %TAG directives"));
                }
                Token::TagDirective { prefix, .. } if prefix.len() > MAX_PREFIX_BYTES => {
                    return Err(
                        mark.error("found a %TAG directive whose prefix is longer than 1024 bytes")
                    );
                }
                Token::TagDirective { handle, prefix } => self.prefixes.push((handle, prefix)),
                Token::DocumentStart => return Ok(()),
                _ => return Err(mark.error("did not find expected <document start>")),
            }
        }
    }

    fn prefix(&self, handle: &str) -> Option<&str> {
        self.prefixes
            .iter()
            .find(|(known, _)| known == handle)
            .map(|(_, prefix)| prefix.as_str())
    }

    /// Returns the whole tag.
    pub(super) fn tag(&self, mark: Mark, handle: &str, suffix: String) -> Result<String, Error> {
        let prefix = match (self.prefix(handle), handle) {
            (Some(prefix), _) => prefix,
            (None, "") => return Ok(suffix),
            (None, "!") => "!",
            (None, "!!") => "tag:yaml.org,2002:",
            (None, _) => return Err(mark.error("found undefined tag handle")),
        };
        Ok(format!("{prefix}{suffix}"))
    }
}
