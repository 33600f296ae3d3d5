//! What workers say of their jobs: what is kept of it, how much, and when it goes.

use tidegate_workflow::change::{Delete, Put, ResultField};
use tidegate_workflow::{
    JobIndex, JobLog, JobNote, LogLine, NoteOutcome, Progress, Store, StoreError, WorkflowId,
};

use super::{create, delete, done, id, meta, micros, update};

const JOB: JobIndex = JobIndex(12);
/// The most bytes of a log.
const MOST: usize = 64 << 10;

fn note(workflow: WorkflowId, lines: &[&str]) -> JobNote {
    let lines = lines.iter().map(|line| (*line).to_owned()).collect();
    JobNote {
        workflow,
        job: JOB,
        attempt: 1,
        at: micros(1_000),
        progress: None,
        lines,
    }
}

/// Adds notes, which must work.
async fn add(store: &Store, notes: &[JobNote]) {
    assert_eq!(
        store.add_notes(notes).await,
        vec![Ok(NoteOutcome::Stored); notes.len()]
    );
}

async fn texts(store: &Store, workflow: WorkflowId) -> (u64, Vec<String>) {
    let JobLog { dropped, lines } = store.log(workflow, JOB).await.unwrap();
    (dropped, lines.into_iter().map(|line| line.text).collect())
}

pub(crate) async fn notes_are_kept_in_their_order(store: Store) {
    let one = id(1, 1);
    let other = id(2, 3);
    for workflow in [one, other] {
        done(&store, create(workflow, Put::default())).await;
        assert_eq!(store.progress(workflow, JOB).await, Ok(None));
        assert_eq!(store.log(workflow, JOB).await, Ok(JobLog::default()));
    }
    assert_eq!(store.add_notes(&[]).await, []);
    let hostile = "\0\u{1b}[31m\r\n\"é\u{202e}";
    let second = JobNote {
        attempt: 2,
        at: micros(2_000),
        progress: Some((100, hostile.to_owned())),
        ..note(one, &[hostile, ""])
    };
    let first = JobNote {
        progress: Some((0, String::new())),
        ..note(one, &["a", "b"])
    };
    add(&store, &[first, note(other, &["c"]), second]).await;
    let line = |attempt, text: &str| LogLine {
        attempt,
        at: micros(u64::from(attempt) * 1_000),
        text: text.to_owned(),
    };
    let lines = vec![line(1, "a"), line(1, "b"), line(2, hostile), line(2, "")];
    assert_eq!(store.log(one, JOB).await, Ok(JobLog { dropped: 0, lines }));
    assert_eq!(
        store.log(other, JOB).await,
        Ok(JobLog {
            dropped: 0,
            lines: vec![line(1, "c")]
        })
    );
    let progress = Progress {
        attempt: 2,
        at: micros(2_000),
        percent: 100,
        text: hostile.to_owned(),
    };
    assert_eq!(store.progress(one, JOB).await, Ok(Some(progress)));
    assert_eq!(store.progress(other, JOB).await, Ok(None));
    assert_eq!(store.log(one, JobIndex(1)).await, Ok(JobLog::default()));
}

pub(crate) async fn of_a_log_the_newest_lines_are_kept(store: Store) {
    let workflow = id(1, 2);
    done(&store, create(workflow, Put::default())).await;
    // Lines of all sizes: some come together in a piece, some are longer than one.
    let line = |number: usize| format!("{number} {}", "x".repeat(number * 7_919 % 9_000));
    let (mut all, mut added): (Vec<String>, usize) = (Vec::new(), 0);
    for number in 0..120 {
        let lines: Vec<String> = (0..number % 4)
            .map(|part| line(number * 4 + part))
            .collect();
        let note = JobNote {
            lines: lines.clone(),
            ..note(workflow, &[])
        };
        add(&store, &[note]).await;
        added += lines.iter().map(String::len).sum::<usize>();
        all.extend(lines);
        let (dropped, kept) = texts(&store, workflow).await;
        assert_eq!(dropped as usize + kept.len(), all.len(), "{number}");
        assert_eq!(kept, all[dropped as usize..], "{number}");
        let bytes: usize = kept.iter().map(String::len).sum();
        assert!(bytes <= MOST, "{number}: {bytes}");
        // The oldest piece goes as a whole, and one note has 27,000 bytes at most here.
        assert!(
            bytes >= added.min(MOST - 4_096 - 27_000 - 4_096),
            "{number}: {bytes} of {added}"
        );
    }
    assert!(texts(&store, workflow).await.0 > 0);
}

pub(crate) async fn many_short_lines_cost_few_pieces(store: Store) {
    let workflow = id(1, 0);
    done(&store, create(workflow, Put::default())).await;
    let one = note(workflow, &["line"]);
    for _ in 0..9 {
        add(&store, &vec![one.clone(); 1_000]).await;
    }
    let (dropped, kept) = texts(&store, workflow).await;
    assert_eq!(dropped as usize + kept.len(), 9_000);
    // Each is kept with its moment.
    assert!((3_000..9_000).contains(&kept.len()), "{}", kept.len());
    let fields = (0..=u8::MAX)
        .map(|slot| ResultField::LogPiece(JOB, slot))
        .take(64)
        .collect();
    let pieces = store
        .results(&[(workflow, fields)])
        .await
        .unwrap()
        .remove(0);
    let pieces: Vec<usize> = pieces.iter().flatten().map(|piece| piece.len()).collect();
    assert!(
        pieces.len() <= 17 && pieces.iter().sum::<usize>() <= MOST,
        "{pieces:?}"
    );
}

pub(crate) async fn notes_change_no_state_and_go_with_the_workflow(store: Store) {
    let workflow = id(1, 1);
    assert_eq!(
        store.add_notes(&[note(workflow, &["early"])]).await,
        [Ok(NoteOutcome::Gone)]
    );
    let results = vec![(ResultField::Output(JOB), meta("output"))];
    let put = Put {
        results,
        ..Put::default()
    };
    done(&store, create(workflow, put)).await;
    assert_eq!(
        texts(&store, workflow).await,
        (0, Vec::new()),
        "what came early is not kept"
    );
    add(
        &store,
        &[JobNote {
            progress: Some((7, "x".to_owned())),
            ..note(workflow, &["a"])
        }],
    )
    .await;
    done(&store, update(workflow, "first", "second", Put::default())).await;
    let output = store
        .results(&[(workflow, vec![ResultField::Output(JOB)])])
        .await
        .unwrap();
    assert_eq!(output[0][0].as_deref(), Some(&meta("output")[..]));
    // A result that is dropped for another attempt leaves what was said of the job.
    let dropped_results = vec![ResultField::Output(JOB)];
    let put = Put {
        dropped_results,
        ..Put::default()
    };
    done(&store, update(workflow, "second", "third", put)).await;
    assert_eq!(texts(&store, workflow).await, (0, vec!["a".to_owned()]));
    done(&store, delete(workflow, "third", Delete::default())).await;
    let two = [note(workflow, &["late"]), note(workflow, &[])];
    assert_eq!(
        store.add_notes(&two).await,
        [Ok(NoteOutcome::Gone), Ok(NoteOutcome::Gone)]
    );
    // A later namesake does not inherit anything.
    done(&store, create(workflow, Put::default())).await;
    assert_eq!(store.log(workflow, JOB).await, Ok(JobLog::default()));
    assert_eq!(store.progress(workflow, JOB).await, Ok(None));
}

pub(crate) async fn a_log_that_cannot_be_read_begins_anew(store: Store) {
    let workflow = id(1, 1);
    let results = vec![
        (ResultField::Log(JOB), b"1 2 three 4".to_vec()),
        (ResultField::LogPiece(JOB, 1), meta("?")),
    ];
    let put = Put {
        results,
        ..Put::default()
    };
    done(&store, create(workflow, put)).await;
    assert!(matches!(
        store.log(workflow, JOB).await,
        Err(StoreError::Corrupt { .. })
    ));
    add(&store, &[note(workflow, &["a"])]).await;
    assert_eq!(texts(&store, workflow).await, (0, vec!["a".to_owned()]));
}
