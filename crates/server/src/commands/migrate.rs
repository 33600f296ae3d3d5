//! `tidegate store migrate`: rewrites everything in the store in the latest format, in small steps,
//! while servers use it.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tidegate_workflow::{Partition, Store, StoreError, WorkflowId};
use tokio::time::sleep;

use super::open_store::OpenStore;
use crate::VERSION;
use tidegate_cli::{CommandResult, Exit, Failure, Screen, counted};

/// Time in which all servers notice the migration: each checks every 10 s. Until then they write
/// the earlier format.
const NOTICE_TIME: Duration = Duration::from_secs(12);

/// Options of a migration.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct MigrateArgs {
    /// Servers of earlier versions are stopped: they cannot read what this version writes
    #[arg(long)]
    yes: bool,
}

/// Progress of the migration.
#[derive(Debug, Default)]
struct MigrationProgress {
    rewritten: u64,
    unreadable: BTreeMap<WorkflowId, StoreError>,
}

pub(crate) async fn run(
    open_store: &OpenStore,
    arguments: MigrateArgs,
    screen: &Screen,
) -> CommandResult {
    let store = open_store.engine.store();
    let from = store.format().schema();
    let begins = !store.is_latest();
    // A server of an earlier version may have written after the end of a migration.
    let needed = begins || count_earlier(open_store).await? > 0;
    let mut done = MigrationProgress::default();
    if needed {
        check_allowed(open_store, arguments, from).await?;
    }
    if begins {
        open_store.checked(store.begin_migration().await)?;
        if let Store::Redis(_) = store {
            sleep(NOTICE_TIME).await;
        }
    }
    if needed {
        done.rewrite_all(open_store).await?;
    }
    if begins && done.unreadable.is_empty() {
        open_store.checked(store.end_migration().await)?;
    }
    done.report(open_store, needed, screen)
}

/// Checks whether the migration may begin.
///
/// # Errors
/// Servers of other versions use the store; or the user did not confirm that there are none, since
/// the earliest versions do not report.
async fn check_allowed(
    open_store: &OpenStore,
    arguments: MigrateArgs,
    schema: u32,
) -> CommandResult<()> {
    let store = open_store.engine.store();
    let shown = &open_store.location;
    let refused = |text: String| Err(Failure::new(Exit::Refused, text));
    let others = servers_of_other_versions(open_store).await?.join(", ");
    if !others.is_empty() {
        return refused(format!(
            "{shown} is used by servers of other versions than this one ({VERSION}): {others}. Stop them first"
        ));
    }
    if arguments.yes || store.is_migrating() || !matches!(store, Store::Redis(_)) {
        return Ok(());
    }
    refused(format!(
        "{shown} has schema version {schema}. Servers of earlier versions, of which not all can be seen, cannot read what is written after \
         the migration: stop all that do not run this version ({VERSION}), then use --yes. Servers of this version may go on running"
    ))
}

/// Version and address of each server of another version that uses the store.
async fn servers_of_other_versions(open_store: &OpenStore) -> CommandResult<Vec<String>> {
    let servers = open_store.members().await?;
    let servers = servers.iter().map(|server| &server.description);
    Ok(servers
        .filter(|server| server.version != VERSION)
        .map(|server| format!("version {} at {}", server.version, server.address))
        .collect())
}

impl MigrationProgress {
    /// Rewrites the store until no readable workflow of an earlier format is left.
    async fn rewrite_all(&mut self, open_store: &OpenStore) -> CommandResult<()> {
        while self.rewrite_pass(open_store).await? > 0 {}
        Ok(())
    }

    /// Rewrites workflows of an earlier format in one pass. Returns their number, without those
    /// that cannot be read.
    async fn rewrite_pass(&mut self, open_store: &OpenStore) -> CommandResult<u64> {
        let mut found = 0;
        for_each_outdated(open_store, async |partition, mut ids| {
            ids.retain(|id| !self.unreadable.contains_key(id));
            let now = open_store.clock.now();
            let store = open_store.engine.store();
            let rewritten = open_store.checked(store.rewrite(partition, &ids, now).await)?;
            self.rewritten += rewritten.written;
            found += (ids.len() - rewritten.unreadable.len()) as u64;
            self.unreadable.extend(rewritten.unreadable);
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Prints the rewritten and the remaining workflows, as text or JSON.
    fn report(&self, open_store: &OpenStore, needed: bool, screen: &Screen) -> CommandResult {
        let schema = open_store.engine.store().format().schema();
        let left: Vec<_> = self
            .unreadable
            .iter()
            .map(|(id, error)| json!({ "workflow": id.to_string(), "reason": error.to_string() }))
            .collect();
        let json = json!({
            "store": open_store.location, "schema": schema, "migrated": needed && left.is_empty(),
            "rewritten": self.rewritten, "left": left,
        });
        screen.object(&json.to_string(), &open_store.location, || {
            Ok(self.text(&open_store.location, schema, needed))
        })?;
        Ok(if self.unreadable.is_empty() {
            Exit::Done
        } else {
            Exit::Failed
        })
    }

    /// Report for people on the store at `store`, which has the schema version `schema` now.
    fn text(&self, store: &str, schema: u32, needed: bool) -> String {
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
        text
    }
}

/// Number of workflows in an earlier format. In a store of the latest schema only Redis is
/// searched: no other process writes to a SQLite file.
pub(crate) async fn count_earlier(open_store: &OpenStore) -> CommandResult<u64> {
    let store = open_store.engine.store();
    match store {
        Store::Redis(_) if store.is_latest() => {}
        _ if store.is_migrating() => {}
        _ if store.is_latest() => return Ok(0),
        _ => {
            let counts = open_store.counts().await?;
            return Ok(counts.iter().map(|(_, number)| *number).sum());
        }
    }
    let mut earlier = 0;
    for_each_outdated(open_store, async |_, ids| {
        earlier += ids.len() as u64;
        Ok(())
    })
    .await?;
    Ok(earlier)
}

/// Calls `action` with the workflows of an earlier format, page by page.
async fn for_each_outdated(
    open_store: &OpenStore,
    mut action: impl AsyncFnMut(Partition, Vec<WorkflowId>) -> CommandResult<()>,
) -> CommandResult<()> {
    let store = open_store.engine.store();
    for partition in (0..store.partitions()).map(Partition) {
        let mut after = None;
        loop {
            let page = store.outdated_workflows(partition, after.as_ref()).await;
            let page = open_store.checked(page)?;
            action(partition, page.ids).await?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}
