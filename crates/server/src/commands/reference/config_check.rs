//! `ratelimit_config_check`: checks that the files of a folder are valid limits.

use std::fs;
use std::io;

use tidegate_ratelimit::{ConfigError, Configuration, SameDomain, Source};

use super::flags::{Flag, Given, Kind};
use super::{Failed, fail, go_error, say};
use crate::reload::read_regular;

const FOLDER: &str = "config_dir";
const MERGE: &str = "merge_domain_configs";

pub(super) const FLAGS: [Flag; 2] = [
    Flag {
        name: FOLDER,
        kind: Kind::Text,
        default: "",
        usage: "the folder with the files; folders in it are not read",
    },
    Flag {
        name: MERGE,
        kind: Kind::Switch,
        default: "false",
        usage: "allow several files for one domain",
    },
];

/// Runs the tool like the reference, but reports all mistakes, including those in YAML.
pub(super) fn run(given: &Given) -> Result<(), Failed> {
    let folder = given.text(&FLAGS, FOLDER);
    say("checking rate limit configs...")?;
    say(&format!("loading config directory: {folder}"))?;
    let names = match names(folder) {
        Ok(names) => names,
        Err(error) => {
            return fail(&format!(
                "error opening directory {folder}: {}",
                go_error("open", folder, &error)
            ));
        }
    };
    let mut sources = Vec::new();
    for file in names {
        let name = joined(folder, &file);
        say(&format!("opening config file: {name}"))?;
        match read_regular(name.as_ref()) {
            Ok(text) => sources.push(Source { name, text }),
            Err(error) => {
                return fail(&format!(
                    "error reading file {name}: {}",
                    go_error("read", &name, &error)
                ));
            }
        }
    }
    let same_domain = if given.is_on(&FLAGS, MERGE) {
        SameDomain::Merge
    } else {
        SameDomain::Refuse
    };
    match Configuration::load(&sources, same_domain) {
        Ok(_) => say("all rate limit configs ok"),
        Err(errors) => {
            let line = |error: &ConfigError| {
                format!(
                    "error loading rate limit configs: {}",
                    error.reference_text()
                )
            };
            fail(&errors.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// Names of all entries of the folder, sorted.
fn names(folder: &str) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let mut names = fs::read_dir(folder)?
        .map(name)
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// A path in the form of the reference: without a leading `./`, and without slashes at the end of
/// the folder.
fn joined(folder: &str, file: &str) -> String {
    let folder = folder.trim_end_matches('/');
    match folder.strip_prefix("./").unwrap_or(folder) {
        "." => file.to_owned(),
        "" => format!("/{file}"),
        folder => format!("{folder}/{file}"),
    }
}
