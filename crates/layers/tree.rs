//! The files and modules of a crate, and what they import.

use std::collections::BTreeMap;

use super::scan::{Module, Scan};

/// Bounds how often a name is followed through re-exports, because `use` can name itself.
const MAX_RE_EXPORTS: usize = 16;

/// Pairs of files of which the first imports the second, with the first such place.
pub(super) type Imports = BTreeMap<(String, String), Import>;

#[derive(Clone)]
pub(super) struct Import {
    pub(super) line: usize,
    pub(super) path: String,
}

/// The files and modules of a crate, without those that only tests need.
pub(super) struct Tree {
    pub(super) files: BTreeMap<String, Source>,
    /// By path, `engine/claim`; the root is empty. A module in braces belongs to the file around
    /// it.
    modules: BTreeMap<String, Module>,
}

pub(super) struct Source {
    pub(super) lines: usize,
    /// The file only declares modules and re-exports.
    pub(super) is_facade: bool,
}

impl Tree {
    pub(super) fn new(sources: &BTreeMap<String, String>) -> Self {
        let mut tree = Self {
            files: BTreeMap::new(),
            modules: BTreeMap::new(),
        };
        let mut of_tests = Vec::new();
        for (file, text) in sources {
            let mut scan = Scan::new(file, text);
            scan.file();
            of_tests.append(&mut scan.of_tests);
            let lines = text.split("\n#[cfg(test)]\nmod tests {").next();
            let source = Source {
                lines: lines.unwrap_or_default().lines().count(),
                is_facade: scan.is_facade,
            };
            tree.files.insert(file.clone(), source);
            // The program names its library as another crate.
            if file != "main" {
                tree.modules.extend(scan.modules);
            }
        }
        let is_left_out = |path: &String| {
            of_tests.iter().any(|test| is_below(path, test))
                || path.split('/').any(|part| part == "gen")
        };
        tree.files.retain(|file, _| !is_left_out(file));
        tree.modules
            .retain(|path, module| !is_left_out(path) && !is_left_out(&module.file));
        tree
    }

    pub(super) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (path, module) in &self.modules {
            for (line, segments) in &module.paths {
                let Some(file) = self
                    .find(path, segments, 0)
                    .map(|to| &self.modules[&to].file)
                else {
                    continue;
                };
                if *file != module.file {
                    let import = Import {
                        line: *line,
                        path: segments.join("::"),
                    };
                    let pair = (module.file.clone(), file.clone());
                    let first = imports.entry(pair).or_insert_with(|| import.clone());
                    if first.line > *line {
                        *first = import;
                    }
                }
            }
        }
        imports
    }

    /// The module that defines what `segments` name in `from`; `None` for other crates.
    fn find(&self, from: &str, segments: &[String], depth: usize) -> Option<String> {
        if depth > MAX_RE_EXPORTS {
            return None;
        }
        let mut base = from;
        let mut rest = segments;
        let mut is_rooted = false;
        while let [head, tail @ ..] = rest {
            base = match head.as_str() {
                "crate" => "",
                "self" => base,
                "super" => base.rsplit_once('/').map_or("", |(parent, _)| parent),
                _ => break,
            };
            is_rooted = true;
            rest = tail;
        }
        if !is_rooted && !self.has(base, &rest[0], depth) {
            return None;
        }
        self.walk(base, rest, depth)
    }

    fn has(&self, module: &str, name: &str, depth: usize) -> bool {
        self.modules.get(module).is_some_and(|own| {
            own.defined.contains(name)
                || own.bound.contains_key(name)
                || self.modules.contains_key(&join(module, name))
                || self.glob(module, name, depth).is_some()
        })
    }

    /// The module whose names `use ..::*` brings into `module` and that has `name`.
    fn glob(&self, module: &str, name: &str, depth: usize) -> Option<String> {
        self.modules[module].globs.iter().find_map(|path| {
            let target = self.find(module, path, depth + 1)?;
            (target != module && self.has(&target, name, depth + 1)).then_some(target)
        })
    }

    fn walk(&self, module: &str, rest: &[String], depth: usize) -> Option<String> {
        let own = self.modules.get(module)?;
        let [name, tail @ ..] = rest else {
            return Some(module.to_owned());
        };
        let child = join(module, name);
        let bound = own.bound.get(name).map(|path| [path, tail].concat());
        if tail.is_empty() && own.defined.contains(name) {
            return Some(module.to_owned());
        }
        match bound {
            Some(path) if tail.is_empty() => self.find(module, &path, depth + 1),
            _ if self.modules.contains_key(&child) => self.walk(&child, tail, depth),
            Some(path) => self.find(module, &path, depth + 1),
            None if own.defined.contains(name) => Some(module.to_owned()),
            None => match self.glob(module, name, depth) {
                Some(target) => self.walk(&target, rest, depth + 1),
                None => Some(module.to_owned()),
            },
        }
    }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if is_root(path) {
        name.to_owned()
    } else {
        format!("{path}/{name}")
    }
}

/// Whether `path` is a folder or file, or something below it.
pub(super) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the file is the root of the crate: it is above all layers.
pub(super) fn is_root(file: &str) -> bool {
    ["", "lib", "main"].contains(&file)
}
