//! Reads a source: its modules, what they define and what they name, in code without tests.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{is_root, join};

/// Words that begin an item whose next word is its name.
const ITEMS: [&str; 8] = [
    "fn", "struct", "enum", "trait", "type", "const", "static", "union",
];

/// Words that can be before the name of an item. An item with one of them has no comma at its end.
const BEFORE_ITEMS: [&str; 9] = [
    "mod",
    "use",
    "impl",
    "let",
    "unsafe",
    "async",
    "extern",
    "macro_rules",
    "move",
];

#[derive(Default)]
pub(super) struct Module {
    pub(super) file: String,
    pub(super) defined: BTreeSet<String>,
    /// Names that `use` brings in, with what they stand for.
    pub(super) bound: BTreeMap<String, Vec<String>>,
    pub(super) globs: Vec<Vec<String>>,
    /// Paths that the code names, with their lines.
    pub(super) paths: Vec<(usize, Vec<String>)>,
}

pub(super) struct Scan {
    tokens: Vec<Token>,
    at: usize,
    file: String,
    /// Modules in braces around `at`, with the depth of their braces. The first is that of the
    /// file.
    open: Vec<(String, usize)>,
    depth: usize,
    pub(super) modules: BTreeMap<String, Module>,
    /// Modules that only tests have, in other files.
    pub(super) of_tests: Vec<String>,
    pub(super) is_facade: bool,
}

impl Scan {
    /// `file` is its path below `src` without `.rs`.
    pub(super) fn new(file: &str, text: &str) -> Self {
        let path = if is_root(file) { "" } else { file };
        let mut scan = Self {
            tokens: tokens(text),
            at: 0,
            file: file.to_owned(),
            open: Vec::new(),
            depth: 0,
            modules: BTreeMap::new(),
            of_tests: Vec::new(),
            is_facade: true,
        };
        scan.enter(path.to_owned());
        scan
    }

    fn enter(&mut self, path: String) {
        let module = Module {
            file: self.file.clone(),
            ..Module::default()
        };
        self.open.push((path.clone(), self.depth));
        self.modules.insert(path, module);
    }

    fn word(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    fn module(&mut self) -> &mut Module {
        let (path, _) = self.open.last().expect("the module of the file is open");
        self.modules.get_mut(path).expect("an open module is known")
    }

    pub(super) fn file(&mut self) {
        while self.at < self.tokens.len() {
            match self.word(self.at) {
                "#" => self.attribute(),
                "use" if self.word(self.at + 1) != "<" => self.imports(),
                "mod" if self.word(self.at + 2) == ";" => self.at += 3,
                "mod" if self.word(self.at + 2) == "{" => {
                    self.is_facade = false;
                    let path = join(
                        &self.open.last().expect("one is open").0,
                        self.word(self.at + 1),
                    );
                    self.depth += 1;
                    self.enter(path);
                    self.at += 3;
                }
                "pub" => {
                    self.at += 1;
                    if self.word(self.at) == "(" {
                        self.at = self.after_group(self.at);
                    }
                }
                _ => self.code(),
            }
        }
    }

    fn code(&mut self) {
        self.is_facade = false;
        let at = self.at;
        let word = self.word(at).to_owned();
        match word.as_str() {
            "{" => self.depth += 1,
            "}" => {
                if self.open.len() > 1
                    && self
                        .open
                        .last()
                        .is_some_and(|(_, depth)| *depth == self.depth)
                {
                    self.open.pop();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            "macro_rules" => self.define(at + 2),
            _ if ITEMS.contains(&&*word) => self.define(at + 1),
            _ => self.at = self.path(at),
        }
        self.at += 1;
    }

    /// Notes the path that begins at `at`, if one does. Returns the index of its last word.
    fn path(&mut self, at: usize) -> usize {
        let mut path = vec![self.word(at).to_owned()];
        let mut end = at;
        while self.word(end + 1) == "::" && is_name(self.word(end + 2)) {
            end += 2;
            path.push(self.word(end).to_owned());
        }
        if path.len() > 1 && is_name(&path[0]) && (at == 0 || self.word(at - 1) != "::") {
            let line = self.tokens[at].line;
            self.module().paths.push((line, path));
        }
        end
    }

    /// Items in functions and types are names of those.
    fn define(&mut self, at: usize) {
        let (_, depth) = self.open.last().expect("the module of the file is open");
        if self.depth == *depth && is_name(self.word(at)) {
            let name = self.word(at).to_owned();
            self.module().defined.insert(name);
        }
    }

    /// Passes over an attribute, and over what follows if only tests have that.
    fn attribute(&mut self) {
        let is_inner = self.word(self.at + 1) == "!";
        let start = self.at + 1 + usize::from(is_inner);
        let end = self.after_group(start);
        let is_test = is_of_tests(&self.tokens[start..end]);
        self.at = end;
        if is_test && is_inner {
            let (path, _) = self.open.last().expect("the module of the file is open");
            self.of_tests.push(path.clone());
        } else if is_test {
            self.pass_item();
        } else {
            for at in start..end {
                self.path(at);
            }
        }
    }

    fn pass_item(&mut self) {
        while self.word(self.at) == "#" {
            self.at = self.after_group(self.at + 1);
        }
        if self.word(self.at) == "pub" {
            self.at += 1;
            if self.word(self.at) == "(" {
                self.at = self.after_group(self.at);
            }
        }
        let first = self.word(self.at).to_owned();
        if first == "mod" && self.word(self.at + 2) == ";" {
            let path = join(
                &self.open.last().expect("one is open").0,
                self.word(self.at + 1),
            );
            self.of_tests.push(path);
        }
        let is_item = ITEMS.contains(&&*first) || BEFORE_ITEMS.contains(&&*first);
        loop {
            match self.word(self.at) {
                "" | ")" | "]" | "}" => return,
                "," if !is_item => break,
                ";" => break,
                "{" => {
                    self.at = self.after_group(self.at);
                    if first != "use" && first != "let" {
                        self.at += usize::from(self.word(self.at) == ",");
                        return;
                    }
                }
                "(" | "[" => self.at = self.after_group(self.at),
                _ => self.at += 1,
            }
        }
        self.at += 1;
    }

    /// The index after the bracket that closes the one at `at`.
    fn after_group(&self, at: usize) -> usize {
        let mut depth = 0_usize;
        for (index, token) in self.tokens.iter().enumerate().skip(at) {
            match token.text.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return index + 1;
            }
        }
        self.tokens.len()
    }

    fn imports(&mut self) {
        self.at += 1;
        self.import(&mut Vec::new());
    }

    /// Reads one part of a `use`, after `path`, up to its `,`, `}` or `;`.
    fn import(&mut self, path: &mut Vec<String>) {
        let length = path.len();
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        loop {
            let word = self.word(self.at).to_owned();
            self.at += 1;
            match word.as_str() {
                "::" => {}
                "{" => {
                    while !["}", ""].contains(&self.word(self.at)) {
                        self.import(path);
                        self.at += usize::from(self.word(self.at) == ",");
                    }
                    self.at += 1;
                    break;
                }
                "*" => {
                    self.module().paths.push((line, path.clone()));
                    self.module().globs.push(path.clone());
                    break;
                }
                _ if is_name(&word) => {
                    path.push(word);
                    if self.word(self.at) != "::" {
                        self.bind(line, path);
                        break;
                    }
                }
                _ => break,
            }
        }
        path.truncate(length);
    }

    fn bind(&mut self, line: usize, path: &mut Vec<String>) {
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.word(self.at) == "as" {
            name = self.word(self.at + 1).to_owned();
            self.at += 2;
        }
        let module = self.module();
        module.paths.push((line, path.clone()));
        module.bound.insert(name, path.clone());
    }
}

/// Whether an attribute, `[..]`, marks what only tests have.
fn is_of_tests(attribute: &[Token]) -> bool {
    let words: Vec<&str> = attribute.iter().map(|token| &*token.text).collect();
    match words[1..] {
        ["test", ..] | ["tokio", "::", "test", ..] => true,
        ["cfg", ..] => {
            let is_test = |word: &&str| ["test", "loom", "\"test-util\""].contains(word);
            words.iter().any(is_test) && !words.contains(&"not")
        }
        _ => false,
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

struct Token {
    text: String,
    line: usize,
}

/// The words, signs and strings of a source without its comments. A string that is a path, as in
/// `#[serde(with = "crate::text")]`, is that path.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = token_length(rest, first);
        let (token, after) = rest.split_at(length);
        if ["crate::", "self::", "super::"]
            .iter()
            .any(|head| token.starts_with(&format!("\"{head}")))
        {
            tokens.extend(
                self::tokens(token.trim_matches('"'))
                    .into_iter()
                    .map(|inner| Token { line, ..inner }),
            );
        } else if !(first.is_whitespace() || token.starts_with("//") || token.starts_with("/*")) {
            let text = token.strip_prefix("r#").unwrap_or(token).to_owned();
            tokens.push(Token { text, line });
        }
        line += token.matches('\n').count();
        rest = after;
    }
    tokens
}

fn token_length(rest: &str, first: char) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return comment_length(rest);
    }
    if let Some(length) = string_length(rest) {
        return length;
    }
    if first == '\'' {
        return character_length(rest);
    }
    if is_word(first) {
        let raw = if rest.starts_with("r#") { 2 } else { 0 };
        return rest[raw..]
            .find(|c| !is_word(c))
            .map_or(rest.len(), |n| raw + n);
    }
    if rest.starts_with("::") {
        2
    } else {
        first.len_utf8()
    }
}

fn comment_length(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        match rest.as_bytes().get(at..at + 2) {
            None => return rest.len(),
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            Some(_) => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
}

/// The length of `"..."`, `b"..."`, `c"..."` or `r#"..."#` at the start.
fn string_length(rest: &str) -> Option<usize> {
    let prefix = rest.find(|c| !matches!(c, 'b' | 'c' | 'r'))?;
    let is_raw = rest[..prefix].ends_with('r');
    let body = rest[prefix..].trim_start_matches('#');
    let hashes = rest.len() - prefix - body.len();
    if prefix > 2 || !body.starts_with('"') || (hashes > 0 && !is_raw) {
        return None;
    }
    let start = prefix + hashes + 1;
    if is_raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(
            rest[start..]
                .find(&end)
                .map_or(rest.len(), |at| start + at + end.len()),
        );
    }
    let mut is_escaped = false;
    let end = rest[start..].find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    Some(end.map_or(rest.len(), |at| start + at + 1))
}

/// The length of a character, or of a lifetime without its name.
fn character_length(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(rest.len(), |at| at + 4),
        Some((_, _)) => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}
