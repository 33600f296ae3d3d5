//! The servers that a user has given names to, in a file of the user.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::file;
use crate::output::printable::printable;

/// Limit of the size of the file, in bytes: a thousand servers.
const MAX_BYTES: u64 = 256 * 1024;

/// The file of contexts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The context of commands that name no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// A server with the files that a client of it needs. The token itself is never in it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cacert: Option<PathBuf>,
}

impl Contexts {
    /// Reads the file. There are no contexts without a file, or without a home.
    pub(crate) fn read(path: Option<&Path>) -> CommandResult<Self> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let wrong = |error: &dyn std::fmt::Display| {
            let path = printable(&path.display().to_string());
            Failure::usage(format!(
                "{path}: {error}; correct the file, or remove it and set the contexts again"
            ))
        };
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(wrong(&error)),
            Ok(found) if !found.is_file() => return Err(wrong(&"this is not a regular file")),
            Ok(found) if found.len() > MAX_BYTES => return Err(wrong(&"more than 256 KiB")),
            Ok(_) => {}
        }
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        serde_json::from_str(&text).map_err(|error| wrong(&error))
    }

    /// Writes the file, and makes its folder if needed.
    pub(crate) fn write(&self, path: Option<&Path>) -> CommandResult {
        let Some(path) = path else {
            return Err(Failure::usage(
                "neither XDG_CONFIG_HOME nor HOME is set, so there is no folder for the file of contexts",
            ));
        };
        let text = serde_json::to_string_pretty(self).expect("a map of texts is JSON") + "\n";
        let folder = path.parent().expect("the file has a folder");
        fs::create_dir_all(folder)
            .and_then(|()| file::write(path, &text))
            .map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    format!("{} cannot be written: {error}", path.display()),
                )
            })?;
        Ok(Exit::Done)
    }

    /// The context of this name.
    pub(crate) fn get(&self, name: &str) -> CommandResult<&Context> {
        self.contexts.get(name).ok_or_else(|| self.unknown(name))
    }

    /// The failure that there is no context of this name.
    pub(crate) fn unknown(&self, name: &str) -> Failure {
        let known: Vec<String> = self.contexts.keys().map(|name| printable(name)).collect();
        let name = printable(name);
        Failure::usage(if known.is_empty() {
            format!("no context '{name}': add it with tidegate context set {name} --server URL")
        } else {
            format!("no context '{name}'. Contexts: {}", known.join(", "))
        })
    }
}
