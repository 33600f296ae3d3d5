//! Rows that nobody can use: their workflow is gone, or cannot be read.

use super::*;

on_every_store! {
    what_cannot_be_read_fails_for_itself_alone
}

fn ready_row(workflow: WorkflowId) -> Vec<u8> {
    let queue = "default".to_owned();
    ReadyJob {
        queue,
        handler: "do".to_owned(),
        limit_key: String::new(),
        priority: 9,
        since: at(0),
        workflow,
        job: JobIndex(0),
    }
    .row()
}

/// One workflow that could not be read failed the claims of all others, again and again.
async fn what_cannot_be_read_fails_for_itself_alone(store: Store) {
    let engine = server(&store).await;
    let broken = WorkflowId::new(at(0), Partition(0), 1);
    let rubbish = vec![255; 9];
    let birth = CreationRecord {
        graph: rubbish.clone(),
        label: rubbish.clone(),
        idempotency_key: None,
    };
    let ready = RowChange {
        add: vec![ready_row(broken)],
        ..RowChange::default()
    };
    let put = Put {
        meta: rubbish,
        creation: Some(birth),
        ready,
        timer: TimerMove::To(at(0)),
        ..Put::default()
    };
    let change = Change {
        workflow: broken,
        expected: None,
        small: false,
        write: Write::Put(Box::new(put)),
    };
    store.apply(Partition(0), &[change]).await.unwrap();
    create(&engine, "a b", StartMode::Now).await;
    let both = [take(&engine, 1).await, take(&engine, 2).await].concat();
    assert_eq!(names(&both), ["a", "b"]);
    let queues = queues();
    let _waits = engine.arrival(&queues);
    engine.sweep(at(3)).await.unwrap();
    assert_eq!(
        engine.poll_store().await,
        Ok(false),
        "there is nothing that a worker could have"
    );
    assert!(engine.claim(&claim(9), at(4)).await.unwrap().is_empty());
    let rows = store
        .rows(Partition(0), RowSet::Ready, None, 10)
        .await
        .unwrap();
    assert_eq!(
        rows,
        [ready_row(broken)],
        "it is left for whoever can read it"
    );
}

/// The commands that clients and scripts send while something runs.
pub(super) async fn commands(server: &RedisServer, what: impl Future<Output = ()>) -> Vec<String> {
    let monitor = server.monitor();
    what.await;
    let _ = server.raw("ECHO end");
    monitor.commands_until("end")
}

fn lose_workflows(server: &RedisServer) {
    let keys = server.raw("KEYS *:[sw]:*");
    for key in keys
        .lines()
        .filter(|line| line.contains(":s:") || line.contains(":w:"))
    {
        let _ = server.raw(&format!("DEL {key}"));
    }
}

/// A worker that waited tried the row of a workflow that was gone for ever, as fast as it could.
#[tokio::test]
async fn ready_rows_without_their_workflow_are_removed() {
    const LOST: usize = 20;
    let (store, redis) = redis().await;
    let engine = server(&store).await;
    for _ in 0..LOST {
        create(&engine, "a", StartMode::Now).await;
    }
    lose_workflows(&redis);
    let fresh = server(&store).await;
    let queues = queues();
    let sent = commands(&redis, async {
        for _ in 0..5 {
            let _waits = fresh.arrival(&queues);
            fresh.poll_store().await.unwrap();
            assert!(fresh.claim(&claim(100), at(1)).await.unwrap().is_empty());
        }
    })
    .await;
    let looks =
        |command: &&String| !command.starts_with("\"ZRANGE\"") && !command.contains("queues\"");
    let each = sent.iter().filter(looks).count() as f64 / LOST as f64;
    assert!(each < 10.0, "{each} commands for each row");
    assert_eq!(
        depth_of_all(&store, &[queue_rows("default")])
            .await
            .unwrap(),
        [(0, vec![])]
    );
    create(&fresh, "real", StartMode::Now).await;
    assert_eq!(
        names(&take(&engine, 2).await),
        ["real"],
        "also where they are remembered"
    );
}

/// A server asked for the size, the state and the graph of each workflow that another server had made.
#[tokio::test]
async fn many_small_workflows_of_another_server_are_read_with_few_commands() {
    let (store, redis) = redis().await;
    let one = server(&store).await;
    let other = server(&store).await;
    let all: Vec<NewWorkflow> = (0..200)
        .map(|_| new(definition("a b<a"), StartMode::Now))
        .collect();
    assert!(one.create(all, at(0)).await.iter().all(Result::is_ok));
    other.poll_store().await.unwrap();
    let mut claimed = Vec::new();
    let sent = commands(&redis, async {
        claimed = other.claim(&claim(200), at(1)).await.unwrap()
    })
    .await;
    assert_eq!(claimed.len(), 200);
    assert!(sent.len() < 100, "{} commands", sent.len());
}

/// Timers of workflows that were gone took the places of those that were there.
#[tokio::test]
async fn timers_without_their_workflow_do_not_stop_others() {
    let (store, redis) = redis().await;
    let engine = server(&store).await;
    let id = create(&engine, "a", StartMode::Now).await;
    let claimed = take(&engine, 0).await;
    let partition = id.partition();
    let keys = redis.raw("KEYS *:tm");
    let timers = keys.lines().find(|line| line.ends_with(":tm")).unwrap();
    for number in 0..300 {
        let lost = WorkflowId::new(at(0), partition, number);
        let member: String = lost
            .bytes()
            .iter()
            .map(|byte| format!("\\x{byte:02x}"))
            .collect();
        let _ = redis.raw(&format!("ZADD {timers} {number} \"{member}\""));
    }
    let sent = commands(&redis, async {
        for _ in 0..5 {
            engine.sweep(at(100)).await.unwrap();
        }
    })
    .await;
    assert!(
        sent.len() < 10 * 300,
        "{} commands for 300 timers",
        sent.len()
    );
    assert!(
        matches!(
            succeed(&engine, claimed[0].lease, 101).await,
            Err(EngineError::Refused(_))
        ),
        "the lease ended"
    );
    assert!(
        due_of_each(&store, TimeIndex::Timers, at(1_000).micros(), 1_000)
            .await
            .unwrap()
            .is_empty()
    );
}

/// Memory kept rows whose workflow was lost; whatever is still to do goes on.
#[tokio::test]
async fn a_workflow_that_was_lost_leaves_nothing() {
    let store = SimulatedStore::new(1);
    let engine = server(&Store::Simulated(store.clone())).await;
    let lost = create(&engine, "a b", StartMode::Now).await;
    let ended = create(&engine, "c", StartMode::Now).await;
    for claimed in take(&engine, 1).await {
        if claimed.lease.workflow == ended {
            succeed(&engine, claimed.lease, 2).await.unwrap();
        }
    }
    assert_eq!(
        engine.show(ended).await.unwrap().meta().status,
        Status::Succeeded
    );
    store.lose(DataLoss::State(lost));
    store.lose(DataLoss::State(ended));
    let fresh = server(&Store::Simulated(store.clone())).await;
    for _ in 0..3 {
        fresh.sweep(at(100 * 86_400)).await.unwrap();
    }
    let store = Store::Simulated(store);
    for which in [TimeIndex::Timers, TimeIndex::Expiries] {
        assert!(
            due_of_each(&store, which, at(1_000 * 86_400).micros(), 9)
                .await
                .unwrap()
                .is_empty(),
            "{which:?}"
        );
    }
}
