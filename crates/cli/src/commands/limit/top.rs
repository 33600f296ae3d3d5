//! `tidegate limit top`: the keys with the most hits, and the latest refusals.

use serde::Deserialize;

use crate::client::api_client::ApiClient;
use crate::client::model::entries_text;
use crate::output::Screen;
use crate::output::exit::CommandResult;
use crate::output::moment::Moment;
use crate::output::table::{Cell, Table};

/// The answer of the server.
#[derive(Debug, Deserialize)]
struct TopAnswer {
    since: Moment,
    keys: Vec<TopKey>,
    refusals: Vec<Refusal>,
}

#[derive(Debug, Deserialize)]
struct TopKey {
    domain: String,
    entries: Vec<(String, String)>,
    hits: u64,
    #[serde(default = "estimated")]
    is_estimate: bool,
}

/// The default of `is_estimate`: the hits of a server that does not send it are estimates.
fn estimated() -> bool {
    true
}

#[derive(Debug, Deserialize)]
struct Refusal {
    at: Moment,
    caller: String,
    domain: String,
    entries: Vec<(String, String)>,
}

pub(super) async fn show(remote: &ApiClient, screen: &Screen) -> CommandResult {
    let text = remote.get("/v1/limits/top").await?;
    let top: TopAnswer = remote.parse(&text)?;
    screen.object(&text, "top", || Ok(top.text(screen)))
}

impl TopAnswer {
    /// Text of both tables.
    fn text(&self, screen: &Screen) -> String {
        let now = Moment::now();
        let mut keys = Table::new(&["HITS", "DOMAIN", "KEY"]);
        for key in &self.keys {
            let hits = if key.is_estimate {
                format!("about {}", key.hits)
            } else {
                key.hits.to_string()
            };
            keys.add_row(vec![
                hits.into(),
                Cell::from(&key.domain),
                Cell::from(entries_text(&key.entries)),
            ]);
        }
        let mut refusals = Table::new(&["REFUSED", "CALLER", "DOMAIN", "KEY"]);
        for refusal in &self.refusals {
            let entries = Cell::from(entries_text(&refusal.entries));
            refusals.add_row(vec![
                screen.moment(refusal.at, now).into(),
                Cell::from(&refusal.caller),
                Cell::from(&refusal.domain),
                entries,
            ]);
        }
        let part = |table: &Table, is_empty, nothing: &str| {
            if is_empty {
                format!("{nothing}\n")
            } else {
                table.text(screen)
            }
        };
        let nothing = format!("no hits since {}", self.since.to_the_second());
        let keys = part(&keys, self.keys.is_empty(), &nothing);
        keys + "\n" + &part(&refusals, self.refusals.is_empty(), "nothing was refused")
    }
}
