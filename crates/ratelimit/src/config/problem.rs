//! All errors that a file can have: the reference's message for each, and advice on how to correct
//! it.

use strsim::levenshtein;
use thiserror::Error;
use tidegate_yaml::Problem as Yaml;

/// The keys that a file may use, each at every depth, as in the reference. `pause_when_throttled`
/// is an addition of Tidegate.
pub(super) const KEYS: [&str; 17] = [
    "descriptors",
    "detailed_metric",
    "domain",
    "key",
    "metadata",
    "name",
    "pause_when_throttled",
    "quota_mode",
    "rate_limit",
    "replaces",
    "requests_per_unit",
    "shadow_mode",
    "share_threshold",
    "unit",
    "unlimited",
    "value",
    "value_to_metric",
];

const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];

/// An error. Its text is the reference's message without prefixes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Problem {
    #[error(transparent)]
    Yaml(#[from] tidegate_yaml::Problem),

    #[error("cannot unmarshal {found} into {expected}")]
    WrongType {
        found: String,
        expected: &'static str,
    },

    #[error("config error, key is not of type string: {0}")]
    KeyNotString(String),
    #[error("config error, unknown key '{0}'")]
    UnknownKey(String),
    #[error("config error, yaml file contains list of type other than map: {0}")]
    ListElement(String),
    #[error("error checking config")]
    Scalar,

    #[error("config file cannot have empty domain")]
    EmptyDomain,
    #[error("duplicate domain '{0}' in config file")]
    DuplicateDomain(String),
    #[error("descriptor has empty key")]
    EmptyKey,
    #[error("duplicate descriptor composite key '{0}'")]
    DuplicateKey(String),
    #[error("should not specify rate limit unit when unlimited")]
    UnitWithUnlimited,
    #[error("invalid rate limit unit '{0}'")]
    InvalidUnit(String),
    #[error("should not have an empty replaces entry")]
    EmptyReplaces,
    #[error("replaces should not contain name of same descriptor")]
    ReplacesSelf,
    #[error(
        "share_threshold can only be used with wildcard values (containing '*'), but found key '{0}'"
    )]
    ShareThreshold(String),
    #[error("error parsing metadata: {0}")]
    Metadata(String),
    #[error("pause_when_throttled is of no use without a rate_limit")]
    PauseWithoutLimit,
}

impl Problem {
    /// Returns the prefix of the reference's message, which follows the file's name.
    pub(super) fn prefix(&self, line: u32) -> String {
        match self {
            // The reference gives the line of the end of the file, not that of the quote.
            Self::Yaml(Yaml::OpenQuote { last_line }) => {
                format!("error loading config file: yaml: line {last_line}: ")
            }
            Self::Yaml(_) => format!("error loading config file: yaml: line {line}: "),
            Self::WrongType { .. } => {
                format!("error loading config file: yaml: unmarshal errors:\n  line {line}: ")
            }
            _ => String::new(),
        }
    }

    /// Returns whether another error in the file, such as a misspelled key, can be the cause of
    /// this one.
    pub(super) fn may_follow(&self) -> bool {
        match self {
            Self::EmptyDomain
            | Self::EmptyKey
            | Self::DuplicateKey(_)
            | Self::ShareThreshold(_) => true,
            Self::InvalidUnit(unit) => unit.is_empty(),
            _ => false,
        }
    }

    /// Returns advice on how to correct the error.
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Yaml(problem) => return yaml_hint(problem).map(str::to_owned),
            Self::WrongType { expected, .. } => wrong_type_hint(expected),
            Self::KeyNotString(key) => return Some(format!("put the key in quotes: '{key}'")),
            Self::UnknownKey(key) => return Some(known_names(key, &KEYS, "keys")),
            Self::ListElement(_) => "lists hold maps: write '- key: ..' or '- name: ..'",
            Self::Scalar => "numbers here are whole and below 2^63; put other text in quotes",
            Self::EmptyDomain => "add 'domain: ..' at the top of the file",
            Self::DuplicateDomain(_) => {
                "use another domain, or set MERGE_DOMAIN_CONFIG=true to merge files"
            }
            Self::EmptyKey => "add 'key: ..' to the descriptor",
            Self::DuplicateKey(_) => "remove one of the two, or change its key or value",
            Self::UnitWithUnlimited => "remove 'unit' or 'unlimited'",
            Self::InvalidUnit(unit) => return Some(known_names(unit, &UNITS, "units")),
            Self::EmptyReplaces => "add 'name: ..', the name of the limit to replace",
            Self::ReplacesSelf => "name another limit",
            Self::ShareThreshold(_) => "put a '*' into the value, or remove 'share_threshold'",
            Self::Metadata(_) => "numbers in metadata must be finite",
            Self::PauseWithoutLimit => "add a rate_limit beside it; 'unlimited: true' will do",
        };
        Some(hint.to_owned())
    }
}

/// Returns the known name nearest to `text`, or all of them.
fn known_names(text: &str, known: &[&'static str], what: &str) -> String {
    nearest(text, known.iter().copied()).map_or_else(
        || format!("the {what} are {}", known.join(", ")),
        |known| format!("did you mean '{known}'?"),
    )
}

fn yaml_hint(problem: &Yaml) -> Option<&'static str> {
    match problem {
        Yaml::OpenQuote { .. } => Some("close the quote that opens here"),
        Yaml::NotUtf8 => Some("save the file as UTF-8"),
        Yaml::ControlCharacter => {
            Some("remove the character, or write it as an escape in double quotes")
        }
        Yaml::UnknownAnchor(_) => {
            Some("put the anchor before the alias; a text that begins with '*' needs quotes")
        }
        Yaml::TooDeep { .. } => Some("use fewer levels of descriptors"),
        Yaml::TooLong { .. } | Yaml::TooMany { .. } => Some("split the file by domain"),
        Yaml::TooManyAliased { .. } => Some("use fewer aliases"),
        _ => None,
    }
}

fn wrong_type_hint(expected: &str) -> &'static str {
    match expected {
        "uint32" => "write a whole number from 0 to 4294967295, without quotes",
        "bool" => "write true or false, without quotes",
        "string" => "write a text",
        "config.YamlRateLimit" => "write a map: 'unit: ..' and 'requests_per_unit: ..'",
        "[]config.YamlDescriptor" => "write a list: every descriptor starts with '- key: ..'",
        "[]config.yamlReplaces" => "write a list: '- name: ..'",
        _ => "write a map: 'key: value' lines",
    }
}

/// Returns the candidate that is most similar to `word`, if it differs by few letters.
pub(super) fn nearest<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    // A key can be as long as the file. No candidate is similar to a long one.
    if word.is_empty() || word.len() > 32 {
        return None;
    }
    let word = word.to_lowercase();
    let max_letters = (word.len() / 3).max(1);
    let (letters, candidate) = candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 2 * 32)
        .map(|candidate| (levenshtein(&word, candidate), candidate))
        .min()?;
    (letters <= max_letters).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_word_is_recognised() {
        let table = [
            ("ratelimit", Some("rate_limit")),
            ("requestsperunit", Some("requests_per_unit")),
            ("Domain", Some("domain")),
            ("descriptor", Some("descriptors")),
            ("keys", Some("key")),
            ("limit_of_the_whole_thing", None),
            ("x", None),
        ];
        for (word, expected) in table {
            assert_eq!(nearest(word, KEYS), expected, "{word}");
        }
        assert_eq!(nearest("seconds", UNITS), Some("second"));
        assert_eq!(nearest("foo", UNITS), None);
    }
}
