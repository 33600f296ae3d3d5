//! Reference to a workflow: its id, the beginning of its id, its key, or its name.

use serde::Deserialize;

use crate::client::address::{Query, escaped};
use crate::client::api_client::ApiClient;
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::printable::printable;

/// Number of characters of an id, and the minimum of a short form.
const ID_LENGTH: usize = 26;
const MIN_PREFIX_LENGTH: usize = 4;
/// Number of characters that a list shows of an id, if they tell its workflows apart. They hold the
/// time of the creation in milliseconds.
pub(crate) const SHORT_ID_LENGTH: usize = 12;
/// Limit of workflows that an ambiguous reference lists.
const MAX_LISTED: usize = 5;

/// Reference to one workflow, as a person writes it.
#[derive(Debug, Clone)]
pub(crate) struct WorkflowRef(String);

impl From<String> for WorkflowRef {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// A workflow that a `WorkflowRef` may mean.
#[derive(Debug, Deserialize)]
struct WorkflowMatches {
    items: Vec<WorkflowMatch>,
}

#[derive(Debug, Deserialize)]
struct WorkflowMatch {
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    status: String,
}

/// API path of the workflow with this id.
pub(crate) fn path(id: &str) -> String {
    format!("/v1/workflows/{}", escaped(id))
}

impl WorkflowRef {
    /// The reference, if the word is surely one: a name alone is not.
    pub(crate) fn recognized(word: &str) -> Option<Self> {
        let is_reference = word.starts_with("key:")
            || word.starts_with("name:")
            || (is_beginning(word) && word.starts_with('0'))
            || is_id(word);
        is_reference.then(|| Self(word.to_owned()))
    }

    /// The path of the workflow in the API.
    pub(crate) async fn path(&self, remote: &ApiClient) -> CommandResult<String> {
        Ok(path(&self.id(remote).await?))
    }

    /// Resolves the reference to an id. A full id is returned without a request.
    pub(crate) async fn id(&self, remote: &ApiClient) -> CommandResult<String> {
        if let Some(key) = self.0.strip_prefix("key:") {
            let query = Query::default().with("key", Some(key));
            return Ok(remote
                .get_json::<WorkflowMatch>(query.append_to("/v1/workflows:byKey"))
                .await?
                .id);
        }
        if let Some(name) = self.0.strip_prefix("name:") {
            let query = Query::default()
                .with("name", Some(name))
                .with("order", Some("newest"))
                .with("limit", Some(1));
            let found = self.find(&query, remote).await?;
            return found
                .into_iter()
                .next()
                .map(|item| item.id)
                .ok_or_else(|| self.not_found());
        }
        if is_beginning(&self.0) {
            return self.find_by_prefix(remote).await;
        }
        if !is_id(&self.0) {
            return Err(self.not_found());
        }
        Ok(self.0.clone())
    }

    async fn find(&self, query: &Query, remote: &ApiClient) -> CommandResult<Vec<WorkflowMatch>> {
        Ok(remote
            .get_json::<WorkflowMatches>(query.append_to("/v1/workflows"))
            .await?
            .items)
    }

    /// Finds the one workflow whose id begins with the text.
    async fn find_by_prefix(&self, remote: &ApiClient) -> CommandResult<String> {
        let query = Query::default()
            .with("id_prefix", Some(self.0.to_ascii_uppercase()))
            .with("limit", Some(MAX_LISTED + 1));
        let mut found = self.find(&query, remote).await?;
        match found.len() {
            0 => Err(self.not_found()),
            1 => Ok(found.remove(0).id),
            _ => Err(self.ambiguous(&found)),
        }
    }

    fn not_found(&self) -> Failure {
        let text = match self.0.strip_prefix("name:") {
            Some(name) => format!("there is no workflow with the name '{name}'"),
            None => format!(
                "no workflow id begins with '{0}' (at least {MIN_PREFIX_LENGTH} characters of 0-9 and A-Z); for a name, write name:{0}",
                self.0
            ),
        };
        Failure {
            code: Some("workflow_not_found".to_owned()),
            ..Failure::new(Exit::NotFound, text)
        }
    }

    fn ambiguous(&self, found: &[WorkflowMatch]) -> Failure {
        let line = |item: &WorkflowMatch| {
            format!(
                "\n  {}  {}  {}",
                printable(&item.id),
                printable(&item.name),
                printable(&item.status)
            )
        };
        let named: String = found.iter().take(MAX_LISTED).map(line).collect();
        let more = if found.len() > MAX_LISTED {
            "\n  and more"
        } else {
            ""
        };
        Failure::usage(format!(
            "several workflows have ids that begin with '{}':{named}{more}",
            self.0
        ))
    }
}

/// The number of first characters that tell all of these ids apart, and at least
/// `SHORT_ID_LENGTH`.
pub(crate) fn short_length<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    let common = |pair: &[&str]| {
        let same = pair[0].chars().zip(pair[1].chars());
        same.take_while(|(one, other)| one == other).count()
    };
    let longest = ids.windows(2).map(common).max().unwrap_or(0);
    (longest + 1).max(SHORT_ID_LENGTH)
}

/// The first `length` characters of an id.
pub(crate) fn short_id(id: &str, length: usize) -> String {
    id.chars().take(length).collect()
}

/// Whether a text can be the beginning of an id, and is shorter than an id.
fn is_beginning(text: &str) -> bool {
    (MIN_PREFIX_LENGTH..ID_LENGTH).contains(&text.len()) && text.chars().all(is_in_ids)
}

/// Whether a text can be a full id.
fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.chars().all(is_in_ids)
}

/// Ids do not use the letters that look like digits.
fn is_in_ids(c: char) -> bool {
    c.is_ascii_alphanumeric() && !matches!(c.to_ascii_uppercase(), 'I' | 'L' | 'O' | 'U')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_tell_workflows_apart() {
        let check = |ids: &[&str], expected: &[&str]| {
            let length = short_length(ids.iter().copied());
            let short: Vec<String> = ids.iter().map(|id| short_id(id, length)).collect();
            assert_eq!(short, expected);
        };
        check(&[], &[]);
        check(
            &["01M7Z85C8H08RJZ5Q5JGPKMY04", "01M7Z85C9A08RJZ5Q5JGPKMY04"],
            &["01M7Z85C8H08", "01M7Z85C9A08"],
        );
        check(
            &["01M7Z85C8H08RJZ5Q5JGPKMY04", "01M7Z85C8H08RJ05Q5JGPKMY04"],
            &["01M7Z85C8H08RJZ", "01M7Z85C8H08RJ0"],
        );
        check(&["é"], &["é"]);
    }

    #[test]
    fn the_beginning_of_an_id_is_told_from_other_texts() {
        assert!(is_beginning("01M7") && is_beginning("01m7z85c8h"));
        for text in ["01M", "nope", "../queues", "01M7Z85C8H08RJZ5Q5JGPKMY04", ""] {
            assert!(!is_beginning(text), "{text}");
        }
    }
}
