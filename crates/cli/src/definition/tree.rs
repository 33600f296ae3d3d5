//! Tree of a YAML text whose nodes have positions, and its conversion to JSON.

use std::collections::HashMap;

use tidegate_yaml::{Content, Document, Position};

use super::Mistake;
use super::core_schema::{CoreSchema, quoted};

/// Depth limit of lists and maps, equal to the limit of the server for JSON.
const MAX_DEPTH: usize = 100;

type YamlNode = tidegate_yaml::Node<String>;
type YamlPair = tidegate_yaml::Pair<String>;

/// A line and a column, both counted from 1.
pub(crate) type SourcePosition = (usize, usize);

/// Position of the byte at `offset`.
pub(super) fn position_at(text: &str, offset: usize) -> SourcePosition {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before
        .rsplit(|byte| *byte == b'\n')
        .next()
        .unwrap_or(before);
    // Columns are counted in characters, so continuation bytes of UTF-8 are skipped.
    let column = line.iter().filter(|byte| **byte & 0xC0 != 0x80).count() + 1;
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    (line, column)
}

fn source_position(position: Position) -> SourcePosition {
    (position.line as usize, position.column as usize)
}

fn mistake(position: Position, reason: String) -> Mistake {
    Mistake {
        position: Some(source_position(position)),
        reason,
    }
}

/// YAML text as a tree. Its scalars are JSON.
#[derive(Debug)]
pub(crate) struct YamlTree(Option<YamlNode>);

impl YamlTree {
    /// Parses the one document of a text. A text without a document is null.
    pub(crate) fn read(text: &str) -> Result<Self, Mistake> {
        let document = tidegate_yaml::parse::<CoreSchema>(text.as_bytes(), MAX_DEPTH);
        let Document { root, rest } =
            document.map_err(|error| mistake(error.at, error.problem.to_string()))?;
        if let Some(rest) = rest {
            let reason = "text behind the definition: a file has one definition".to_owned();
            return Err(mistake(rest, reason));
        }
        root.iter().try_for_each(check_unique_keys)?;
        Ok(Self(root))
    }

    /// The tree as JSON.
    pub(crate) fn json(&self) -> String {
        let Some(root) = &self.0 else {
            return "null".to_owned();
        };
        let mut out = String::new();
        write(root, &mut out);
        out
    }

    /// Position of the value that a path such as `jobs[0].after[1]` leads to, or of the last node
    /// on that path. None if the first step does not exist. The position of a field is that of its
    /// name.
    pub(crate) fn position(&self, path: &str) -> Option<SourcePosition> {
        position_in(self.0.as_ref()?, path)
    }
}

/// The text of a key: JSON has only texts as keys.
fn key_text(pair: &YamlPair) -> String {
    let json = pair.key();
    serde_json::from_str(json).unwrap_or_else(|_| json.clone())
}

/// Refuses a map with a repeated key, since one value would hide the other. A key may override one
/// of a merge key.
fn check_unique_keys(node: &YamlNode) -> Result<(), Mistake> {
    match &*node.content {
        Content::Scalar(_) => Ok(()),
        Content::List(items) => items.iter().try_for_each(check_unique_keys),
        Content::Map(pairs) => {
            let mut names = HashMap::new();
            for pair in pairs.iter().filter(|pair| !pair.merged) {
                if let Some(Position { line, column }) = names.insert(key_text(pair), pair.at) {
                    let reason = format!(
                        "'{}' is there twice, first at {line}:{column}",
                        key_text(pair)
                    );
                    return Err(mistake(pair.at, reason));
                }
                check_unique_keys(&pair.value)?;
            }
            Ok(())
        }
    }
}

fn write(node: &YamlNode, out: &mut String) {
    match &*node.content {
        Content::Scalar(json) => out.push_str(json),
        Content::List(items) => {
            for (at, item) in items.iter().enumerate() {
                out.push(if at == 0 { '[' } else { ',' });
                write(item, out);
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Content::Map(pairs) => {
            for (at, (name, value)) in fields(pairs).into_iter().enumerate() {
                out.push(if at == 0 { '{' } else { ',' });
                *out += &quoted(&name);
                out.push(':');
                write(value, out);
            }
            out.push_str(if pairs.is_empty() { "{}" } else { "}" });
        }
    }
}

/// Fields of a map in order. Of fields with equal names, the last value counts and has the position
/// of the first.
fn fields(pairs: &[YamlPair]) -> Vec<(String, &YamlNode)> {
    let mut fields: Vec<(String, &YamlNode)> = Vec::with_capacity(pairs.len());
    let mut known = HashMap::new();
    for pair in pairs {
        let name = key_text(pair);
        let at = *known.entry(name.clone()).or_insert(fields.len());
        match fields.get_mut(at) {
            Some(field) => field.1 = &pair.value,
            None => fields.push((name, &pair.value)),
        }
    }
    fields
}

fn position_in(node: &YamlNode, path: &str) -> Option<SourcePosition> {
    let (at, inner, rest) = match &*node.content {
        Content::Scalar(_) => None,
        Content::List(items) => {
            let (number, rest) = split_index(path)?;
            let item = items.get(number)?;
            Some((item.at, item, rest))
        }
        Content::Map(pairs) => {
            let fitting = pairs.iter().rev().filter_map(|pair| {
                Some((pair.at, &pair.value, strip_field(&key_text(pair), path)?))
            });
            fitting.min_by_key(|(_, _, rest)| rest.len())
        }
    }?;
    position_in(inner, rest).or(Some(source_position(at)))
}

/// Index of the item that a path begins with, and the rest of the path.
pub(super) fn split_index(path: &str) -> Option<(usize, &str)> {
    let (number, rest) = path.strip_prefix('[')?.split_once(']')?;
    Some((number.parse().ok()?, rest))
}

/// The rest of a path that begins with the field `name`. Names may contain dots.
pub(super) fn strip_field<'a>(name: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix('.').unwrap_or(path).strip_prefix(name)?;
    Some(rest).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn check(text: &str, expected: &str) {
        let found = YamlTree::read(text)
            .map(|node| node.json())
            .unwrap_or_else(|mistake| mistake.to_string());
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn scalars_have_the_types_of_the_core_schema() {
        check(
            "[1, -2, +3, 0x1f, 0o17, 1.5, 1e3, .5, 007]",
            "[1,-2,3,31,15,1.5,1e3,0.5,7]",
        );
        check(
            "[true, False, ~, null, '', \"1\", yes, 1.2.3, -a, 5m, 1_000]",
            r#"[true,false,null,null,"","1","yes","1.2.3","-a","5m","1_000"]"#,
        );
        check(
            "a: |\n  x\n  y\nb: 12345678901234567890123\n",
            r#"{"a":"x\ny\n","b":12345678901234567890123}"#,
        );
        check("{a: [], b: {}, 1: \"\\\"\"}", r#"{"a":[],"b":{},"1":"\""}"#);
    }

    #[test]
    fn numbers_keep_all_of_their_digits_or_are_refused() {
        check(
            "[18446744073709551615, +12345678901234567890123, -0012345678901234567890123]",
            "[18446744073709551615,12345678901234567890123,-12345678901234567890123]",
        );
        check(
            "[0xffffffffffffffff, 0o1777777777777777777777, 0x, 0x+1, -0x1, 0xg]",
            r#"[18446744073709551615,18446744073709551615,"0x","0x+1","-0x1","0xg"]"#,
        );
        check(
            "[+0.12345678901234567890123, -.5, 5., 1.E+400, 00.50, 000, -0]",
            "[0.12345678901234567890123,-0.5,5.0,1.0E+400,0.50,0,-0]",
        );
        check(
            "[., +, 1e, e5, .e5, 1e+, 1.2e3.4, 1-2, \".inf\"]",
            r#"[".","+","1e","e5",".e5","1e+","1.2e3.4","1-2",".inf"]"#,
        );
        let large =
            "larger than 18446744073709551615; write it in decimal digits, or in quotes as a text";
        check(
            "a:\n  b: 0x10000000000000000",
            &format!("2:6: 0x10000000000000000 is {large}"),
        );
        check(
            "a: [1, 0o2000000000000000000000]",
            &format!("1:8: 0o2000000000000000000000 is {large}"),
        );
        check(
            "a: -.inf",
            "1:4: -.inf is a number that JSON does not have; in quotes it is a text",
        );
    }

    #[test]
    fn aliases_are_followed_and_bounded() {
        check("a: &x {k: 1}\nb: *x", r#"{"a":{"k":1},"b":{"k":1}}"#);
        let mut bomb = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
        for level in 1..8 {
            let below = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(","));
        }
        assert!(
            YamlTree::read(&bomb)
                .unwrap_err()
                .reason
                .contains("1000000 values")
        );
        assert!(
            YamlTree::read(&"[".repeat(101))
                .unwrap_err()
                .reason
                .contains("nested more than 100 deep")
        );
        assert!(YamlTree::read(&"[".repeat(100_000)).is_err());
        check("&a [*a]", "1:5: anchor 'a' value contains itself");
    }

    #[test]
    fn copies_by_aliases_are_bounded_in_bytes_and_depth() {
        let text = |aliases: usize| {
            format!(
                "a: &a {}\nb: [{}]\n",
                "x".repeat(100_000),
                vec!["*a"; aliases].join(",")
            )
        };
        assert_eq!(
            YamlTree::read(&text(600)).unwrap().json().len(),
            601 * 100_002 + 600 + 12
        );
        assert_eq!(
            YamlTree::read(&text(20_000)).unwrap_err().to_string(),
            "2:1922: aliases stand for more than 1000000 values"
        );
        let inner = format!("a: &a {}{}\n", "[".repeat(60), "]".repeat(60));
        check(
            &format!("{inner}b: {}*a{}\n", "[".repeat(39), "]".repeat(39)),
            &YamlTree::read(&format!("{inner}b: {}{}", "[".repeat(99), "]".repeat(99)))
                .unwrap()
                .json(),
        );
        let deep = YamlTree::read(&format!(
            "{inner}b: {}*a{}\n",
            "[".repeat(40),
            "]".repeat(40)
        ))
        .unwrap_err();
        assert_eq!(
            deep.to_string(),
            "2:44: lists and maps are nested more than 100 deep"
        );
    }

    #[test]
    fn an_anchor_does_not_copy_what_it_names() {
        let anchors: String = (0..90).map(|at| format!("&a{at} [")).collect();
        let node = YamlTree::read(&format!("{anchors}1{}", "]".repeat(90))).unwrap();
        // The reader and its anchors are gone, so only the list around it has the innermost one.
        let mut value = &node.0.as_ref().unwrap().content;
        while let Content::List(items) = &**value {
            value = &items[0].content;
            assert_eq!(Rc::strong_count(value), 1);
        }
    }

    #[test]
    fn mistakes_have_a_place() {
        check("a: 1\na: 2", "2:1: 'a' is there twice, first at 1:1");
        check("[1]: 2", "1:1: invalid map key: a list or map");
        check("a: !!int 1", "1:4: tags are not understood here");
        check("a: !!map {b: 1}", "1:4: tags are not understood here");
        check("a: !!set\n  b: 1", "1:4: tags are not understood here");
        check("a:\n  - !!seq [1]", "2:5: tags are not understood here");
        check("a: !mine [1]", "1:4: tags are not understood here");
        check(
            "a: 1\n---\nb: 2",
            "2:1: text behind the definition: a file has one definition",
        );
        let mistake = YamlTree::read("a: [1\nb: 2").unwrap_err();
        assert_eq!(mistake.position.map(|(line, _)| line), Some(2));
        check("", "null");
    }

    fn position_in(text: &str, path: &str, expected: Option<(usize, usize)>) {
        let found = YamlTree::read(text).unwrap().position(path);
        assert_eq!(found, expected, "{path} in {text}");
    }

    #[test]
    fn a_path_leads_to_a_name_or_an_item() {
        let yaml = "name: x\njobs:\n  - name: a\n    after: [b, c]\n  - {name: b, params: {k.l: [1, {m: 2}]}}\n";
        position_in(yaml, "name", Some((1, 1)));
        position_in(yaml, "jobs", Some((2, 1)));
        position_in(yaml, "jobs[0]", Some((3, 5)));
        position_in(yaml, "jobs[0].after[1]", Some((4, 16)));
        position_in(yaml, "jobs[1].params.k.l[1].m", Some((5, 34)));
    }

    #[test]
    fn what_is_not_there_is_near_what_is_around_it() {
        position_in("jobs:\n- name: a\n", "jobs[0].handler", Some((2, 3)));
        position_in("jobs:\n- name: a\n", "jobs[10]", Some((1, 1)));
        position_in("jobs: []\n", "tags[0]", None);
        position_in("a: &x {b: 1}\nc: *x\n", "c.d", Some((2, 1)));
        position_in("", "jobs", None);
    }

    #[test]
    fn merge_keys_are_followed_and_other_keys_hold_before_them() {
        check(
            "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}",
            r#"{"a":{"x":1,"y":2},"b":{"x":1,"y":3}}"#,
        );
        check(
            "a: &a {x: 1}\nb: &b {x: 2, z: 4}\nc: {<<: [*a, *b]}",
            r#"{"a":{"x":1},"b":{"x":2,"z":4},"c":{"x":1,"z":4}}"#,
        );
        check("a: {\"<<\": 1}", r#"{"a":{"<<":1}}"#);
        check(
            "a: {<<: 1}",
            "1:5: map merge requires map or sequence of maps as the value",
        );
    }
}
