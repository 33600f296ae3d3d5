//! Query of a URL, and the escapes of a URL.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tidegate_workflow::{IdPrefix, InvalidPrefix, MAX_NAME, Status, Timestamp};

use super::problem::Problem;
use super::{duration_text, time};

/// Most pairs of a query: several times the number of parameters of any path.
const MAX_PAIRS: usize = 32;

/// Pairs of a query, each of which is taken once. A pair that is left over is an error.
#[derive(Debug)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn new(text: Option<&str>) -> Result<Self, Problem> {
        let (query, _) = Self::with_list(text, "", 0)?;
        Ok(query)
    }

    /// Reads a query in which the parameter `list` may appear `max` times. Returns its values, too.
    pub(crate) fn with_list(
        text: Option<&str>,
        list: &str,
        max: usize,
    ) -> Result<(Self, Vec<String>), Problem> {
        let mut query = Self { pairs: Vec::new() };
        let mut listed = Vec::new();
        let text = text.unwrap_or_default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = decode_pair(pair)?;
            if max == 0 || name != list {
                query.add(name, value)?;
            } else if listed.len() < max {
                listed.push(value);
            } else {
                let reason = format!("the parameter appears more than {max} times");
                return Err(Problem::field(name, reason));
            }
        }
        Ok((query, listed))
    }

    fn add(&mut self, name: String, value: String) -> Result<(), Problem> {
        if self.pairs.len() == MAX_PAIRS {
            let reason = format!("there are more than {MAX_PAIRS} parameters");
            return Err(Problem::field(name, reason));
        }
        if self.pairs.iter().any(|(known, _)| *known == name) {
            return Err(Problem::field(name, "the parameter appears twice"));
        }
        self.pairs.push((name, value));
        Ok(())
    }

    /// Takes a value. An empty one counts as not given.
    pub(crate) fn remove(&mut self, name: &str) -> Option<String> {
        let index = self.pairs.iter().position(|(known, _)| known == name)?;
        Some(self.pairs.swap_remove(index).1).filter(|value| !value.is_empty())
    }

    /// Takes the cursor of a page, such as "a page of jobs".
    pub(crate) fn cursor<T>(
        &mut self,
        page: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let read = |text: String| parse(&text).ok_or_else(|| Problem::invalid_cursor(page));
        self.remove("cursor").map(read).transpose()
    }

    /// Takes the cursor of a page by name: the last name of the page before.
    pub(crate) fn name_cursor(&mut self, page: &str) -> Result<Option<String>, Problem> {
        self.cursor(page, |text| {
            let is_name = text.len() <= MAX_NAME && !text.chars().any(char::is_control);
            is_name.then(|| text.to_owned())
        })
    }

    pub(crate) fn time(&mut self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let wrong = || Problem::field(name, "expected a time such as 2026-11-21T12:00:00Z");
        // The plus sign of a time zone arrives as a space if the client has not escaped it.
        let zoned = |text: String| match text.rsplit_once(' ') {
            Some((moment, zone)) if moment.contains('T') => format!("{moment}+{zone}"),
            _ => text,
        };
        self.remove(name)
            .map(|text| time::parse(&zoned(text)).ok_or_else(wrong))
            .transpose()
    }

    /// Takes a duration of at most `max`.
    pub(crate) fn duration(
        &mut self,
        name: &str,
        max: Duration,
    ) -> Result<Option<Duration>, Problem> {
        let Some(text) = self.remove(name) else {
            return Ok(None);
        };
        let read = duration_text::parse(&text).filter(|span| *span <= max);
        let max = max.as_secs();
        let wrong = || {
            Problem::field(
                name,
                format!("expected a time span with a unit, such as 30s, of at most {max}s"),
            )
        };
        read.map(Some).ok_or_else(wrong)
    }

    /// Takes the prefix of ids.
    pub(crate) fn id_prefix(&mut self) -> Result<Option<IdPrefix>, Problem> {
        let read = |text: String| {
            text.parse()
                .map_err(|error: InvalidPrefix| Problem::field("id_prefix", error.to_string()))
        };
        self.remove("id_prefix").map(read).transpose()
    }

    /// Takes a number from 1 to `max`.
    pub(crate) fn limit(&mut self, default: usize, max: usize) -> Result<usize, Problem> {
        let Some(text) = self.remove("limit") else {
            return Ok(default);
        };
        let read = text
            .parse()
            .ok()
            .filter(|number| (1..=max).contains(number));
        read.ok_or_else(|| Problem::field("limit", format!("expected a number from 1 to {max}")))
    }

    pub(crate) fn statuses(&mut self) -> Result<Vec<Status>, Problem> {
        let text = self.remove("status");
        text.iter()
            .flat_map(|text| text.split(','))
            .map(|word| status(word, "status"))
            .collect()
    }

    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.pairs.into_iter().next() {
            Some((name, _)) => Err(Problem::field(name, "this parameter is unknown")),
            None => Ok(()),
        }
    }
}

/// Returns the name and the value of `name=value`, without their escapes.
fn decode_pair(pair: &str) -> Result<(String, String), Problem> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let decoded = |text: &str| {
        let wrong = || Problem::field(name, "after decoding its %-escapes it is not UTF-8");
        unescaped(&text.replace('+', " ")).ok_or_else(wrong)
    };
    Ok((decoded(name)?, decoded(value)?))
}

/// The status that a word stands for.
pub(crate) fn status(word: &str, path: &str) -> Result<Status, Problem> {
    let known = Status::ALL.into_iter().find(|status| status.word() == word);
    known.ok_or_else(|| {
        let words = Status::ALL.map(Status::word).join(", ");
        Problem::field(
            path,
            format!("'{word}' is not a status; expected one of {words}"),
        )
    })
}

/// Undoes %-escapes. `None` if the result is not UTF-8. A `%` that begins no escape stays, as the
/// URL standard says.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    percent_decode_str(text)
        .decode_utf8()
        .ok()
        .map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        for (text, expected) in [
            ("a", Some("a")),
            ("%C3%a9%20%25", Some("é %")),
            ("a+b", Some("a+b")),
            ("%", Some("%")),
            ("%4", Some("%4")),
            ("%+1", Some("%+1")),
            ("%ff", None),
        ] {
            assert_eq!(unescaped(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_plus_in_a_time_may_be_escaped_or_not() {
        for text in [
            "1970-01-02T01:00:00%2B01:00",
            "1970-01-02T01:00:00+01:00",
            "1970-01-02 00:00:00Z",
        ] {
            let moment = Query::new(Some(&format!("at={text}")))
                .unwrap()
                .time("at")
                .unwrap();
            assert_eq!(
                moment,
                Some(Timestamp::from_micros(86_400_000_000)),
                "{text}"
            );
        }
    }

    #[test]
    fn every_pair_must_be_wanted_and_alone() {
        let mut query = Query::new(Some("limit=7&tag=a+b%26c&status=&x=1")).unwrap();
        assert_eq!(query.limit(100, 1_000).unwrap(), 7);
        assert_eq!(query.remove("tag").as_deref(), Some("a b&c"));
        assert_eq!(query.statuses().unwrap(), []);
        assert!(query.finish().is_err());
        assert!(Query::new(Some("status=,")).unwrap().statuses().is_err());
        assert!(Query::new(Some("a=1&a=2")).is_err());
        let pairs = |count: usize| (0..count).map(|at| format!("p{at}=&")).collect::<String>();
        assert!(Query::new(Some(&pairs(MAX_PAIRS))).is_ok());
        assert!(Query::new(Some(&pairs(MAX_PAIRS + 1))).is_err());
        assert!(Query::new(None).unwrap().finish().is_ok());
        let list = |text| Query::with_list(Some(text), "a", 2);
        let (query, listed) = list("a=1&b=2&a=%26").unwrap();
        assert!(listed == ["1", "&"] && query.finish().is_err());
        assert!(list("a=1&a=2&a=3").is_err() && list("b=1&b=2").is_err());
    }
}
