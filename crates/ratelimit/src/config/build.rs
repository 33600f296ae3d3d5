//! The third pass over a file: checks its fields and adds them to the tree of its domain.

use serde_json::{Map, Number, Value as Json};
use tidegate_yaml::Position;

use super::problem::Problem;
use super::scalar::{Content, Node as Yaml, ScalarValue, go_text};
use super::{
    Domains, Field, Metadata, ParsedDescriptor, ParsedFile, ParsedRateLimit, Path, Report,
    SameDomain,
};
use crate::model::Unit;
use crate::tree::{Level, Limit, Node, Rate};

/// Adds a file to the domains.
pub(super) fn file(
    file: ParsedFile,
    same_domain: SameDomain,
    domains: &mut Domains,
    report: &mut Report<'_>,
) {
    let domain = file.domain;
    let path = Path::Top.key("domain");
    if domain.text.is_empty() {
        report.add(
            position_or(&domain, file.start),
            &path,
            Problem::EmptyDomain,
        );
    } else if same_domain == SameDomain::Refuse && domains.get(&domain.text).is_some() {
        report.add(
            domain.at,
            &path,
            Problem::DuplicateDomain(domain.text.clone()),
        );
        // The descriptors are still checked.
        level(
            &mut Level::default(),
            &domain.text,
            file.descriptors,
            &Path::Top.key("descriptors"),
            report,
        );
        return;
    }
    let root = domains.begin(&domain.text, report.file());
    level(
        root,
        &domain.text,
        file.descriptors,
        &Path::Top.key("descriptors"),
        report,
    );
}

fn level(
    level: &mut Level,
    parent: &str,
    descriptors: Vec<ParsedDescriptor>,
    path: &Path<'_>,
    report: &mut Report<'_>,
) {
    for (index, descriptor) in descriptors.into_iter().enumerate() {
        let path = path.index(index);
        if descriptor.key.text.is_empty() {
            report.add(
                position_or(&descriptor.key, descriptor.at),
                &path.key("key"),
                Problem::EmptyKey,
            );
        }
        let composite = composite_key(&descriptor);
        let stats_key = format!("{parent}.{composite}");
        let at = descriptor.at;
        let node = node(descriptor, composite, &stats_key, &path, report);
        if !level.contains(&node.composite) {
            level.insert(node);
        } else if !node.composite.is_empty() {
            report.add(at, &path, Problem::DuplicateKey(stats_key));
        }
    }
}

fn composite_key(descriptor: &ParsedDescriptor) -> String {
    match descriptor.value.text.as_str() {
        "" => descriptor.key.text.clone(),
        value => format!("{}_{value}", descriptor.key.text),
    }
}

fn node(
    mut descriptor: ParsedDescriptor,
    composite: String,
    stats_key: &str,
    path: &Path<'_>,
    report: &mut Report<'_>,
) -> Node {
    let metadata = metadata(descriptor.metadata.take(), path, report);
    if descriptor.share_threshold && !composite.contains('*') {
        let at = position_or(
            &descriptor.value,
            position_or(&descriptor.key, descriptor.at),
        );
        report.add(
            at,
            &path.key("share_threshold"),
            Problem::ShareThreshold(composite.clone()),
        );
    }
    if descriptor.pause_when_throttled && descriptor.rate_limit.is_none() {
        report.add(
            descriptor.at,
            &path.key("pause_when_throttled"),
            Problem::PauseWithoutLimit,
        );
    }
    let limit = descriptor.rate_limit.map(|rate_limit| Limit {
        stats_key: stats_key.into(),
        slot: 0,
        rate: rate(&rate_limit, &path.key("rate_limit"), report),
        replaces: replaces(&rate_limit, &path.key("rate_limit"), report),
        name: rate_limit.name.text.into(),
        shadow_mode: descriptor.shadow_mode,
        quota_mode: descriptor.quota_mode,
        detailed_metric: descriptor.detailed_metric,
        pause_when_throttled: descriptor.pause_when_throttled,
        metadata,
    });
    let mut below = Level::default();
    level(
        &mut below,
        stats_key,
        descriptor.descriptors,
        &path.key("descriptors"),
        report,
    );
    Node {
        key_length: descriptor.key.text.len(),
        composite: composite.into(),
        line: descriptor.at.line,
        limit,
        below,
        value_to_metric: descriptor.value_to_metric,
        share_threshold: descriptor.share_threshold,
    }
}

fn metadata(
    metadata: Option<Metadata>,
    path: &Path<'_>,
    report: &mut Report<'_>,
) -> Map<String, Json> {
    let yaml = match metadata {
        None => return Map::new(),
        Some(Metadata::Ready(map)) => return map,
        Some(Metadata::Yaml(yaml)) => yaml,
    };
    match struct_value(&yaml) {
        Ok(Json::Object(map)) => return map,
        Ok(_) => {}
        Err(problem) => report.add(yaml.at, &path.key("metadata"), problem),
    }
    Map::new()
}

fn rate(rate_limit: &ParsedRateLimit, path: &Path<'_>, report: &mut Report<'_>) -> Rate {
    let requests_per_unit = rate_limit.requests_per_unit;
    let at = position_or(&rate_limit.unit, rate_limit.at);
    match (unit(&rate_limit.unit.text), rate_limit.unlimited) {
        (Some(unit), false) => {
            return Rate::PerUnit {
                requests_per_unit,
                unit,
            };
        }
        (None, true) => {}
        (Some(_), true) => report.add(at, &path.key("unit"), Problem::UnitWithUnlimited),
        (None, false) => report.add(
            at,
            &path.key("unit"),
            Problem::InvalidUnit(rate_limit.unit.text.clone()),
        ),
    }
    Rate::Unlimited { requests_per_unit }
}

fn unit(text: &str) -> Option<Unit> {
    (1..=7)
        .filter_map(Unit::from_number)
        .find(|unit| unit.name().eq_ignore_ascii_case(text))
}

fn replaces(
    rate_limit: &ParsedRateLimit,
    path: &Path<'_>,
    report: &mut Report<'_>,
) -> Box<[Box<str>]> {
    let path = path.key("replaces");
    for (index, name) in rate_limit.replaces.iter().enumerate() {
        if name.text.is_empty() {
            report.add(name.at, &path.index(index), Problem::EmptyReplaces);
        } else if name.text == rate_limit.name.text {
            report.add(name.at, &path.index(index), Problem::ReplacesSelf);
        }
    }
    rate_limit
        .replaces
        .iter()
        .map(|name| name.text.as_str().into())
        .collect()
}

/// Returns the position of a field, or `otherwise` if the file does not have the field.
fn position_or(field: &Field, otherwise: Position) -> Position {
    if field.at == Position::default() {
        otherwise
    } else {
        field.at
    }
}

/// Converts a value to the form of a protobuf Struct: numbers are doubles, keys are texts.
fn struct_value(yaml: &Yaml) -> Result<Json, Problem> {
    let number = |value: f64| {
        Number::from_f64(value)
            .map(Json::Number)
            .ok_or_else(|| Problem::Metadata(format!("{} is not a finite number", go_text(yaml))))
    };
    match &*yaml.content {
        Content::Scalar(scalar) => match scalar.value {
            ScalarValue::Null => Ok(Json::Null),
            ScalarValue::Bool(value) => Ok(Json::Bool(value)),
            ScalarValue::Integer(value) => number(value as f64),
            ScalarValue::Unsigned(value) => number(value as f64),
            ScalarValue::Float(value) => number(value),
            ScalarValue::Text => Ok(Json::String(scalar.text.clone())),
        },
        Content::List(items) => items.iter().map(struct_value).collect(),
        Content::Map(pairs) => pairs
            .iter()
            .map(|pair| Ok((pair.key().to_string(), struct_value(&pair.value)?)))
            .collect(),
    }
}
