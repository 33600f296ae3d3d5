//! `tidegate store migrate`: rewrites everything in the store in the latest format, in small steps,
//! while servers use it.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tidegate_workflow::{Partition, Store, StoreError, WorkflowId};
use tokio::time::sleep;

use super::store::OpenStore;
use crate::VERSION;
use tidegate_cli::{Exit, Failure, Screen, counted};

/// Time in which all servers notice the migration: each checks every 10 s. Until then they write
/// the earlier format.
const NOTICED: Duration = Duration::from_secs(12);

/// Options of a migration.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Migrate {
    /// Servers of earlier versions are stopped: they cannot read what this version writes
    #[arg(long)]
    yes: bool,
}

/// Progress of the migration.
#[derive(Debug, Default)]
struct Done {
    rewritten: u64,
    unreadable: BTreeMap<WorkflowId, StoreError>,
}

pub(crate) async fn run(
    here: &OpenStore,
    asked: Migrate,
    screen: &Screen,
) -> Result<Exit, Failure> {
    let store = here.engine.store();
    let from = store.format().schema();
    let begins = !store.is_latest();
    // A server of an earlier version may have written after the end of a migration.
    let needed = begins || earlier(here).await? > 0;
    let mut done = Done::default();
    if needed {
        agree(here, asked, from).await?;
    }
    if begins {
        store
            .begin_migration()
            .await
            .map_err(|error| here.refused(&error))?;
        if let Store::Redis(_) = store {
            sleep(NOTICED).await;
        }
    }
    if needed {
        done.all(here).await?;
    }
    if begins && done.unreadable.is_empty() {
        store
            .end_migration()
            .await
            .map_err(|error| here.refused(&error))?;
    }
    done.report(here, needed, screen)
}

/// Checks whether the migration may begin.
///
/// # Errors
/// Servers of other versions use the store; or the user did not confirm that there are none, since
/// the earliest versions do not report.
async fn agree(here: &OpenStore, asked: Migrate, schema: u32) -> Result<(), Failure> {
    let store = here.engine.store();
    let shown = &here.shown;
    let refused = |text: String| Err(Failure::new(Exit::Refused, text));
    let servers = here
        .engine
        .read_servers(here.clock.now())
        .await
        .map_err(|error| here.refused(&error))?;
    let others = servers
        .iter()
        .filter(|server| server.about.version != VERSION);
    let others: Vec<_> = others
        .map(|server| {
            format!(
                "version {} at {}",
                server.about.version, server.about.address
            )
        })
        .collect();
    if !others.is_empty() {
        let others = others.join(", ");
        return refused(format!(
            "{shown} is used by servers of other versions than this one ({VERSION}): {others}. Stop them first"
        ));
    }
    if asked.yes || store.is_migrating() || !matches!(store, Store::Redis(_)) {
        return Ok(());
    }
    refused(format!(
        "{shown} has schema version {schema}. Servers of earlier versions, of which not all can be seen, cannot read what is written after \
         the migration: stop all that do not run this version ({VERSION}), then use --yes. Servers of this version may go on running"
    ))
}

impl Done {
    /// Rewrites the store until no readable workflow of an earlier format is left.
    async fn all(&mut self, here: &OpenStore) -> Result<(), Failure> {
        while self.pass(here).await? > 0 {}
        Ok(())
    }

    /// Rewrites workflows of an earlier format in one pass. Returns their number, without those
    /// that cannot be read.
    async fn pass(&mut self, here: &OpenStore) -> Result<u64, Failure> {
        let store = here.engine.store();
        let mut found = 0;
        for partition in (0..store.partitions()).map(Partition) {
            let mut after = None;
            loop {
                let page = store
                    .earlier(partition, after.as_ref())
                    .await
                    .map_err(|error| here.refused(&error))?;
                let ids: Vec<_> = page
                    .ids
                    .into_iter()
                    .filter(|id| !self.unreadable.contains_key(id))
                    .collect();
                let rewritten = store
                    .rewrite(partition, &ids, here.clock.now())
                    .await
                    .map_err(|error| here.refused(&error))?;
                self.rewritten += rewritten.done;
                found += (ids.len() - rewritten.unreadable.len()) as u64;
                self.unreadable.extend(rewritten.unreadable);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Prints the rewritten and the remaining workflows, as text or JSON.
    fn report(self, here: &OpenStore, needed: bool, screen: &Screen) -> Result<Exit, Failure> {
        let schema = here.engine.store().format().schema();
        let left: Vec<_> = self
            .unreadable
            .iter()
            .map(|(id, error)| json!({ "workflow": id.to_string(), "reason": error.to_string() }))
            .collect();
        let json = json!({
            "store": here.shown, "schema": schema, "migrated": needed && left.is_empty(),
            "rewritten": self.rewritten, "left": left,
        });
        screen.object(&json.to_string(), &here.shown, || {
            let store = &here.shown;
            let mut text = if needed {
                let rewritten = counted(self.rewritten, "workflow");
                format!("{store} has schema version {schema} now; rewritten: {rewritten}\n")
            } else {
                format!(
                    "nothing to do: {store} has schema version {schema}, the latest of this program\n"
                )
            };
            for (id, error) in &self.unreadable {
                text += &format!("left as it is: {id}: {error}\n");
            }
            Ok(text)
        })?;
        if self.unreadable.is_empty() {
            Ok(Exit::Done)
        } else {
            Ok(Exit::Failed)
        }
    }
}

/// Number of workflows in an earlier format. In a store of the latest schema only Redis is
/// searched: no other process writes to a SQLite file.
pub(crate) async fn earlier(here: &OpenStore) -> Result<u64, Failure> {
    let store = here.engine.store();
    match store {
        Store::Redis(_) if store.is_latest() => {}
        _ if store.is_migrating() => {}
        _ if store.is_latest() => return Ok(0),
        _ => {
            let counts = here.counts().await?;
            return Ok(counts.iter().map(|(_, number)| *number).sum());
        }
    }
    let mut earlier = 0;
    for partition in (0..store.partitions()).map(Partition) {
        let mut after = None;
        loop {
            let page = store
                .earlier(partition, after.as_ref())
                .await
                .map_err(|error| here.refused(&error))?;
            earlier += page.ids.len() as u64;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(earlier)
}
