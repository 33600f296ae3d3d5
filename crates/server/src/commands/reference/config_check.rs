//! `ratelimit_config_check`: checks that the files of a folder are valid limits.

use std::{fs, io};

use tidegate_ratelimit::{ConfigError, Configuration, SameDomain, Source};

use super::flags::{Flag, FlagKind, FlagValues};
use super::{ToolFailure, fail_with, go_error, print_line};
use crate::rls::reload::read_regular;

const FOLDER: &str = "config_dir";
const MERGE: &str = "merge_domain_configs";

pub(super) const FLAGS: [Flag; 2] = [
    Flag {
        name: FOLDER,
        kind: FlagKind::Text,
        default: "",
        usage: "the folder with the files; folders in it are not read",
    },
    Flag {
        name: MERGE,
        kind: FlagKind::Switch,
        default: "false",
        usage: "allow several files for one domain",
    },
];

/// Runs the tool like the reference, but reports all mistakes, including those in YAML.
pub(super) fn run(flag_values: &FlagValues) -> Result<(), ToolFailure> {
    let folder = flag_values.text(&FLAGS, FOLDER);
    print_line("checking rate limit configs...")?;
    print_line(&format!("loading config directory: {folder}"))?;
    let sources = read_folder(folder)?;
    let same_domain = if flag_values.is_on(&FLAGS, MERGE) {
        SameDomain::Merge
    } else {
        SameDomain::Refuse
    };
    match Configuration::load(&sources, same_domain) {
        Ok(_) => print_line("all rate limit configs ok"),
        Err(errors) => {
            let line = |error: &ConfigError| {
                format!(
                    "error loading rate limit configs: {}",
                    error.reference_text()
                )
            };
            fail_with(&errors.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// Reads all files of a folder, and prints the name of each.
fn read_folder(folder: &str) -> Result<Vec<Source>, ToolFailure> {
    let names = match file_names(folder) {
        Ok(names) => names,
        Err(error) => {
            let error = go_error("open", folder, &error);
            return fail_with(&format!("error opening directory {folder}: {error}"));
        }
    };
    let mut sources = Vec::new();
    for file in names {
        let name = join_path(folder, &file);
        print_line(&format!("opening config file: {name}"))?;
        match read_regular(name.as_ref()) {
            Ok(text) => sources.push(Source { name, text }),
            Err(error) => {
                let error = go_error("read", &name, &error);
                return fail_with(&format!("error reading file {name}: {error}"));
            }
        }
    }
    Ok(sources)
}

/// Names of all entries of the folder, sorted.
fn file_names(folder: &str) -> io::Result<Vec<String>> {
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
fn join_path(folder: &str, file: &str) -> String {
    let folder = folder.trim_end_matches('/');
    match folder.strip_prefix("./").unwrap_or(folder) {
        "." => file.to_owned(),
        "" => format!("/{file}"),
        folder => format!("{folder}/{file}"),
    }
}
