//! Active configuration of the limits with the counts of each limit, and the errors of a refused
//! one.
//!
//! A configuration can have hundreds of thousands of descriptors. An answer has those of one level,
//! and the levels below while they fit. Its cost grows with its own size only.

mod load;
pub(crate) mod loads;
mod search;
mod shown;
mod wanted;

use std::borrow::Cow;

use serde::Serialize;
use tidegate_ratelimit::{Configuration, Domain, Level, Node};
#[cfg(test)]
use utoipa::ToSchema;

pub(crate) use self::load::LoadShown;
#[cfg(test)]
pub(crate) use self::load::SOURCES;
use self::search::{Found, search};
use self::shown::{DescriptorShown, DomainShown, FoundShown, UseShown};
use self::wanted::Wanted;
use super::moment;
use crate::http::json::{self, Verbatim};
use crate::http::problem::{Code, Problem};
use crate::http::request::{Answer, RequestContext, ServerHooks};
use crate::http::time::Rfc3339;

/// Most bytes of all descriptors in an answer. A typical one has 400 bytes, and none has half of
/// this maximum.
const MOST_BYTES: usize = 168 * 1024;

/// One level of the configuration.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitConfiguration))]
pub(crate) struct ConfigurationShown<'a> {
    /// How many configurations this server has put in force since it started, with this one; 0 before there is one.
    version: u64,
    /// When hits were read: two answers give rates.
    counted_at: Rfc3339,
    /// Where the configuration comes from, and what is wrong. Left out when a domain was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<LoadShown<'a>>,
    /// The domains in the order of the files. Left out when one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Vec<DomainShown>>))]
    domains: Option<Verbatim<'a>>,
    /// The descriptors of the level that was asked for, in the order of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Vec<DescriptorShown>>))]
    descriptors: Option<Verbatim<'a>>,
    /// The descriptors that were searched for, in the order of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Vec<FoundShown>>))]
    found: Option<Verbatim<'a>>,
    /// The cursor of the next page; null when this is the last. Of a search, there may be a next page after one that is not full, or empty.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<String>,
}

pub(crate) async fn show(ask: &RequestContext<'_>) -> Answer {
    let wanted = Wanted::of(ask.query)?;
    let host = &ask.api.host;
    let loads = (host.loads)();
    // The configuration is held until its hits were read, so that no other limits get its slots.
    let configuration = host.limits.limiter.configuration();
    let configuration = configuration.as_deref();
    let mut shown = ConfigurationShown {
        version: loads.in_force.map_or(0, |in_force| in_force.version),
        counted_at: moment(host.limits.now()),
        load: None,
        domains: None,
        descriptors: None,
        found: None,
        next_cursor: None,
    };
    if let Some(text) = &wanted.find {
        let found = configuration.map(|known| search(known, text, wanted.limit, &wanted.from));
        let (text, next) =
            found.map_or_else(|| (b"[]".to_vec(), None), |found| counted(host, found));
        shown.found = Some(Verbatim(Cow::Owned(utf8(text))));
        shown.next_cursor = next;
        return Ok(json::ok(&shown));
    }
    let Some(name) = &wanted.domain else {
        let (text, next) = configuration.map_or_else(
            || (b"[]".to_vec(), None),
            |known| domains(host, known, &wanted),
        );
        shown.load = Some(LoadShown::of(&loads, configuration));
        shown.domains = Some(Verbatim(Cow::Owned(utf8(text))));
        shown.next_cursor = next;
        return Ok(json::ok(&shown));
    };
    let level = configuration
        .and_then(|known| known.domain_named(name))
        .and_then(|domain| {
            let (level, file) = wanted.level(domain)?;
            Some((domain, level, file))
        });
    let missing = || {
        Problem::new(
            Code::DescriptorNotFound,
            "the configuration has no descriptor with this domain and entries",
        )
    };
    let (domain, level, file) = level.ok_or_else(missing)?;
    let file_of = |place: usize| file.unwrap_or_else(|| domain.file_of(place));
    let (text, next) = descriptors(host, level, file_of, &wanted);
    shown.descriptors = Some(Verbatim(Cow::Owned(utf8(text))));
    shown.next_cursor = next;
    Ok(json::ok(&shown))
}

fn utf8(text: Vec<u8>) -> String {
    String::from_utf8(text).expect("JSON that serde writes is UTF-8")
}

/// Writes a page of search results.
fn counted(host: &ServerHooks, found: Found<'_>) -> (Vec<u8>, Option<String>) {
    let Found {
        mut items,
        cursors,
        next,
    } = found;
    count(host, items.iter_mut().map(FoundShown::descriptor));
    page(items, next, |at| cursors[at].clone(), |_| false)
}

/// Writes a page of domains.
fn domains(
    host: &ServerHooks,
    configuration: &Configuration,
    wanted: &Wanted,
) -> (Vec<u8>, Option<String>) {
    let all = configuration.domains(wanted.place());
    let more = all.len() > wanted.limit;
    let here: Vec<(&str, &Domain)> = all.take(wanted.limit).collect();
    let mut room = wanted.limit - here.len();
    let shown = here.iter().map(|&(name, domain)| {
        let shown = DomainShown::of(name, domain);
        if takes(&mut room, &domain.level) {
            shown.with_descriptors(domain)
        } else {
            shown
        }
    });
    let mut shown: Vec<DomainShown<'_>> = shown.collect();
    count(
        host,
        shown
            .iter_mut()
            .flat_map(|domain| domain.descriptors.iter_mut().flatten()),
    );
    let cursor = |at: usize| (wanted.place() + at).to_string();
    page(shown, more.then(|| cursor(here.len())), cursor, |domain| {
        domain.descriptors.take().is_some()
    })
}

/// Writes a page of the descriptors of a level.
fn descriptors<'c>(
    host: &ServerHooks,
    level: &'c Level,
    file_of: impl Fn(usize) -> &'c str,
    wanted: &Wanted,
) -> (Vec<u8>, Option<String>) {
    let all: &[Node] = level.nodes().get(wanted.place()..).unwrap_or_default();
    let here = &all[..all.len().min(wanted.limit)];
    let mut room = wanted.limit - here.len();
    let shown = here.iter().zip(wanted.place()..).map(|(node, place)| {
        let shown = DescriptorShown::of(node, file_of(place));
        if takes(&mut room, &node.below) {
            shown.with_descriptors(node, 1)
        } else {
            shown
        }
    });
    let mut shown: Vec<DescriptorShown<'_>> = shown.collect();
    count(host, shown.iter_mut());
    let cursor = |at: usize| (wanted.place() + at).to_string();
    let next = (all.len() > here.len()).then(|| cursor(here.len()));
    page(shown, next, cursor, |descriptor| {
        descriptor.descriptors.take().is_some()
    })
}

/// Reserves room for all descriptors below a level, if there is enough.
fn takes(room: &mut usize, level: &Level) -> bool {
    let size = level.descriptors();
    let fits = size <= *room;
    if fits {
        *room -= size;
    }
    fits
}

/// Adds the counts of the limits.
fn count<'s, 'c: 's>(host: &ServerHooks, shown: impl Iterator<Item = &'s mut DescriptorShown<'c>>) {
    let mut places: Vec<(u32, &mut Option<UseShown>)> = Vec::new();
    for descriptor in shown {
        descriptor.each_counted(&mut places);
    }
    let slots: Vec<u32> = places.iter().map(|(slot, _)| *slot).collect();
    for ((_, place), counted) in places.into_iter().zip((host.uses)(&slots)) {
        *place = Some(counted.into());
    }
}

/// Writes the items that fit as a JSON list. Returns the cursor of the first item that does not
/// fit, or else `next`. `without_below` makes an item smaller, if it can.
fn page<T: Serialize>(
    mut items: Vec<T>,
    next: Option<String>,
    cursor: impl Fn(usize) -> String,
    without_below: impl Fn(&mut T) -> bool,
) -> (Vec<u8>, Option<String>) {
    let mut text = vec![b'['];
    for (at, item) in items.iter_mut().enumerate() {
        let begin = text.len();
        text.extend((at > 0).then_some(b','));
        let fits = json::add_within(&mut text, MOST_BYTES, item)
            || (without_below(item) && json::add_within(&mut text, MOST_BYTES, item));
        if !fits {
            text.truncate(begin);
            text.push(b']');
            return (text, Some(cursor(at)));
        }
    }
    text.push(b']');
    (text, next)
}
