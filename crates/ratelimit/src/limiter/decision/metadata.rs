//! Dynamic metadata: the request, and the metadata of the limits that let it pass.

use serde_json::{Map, Value};

use crate::limiter::{AppliedLimit, Code, Status};
use crate::model::{Descriptor, Override, Request, Unit};
use crate::tree::Limit;

/// Returns the content of the response's Struct.
pub(crate) fn dynamic_metadata(
    request: &Request,
    limits: &[AppliedLimit<'_>],
    statuses: &[Status],
) -> Map<String, Value> {
    let mut result = Map::new();
    result.insert("domain".to_owned(), request.domain.as_str().into());
    result.insert(
        "descriptors".to_owned(),
        request.descriptors.iter().map(describe).collect(),
    );
    if request.hits_addend != 0 {
        result.insert(
            "hitsAddend".to_owned(),
            f64::from(request.hits_addend).into(),
        );
    }
    let passed = limits
        .iter()
        .zip(statuses)
        .filter(|(_, status)| status.code == Code::Ok);
    let mut metadata = Map::new();
    for limit in passed.filter_map(|(limit, _)| counted_limit(limit)) {
        merge(&mut metadata, &limit.metadata);
    }
    if !metadata.is_empty() {
        result.insert("metadata".to_owned(), metadata.into());
    }
    result
}

fn counted_limit<'a>(limit: &AppliedLimit<'a>) -> Option<&'a Limit> {
    match limit {
        AppliedLimit::Counted(counted) => counted.limit,
        _ => None,
    }
}

fn describe(descriptor: &Descriptor) -> Value {
    let mut result = Map::new();
    let entries = descriptor
        .entries
        .iter()
        .map(|entry| Value::from(format!("{}={}", entry.key, entry.value)));
    result.insert("entries".to_owned(), entries.collect());
    if let Some(limit) = descriptor.limit {
        result.insert("limit".to_owned(), override_text(limit).into());
    }
    if let Some(hits) = descriptor.hits_addend {
        result.insert("hitsAddend".to_owned(), (hits as f64).into());
    }
    result.into()
}

/// Returns the protobuf text of an override. Fields with their default are left out; a unit without
/// name is a number.
fn override_text(limit: Override) -> String {
    let mut fields = Vec::new();
    if limit.requests_per_unit != 0 {
        fields.push(format!("requests_per_unit:{}", limit.requests_per_unit));
    }
    match Unit::from_number(limit.unit) {
        _ if limit.unit == 0 => {}
        // The override's own enumeration ends before WEEK.
        Some(unit) if unit != Unit::Week => fields.push(format!("unit:{}", unit.name())),
        _ => fields.push(format!("unit:{}", limit.unit)),
    }
    fields.join(" ")
}

/// Adds missing keys. An existing key keeps its value; two maps are merged.
fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (None, _) => {
                into.insert(key.clone(), value.clone());
            }
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (Some(_), _) => {}
        }
    }
}
