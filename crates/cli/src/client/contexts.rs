//! The servers that a user has given names to, in a file of the user.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::client::address::ServerAddress;
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::file;
use crate::output::printable::printable;

/// Limit of the size of the file, in bytes: a thousand servers.
const MAX_BYTES: u64 = 256 * 1024;

const NO_FOLDER_TEXT: &str =
    "neither XDG_CONFIG_HOME nor HOME is set, so there is no folder for the file of contexts";

const TOO_LARGE_TEXT: &str =
    "the file of contexts would have more than 256 KiB; remove some with tidegate context rm NAME";

/// The file of contexts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The context of commands that name no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default, rename = "contexts")]
    pub(crate) by_name: BTreeMap<String, Context>,
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
        // A list would be read as the fields in their order.
        if !text.trim_start().starts_with('{') {
            return Err(wrong(&"expected an object with contexts"));
        }
        let contexts: Self = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        contexts.check_servers().map_err(|error| wrong(&error))?;
        Ok(contexts)
    }

    fn check_servers(&self) -> Result<(), String> {
        for (name, context) in &self.by_name {
            ServerAddress::parse(&context.server)
                .map_err(|reason| format!("the context '{}': {reason}", printable(name)))?;
        }
        Ok(())
    }

    /// Reads the file, and writes it with a change. Other processes wait meanwhile.
    pub(crate) fn change<T>(
        path: Option<&Path>,
        change: impl FnOnce(&mut Self) -> CommandResult<T>,
    ) -> CommandResult<T> {
        let Some(path) = path else {
            return Err(Failure::usage(NO_FOLDER_TEXT));
        };
        let failed = |error| {
            let path = path.display();
            Failure::new(Exit::Failed, format!("{path} cannot be written: {error}"))
        };
        // The lock ends when this is dropped.
        let _lock = lock(path).map_err(failed)?;
        let mut contexts = Self::read(Some(path))?;
        let changed = change(&mut contexts)?;
        let text = serde_json::to_string_pretty(&contexts).expect("a map of texts is JSON") + "\n";
        if text.len() as u64 > MAX_BYTES {
            return Err(Failure::usage(TOO_LARGE_TEXT));
        }
        file::write(path, &text).map_err(failed)?;
        Ok(changed)
    }

    /// The context of this name.
    pub(crate) fn get(&self, name: &str) -> CommandResult<&Context> {
        self.by_name.get(name).ok_or_else(|| self.unknown(name))
    }

    /// Removes the context of this name.
    pub(crate) fn remove(&mut self, name: &str) -> CommandResult<Context> {
        let removed = self.by_name.remove(name);
        removed.ok_or_else(|| self.unknown(name))
    }

    /// The failure that there is no context of this name.
    fn unknown(&self, name: &str) -> Failure {
        let known: Vec<String> = self.by_name.keys().map(|name| printable(name)).collect();
        let name = printable(name);
        Failure::usage(if known.is_empty() {
            format!("no context '{name}': add it with tidegate context set {name} --server URL")
        } else {
            format!("no context '{name}'. Contexts: {}", known.join(", "))
        })
    }
}

/// Locks the file of contexts with a file beside it, and makes their folder if needed. Another
/// process holds the lock for milliseconds.
fn lock(path: &Path) -> io::Result<File> {
    fs::create_dir_all(path.parent().expect("the file has a folder"))?;
    // The file itself is replaced at each change, so a lock of it would be of the old one.
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.with_extension("lock"))?;
    file.lock()?;
    Ok(file)
}
