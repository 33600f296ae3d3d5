//! `tidegate limit top`: the keys with the most hits, and the latest refusals.

use serde::Deserialize;

use super::target::shown;
use crate::client::exit::{Exit, Failure};
use crate::client::remote::{Ask, Remote};
use crate::output::Screen;
use crate::output::moment::Moment;
use crate::output::table::{Cell, Table};

/// The answer of the server.
#[derive(Debug, Deserialize)]
struct Top {
    since: Moment,
    keys: Vec<Key>,
    refusals: Vec<Refusal>,
}

#[derive(Debug, Deserialize)]
struct Key {
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

pub(super) async fn show(remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let text = remote.text(&Ask::get("/v1/limits/top")).await?;
    let top: Top = remote.parse(&text)?;
    screen.object(&text, "top", || Ok(top.text(screen)))?;
    Ok(Exit::Done)
}

impl Top {
    /// Text of both tables.
    fn text(&self, screen: &Screen) -> String {
        let now = Moment::now();
        let moment = |at: Moment| {
            if screen.is_wide() {
                at.to_string()
            } else {
                at.relative(now)
            }
        };
        let mut keys = Table::new(&["HITS", "DOMAIN", "KEY"]);
        for key in &self.keys {
            let hits = if key.is_estimate {
                format!("about {}", key.hits)
            } else {
                key.hits.to_string()
            };
            keys.row(vec![
                hits.into(),
                Cell::from(&key.domain),
                Cell::from(shown(&key.entries)),
            ]);
        }
        let mut refusals = Table::new(&["REFUSED", "CALLER", "DOMAIN", "KEY"]);
        for refusal in &self.refusals {
            let entries = Cell::from(shown(&refusal.entries));
            refusals.row(vec![
                moment(refusal.at).into(),
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
