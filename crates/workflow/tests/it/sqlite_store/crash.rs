//! A process that writes is killed; what it had been told is written must be there.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tidegate_workflow::change::{
    Applied, Change, CreationRecord, Delete, Put, ResultField, RowChange, TimerMove, Write,
};
use tidegate_workflow::rows::{ReadyJob, Row, Section};
use tidegate_workflow::{
    JobIndex, Partition, RowSet, Store, TimeIndex, Timestamp, WorkflowId, due_row,
};

use super::open_at;

/// Set for the process that writes: where.
const PLACE: &str = "TIDEGATE_TEST_CRASH_STORE";

/// Workflows that the child creates at most, should nobody kill it: some seconds of work.
const ENOUGH: u64 = 200_000;

/// Writers in the child, so that groups form and are cut by the kill.
const WRITERS: u64 = 8;

/// How often a workflow is written; the last time it is deleted.
const STEPS: u8 = 4;

const PARTITION: Partition = Partition(3);

/// Kills the child whatever happens to the test.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn id(number: u64) -> WorkflowId {
    WorkflowId::new(Timestamp::from_micros(number * 1_000), PARTITION, 0)
}

/// All that a workflow has after a step: its rows tell the step, so that a half-written one would show.
struct Expected {
    meta: Vec<u8>,
    ready: Row,
    index: Row,
    timer: Timestamp,
}

fn expected(id: WorkflowId, step: u8) -> Expected {
    let since = id.created_at() + std::time::Duration::from_micros(step.into());
    let entry = ReadyJob {
        queue: "q".to_owned(),
        handler: "h".to_owned(),
        limit_key: String::new(),
        priority: step,
        since,
        workflow: id,
        job: JobIndex(0),
    };
    let index = [
        Section::Tag(&step.to_string(), tidegate_workflow::Status::Running).prefix(),
        id.bytes().to_vec(),
    ];
    Expected {
        meta: vec![step],
        ready: entry.row(),
        index: index.concat(),
        timer: since,
    }
}

fn change(id: WorkflowId, step: u8) -> Change {
    let before = (step > 0).then(|| expected(id, step - 1));
    let removed =
        |row: fn(&Expected) -> Row| before.as_ref().map(row).into_iter().collect::<Vec<_>>();
    let (ready, index) = (
        removed(|before| before.ready.clone()),
        removed(|before| before.index.clone()),
    );
    let write = if step == STEPS {
        Write::Delete(Box::new(Delete {
            ready,
            index,
            idempotency_key: Some(id.to_string()),
        }))
    } else {
        let now = expected(id, step);
        let key = Some(id.to_string());
        Write::Put(Box::new(Put {
            meta: now.meta,
            creation: (step == 0).then(|| CreationRecord {
                idempotency_key: key,
                ..CreationRecord::default()
            }),
            jobs: vec![(JobIndex(0), vec![step])],
            results: vec![(ResultField::Output(JobIndex(0)), vec![step; 100])],
            ready: RowChange {
                remove: ready,
                add: vec![now.ready],
            },
            index: RowChange {
                remove: index,
                add: vec![now.index],
            },
            timer: TimerMove::To(now.timer),
            ..Put::default()
        }))
    };
    Change {
        workflow: id,
        expected: before.map(|before| before.meta),
        small: false,
        write,
    }
}

/// Writes, and says on standard output what it was told is written.
#[expect(
    clippy::print_stdout,
    reason = "the test reads what this process prints"
)]
async fn write_until_killed(path: &Path) {
    let store = open_at(path).unwrap();
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for number in (writer..ENOUGH).step_by(WRITERS as usize) {
                // Some end early, so that all steps are found in the end.
                for step in 0..=STEPS.min((number % 8) as u8) {
                    let applied = store.apply(PARTITION, &[change(id(number), step)]).await;
                    assert_eq!(applied, Ok(vec![Applied::Done]));
                    println!("\nwritten {number} {step}");
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// What a killed writer had been told: the latest step of each workflow.
fn killed_after(path: &Path, lines: usize) -> HashMap<u64, u8> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "sqlite_store::crash::a_killed_server_loses_nothing_that_was_acknowledged",
            "--nocapture",
        ])
        .env(PLACE, path)
        .stdout(Stdio::piped())
        .spawn();
    let mut writer = Writer(child.unwrap());
    let mut told = HashMap::new();
    let mut written = 0;
    for line in BufReader::new(writer.0.stdout.take().unwrap()).lines() {
        let Some(line) = line.unwrap().strip_prefix("written ").map(str::to_owned) else {
            continue;
        };
        // The kill may cut the last line.
        let Some((number, step)) = line.split_once(' ').filter(|(_, step)| !step.is_empty()) else {
            continue;
        };
        told.insert(number.parse().unwrap(), step.parse().unwrap());
        written += 1;
        if written == lines {
            writer.0.kill().unwrap();
        }
    }
    assert!(
        written >= lines,
        "the writer ended by itself after {written} lines"
    );
    told
}

/// The step at which a workflow is, if it is there; and all that belongs to it is of that step.
async fn step_of(store: &Store, id: WorkflowId) -> Option<u8> {
    let stored = store.load(&[id]).await.unwrap().remove(0);
    let output = store
        .results(&[(id, vec![ResultField::Output(JobIndex(0))])])
        .await
        .unwrap()
        .remove(0)
        .remove(0);
    let owner = store
        .workflow_by_key(PARTITION, &id.to_string())
        .await
        .unwrap();
    let Some(stored) = stored else {
        assert_eq!((output, owner), (None, None));
        return None;
    };
    let step = stored.state.meta[0];
    assert_eq!(stored.state.jobs, [(JobIndex(0), vec![step])]);
    assert_eq!(output.as_deref(), Some([step; 100].as_slice()));
    assert_eq!(owner, Some(id));
    Some(step)
}

#[tokio::test]
async fn a_killed_server_loses_nothing_that_was_acknowledged() {
    #[expect(
        clippy::disallowed_methods,
        reason = "this process may be the child of the test, which is told so"
    )]
    if let Some(path) = std::env::var_os(PLACE) {
        return write_until_killed(Path::new(&path)).await;
    }
    for lines in [1, 50, 700, 4_000] {
        let directory = tempfile::tempdir().unwrap();
        let path = super::file(&directory);
        let told = killed_after(&path, lines);
        let store = open_at(&path).unwrap();
        let mut rows: [Vec<Row>; 3] = Default::default();
        // Each writer may have written one step more than anybody heard of, of this workflow or its next.
        let unheard = told.keys().max().unwrap() + 2 * WRITERS * 8;
        for number in 0..unheard {
            let found = step_of(&store, id(number)).await;
            let acknowledged = told.get(&number).copied();
            let lost = match (acknowledged, found) {
                (Some(step), Some(found)) => found < step || found > step + 1,
                (Some(step), None) => step + 1 < STEPS,
                (None, found) => found > Some(0),
            };
            assert!(
                !lost,
                "workflow {number}: told {acknowledged:?}, found {found:?}"
            );
            if let Some(step) = found {
                let expected = expected(id(number), step);
                rows[0].push(expected.ready);
                rows[1].push(expected.index);
                rows[2].push(due_row(expected.timer, id(number)));
            }
        }
        let sets = [RowSet::Ready, RowSet::Index, RowSet::Due(TimeIndex::Timers)];
        for (set, mut rows) in sets.into_iter().zip(rows) {
            rows.sort();
            assert_eq!(
                store.rows(PARTITION, set, None, usize::MAX).await.unwrap(),
                rows,
                "{set:?}"
            );
        }
    }
}
