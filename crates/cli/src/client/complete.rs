//! Completion of words in a shell with what the server has: ids, names, queues and limits.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use serde::Deserialize;
use tokio::runtime;
use tokio::time::timeout;

use crate::client::address::Query;
use crate::client::api_client::ApiClient;
use crate::client::contexts::Contexts;
use crate::client::options::Options;
use crate::client::workflow_ref::WorkflowRef;
use crate::environment::Environment;
use crate::output::exit::CommandResult;
use crate::output::printable::printable;

/// Timeout of a completion. A shell waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Limit of offered words. A person reads no more.
const MAX_WORDS: usize = 100;

/// A word, and what it stands for.
struct Word {
    text: String,
    help: String,
}

#[derive(Debug, Deserialize)]
struct NamedItems {
    items: Vec<NamedItem>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedItem {
    id: String,
    name: String,
    status: String,
    state: String,
}

#[derive(Debug, Deserialize)]
struct Level {
    #[serde(default)]
    domains: Vec<Domain>,
}

#[derive(Debug, Deserialize)]
struct Domain {
    name: String,
    #[serde(default)]
    descriptors: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    limit: Option<Limit>,
    #[serde(default)]
    descriptors: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Limit {
    rule: String,
}

/// Ids of workflows, the newest first, or `name:` and their names.
pub(crate) fn workflow() -> ArgValueCompleter {
    completer(async |remote, current| {
        let items = items("/v1/workflows", remote).await?.into_iter();
        Ok(
            if current.starts_with("n") || current.starts_with("name:") {
                let named = |item: NamedItem| Word {
                    text: format!("name:{}", item.name),
                    help: "the newest of this name".to_owned(),
                };
                items.map(named).collect()
            } else {
                let shown = |item: NamedItem| Word {
                    text: item.id,
                    help: format!("{} {}", item.name, item.status),
                };
                items.map(shown).collect()
            },
        )
    })
}

/// Names of workflows.
pub(crate) fn workflow_name() -> ArgValueCompleter {
    completer(async |remote, _| Ok(names(items("/v1/workflows", remote).await?)))
}

/// Names of the jobs of the workflow that an earlier word names.
pub(crate) fn job() -> ArgValueCompleter {
    completer(async |remote, _| {
        let Some(workflow) = std::env::args().find_map(|word| WorkflowRef::recognized(&word))
        else {
            return Ok(Vec::new());
        };
        let path = format!("{}/jobs", workflow.path(remote).await?);
        Ok(names(items(&path, remote).await?))
    })
}

/// Names of queues.
pub(crate) fn queue() -> ArgValueCompleter {
    completer(async |remote, _| Ok(names(items("/v1/queues", remote).await?)))
}

/// Names of workers.
pub(crate) fn worker() -> ArgValueCompleter {
    completer(async |remote, _| Ok(names(items("/v1/workers", remote).await?)))
}

/// Names of contexts.
pub(crate) fn context() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let contexts = Contexts::read(Environment::read().contexts.as_deref()).unwrap_or_default();
        let names = contexts.by_name.into_keys();
        names
            .filter(|name| {
                current
                    .to_str()
                    .is_some_and(|start| name.starts_with(start))
            })
            .filter(|name| is_plain(name))
            .map(CompletionCandidate::new)
            .collect()
    })
}

/// Domains of limits.
pub(crate) fn domain() -> ArgValueCompleter {
    completer(async |remote, _| {
        let word = |domain: Domain| Word {
            text: domain.name,
            help: String::new(),
        };
        Ok(domains(remote).await?.into_iter().map(word).collect())
    })
}

/// Paths of limits in the configuration.
pub(crate) fn rule() -> ArgValueCompleter {
    fn add(descriptors: Vec<Descriptor>, words: &mut Vec<Word>) {
        for descriptor in descriptors {
            words.extend(descriptor.limit.map(|limit| Word {
                text: limit.rule,
                help: String::new(),
            }));
            add(descriptor.descriptors, words);
        }
    }
    completer(async |remote, _| {
        let mut words = Vec::new();
        for domain in domains(remote).await? {
            add(domain.descriptors, &mut words);
        }
        Ok(words)
    })
}

async fn domains(remote: &ApiClient) -> CommandResult<Vec<Domain>> {
    let level: Level = remote.get_json("/v1/limits/configuration").await?;
    Ok(level.domains)
}

async fn items(path: &str, remote: &ApiClient) -> CommandResult<Vec<NamedItem>> {
    let query = Query::default().with("limit", Some(MAX_WORDS));
    let items: NamedItems = remote.get_json(query.append_to(path)).await?;
    Ok(items.items)
}

/// A word for each name, with the state beside it where there is one.
fn names(items: Vec<NamedItem>) -> Vec<Word> {
    let word = |item: NamedItem| Word {
        text: item.name,
        help: item.state,
    };
    items.into_iter().map(word).collect()
}

/// Whether a shell takes the word as it is. A shell inserts what is offered without quotes, and names
/// come from every caller that may create a workflow.
fn is_plain(word: &str) -> bool {
    let is_safe = |c: char| c.is_alphanumeric() || "._:/@%+=,-".contains(c);
    // A word such as `--server=..` would be an option.
    !word.starts_with(['-', '=']) && word.chars().all(is_safe)
}

/// A completer that offers the words of `read` which begin with the current one. Without an answer
/// of the server in time it offers nothing.
fn completer(
    read: impl AsyncFn(&ApiClient, &str) -> CommandResult<Vec<Word>> + Send + Sync + 'static,
) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let Some(current) = current.to_str() else {
            return Vec::new();
        };
        let words = query(async |remote| read(remote, current).await).unwrap_or_default();
        let mut texts = std::collections::HashSet::new();
        let fits = |word: &Word| {
            word.text.starts_with(current)
                && is_plain(&word.text)
                && texts.insert(word.text.clone())
        };
        let candidate = |word: Word| {
            let help = Some(printable(&word.help)).filter(|help| !help.is_empty());
            CompletionCandidate::new(OsString::from(printable(&word.text)))
                .help(help.map(Into::into))
        };
        words.into_iter().filter(fits).map(candidate).collect()
    })
}

/// Sends requests to the server of the environment. `None`: it did not answer in time.
fn query<T>(read: impl AsyncFnOnce(&ApiClient) -> CommandResult<T>) -> Option<T> {
    let (remote, _) = Options::default().open().ok()?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let answer = runtime.block_on(async { timeout(TIMEOUT, read(&remote)).await });
    // A look-up of a name may still run in a thread, and is not waited for.
    runtime.shutdown_background();
    answer.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_run_or_expand_are_not_offered() {
        for word in [
            "report",
            "01M7Z85C8H08",
            "name:a-b",
            "shop.route_/search",
            "é",
        ] {
            assert!(is_plain(word), "{word}");
        }
        for word in [
            "$(touch x)",
            "`x`",
            "*",
            "a b",
            "a;b",
            "a\nb",
            "~x",
            "a|b",
            "a'b",
            "{a,b}",
            "!x",
            "a>b",
            "--server=x",
            "=x",
        ] {
            assert!(!is_plain(word), "{word}");
        }
    }
}
