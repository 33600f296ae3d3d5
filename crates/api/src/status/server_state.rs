//! State of the server in short, for `/v1/status`: a word, the stores, and the refused
//! configuration.

use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::time::Rfc3339;
use crate::state::config_status::Loads;
use crate::state::server_hooks::StoreLocations;

/// The state of the server in a word: `draining` when it is about to end, `degraded` when something
/// of `limits` or `workflows` does not work or a configuration was refused, `ok` otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(ToSchema))]
pub(super) enum ServerState {
    Ok,
    Degraded,
    Draining,
}

/// Where the server keeps its state, without credentials.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = ServerStores))]
pub(super) struct Stores<'a> {
    /// Where the counters of rate limits are, such as `redis at 10.0.0.7:6379`.
    counters: &'a str,
    /// Where the workflows are.
    workflows: &'a str,
}

impl<'a> Stores<'a> {
    pub(super) fn new(stores: &'a StoreLocations) -> Self {
        Self {
            counters: &stores.counters,
            workflows: &stores.workflows,
        }
    }
}

/// A refused configuration in short. `GET /v1/limits/configuration` has all mistakes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct RefusedConfiguration<'a> {
    at: Rfc3339,
    /// How many mistakes it has.
    mistakes: usize,
    /// The path of the file, or the resource, with the first mistake; empty when it is about all of them.
    file: &'a str,
    /// The line of the first mistake; null when there is none.
    #[cfg_attr(test, schema(required))]
    line: Option<u32>,
    /// Explanation of the first mistake.
    text: &'a str,
}

impl<'a> RefusedConfiguration<'a> {
    pub(super) fn from_loads(loads: &'a Loads) -> Option<Self> {
        let refused = loads.refused.as_ref()?;
        let first = refused.mistakes.first();
        Some(Self {
            at: refused.at.into(),
            mistakes: refused.mistakes.len() + refused.more,
            file: first.map_or("", |first| loads.path_of(&first.file)),
            line: first.map(|first| first.line).filter(|line| *line > 0),
            text: first.map_or("", |first| &first.text),
        })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_ratelimit::Timestamp;

    use super::*;
    use crate::state::config_status::{Mistake, RefusedLoad};

    #[test]
    fn a_refused_configuration_has_its_first_mistake() {
        let mut loads = Loads::default();
        assert!(RefusedConfiguration::from_loads(&loads).is_none());
        let mistake = |line| Mistake {
            file: "config.shop".to_owned(),
            line,
            text: "invalid rate limit unit 'minutes'".to_owned(),
            ..Mistake::default()
        };
        loads.refused = Some(RefusedLoad {
            at: Timestamp(7),
            mistakes: vec![mistake(6), mistake(9)],
            more: 3,
        });
        loads
            .paths
            .insert("config.shop".to_owned(), "config/shop.yaml".to_owned());
        let shown = RefusedConfiguration::from_loads(&loads).unwrap();
        assert_eq!(
            (shown.mistakes, shown.file, shown.line, shown.text),
            (
                5,
                "config/shop.yaml",
                Some(6),
                "invalid rate limit unit 'minutes'"
            )
        );
        loads.refused.as_mut().unwrap().mistakes = vec![mistake(0)];
        let shown = RefusedConfiguration::from_loads(&loads).unwrap();
        assert_eq!(shown.line, None, "it is about the file as a whole");
    }
}
