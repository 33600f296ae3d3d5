//! Checks the layers of a crate: imports go down, circles, folders and files are small.
//! `tests/it/layers.rs` of each crate includes this file by its path.
//!
//! Findings and known exceptions have the same words:
//! - `net/cores imports rls/call`: a file imports an item of a higher layer;
//! - `engine/claim is in a circle of 5 files`: files import each other, also through others;
//! - `engine has 17 entries`: files and folders in a folder, where `x.rs` and `x/` are one;
//! - `store/write has 503 lines`: lines before the module of tests;
//! - `telemetry/banner belongs to run`: the file has not been moved to its layer yet.
//!
//! A number in a known exception is the most that is allowed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

#[path = "layers/scan.rs"]
mod scan;
#[path = "layers/tree.rs"]
mod tree;

use tree::{Imports, Tree, is_below, is_root, join};

const MAX_CIRCLE_FILES: usize = 3;
const MAX_FOLDER_ENTRIES: usize = 12;
const MAX_FILE_LINES: usize = 500;

/// Rules for the files of a crate.
pub(crate) struct Rules<'a> {
    /// Folders and files below `src`, highest first. Those of one layer may import each other.
    pub(crate) layers: &'a [&'a [&'a str]],
    /// Files and folders with a layer that is below them and that they must not import all the
    /// same.
    pub(crate) never: &'a [(&'a str, &'a str)],
    /// Pairs of files of which one imports the other: the test must not pass because it finds
    /// nothing.
    pub(crate) min_imports: usize,
    /// Exceptions, in the words of the findings.
    pub(crate) known: &'a [&'a str],
}

/// Checks the files below `src` of the crate in `manifest`, its folder.
///
/// # Panics
/// When a rule is broken, or when a known exception is no longer needed.
pub(crate) fn check(manifest: &str, rules: &Rules<'_>) {
    let folder = Path::new(manifest).join("src");
    let mut sources = BTreeMap::new();
    read(&folder, "", &mut sources);
    let problems = problems(&sources, rules);
    assert!(
        problems.is_empty(),
        "{}:\n{}",
        folder.display(),
        problems.join("\n")
    );
}

fn read(folder: &Path, name: &str, sources: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the folder can be listed").path();
        let stem = path.file_stem().expect("an entry has a name");
        let below = join(name, stem.to_str().expect("names are UTF-8"));
        if path.is_dir() {
            read(&path, &below, sources);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source can be read");
            sources.insert(below, text);
        }
    }
}

/// Broken rules of `sources` (path without `.rs` -> text), with what is wrong about `rules`
/// themselves.
pub(crate) fn problems(sources: &BTreeMap<String, String>, rules: &Rules<'_>) -> Vec<String> {
    let tree = Tree::new(sources);
    let imports = tree.imports();
    let mut findings = upward_imports(&tree, &imports, rules);
    findings.extend(circles(&tree, &imports));
    findings.extend(full_folders(&tree));
    findings.extend(long_files(&tree));
    let mut problems = misplaced(&tree, rules);
    for known in rules.known.iter().filter(|known| !known.contains(MOVES)) {
        let needed = findings.len();
        findings.retain(|finding| !finding.is_known(known));
        if findings.len() == needed {
            problems.push(format!(
                "\"{known}\" is no longer so, or names another file: remove it from the known exceptions"
            ));
        }
    }
    problems.extend(findings.iter().map(|f| format!("{}{}", f.text, f.more)));
    if imports.len() < rules.min_imports {
        problems.push(format!(
            "only {} imports were found, fewer than {}: the test shows nothing",
            imports.len(),
            rules.min_imports
        ));
    }
    problems
}

/// A broken rule.
struct Finding {
    files: Vec<String>,
    /// Files, entries or lines; 0 for an import.
    number: usize,
    text: String,
    more: String,
}

impl Finding {
    /// Whether `known` names this finding: the same words for one of its files, with at least its
    /// number.
    fn is_known(&self, known: &str) -> bool {
        let is_number = |word: &&str| word.parse::<usize>().is_ok();
        let allowed = known.split(' ').find(is_number).unwrap_or("0");
        let number = self.number.to_string();
        self.files.iter().any(|file| {
            let own = self.text.replacen(&self.files[0], file, 1);
            own.replacen(&format!(" {number} "), &format!(" {allowed} "), 1) == known
        }) && allowed.parse::<usize>().is_ok_and(|n| n >= self.number)
    }
}

const MOVES: &str = " belongs to ";

/// The layer of a file, by the longest name of a layer or of a known move that it is below.
fn layer_of<'a>(file: &str, rules: &Rules<'a>) -> Option<(usize, &'a str)> {
    let moves = rules
        .known
        .iter()
        .filter_map(|known| known.split_once(MOVES));
    let layers = rules.layers.iter().copied().flatten();
    let (_, layer) = layers
        .map(|layer| (*layer, *layer))
        .chain(moves)
        .filter(|(path, _)| is_below(file, path))
        .max_by_key(|(path, _)| path.len())?;
    let rank = rules.layers.iter().position(|row| row.contains(&layer))?;
    Some((rank, layer))
}

/// Files in no layer, layers and moves without files.
fn misplaced(tree: &Tree, rules: &Rules<'_>) -> Vec<String> {
    let files: Vec<_> = tree.files.keys().filter(|file| !is_root(file)).collect();
    let mut problems = Vec::new();
    let placed: Vec<_> = files.iter().map(|file| layer_of(file, rules)).collect();
    for (file, _) in files.iter().zip(&placed).filter(|(_, at)| at.is_none()) {
        problems.push(format!("{file} is in no layer"));
    }
    for layer in rules.layers.iter().copied().flatten() {
        if !placed.iter().flatten().any(|(_, own)| own == layer) {
            problems.push(format!("the layer {layer} has no file"));
        }
    }
    let moves = rules
        .known
        .iter()
        .filter_map(|known| known.split_once(MOVES));
    for (path, layer) in rules.never.iter().copied().chain(moves) {
        if !files.iter().any(|file| is_below(file, path)) {
            problems.push(format!(
                "there is no {path} any more, whose rule names {layer}"
            ));
        }
    }
    problems
}

fn upward_imports(tree: &Tree, imports: &Imports, rules: &Rules<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ((from, to), import) in imports {
        let Some((own, layer)) = layer_of(from, rules) else {
            continue;
        };
        let target = layer_of(to, rules);
        let name = target.map_or("lib", |(_, name)| name);
        let is_never = rules
            .never
            .iter()
            .any(|(path, other)| is_below(from, path) && name == *other);
        // Definitions of lib.rs are above all layers.
        let is_root = is_root(to) && !tree.files[to].is_facade;
        let reason = match target {
            _ if is_never => format!("{layer} must not import {name} here"),
            Some((rank, _)) if rank < own => format!("the layer {name} is above {layer}"),
            None if is_root => format!("the layer {name} is above {layer}"),
            _ => continue,
        };
        findings.push(Finding {
            files: vec![from.clone()],
            number: 0,
            text: format!("{from} imports {to}"),
            more: format!(
                " at {from}.rs:{} with `{}`: {reason}",
                import.line, import.path
            ),
        });
    }
    findings
}

fn circles(tree: &Tree, imports: &Imports) -> Vec<Finding> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in imports.keys() {
        if !tree.files[from].is_facade && !tree.files[to].is_facade {
            next.entry(from).or_default().push(to);
        }
    }
    let reached: BTreeMap<&str, BTreeMap<&str, &str>> = next
        .keys()
        .map(|file| (*file, reached_from(file, &next)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for (&file, others) in &reached {
        let circle: Vec<&str> = others
            .keys()
            .copied()
            .filter(|other| {
                reached
                    .get(other)
                    .is_some_and(|back| back.contains_key(file))
            })
            .collect();
        let is_new = circle.iter().all(|other| seen.insert(*other));
        if !is_new || circle.len() <= MAX_CIRCLE_FILES {
            continue;
        }
        // One way around, backwards from the first file.
        let mut way = Vec::new();
        let mut at = file;
        while way.is_empty() || at != file {
            let before = others[at];
            let import = &imports[&(before.to_owned(), at.to_owned())];
            way.push(format!(
                "\n    {before}.rs:{} imports {at} with `{}`",
                import.line, import.path
            ));
            at = before;
        }
        way.reverse();
        findings.push(Finding {
            files: circle.iter().map(|file| (*file).to_owned()).collect(),
            number: circle.len(),
            text: format!("{} is in a circle of {} files", circle[0], circle.len()),
            more: format!(
                ", more than {MAX_CIRCLE_FILES}: {}; one way around:{}",
                circle.join(" "),
                way.concat()
            ),
        });
    }
    findings
}

/// Files that imports lead to from `start`, each with the one before it on the shortest way.
fn reached_from<'a>(
    start: &'a str,
    next: &BTreeMap<&'a str, Vec<&'a str>>,
) -> BTreeMap<&'a str, &'a str> {
    let mut before = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for other in next.get(file).into_iter().flatten() {
            before.entry(*other).or_insert_with(|| {
                queue.push_back(other);
                file
            });
        }
    }
    before
}

fn long_files(tree: &Tree) -> Vec<Finding> {
    let lines = tree.files.iter().map(|(file, source)| (file, source.lines));
    lines
        .filter(|(_, lines)| *lines > MAX_FILE_LINES)
        .map(|(file, lines)| Finding {
            files: vec![file.clone()],
            number: lines,
            text: format!("{file} has {lines} lines"),
            more: format!("; a file has at most {MAX_FILE_LINES} without tests"),
        })
        .collect()
}

fn full_folders(tree: &Tree) -> Vec<Finding> {
    let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in tree.files.keys() {
        let mut path = file.as_str();
        while !path.is_empty() {
            let (folder, entry) = path.rsplit_once('/').unwrap_or(("", path));
            folders.entry(folder).or_default().insert(entry);
            path = folder;
        }
    }
    let full = folders
        .iter()
        .filter(|(_, entries)| entries.len() > MAX_FOLDER_ENTRIES);
    full.map(|(folder, entries)| {
        let folder = if folder.is_empty() { "src" } else { folder };
        Finding {
            files: vec![folder.to_owned()],
            number: entries.len(),
            text: format!("{folder} has {} entries", entries.len()),
            more: format!("; a folder has at most {MAX_FOLDER_ENTRIES}, where x.rs and x/ are one"),
        }
    })
    .collect()
}
