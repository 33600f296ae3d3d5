//! Active configuration of the limits with the counts of each limit, and the errors of a refused
//! one.
//!
//! A configuration can have hundreds of thousands of descriptors. An answer has those of one level,
//! and the levels below while they fit. Its cost grows with its own size only.

mod activity;
mod level_query;
mod load_view;
mod search;
mod shown;

use serde::Serialize;
use tidegate_ratelimit::{Configuration, Domain, Entry, Level, Node};
#[cfg(test)]
use utoipa::ToSchema;

use self::activity::{Activity, AnswerLimits};
use self::level_query::LevelQuery;
pub(crate) use self::load_view::LoadShown;
#[cfg(test)]
pub(crate) use self::load_view::SOURCES;
pub(crate) use self::search::{FoundLimit, limits_with};
use self::search::{SearchResult, search};
#[cfg(test)]
use self::shown::FoundShown;
use self::shown::{DescriptorShown, DomainShown};
use crate::Loads;
use crate::http::json::{self, Verbatim};
use crate::http::problem::{Code, Problem};
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};

/// Most bytes of all descriptors in an answer. A typical one has 600 bytes, and none has half of
/// this maximum.
const MAX_DESCRIPTORS_BYTES: usize = 168 * 1024;

/// One level of the configuration.
#[derive(Serialize)]
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

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let level_query = LevelQuery::parse(request.query)?;
    let host = &request.api.hooks;
    let loads = (host.loads)();
    let overrides = host.limits.limiter.overrides();
    // The configuration is held until its hits were read, so that no other limits get its slots.
    let configuration = host.limits.limiter.configuration();
    let configuration = configuration.as_deref();
    let mut shown = ConfigurationShown {
        version: loads.active.map_or(0, |in_force| in_force.version),
        counted_at: host.limits.now().into(),
        load: None,
        domains: None,
        descriptors: None,
        found: None,
        next_cursor: None,
    };
    let activity = configuration.map(|configuration| Activity {
        host,
        loads: &loads,
        configuration,
        overrides: &overrides,
    });
    let page = match &activity {
        None if level_query.domain.is_some() => None,
        None => Some(Page::empty()),
        Some(activity) => page(activity, &level_query).await,
    };
    let page = page.ok_or_else(|| no_level(&level_query, configuration))?;
    shown.next_cursor = page.next;
    if level_query.find.is_some() {
        shown.found = page.items;
    } else if level_query.domain.is_some() {
        shown.descriptors = page.items;
    } else {
        shown.load = Some(LoadShown::new(&loads, configuration));
        shown.domains = page.items;
    }
    Ok(json::ok(&shown))
}

fn no_level(level_query: &LevelQuery, configuration: Option<&Configuration>) -> Problem {
    let why = configuration.and_then(|configuration| level_query.explain_missing(configuration));
    let missing = "the configuration has no descriptor with this domain and entries";
    Problem::new(
        Code::DescriptorNotFound,
        why.unwrap_or_else(|| missing.to_owned()),
    )
}

/// Returns the page that a query is for. `None` if there is no such level.
async fn page(activity: &Activity<'_>, level_query: &LevelQuery) -> Option<Page> {
    if let Some(text) = &level_query.find {
        let found = search(
            activity.configuration,
            text,
            level_query.limit,
            &level_query.from,
        );
        Some(search_page(activity, found).await)
    } else if let Some(name) = &level_query.domain {
        descriptors(activity, name, level_query).await
    } else {
        Some(domains(activity, level_query).await)
    }
}

/// A list of items as JSON, and the cursor of the next.
struct Page {
    items: Option<Verbatim<'static>>,
    next: Option<String>,
}

impl Page {
    /// Makes the page of a server without a configuration.
    fn empty() -> Self {
        Self {
            items: Some(Verbatim("[]".into())),
            next: None,
        }
    }
}

/// Writes a page of search results.
async fn search_page<'c>(activity: &Activity<'c>, found: SearchResult<'c>) -> Page {
    let SearchResult {
        mut items,
        cursors,
        next,
    } = found;
    let mut limits = AnswerLimits::new(activity.loads);
    for item in &mut items {
        item.add_limits(&mut limits);
    }
    activity.add_to(limits).await;
    write_page(items, next, |at| cursors[at].clone(), |_| false)
}

/// Writes a page of domains.
async fn domains(activity: &Activity<'_>, level_query: &LevelQuery) -> Page {
    let all = activity.configuration.domains(level_query.start());
    let has_more = all.len() > level_query.limit;
    let page_domains: Vec<(&str, &Domain)> = all.take(level_query.limit).collect();
    let mut remaining = level_query.limit - page_domains.len();
    let shown = page_domains.iter().map(|&(name, domain)| {
        let shown = DomainShown::new(name, domain);
        if reserve(&mut remaining, &domain.level) {
            shown.with_descriptors(domain)
        } else {
            shown
        }
    });
    let mut shown: Vec<DomainShown<'_>> = shown.collect();
    let mut limits = AnswerLimits::new(activity.loads);
    for (domain, (name, _)) in shown.iter_mut().zip(&page_domains) {
        domain.show_paths(activity.loads);
        for descriptor in domain.descriptors.iter_mut().flatten() {
            limits.add(descriptor, name, Some(&[]));
        }
    }
    activity.add_to(limits).await;
    let cursor = |at: usize| (level_query.start() + at).to_string();
    write_page(
        shown,
        has_more.then(|| cursor(page_domains.len())),
        cursor,
        |domain| domain.descriptors.take().is_some(),
    )
}

/// Writes a page of the descriptors of a level. `None` if the domain has no such level.
async fn descriptors(
    activity: &Activity<'_>,
    name: &str,
    level_query: &LevelQuery,
) -> Option<Page> {
    let domain = activity.configuration.domain_named(name)?;
    let (level, file) = level_query.level(domain)?;
    let start = level_query.start();
    let (page_nodes, rest) = split_page(level.nodes(), start, level_query.limit);
    let mut remaining = level_query.limit - page_nodes.len();
    let shown = page_nodes.iter().zip(start..).map(|(node, place)| {
        let file = file.unwrap_or_else(|| domain.file_of(place));
        shown_within(&mut remaining, node, file)
    });
    let mut shown: Vec<DescriptorShown<'_>> = shown.collect();
    let parents = level_query.only_entries();
    let limits = limits_of(&mut shown, activity.loads, name, parents.as_deref());
    activity.add_to(limits).await;
    let cursor = |at: usize| (start + at).to_string();
    let next = (!rest.is_empty()).then(|| cursor(page_nodes.len()));
    Some(write_page(shown, next, cursor, |descriptor| {
        descriptor.descriptors.take().is_some()
    }))
}

/// The nodes of a page that begins at `start`, and those after it.
fn split_page(nodes: &[Node], start: usize, limit: usize) -> (&[Node], &[Node]) {
    let nodes = nodes.get(start..).unwrap_or_default();
    nodes.split_at(nodes.len().min(limit))
}

/// The limits of some descriptors, so that their use can be added.
fn limits_of<'s, 'c>(
    shown: &'s mut [DescriptorShown<'c>],
    loads: &'c Loads,
    domain: &'s str,
    parents: Option<&[Entry]>,
) -> AnswerLimits<'s, 'c> {
    let mut limits = AnswerLimits::new(loads);
    for descriptor in shown {
        limits.add(descriptor, domain, parents);
    }
    limits
}

/// The node with all descriptors below it, if there is room for them, or alone.
fn shown_within<'a>(remaining: &mut usize, node: &'a Node, file: &'a str) -> DescriptorShown<'a> {
    let shown = DescriptorShown::new(node, file);
    if reserve(remaining, &node.below) {
        shown.with_descriptors(node, 1)
    } else {
        shown
    }
}

/// Reserves room for all descriptors below a level, if there is enough.
fn reserve(remaining: &mut usize, level: &Level) -> bool {
    let size = level.descriptors();
    let fits = size <= *remaining;
    if fits {
        *remaining -= size;
    }
    fits
}

/// Writes the items that fit as a JSON list. Returns the cursor of the first item that does not
/// fit, or else `next`. `without_below` makes an item smaller, if it can.
fn write_page<T: Serialize>(
    mut items: Vec<T>,
    next: Option<String>,
    cursor: impl Fn(usize) -> String,
    without_below: impl Fn(&mut T) -> bool,
) -> Page {
    let append =
        |text: &mut Vec<u8>, item: &T| json::append_within(text, MAX_DESCRIPTORS_BYTES, item);
    let (text, number) = json::list_while(&mut items, |text, item| {
        append(text, item) || (without_below(item) && append(text, item))
    });
    let next = if number < items.len() {
        Some(cursor(number))
    } else {
        next
    };
    let text = String::from_utf8(text).expect("JSON that serde writes is UTF-8");
    Page {
        items: Some(Verbatim(text.into())),
        next,
    }
}
