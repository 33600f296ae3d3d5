//! The second pass over a file: decodes its nodes into fields.
//!
//! Fields are decoded in the order of the file, as in the reference: a later value replaces an
//! earlier one, but a second `rate_limit` replaces only the fields that it has.

use serde_json::{Map, Value as Json};
use tidegate_yaml::Position;

use super::problem::Problem;
use super::scalar::{Content, Node, Pair, ScalarValue};
use super::{Path, Report};

/// A text field and its position. The position is the default if the file does not have the field.
#[derive(Debug, Default)]
pub(super) struct Field {
    pub(super) at: Position,
    pub(super) text: String,
}

#[derive(Debug, Default)]
pub(super) struct ParsedFile {
    /// Position of the start of the file. The default if there is no text.
    pub(super) start: Position,
    pub(super) domain: Field,
    pub(super) descriptors: Vec<ParsedDescriptor>,
}

#[derive(Debug, Default)]
pub(super) struct ParsedDescriptor {
    pub(super) at: Position,
    pub(super) key: Field,
    pub(super) value: Field,
    pub(super) rate_limit: Option<ParsedRateLimit>,
    pub(super) descriptors: Vec<ParsedDescriptor>,
    pub(super) shadow_mode: bool,
    pub(super) quota_mode: bool,
    pub(super) detailed_metric: bool,
    pub(super) value_to_metric: bool,
    pub(super) share_threshold: bool,
    pub(super) pause_when_throttled: bool,
    pub(super) metadata: Option<Metadata>,
}

impl ParsedDescriptor {
    /// Returns the flag of this name.
    fn flag(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "shadow_mode" => &mut self.shadow_mode,
            "quota_mode" => &mut self.quota_mode,
            "detailed_metric" => &mut self.detailed_metric,
            "value_to_metric" => &mut self.value_to_metric,
            "share_threshold" => &mut self.share_threshold,
            "pause_when_throttled" => &mut self.pause_when_throttled,
            _ => return None,
        })
    }
}

/// The metadata of a limit.
#[derive(Debug)]
pub(super) enum Metadata {
    /// The metadata as a file has it.
    Yaml(Node),
    Ready(Map<String, Json>),
}

#[derive(Debug, Default)]
pub(super) struct ParsedRateLimit {
    pub(super) at: Position,
    pub(super) requests_per_unit: u32,
    pub(super) unit: Field,
    pub(super) unlimited: bool,
    pub(super) name: Field,
    pub(super) replaces: Vec<Field>,
}

/// Decodes the map at the top of a file.
pub(super) fn file(pairs: &[Pair], report: &mut Report<'_>) -> ParsedFile {
    let mut file = ParsedFile {
        start: Position { line: 1, column: 1 },
        ..ParsedFile::default()
    };
    for pair in pairs {
        let at = Located {
            node: &pair.value,
            path: &Path::Top.key(&pair.key().text),
        };
        match pair.key().text.as_str() {
            "domain" => at.text(&mut file.domain, report),
            "descriptors" => at.list(
                "[]config.YamlDescriptor",
                &mut file.descriptors,
                report,
                descriptor,
            ),
            _ => {}
        }
    }
    file
}

/// Reports a file that is not a map at the top.
pub(super) fn refuse_top(root: &Node, report: &mut Report<'_>) {
    Located {
        node: root,
        path: &Path::Top,
    }
    .refuse("map[interface {}]interface {}", report);
}

fn descriptor(located: Located<'_>, report: &mut Report<'_>) -> ParsedDescriptor {
    let mut result = ParsedDescriptor {
        at: located.node.at,
        ..ParsedDescriptor::default()
    };
    for pair in located.pairs("config.YamlDescriptor", report) {
        let at = Located {
            node: &pair.value,
            path: &located.path.key(&pair.key().text),
        };
        match pair.key().text.as_str() {
            "key" => at.text(&mut result.key, report),
            "value" => at.text(&mut result.value, report),
            "rate_limit" => rate_limit(at, &mut result.rate_limit, report),
            "descriptors" => at.list(
                "[]config.YamlDescriptor",
                &mut result.descriptors,
                report,
                descriptor,
            ),
            "metadata" => {
                at.pairs("map[interface {}]interface {}", report);
                result.metadata = Some(Metadata::Yaml(pair.value.clone()));
            }
            name => {
                if let Some(flag) = result.flag(name) {
                    at.flag(flag, report);
                }
            }
        }
    }
    result
}

fn rate_limit(located: Located<'_>, result: &mut Option<ParsedRateLimit>, report: &mut Report<'_>) {
    if located.is_null() {
        *result = None;
        return;
    }
    let pairs = located.pairs("config.YamlRateLimit", report);
    let result = result.get_or_insert_default();
    result.at = located.node.at;
    for pair in pairs {
        let at = Located {
            node: &pair.value,
            path: &located.path.key(&pair.key().text),
        };
        match pair.key().text.as_str() {
            "requests_per_unit" => at.number(&mut result.requests_per_unit, report),
            "unit" => at.text(&mut result.unit, report),
            "unlimited" => at.flag(&mut result.unlimited, report),
            "name" => at.text(&mut result.name, report),
            "replaces" => at.list(
                "[]config.yamlReplaces",
                &mut result.replaces,
                report,
                replaces,
            ),
            _ => {}
        }
    }
}

fn replaces(located: Located<'_>, report: &mut Report<'_>) -> Field {
    let mut name = Field {
        at: located.node.at,
        text: String::new(),
    };
    for pair in located.pairs("config.yamlReplaces", report) {
        if pair.key().text == "name" {
            Located {
                node: &pair.value,
                path: &located.path.key("name"),
            }
            .text(&mut name, report);
        }
    }
    name
}

/// A node and its path. A null node empties a field of any type.
#[derive(Clone, Copy)]
struct Located<'a> {
    node: &'a Node,
    path: &'a Path<'a>,
}

impl<'a> Located<'a> {
    fn value(self) -> Option<ScalarValue> {
        match &*self.node.content {
            Content::Scalar(scalar) => Some(scalar.value),
            _ => None,
        }
    }

    fn is_null(self) -> bool {
        self.value() == Some(ScalarValue::Null)
    }

    fn refuse(self, expected: &'static str, report: &mut Report<'_>) {
        let found = match &*self.node.content {
            Content::List(_) => "!!seq".to_owned(),
            Content::Map(_) => "!!map".to_owned(),
            Content::Scalar(scalar) => {
                format!("{} `{}`", scalar.value.tag(), shortened(&scalar.text))
            }
        };
        report.add(
            self.node.at,
            self.path,
            Problem::WrongType { found, expected },
        );
    }

    /// Decodes a text. Any scalar is a text as written in the file.
    fn text(self, field: &mut Field, report: &mut Report<'_>) {
        field.at = self.node.at;
        match &*self.node.content {
            Content::Scalar(scalar) if scalar.value == ScalarValue::Null => field.text.clear(),
            Content::Scalar(scalar) => field.text.clone_from(&scalar.text),
            _ => self.refuse("string", report),
        }
    }

    fn flag(self, field: &mut bool, report: &mut Report<'_>) {
        match self.value() {
            Some(ScalarValue::Bool(value)) => *field = value,
            Some(ScalarValue::Null) => *field = false,
            _ => self.refuse("bool", report),
        }
    }

    fn number(self, field: &mut u32, report: &mut Report<'_>) {
        match self.value() {
            Some(ScalarValue::Null) => *field = 0,
            Some(ScalarValue::Integer(value)) => match u32::try_from(value) {
                Ok(value) => *field = value,
                Err(_) => self.refuse("uint32", report),
            },
            _ => self.refuse("uint32", report),
        }
    }

    fn list<T>(
        self,
        expected: &'static str,
        field: &mut Vec<T>,
        report: &mut Report<'_>,
        element: fn(Located<'_>, &mut Report<'_>) -> T,
    ) {
        field.clear();
        match &*self.node.content {
            Content::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    field.push(element(
                        Located {
                            node: item,
                            path: &self.path.index(index),
                        },
                        report,
                    ));
                }
            }
            _ if self.is_null() => {}
            _ => self.refuse(expected, report),
        }
    }

    fn pairs(self, expected: &'static str, report: &mut Report<'_>) -> &'a [Pair] {
        match &*self.node.content {
            Content::Map(pairs) => pairs,
            _ if self.is_null() => &[],
            _ => {
                self.refuse(expected, report);
                &[]
            }
        }
    }
}

/// Shortens a text of more than 10 characters to 7, as in the messages of the reference's library.
fn shortened(text: &str) -> String {
    if text.chars().nth(10).is_some() {
        format!("{}...", text.chars().take(7).collect::<String>())
    } else {
        text.to_owned()
    }
}
