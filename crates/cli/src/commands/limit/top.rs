//! `tidegate limit top`: the keys with the most hits, and the latest refusals.

use serde::Deserialize;

use super::list::significant;
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
    hits_per_second: Option<f64>,
    rule: Option<String>,
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
    let name = |key: &TopKey| format!("{}  {}", key.domain, entries_text(&key.entries));
    let names: Vec<String> = top.keys.iter().map(name).collect();
    screen.object(&text, &names.join("\n"), || Ok(top.text(screen)))
}

impl TopAnswer {
    /// Text of both tables.
    fn text(&self, screen: &Screen) -> String {
        let keys = if self.keys.is_empty() {
            format!("no hits since {}\n", self.since.to_the_second())
        } else {
            self.keys_table().text(screen)
        };
        let refusals = if self.refusals.is_empty() {
            "nothing was refused\n".to_owned()
        } else {
            self.refusals_table(screen).text(screen)
        };
        keys + "\n" + &refusals
    }

    fn keys_table(&self) -> Table {
        let mut table = Table::new(&["HITS", "HITS/S", "DOMAIN", "KEY", "LIMIT"]);
        for key in &self.keys {
            let hits = if key.is_estimate {
                format!("about {}", key.hits)
            } else {
                key.hits.to_string()
            };
            table.add_row(vec![
                hits.into(),
                key.hits_per_second
                    .map(significant)
                    .unwrap_or_default()
                    .into(),
                Cell::from(&key.domain),
                Cell::from(entries_text(&key.entries)),
                key.rule.as_deref().unwrap_or_default().into(),
            ]);
        }
        table
    }

    fn refusals_table(&self, screen: &Screen) -> Table {
        let now = Moment::now();
        let mut table = Table::new(&["REFUSED", "CALLER", "DOMAIN", "KEY"]);
        for refusal in &self.refusals {
            table.add_row(vec![
                screen.moment(refusal.at, now).into(),
                Cell::from(&refusal.caller),
                Cell::from(&refusal.domain),
                Cell::from(entries_text(&refusal.entries)),
            ]);
        }
        table
    }
}
