//! Reduces a descriptor set to what one service reaches.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use prost_types::{DescriptorProto, FileDescriptorSet};

/// Keeps `service`, and the messages and enums that its methods reach.
///
/// Nested types stay with the message around them: the generator names them by their place. Options go, and so do
/// dependencies on files of which nothing is left.
///
/// # Errors
/// The set has no such service.
pub fn prune(mut set: FileDescriptorSet, service: &str) -> Result<FileDescriptorSet> {
    let mut messages = BTreeMap::new();
    let mut wanted = Vec::new();
    for file in &set.file {
        let package = format!(".{}", file.package());
        for message in &file.message_type {
            messages.insert(format!("{package}.{}", message.name()), message.clone());
        }
        for found in file.service.iter().filter(|found| format!("{package}.{}", found.name()) == service) {
            wanted.extend(found.method.iter().flat_map(|method| [method.input_type(), method.output_type()]));
        }
    }
    let mut wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
    wanted.first().with_context(|| format!("there is no service {service}"))?;

    let mut kept = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        let top = messages.keys().find(|top| name == **top || name.starts_with(&format!("{top}."))).cloned();
        let name = top.unwrap_or(name); // not a message: an enum
        if kept.insert(name.clone())
            && let Some(message) = messages.get(&name)
        {
            references(message, &mut wanted);
        }
    }

    for file in &mut set.file {
        let package = format!(".{}", file.package());
        let keep = |name: &str| kept.contains(&format!("{package}.{name}"));
        file.message_type.retain(|message| keep(message.name()));
        file.enum_type.retain(|found| keep(found.name()));
        file.service.retain(|found| format!("{package}.{}", found.name()) == service);
        file.extension.clear();
        file.public_dependency.clear();
        file.weak_dependency.clear();
        file.message_type.iter_mut().for_each(strip_options);
        file.enum_type.iter_mut().for_each(|found| found.options = None);
    }
    // The well-known types stay: the generator looks at their fields, and leaves their code to prost-types.
    set.file.retain(|file| !(file.message_type.is_empty() && file.enum_type.is_empty() && file.service.is_empty()));
    let left: BTreeSet<String> = set.file.iter().map(|file| file.name().to_owned()).collect();
    set.file.iter_mut().for_each(|file| file.dependency.retain(|name| left.contains(name)));
    Ok(set)
}

fn references(message: &DescriptorProto, out: &mut Vec<String>) {
    out.extend(
        message.field.iter().filter(|field| !field.type_name().is_empty()).map(|field| field.type_name().to_owned()),
    );
    message.nested_type.iter().for_each(|nested| references(nested, out));
}

/// Drops deprecation marks and extensions; a map entry stays marked as one.
fn strip_options(message: &mut DescriptorProto) {
    if !message.options.as_ref().is_some_and(|options| options.map_entry()) {
        message.options = None;
    }
    message.field.iter_mut().for_each(|field| field.options = None);
    message.nested_type.iter_mut().for_each(strip_options);
    message.enum_type.iter_mut().for_each(|found| found.options = None);
}
