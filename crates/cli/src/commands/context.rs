//! `tidegate context`: names for servers, and the one that other commands call.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::client::complete;
use crate::client::contexts::{Context, Contexts};
use crate::client::options::Options;
use crate::environment::{DEFAULT_SERVER, Environment};
use crate::output::exit::{CommandResult, Exit};
use crate::output::table::{Cell, Table};
use crate::output::{ListItem, Screen, print};

/// Limit of the length of a name, in bytes.
const MAX_NAME_BYTES: usize = 63;

/// Give servers names, and choose the one that commands call.
#[derive(Debug, Args)]
pub struct ContextCommand {
    #[command(subcommand)]
    verb: ContextVerb,
}

#[derive(Debug, Subcommand)]
enum ContextVerb {
    /// List contexts; a star marks the current one
    List,
    /// Add or replace a context: a name for --server, --token-file and --cacert
    Set(NewContextName),
    /// Make a context the current one
    Use(ContextName),
    /// Remove a context
    Rm(ContextName),
}

#[derive(Debug, Args)]
struct NewContextName {
    /// Name of the context: letters, digits, '.', '_' and '-'
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
}

#[derive(Debug, Args)]
struct ContextName {
    /// Name of the context
    #[arg(value_name = "NAME", add = complete::context())]
    name: String,
}

/// A context as the list shows it.
#[derive(Debug, Serialize, Deserialize)]
struct ContextRow {
    name: String,
    #[serde(flatten)]
    context: Context,
    current: bool,
}

impl ContextCommand {
    /// Runs the command. It calls no server.
    pub(crate) fn run(self, options: &Options) -> CommandResult {
        let environment = Environment::read();
        let path = environment.contexts.as_deref();
        match self.verb {
            ContextVerb::List => list(Contexts::read(path)?, &options.screen()),
            ContextVerb::Set(context) => set(context.name, options, path),
            ContextVerb::Use(context) => select(context.name, &environment),
            ContextVerb::Rm(context) => remove(&context.name, &environment),
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && !text.starts_with('-')
        && text.chars().all(is_plain);
    if is_name {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "expected at most {MAX_NAME_BYTES} letters, digits, '.', '_' and '-', and no '-' in front"
        ))
    }
}

fn list(contexts: Contexts, screen: &Screen) -> CommandResult {
    let Contexts { current, by_name } = contexts;
    let rows = by_name.into_iter().map(|(name, context)| {
        let current = current.as_ref() == Some(&name);
        to_raw_value(&ContextRow {
            name,
            context,
            current,
        })
        .expect("a row is JSON")
    });
    let rows: Vec<Box<RawValue>> = rows.collect();
    screen.list::<ContextRow>(&rows, None, |row| {
        Ok(serde_json::from_str(row).expect("a row is read as it was written"))
    })
}

fn set(name: String, options: &Options, path: Option<&Path>) -> CommandResult {
    let context = options.to_context()?;
    let server = context.server.clone();
    let is_first = Contexts::change(path, |contexts| {
        contexts.by_name.insert(name.clone(), context);
        let is_first = contexts.current.is_none();
        contexts.current.get_or_insert_with(|| name.clone());
        Ok(is_first)
    })?;
    let current = if is_first {
        ", the current context"
    } else {
        ""
    };
    print(&format!("{name} is {server}{current}\n"))?;
    Ok(Exit::Done)
}

fn select(name: String, environment: &Environment) -> CommandResult {
    let server = Contexts::change(environment.contexts.as_deref(), |contexts| {
        let server = contexts.get(&name)?.server.clone();
        contexts.current = Some(name);
        Ok(server)
    })?;
    print(&called(&server, environment))?;
    Ok(Exit::Done)
}

fn remove(name: &str, environment: &Environment) -> CommandResult {
    let was_current = Contexts::change(environment.contexts.as_deref(), |contexts| {
        contexts.remove(name)?;
        let removed = contexts.current.take_if(|current| current == name);
        Ok(removed.is_some())
    })?;
    let called = if was_current {
        called(DEFAULT_SERVER, environment)
    } else {
        String::new()
    };
    print(&format!("removed {name}\n{called}"))?;
    Ok(Exit::Done)
}

/// The server that commands call from now on, as a line. `server` is that without a variable.
fn called(server: &str, environment: &Environment) -> String {
    if environment.server.is_some() {
        "TIDEGATE_SERVER is set, and commands call its server instead\n".to_owned()
    } else {
        format!("commands call {server}\n")
    }
}

impl ListItem for ContextRow {
    const NOTHING: &str = "no contexts: add one with tidegate context set NAME --server URL\n";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(rows: &[Self], screen: &Screen) -> String {
        let mut table = Table::new(&["", "NAME", "SERVER", "TOKEN FILE", "CACERT"]);
        let shown = |path: &Option<PathBuf>| {
            let path = path.as_ref();
            path.map(|path| path.display().to_string())
                .unwrap_or_default()
        };
        for row in rows {
            table.add_row(vec![
                Cell::from(if row.current { "*" } else { "" }),
                Cell::from(row.name.clone()),
                Cell::from(row.context.server.clone()),
                Cell::from(shown(&row.context.token_file)),
                Cell::from(shown(&row.context.cacert)),
            ]);
        }
        table.text(screen)
    }
}
