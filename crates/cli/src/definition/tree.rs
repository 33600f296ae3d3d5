//! YAML as a tree whose nodes know their place. The core schema's types, anchors and aliases, no tags.

use std::fmt;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser};

use super::reader::{Reader, quoted};

/// A line and a column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Place {
    /// The place of a byte of `text`.
    pub(super) fn of(text: &str, offset: usize) -> Self {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or(before);
        // Columns are characters. The bytes of a character after its first are left out.
        let column = line.iter().filter(|byte| **byte & 0xC0 != 0x80).count() + 1;
        Self { line: before.iter().filter(|byte| **byte == b'\n').count() + 1, column }
    }

    /// Line and column.
    pub(super) fn pair(self) -> (usize, usize) {
        (self.line, self.column)
    }
}

impl From<Marker> for Place {
    fn from(marker: Marker) -> Self {
        Self { line: marker.line(), column: marker.col() + 1 }
    }
}

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) place: Place,
    pub(crate) reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.line, self.place.column, self.reason)
    }
}

/// A value, and where it begins. A clone shares what is in it.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(super) place: Place,
    pub(super) value: Rc<Value>,
    /// What an alias to it counts as: the values in it, itself included.
    pub(super) size: usize,
    /// Lists and maps inside each other; 0 for a scalar.
    pub(super) height: usize,
}

#[derive(Debug)]
pub(super) enum Value {
    /// As JSON.
    Scalar(String),
    List(Vec<Node>),
    /// Keys as JSON has them, with their places.
    Map(Vec<(String, Place, Node)>),
}

impl Node {
    /// Reads the one document of a text; a text without any is null.
    pub(crate) fn read(text: &str) -> Result<Self, Mistake> {
        let mut reader = Reader::default();
        let mut documents = 0;
        for event in Parser::new_from_str(text) {
            let (event, span) =
                event.map_err(|error| Mistake { place: (*error.marker()).into(), reason: error.info().to_owned() })?;
            documents += usize::from(matches!(event, Event::DocumentStart(_)));
            let place = span.start.into();
            if documents > 1 {
                return Err(Mistake { place, reason: "a second document: a file has one definition".to_owned() });
            }
            reader.event(event, place).map_err(|reason| Mistake { place, reason })?;
        }
        let null = || Rc::new(Value::Scalar("null".to_owned()));
        Ok(reader.root().unwrap_or_else(|| Self {
            place: Place { line: 1, column: 1 },
            value: null(),
            size: 1,
            height: 0,
        }))
    }

    /// The same as JSON.
    pub(crate) fn json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match &*self.value {
            Value::Scalar(json) => out.push_str(json),
            Value::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    out.push(if at == 0 { '[' } else { ',' });
                    item.write(out);
                }
                out.push_str(if items.is_empty() { "[]" } else { "]" });
            }
            Value::Map(pairs) => {
                for (at, (name, _, value)) in pairs.iter().enumerate() {
                    out.push(if at == 0 { '{' } else { ',' });
                    *out += &quoted(name);
                    out.push(':');
                    value.write(out);
                }
                out.push_str(if pairs.is_empty() { "{}" } else { "}" });
            }
        }
    }

    /// The place of what a path such as `jobs[0].after[1]` leads to, or of the innermost thing on the way there; nothing when not
    /// even its first step is here. The place of a field is that of its name.
    pub(crate) fn place(&self, path: &str) -> Option<Place> {
        let (place, inner, rest) = match &*self.value {
            Value::Scalar(_) => None,
            Value::List(items) => {
                let (number, rest) = item(path)?;
                let item = items.get(number)?;
                Some((item.place, item, rest))
            }
            Value::Map(pairs) => {
                let fitting = pairs.iter().filter_map(|(name, place, node)| Some((*place, node, after(name, path)?)));
                fitting.min_by_key(|(_, _, rest)| rest.len())
            }
        }?;
        inner.place(rest).or(Some(place))
    }
}

/// The number of the item that a path begins with, and the rest of the path.
pub(super) fn item(path: &str) -> Option<(usize, &str)> {
    let (number, rest) = path.strip_prefix('[')?.split_once(']')?;
    Some((number.parse().ok()?, rest))
}

/// The rest of a path that begins with the name of a field. Names may have dots in them.
pub(super) fn after<'a>(name: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix('.').unwrap_or(path).strip_prefix(name)?;
    Some(rest).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The names of the outermost fields of a YAML text, as far as it can be read.
pub(super) fn names(text: &str) -> Vec<String> {
    let (mut names, mut depth, mut is_name) = (Vec::new(), 0_usize, true);
    for (event, _) in Parser::new_from_str(text).map_while(Result::ok) {
        match event {
            Event::SequenceStart(..) if depth == 0 => break,
            Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
            Event::MappingEnd | Event::SequenceEnd => {
                depth = depth.saturating_sub(1);
                is_name = true;
            }
            Event::Scalar(name, ..) if depth == 1 => {
                if is_name {
                    names.push(name.into_owned());
                }
                is_name = !is_name;
            }
            Event::Alias(_) if depth == 1 => is_name = !is_name,
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let found = Node::read(text).map(|node| node.json()).unwrap_or_else(|mistake| mistake.to_string());
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn scalars_have_the_types_of_the_core_schema() {
        check("[1, -2, +3, 0x1f, 0o17, 1.5, 1e3, .5, 007]", "[1,-2,3,31,15,1.5,1e3,0.5,7]");
        check(
            "[true, False, ~, null, '', \"1\", yes, 1.2.3, -a, 5m, 1_000]",
            r#"[true,false,null,null,"","1","yes","1.2.3","-a","5m","1_000"]"#,
        );
        check("a: |\n  x\n  y\nb: 12345678901234567890123\n", r#"{"a":"x\ny\n","b":12345678901234567890123}"#);
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
        let large = "larger than 18446744073709551615; write it in decimal digits, or in quotes as a text";
        check("a:\n  b: 0x10000000000000000", &format!("2:6: 0x10000000000000000 is {large}"));
        check("a: [1, 0o2000000000000000000000]", &format!("1:8: 0o2000000000000000000000 is {large}"));
        check("a: -.inf", "1:4: -.inf is a number that JSON does not have; in quotes it is a text");
    }

    #[test]
    fn aliases_are_followed_and_bounded() {
        check("a: &x {k: 1}\nb: *x", r#"{"a":{"k":1},"b":{"k":1}}"#);
        let mut bomb = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
        for level in 1..8 {
            let below = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(","));
        }
        assert!(Node::read(&bomb).unwrap_err().reason.contains("1000000 values"));
        assert!(Node::read(&"[".repeat(101)).unwrap_err().reason.contains("inside each other"));
        assert!(Node::read(&"[".repeat(100_000)).is_err());
        check("&a [*a]", "1:5: an alias to itself");
    }

    #[test]
    fn copies_by_aliases_are_bounded_in_bytes_and_depth() {
        let text = |aliases: usize| format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; aliases].join(","));
        assert_eq!(Node::read(&text(600)).unwrap().json().len(), 601 * 100_002 + 600 + 12);
        assert_eq!(Node::read(&text(20_000)).unwrap_err().to_string(), "2:1922: more than 1000000 values");
        let inner = format!("a: &a {}{}\n", "[".repeat(60), "]".repeat(60));
        check(
            &format!("{inner}b: {}*a{}\n", "[".repeat(39), "]".repeat(39)),
            &Node::read(&format!("{inner}b: {}{}", "[".repeat(99), "]".repeat(99))).unwrap().json(),
        );
        let deep = Node::read(&format!("{inner}b: {}*a{}\n", "[".repeat(40), "]".repeat(40))).unwrap_err();
        assert_eq!(deep.to_string(), "2:44: more than 100 lists and maps inside each other");
    }

    #[test]
    fn an_anchor_does_not_copy_what_it_names() {
        let anchors: String = (0..90).map(|at| format!("&a{at} [")).collect();
        let node = Node::read(&format!("{anchors}1{}", "]".repeat(90))).unwrap();
        // The reader and its anchors are gone, so only the list around it has the innermost one.
        let mut value = &node.value;
        while let Value::List(items) = &**value {
            value = &items[0].value;
            assert_eq!(Rc::strong_count(value), 1);
        }
    }

    #[test]
    fn mistakes_have_a_place() {
        check("a: 1\na: 2", "2:1: 'a' is there twice");
        check("[1]: 2", "1:3: a key that is not a text");
        check("a: !!int 1", "1:4: tags are not understood here");
        check("a: !!map {b: 1}", "1:4: tags are not understood here");
        check("a: !!set\n  b: 1", "1:4: tags are not understood here");
        check("a:\n  - !!seq [1]", "2:5: tags are not understood here");
        check("a: !mine [1]", "1:4: tags are not understood here");
        check("a: 1\n---\nb: 2", "2:1: a second document: a file has one definition");
        assert_eq!(Node::read("a: [1\nb: 2").unwrap_err().place.line, 2);
        check("", "null");
    }

    fn place(text: &str, path: &str, expected: Option<(usize, usize)>) {
        let found = Node::read(text).unwrap().place(path).map(|place| (place.line, place.column));
        assert_eq!(found, expected, "{path} in {text}");
    }

    #[test]
    fn a_path_leads_to_a_name_or_an_item() {
        let yaml = "name: x\njobs:\n  - name: a\n    after: [b, c]\n  - {name: b, params: {k.l: [1, {m: 2}]}}\n";
        place(yaml, "name", Some((1, 1)));
        place(yaml, "jobs", Some((2, 1)));
        place(yaml, "jobs[0]", Some((3, 5)));
        place(yaml, "jobs[0].after[1]", Some((4, 16)));
        place(yaml, "jobs[1].params.k.l[1].m", Some((5, 34)));
    }

    #[test]
    fn what_is_not_there_is_near_what_is_around_it() {
        place("jobs:\n- name: a\n", "jobs[0].handler", Some((2, 3)));
        place("jobs:\n- name: a\n", "jobs[10]", Some((1, 1)));
        place("jobs: []\n", "tags[0]", None);
        place("a: &x {b: 1}\nc: *x\n", "c.d", Some((2, 1)));
        place("", "jobs", None);
    }

    #[test]
    fn outermost_names_are_found_without_reading_all() {
        assert_eq!(names("domain: a\ndescriptors:\n- {key: k, jobs: 1}\nx: *y\n"), ["domain", "descriptors", "x"]);
        assert_eq!(names("a: {b: [c]}\n{"), ["a"]);
        assert!(names("- a\n").is_empty() && names("").is_empty());
    }
}
