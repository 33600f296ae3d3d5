//! A process that has given places is killed; they must be taken still.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rusqlite::Connection;
use tidegate_workflow::{LeaseRef, PermitRequest, ServerId};

use super::open_at;
use crate::contract::holders::lease;
use crate::support::at;

/// Set for the process that gives places: where.
const PLACE: &str = "TIDEGATE_TEST_HOLDERS_STORE";
const SERVER: ServerId = ServerId(1);
const LEASE: Duration = Duration::from_secs(60);
const MOST: u32 = 1_000_000;

/// Kills the child whatever happens to the test.
struct Giver(Child);

impl Drop for Giver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gives places and takes every third back, and says on standard output what it was told is done.
#[expect(
    clippy::print_stdout,
    reason = "the test reads what this process prints"
)]
async fn give_until_killed(path: &Path) {
    let store = open_at(path).unwrap();
    for number in 0..50_000 {
        let hold = PermitRequest {
            limit: "set",
            permits: MOST,
            leases: &[lease(number)],
        };
        let held = store
            .acquire_permits(&[hold], SERVER, at(0), LEASE)
            .await
            .remove(0)
            .unwrap();
        assert_eq!(held.granted, 1);
        println!("\nheld {} .", lease(number));
        if number % 3 == 0 {
            assert!(
                store
                    .release_permits(&[("set", lease(number))], SERVER, at(0))
                    .await[0]
                    .is_ok()
            );
            println!("\nreleased {} .", lease(number));
        }
    }
}

#[tokio::test]
async fn places_that_a_killed_server_gave_are_taken() {
    #[expect(
        clippy::disallowed_methods,
        reason = "this process may be the child of the test, which is told so"
    )]
    if let Some(path) = std::env::var_os(PLACE) {
        return give_until_killed(Path::new(&path)).await;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = super::file(&directory);
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "sqlite_store::holders::places_that_a_killed_server_gave_are_taken",
            "--nocapture",
        ])
        .env(PLACE, &path)
        .stdout(Stdio::piped())
        .spawn();
    let mut giver = Giver(child.unwrap());
    let mut held = HashSet::new();
    let mut unsure = HashSet::new();
    let mut told = 0;
    for line in BufReader::new(giver.0.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The kill may cut the last line.
        let [word, name, "."] = line.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let name: LeaseRef = name.parse().unwrap();
        if word == "held" {
            held.insert(name);
            // It may be released already, and nobody heard of it.
            unsure = HashSet::from([name]);
        } else {
            held.remove(&name);
        }
        told += 1;
        if told == 200 {
            giver.0.kill().unwrap();
        }
    }
    assert!(told >= 200, "it ended by itself after {told} lines");
    let store = open_at(&path).unwrap();
    let found = store
        .permit_holders(&["set"], at(1), 100_000)
        .await
        .remove(0);
    let found = found.unwrap().first;
    let found: HashSet<LeaseRef> = found.into_iter().map(|(lease, _)| lease).collect();
    let lost: Vec<_> = held
        .difference(&found)
        .filter(|name| !unsure.contains(*name))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(
        found.difference(&held).count() <= 1,
        "one more may have been given that nobody heard of"
    );
    let over = store.permit_holders(&["set"], at(61), 9).await.remove(0);
    assert_eq!(over.unwrap().number, 0);
}

/// Holders of sets that nobody asks for again.
#[tokio::test]
async fn holders_whose_time_is_over_leave_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = super::file(&directory);
    let store = open_at(&path).unwrap();
    for (set, seconds) in [("a", 0), ("b", 0), ("c", 62)] {
        let hold = PermitRequest {
            limit: set,
            permits: 1,
            leases: &[lease(1)],
        };
        assert_eq!(
            store
                .acquire_permits(&[hold], SERVER, at(seconds), LEASE)
                .await[0]
                .clone()
                .unwrap()
                .granted,
            1
        );
    }
    let rows =
        Connection::open(&path)
            .unwrap()
            .query_row("SELECT count(*) FROM holder", [], |row| row.get(0));
    assert_eq!(rows, Ok(1));
}
