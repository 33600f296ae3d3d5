//! Templates of metric names and label values.

use regex_lite::Regex;

/// A text with placeholders. `$1` stands for the part of the name that the first asterisk or group
/// matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Number of the group, counted from 1; 0 is the whole name.
    Group(usize),
}

impl Template {
    /// A text without placeholders.
    #[cfg(test)]
    pub(crate) fn text(text: &str) -> Self {
        Self(vec![Piece::Text(text.to_owned())])
    }

    /// Parses the template of a glob with `asterisks` asterisks. A placeholder is `$` and the
    /// longest word after it, with or without braces. A word that is not the number of an asterisk
    /// becomes an empty text.
    pub(super) fn of_glob(text: &str, asterisks: usize) -> Self {
        Self::read(text, |rest| {
            let inner = rest.strip_prefix('{').unwrap_or(rest);
            let end = inner
                .find(|c: char| !is_of_word(c) && c != '$')
                .unwrap_or(inner.len());
            let (word, after) = inner.split_at(end);
            let group = word
                .parse()
                .ok()
                .filter(|group| (1..=asterisks).contains(group));
            (!word.is_empty()).then(|| {
                (
                    group.map(Piece::Group),
                    after.strip_prefix('}').unwrap_or(after),
                )
            })
        })
    }

    /// Parses the template of a regular expression, which may also name groups. `$$` is a dollar
    /// sign. A group that does not exist becomes an empty text.
    pub(super) fn of_regex(text: &str, regex: &Regex) -> Self {
        let names: Vec<_> = regex.capture_names().collect();
        Self::read(text, |rest| {
            if let Some(after) = rest.strip_prefix('$') {
                return Some((Some(Piece::Text("$".to_owned())), after));
            }
            let (word, after) = match rest.strip_prefix('{') {
                Some(inner) => inner.split_once('}')?,
                None => rest.split_at(rest.find(|c| !is_of_word(c)).unwrap_or(rest.len())),
            };
            if word.is_empty() || !word.chars().all(is_of_word) {
                return None;
            }
            let group = match word.parse::<usize>() {
                Ok(number) => Some(number).filter(|number| *number < names.len()),
                Err(_) => names.iter().position(|name| *name == Some(word)),
            };
            Some((group.map(Piece::Group), after))
        })
    }

    /// Parses a template. `piece` parses the text after a dollar sign, and returns the placeholder,
    /// if any, and the rest. If it returns `None`, the dollar sign is literal.
    fn read(text: &str, piece: impl Fn(&str) -> Option<(Option<Piece>, &str)>) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            pieces.push(Piece::Text(before.to_owned()));
            rest = match piece(after) {
                Some((piece, after)) => {
                    pieces.extend(piece);
                    after
                }
                None => {
                    pieces.push(Piece::Text("$".to_owned()));
                    after
                }
            };
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Self(pieces)
    }

    /// The text, with the placeholders replaced by the groups of a name.
    pub(crate) fn fill<'g>(&self, group: impl Fn(usize) -> &'g str) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Group(number) => group(*number).to_owned(),
        };
        self.0.iter().map(text).collect()
    }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_after_a_dollar_sign_are_groups() {
        let group = |number| ["whole", "one", "two"][number];
        for (text, by_glob, by_regex) in [
            ("plain", "plain", "plain"),
            ("$1-$2", "one-two", "one-two"),
            ("${1}_x", "one_x", "one_x"),
            ("$1_x", "", ""),
            ("$1$2", "", "onetwo"),
            ("$3", "", ""),
            ("$0", "", "whole"),
            ("$name", "", "two"),
            ("100$", "100$", "100$"),
            ("$ $", "$ $", "$ $"),
            ("$$", "", "$"),
            ("$$1", "", "$1"),
            ("$${1}", "{1}", "${1}"),
            ("${x", "", "${x"),
        ] {
            let regex = Regex::new("(a)(?<name>b)").unwrap();
            let glob = Template::of_glob(text, 2);
            let regex = Template::of_regex(text, &regex);
            assert_eq!(
                (glob.fill(group).as_str(), regex.fill(group).as_str()),
                (by_glob, by_regex),
                "{text}"
            );
        }
    }
}
