//! Reduces a descriptor set to what is needed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use prost_types::{DescriptorProto, FileDescriptorSet};

/// Parts of a descriptor set that are kept.
pub struct Selection<'a> {
    /// A service, with the messages and enums that its methods reach.
    pub service: Option<&'a str>,
    /// Messages, with those that they reach.
    pub messages: &'a [&'a str],
    /// Messages of which only some fields are kept.
    pub fields: &'a [(&'a str, &'a [&'a str])],
}

/// Keeps what is wanted.
///
/// Nested types stay with the message around them: the generator names them by their place. Options go, and so do
/// dependencies on files of which nothing is left.
///
/// # Errors
/// The set has no such service.
pub fn prune(mut set: FileDescriptorSet, keep: &Selection<'_>) -> Result<FileDescriptorSet> {
    let mut messages = BTreeMap::new();
    let mut wanted: Vec<String> = keep.messages.iter().map(|name| (*name).to_owned()).collect();
    for file in &mut set.file {
        let package = format!(".{}", file.package());
        for message in &mut file.message_type {
            let name = format!("{package}.{}", message.name());
            if let Some((_, fields)) = keep.fields.iter().find(|(of, _)| *of == name) {
                message.field.retain(|field| fields.contains(&field.name()));
                // None of the fields that are kept is in a oneof or of a nested type.
                message.oneof_decl.clear();
                message.nested_type.clear();
            }
        }
    }
    for file in &set.file {
        let package = format!(".{}", file.package());
        for message in &file.message_type {
            messages.insert(format!("{package}.{}", message.name()), message.clone());
        }
        for found in file.service.iter().filter(|found| Some(&*format!("{package}.{}", found.name())) == keep.service) {
            let types = found.method.iter().flat_map(|method| [method.input_type(), method.output_type()]);
            wanted.extend(types.map(str::to_owned));
        }
    }
    wanted.first().with_context(|| format!("there is no service {:?}", keep.service))?;

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
        let is_kept = |name: &str| kept.contains(&format!("{package}.{name}"));
        file.message_type.retain(|message| is_kept(message.name()));
        file.enum_type.retain(|found| is_kept(found.name()));
        file.service.retain(|found| Some(&*format!("{package}.{}", found.name())) == keep.service);
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
