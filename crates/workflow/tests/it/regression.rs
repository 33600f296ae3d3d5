//! Mistakes that were made once.

use std::time::Duration;

use tidegate_workflow::change::{Change, CreationRecord, Put, Write};
use tidegate_workflow::rows::Section;
use tidegate_workflow::{
    Action, Engine, EngineError, JobIndex, JobState, Json, LeaseRef, Partition, Paused, Query,
    Refusal, RestartScope, SimulatedStore, StartMode, Status, Store, StoreError, WorkflowId,
};
use tokio::time::timeout;

use crate::support::{
    at, claim, create, create_of, definition, names, report, server, succeed, success, take,
};

/// Two servers of one store.
async fn servers() -> (Engine, Engine) {
    let store = Store::Simulated(SimulatedStore::new(1));
    (server(&store).await, server(&store).await)
}

/// A server that had seen the job before it was leased elsewhere said that the lease was lost, out of its memory. What is not
/// written must be true of the store, not of memory.
#[tokio::test]
async fn a_server_that_remembers_an_older_state_takes_a_report() {
    let (first, second) = servers().await;
    let id = create(&second, "a", StartMode::Now).await;
    let claimed = take(&first, 1).await;
    assert_eq!(
        succeed(&second, claimed[0].lease, 2).await,
        Ok(JobState::Succeeded)
    );
    assert_eq!(
        second.show(id).await.unwrap().meta().status,
        Status::Succeeded
    );
}

/// For the same reason a pause was taken for one that had been before.
#[tokio::test]
async fn a_server_that_remembers_a_pause_pauses_again() {
    let (first, second) = servers().await;
    let id = create(&first, "a", StartMode::Now).await;
    first.act(id, Action::Pause, at(1)).await.unwrap();
    second.act(id, Action::Resume, at(2)).await.unwrap();
    assert_eq!(
        first.act(id, Action::Pause, at(3)).await,
        Ok(Status::Paused)
    );
    assert_eq!(first.show(id).await.unwrap().meta().status, Status::Paused);
}

/// Outputs were kept in memory over a conflict, and a job got what its parent had returned before it ran again.
#[tokio::test]
async fn a_job_gets_the_latest_output_of_a_parent_that_ran_again_elsewhere() {
    let (first, second) = servers().await;
    let id = create(&first, "a b<a", StartMode::Now).await;
    let a = take(&first, 1).await.remove(0);
    report(&first, a.lease, success("\"old\""), 2)
        .await
        .unwrap();
    let b = take(&second, 3).await.remove(0);
    report(&second, b.lease, success("0"), 4).await.unwrap();
    let again = Action::Restart {
        jobs: vec!["a".to_owned()],
        scope: RestartScope::AndDescendants,
    };
    second.act(id, again, at(5)).await.unwrap();
    let a = take(&second, 6).await.remove(0);
    report(&second, a.lease, success("\"new\""), 7)
        .await
        .unwrap();
    let b = take(&first, 8).await.remove(0);
    assert_eq!(&b.inputs[0].output[..], b"\"new\"");
}

/// A job without a lease has the token 0, so a made-up report with it was taken for one that had come before.
#[tokio::test]
async fn a_report_without_a_token_is_refused() {
    let (engine, _) = servers().await;
    let workflow = create(&engine, "a", StartMode::Now).await;
    let lease = LeaseRef {
        workflow,
        job: JobIndex(0),
        token: 0,
    };
    let refused = succeed(&engine, lease, 1).await;
    assert!(
        matches!(
            refused,
            Err(EngineError::Refused(Refusal::LeaseLost { .. }))
        ),
        "{refused:?}"
    );
}

/// Requests that share a round with a removal and come after it changed what was about to vanish, and said yes.
#[tokio::test]
async fn nothing_happens_to_a_workflow_after_its_removal() {
    let (engine, _) = servers().await;
    let id = create(&engine, "a", StartMode::Later).await;
    let (removed, started) = tokio::join!(
        engine.act(id, Action::Delete, at(1)),
        engine.act(id, Action::Start, at(1))
    );
    assert!(removed.is_ok());
    assert_eq!(started, Err(EngineError::NoWorkflow { workflow: id }));
}

/// Within one round an output was put and dropped in whatever order.
#[tokio::test]
async fn an_output_outlives_the_restart_before_it() {
    let (engine, _) = servers().await;
    let id = create(&engine, "a", StartMode::Now).await;
    let claimed = take(&engine, 1).await;
    succeed(&engine, claimed[0].lease, 2).await.unwrap();
    let restart = Action::Restart {
        jobs: vec!["a".to_owned()],
        scope: RestartScope::Chosen,
    };
    let mark = Action::MarkSucceeded {
        job: "a".to_owned(),
        output: Some(Json::parse("2").unwrap()),
    };
    let (restarted, marked) =
        tokio::join!(engine.act(id, restart, at(3)), engine.act(id, mark, at(3)));
    assert_eq!(
        (restarted, marked),
        (Ok(Status::Running), Ok(Status::Succeeded))
    );
    let results = engine.results(id, &[JobIndex(0)]).await.unwrap();
    assert_eq!(results[0].output.as_deref(), Some(&b"2"[..]));
}

/// Only the server that was told knew that a queue is paused.
#[tokio::test]
async fn all_servers_hear_that_a_queue_is_paused() {
    let (first, second) = servers().await;
    create(&first, "a", StartMode::Now).await;
    first
        .set_queue_paused("default", Paused::Yes)
        .await
        .unwrap();
    assert!(take(&second, 1).await.is_empty());
    first.set_queue_paused("default", Paused::No).await.unwrap();
    assert_eq!(take(&second, 2).await.len(), 1);
}

/// However many jobs other servers had made ready, one waiter was woken.
#[tokio::test]
async fn work_of_other_servers_wakes_all_who_can_do_it() {
    let (first, second) = servers().await;
    let queues = vec!["default".to_owned()];
    let waiting = [second.arrival(&queues), second.arrival(&queues)];
    create(&first, "a b", StartMode::Now).await;
    assert_eq!(
        second.poll_store().await,
        Ok(true),
        "there is something new"
    );
    for arrival in waiting {
        tokio::time::timeout(Duration::from_secs(5), arrival)
            .await
            .expect("it is woken");
    }
    let _another = second.arrival(&queues);
    assert_eq!(second.poll_store().await, Ok(false), "it is known by now");
}

/// A caller that left while its claim was written had the jobs until their leases ended, and a loss was counted.
#[tokio::test]
async fn a_claim_that_nobody_waits_for_is_given_back_at_once() {
    let (engine, _) = servers().await;
    let id = create(&engine, "a b", StartMode::Now).await;
    let impatient = claim(9);
    tokio::select! {
        biased;
        _ = engine.claim(&impatient, at(1)) => panic!("it was to wait"),
        () = std::future::ready(()) => {}
    }
    // Requests of one workflow are served in their order: this one comes after the claim.
    engine.act(id, Action::Resume, at(1)).await.unwrap();
    let claimed = take(&engine, 2).await;
    assert_eq!(
        claimed
            .iter()
            .map(|claimed| claimed.attempt)
            .collect::<Vec<_>>(),
        [1, 1]
    );
    assert!(
        engine
            .show(id)
            .await
            .unwrap()
            .jobs()
            .iter()
            .all(|job| job.lost == 0)
    );
}

/// A claim whose caller left sent the oldest job of the queue to its end.
#[tokio::test]
async fn a_job_whose_claim_nobody_waited_for_keeps_its_place() {
    let (engine, _) = servers().await;
    let oldest = create(&engine, "a", StartMode::Later).await;
    let next = create(&engine, "a", StartMode::Later).await;
    engine.act(oldest, Action::Start, at(1)).await.unwrap();
    engine.act(next, Action::Start, at(2)).await.unwrap();
    let impatient = claim(1);
    tokio::select! {
        biased;
        _ = engine.claim(&impatient, at(3)) => panic!("it was to wait"),
        () = std::future::ready(()) => {}
    }
    // Requests of one workflow are served in their order: these come after the claim, and after what gives the job back.
    for _ in 0..2 {
        engine.act(oldest, Action::Resume, at(3)).await.unwrap();
    }
    assert_eq!(
        engine.claim(&claim(1), at(4)).await.unwrap()[0]
            .lease
            .workflow,
        oldest
    );
    assert_eq!(
        engine.claim(&claim(1), at(4)).await.unwrap()[0]
            .lease
            .workflow,
        next
    );
}

/// The runtime whose task served a partition was gone, and whoever asked from another waited for ever.
#[test]
fn a_server_outlives_one_of_its_runtimes() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    };
    let first = runtime();
    let second = runtime();
    let (engine, id) = first.block_on(async {
        let (engine, _) = servers().await;
        let id = create(&engine, "a", StartMode::Now).await;
        tokio::select! {
            biased;
            _ = engine.act(id, Action::Pause, at(1)) => panic!("it was to wait"),
            () = std::future::ready(()) => {}
        }
        (engine, id)
    });
    drop(first);
    second.block_on(async {
        let paused = engine.act(id, Action::Pause, at(2));
        let paused = tokio::time::timeout(Duration::from_secs(5), paused)
            .await
            .expect("it is served");
        assert_eq!(paused, Ok(Status::Paused));
    });
}

/// A workflow that cannot be read was said not to be there, and no list that it was in could be read either.
#[tokio::test]
async fn what_cannot_be_read_is_said_to_be_so_and_hides_nothing_else() {
    let (engine, _) = servers().await;
    let sound = create(&engine, "a", StartMode::Now).await;
    let id = WorkflowId::new(at(9), Partition(0), 1);
    let rubbish = vec![255; 9];
    let birth = CreationRecord {
        graph: rubbish.clone(),
        label: rubbish.clone(),
        idempotency_key: None,
    };
    let mut put = Put {
        meta: rubbish,
        creation: Some(birth),
        ..Put::default()
    };
    put.index
        .add
        .push([Section::All.prefix(), id.bytes().to_vec()].concat());
    let change = Change {
        workflow: id,
        expected: None,
        small: false,
        write: Write::Put(Box::new(put)),
    };
    engine.store().apply(Partition(0), &[change]).await.unwrap();
    let started = engine.act(id, Action::Start, at(10)).await;
    assert!(
        matches!(started, Err(EngineError::Store(StoreError::Corrupt { .. }))),
        "{started:?}"
    );
    let page = engine
        .list(&Query {
            limit: 10,
            ..Query::default()
        })
        .await
        .unwrap();
    assert_eq!(
        page.items
            .iter()
            .map(|item| item.workflow)
            .collect::<Vec<_>>(),
        [sound]
    );
}

/// A server that heard of the end of a pause woke its workers before it read what others had made ready meanwhile, and they got what it knew
/// from before the pause.
#[tokio::test]
async fn after_a_pause_the_most_urgent_job_goes_first_whoever_made_it() {
    let (engine, other) = servers().await;
    let queues = ["default".to_owned()];
    other
        .set_queue_paused("default", Paused::Yes)
        .await
        .unwrap();
    engine.poll_store().await.unwrap();
    create(&engine, "known", StartMode::Now).await;
    let mut urgent = definition("urgent");
    urgent.jobs[0].priority = 1;
    create_of(&other, urgent, StartMode::Now).await;
    other.set_queue_paused("default", Paused::No).await.unwrap();
    let arrival = engine.arrival(&queues);
    engine.poll_store().await.unwrap();
    timeout(Duration::from_secs(10), arrival)
        .await
        .expect("the worker is woken");
    assert_eq!(
        names(&engine.claim(&claim(1), at(1)).await.unwrap()),
        ["urgent"]
    );
}

/// The same at the server that is asked to resume the queue.
#[tokio::test]
async fn whoever_resumes_a_queue_hands_out_the_most_urgent_job_first() {
    let (engine, other) = servers().await;
    let queues = ["default".to_owned()];
    engine
        .set_queue_paused("default", Paused::Yes)
        .await
        .unwrap();
    create(&engine, "known", StartMode::Now).await;
    let mut urgent = definition("urgent");
    urgent.jobs[0].priority = 1;
    create_of(&other, urgent, StartMode::Now).await;
    let arrival = engine.arrival(&queues);
    engine
        .set_queue_paused("default", Paused::No)
        .await
        .unwrap();
    timeout(Duration::from_secs(10), arrival)
        .await
        .expect("the worker is woken");
    assert_eq!(
        names(&engine.claim(&claim(1), at(1)).await.unwrap()),
        ["urgent"]
    );
}

/// A repeated creation that was to start at once got a workflow that waited for its start, and nothing ever ran.
#[tokio::test]
async fn a_key_names_a_workflow_that_starts_in_the_same_way() {
    let (engine, _) = servers().await;
    let create = async |key: &str, begin: StartMode| {
        let definition = tidegate_workflow::Definition {
            idempotency_key: Some(key.to_owned()),
            ..definition("a")
        };
        engine
            .create(vec![crate::support::new(definition, begin)], at(1))
            .await
            .remove(0)
    };
    let waiting = create("manual", StartMode::Later).await.unwrap();
    assert!(create("manual", StartMode::Later).await.unwrap().existing);
    assert!(matches!(
        create("manual", StartMode::Now).await,
        Err(EngineError::KeyMismatch { .. })
    ));
    create("now", StartMode::Now).await.unwrap();
    assert!(create("now", StartMode::Now).await.unwrap().existing);
    assert!(matches!(
        create("now", StartMode::Later).await,
        Err(EngineError::KeyMismatch { .. })
    ));
    // Started later, it is what both asked for.
    engine
        .act(waiting.workflow, Action::Start, at(2))
        .await
        .unwrap();
    assert!(create("manual", StartMode::Later).await.unwrap().existing);
}
