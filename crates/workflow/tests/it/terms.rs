//! Terms of queues and handlers: limits that their jobs get, and weights of keys.

use tidegate_workflow::{
    ConcurrencyScope, DataLoss, Definition, Engine, EngineError, Graph, GraphError, JobDefinition,
    Json, LimitDefinition, MAX_WEIGHTS, NewWorkflow, PolicyTarget, SimulatedStore, StartMode,
    Store, Weight,
};

use crate::support::{at, claim, create_of, server};

on_every_store! {
    jobs_get_the_limits_of_their_queue_and_handler_in_front
    a_workflow_keeps_the_limits_that_it_was_created_with
    terms_are_changed_and_removed_on_all_servers
    keys_are_served_by_their_weights
}

const PARAMS: &str = r#"{"tenant":"acme"}"#;

fn mail() -> PolicyTarget {
    PolicyTarget::Queue("mail".to_owned())
}

fn charge() -> PolicyTarget {
    PolicyTarget::Handler("charge".to_owned())
}

fn entries(value: &str) -> Vec<(String, String)> {
    vec![("tenant".to_owned(), value.to_owned())]
}

fn units(domain: &str, hits: u32) -> LimitDefinition {
    LimitDefinition::Units {
        domain: domain.to_owned(),
        entries: entries("$.tenant"),
        hits,
    }
}

fn running(most: u32, of: ConcurrencyScope) -> LimitDefinition {
    LimitDefinition::Concurrency {
        most,
        of,
        entries: Vec::new(),
    }
}

/// A workflow of one job, in the queue `mail`, with the handler `charge`.
fn definition(limits: Vec<LimitDefinition>) -> Definition {
    let params = Some(Json::parse(PARAMS).unwrap());
    let job = JobDefinition {
        queue: "mail".to_owned(),
        params,
        limits,
        ..JobDefinition::new("a", "charge")
    };
    Definition {
        name: "w".to_owned(),
        jobs: vec![job],
        ..Definition::default()
    }
}

fn built(engine: &Engine, definition: Definition) -> Result<Graph, GraphError> {
    Graph::build_with_policies(definition, &engine.policies())
}

/// The limits of the job of [`definition`].
fn key_of(engine: &Engine, limits: Vec<LimitDefinition>) -> String {
    let graph = built(engine, definition(limits)).unwrap();
    graph
        .limits(graph.find("a").unwrap())
        .map_or_else(String::new, |limits| limits.key().to_owned())
}

async fn jobs_get_the_limits_of_their_queue_and_handler_in_front(store: Store) {
    let engine = server(&store).await;
    assert_eq!(key_of(&engine, Vec::new()), "");
    engine
        .set_limits(&charge(), &[units("vendor", 2)])
        .await
        .unwrap();
    engine
        .set_limits(&mail(), &[running(7, ConcurrencyScope::Queue)])
        .await
        .unwrap();
    engine
        .set_limits(
            &PolicyTarget::Queue("other".to_owned()),
            &[running(1, ConcurrencyScope::All)],
        )
        .await
        .unwrap();
    let given = r#"[7,"queue:mail"],["vendor",2,"tenant","acme"]"#;
    assert_eq!(key_of(&engine, Vec::new()), format!("[{given}]"));
    let own = vec![running(3, ConcurrencyScope::All)];
    assert_eq!(key_of(&engine, own), format!(r#"[{given},[3,"all"]]"#));
    let twice = vec![units("vendor", 1), running(9, ConcurrencyScope::Queue)];
    assert_eq!(
        key_of(&engine, twice),
        r#"[[7,"queue:mail"],["vendor",3,"tenant","acme"]]"#
    );
    let mut without = definition(Vec::new());
    without.jobs[0].params = None;
    let error = built(&engine, without).unwrap_err().to_string();
    let expected = "jobs[0]: the handler 'charge' gives its jobs limits, and limits[0].entries[0] cannot be kept: neither the params";
    assert!(error.starts_with(expected), "{error}");
    let many = definition((0..3).map(|at| units(&format!("d{at}"), 1)).collect());
    let error = built(&engine, many).unwrap_err().to_string();
    let expected = "jobs[0].limits: 5 limits, 2 of them given by its queue and its handler, more than 4: leave some out";
    assert_eq!(error, expected);
}

async fn a_workflow_keeps_the_limits_that_it_was_created_with(store: Store) {
    let engine = server(&store).await;
    let keyed = |limits| Definition {
        idempotency_key: Some("k".to_owned()),
        ..definition(limits)
    };
    let create = async |limits: Vec<LimitDefinition>| {
        let graph = built(&engine, keyed(limits)).unwrap();
        let new = NewWorkflow {
            graph,
            start: StartMode::Now,
            created_at: None,
        };
        engine.create(vec![new], at(0)).await.remove(0)
    };
    let own = || vec![running(3, ConcurrencyScope::All)];
    engine
        .set_limits(&mail(), &[running(7, ConcurrencyScope::Queue)])
        .await
        .unwrap();
    let id = create(own()).await.unwrap().workflow;
    // What a queue gives is no part of the definition.
    engine
        .set_limits(
            &mail(),
            &[
                running(8, ConcurrencyScope::Queue),
                running(9, ConcurrencyScope::Workflow),
            ],
        )
        .await
        .unwrap();
    assert_eq!(
        create(own())
            .await
            .map(|created| (created.workflow, created.existing)),
        Ok((id, true))
    );
    engine.set_limits(&mail(), &[]).await.unwrap();
    assert_eq!(
        create(own())
            .await
            .map(|created| (created.workflow, created.existing)),
        Ok((id, true))
    );
    let other = create(vec![running(4, ConcurrencyScope::All)]).await;
    assert!(
        matches!(other, Err(EngineError::KeyMismatch { .. })),
        "{other:?}"
    );
    let snapshot = engine.show(id).await.unwrap();
    let job = snapshot.graph().find("a").unwrap();
    assert_eq!(
        snapshot.graph().limits(job).unwrap().key(),
        r#"[[7,"queue:mail"],[3,"all"]]"#
    );
}

async fn terms_are_changed_and_removed_on_all_servers(store: Store) {
    let one = server(&store).await;
    let other = server(&store).await;
    let weights = [Weight {
        entries: entries("gold"),
        weight: 5,
    }];
    one.set_limits(&mail(), &[units("a", 1)]).await.unwrap();
    one.set_weights("mail", &weights).await.unwrap();
    other.poll_store().await.unwrap();
    // Each is written for itself: what the other one does not know of stays.
    other.set_limits(&charge(), &[units("b", 1)]).await.unwrap();
    other.set_limits(&mail(), &[units("c", 1)]).await.unwrap();
    one.poll_store().await.unwrap();
    let late = server(&store).await;
    for engine in [&one, &other, &late] {
        let terms = engine.policies();
        assert_eq!(
            (terms.limits(&mail()), terms.limits(&charge())),
            (&[units("c", 1)][..], &[units("b", 1)][..])
        );
        assert_eq!(
            (terms.weights("mail"), terms.weights("charge")),
            (&weights[..], &[][..])
        );
    }
    for subject in [mail(), charge()] {
        late.set_limits(&subject, &[]).await.unwrap();
    }
    late.set_weights("mail", &[]).await.unwrap();
    one.poll_store().await.unwrap();
    assert_eq!((one.policies(), late.policies()), Default::default());
}

/// Of the next `number` jobs of the queue `mail`, how many are of each tenant.
async fn served(engine: &Engine, number: usize) -> [usize; 2] {
    let mut wanted = claim(10);
    wanted.queues = vec!["mail".to_owned()];
    let mut served = [0; 2];
    while served.iter().sum::<usize>() < number {
        let claimed = engine.claim(&wanted, at(1)).await.unwrap();
        assert!(!claimed.is_empty());
        for job in claimed {
            served[usize::from(job.job().name.starts_with("iron"))] += 1;
        }
    }
    served
}

async fn keys_are_served_by_their_weights(store: Store) {
    let one = server(&store).await;
    let other = server(&store).await;
    let weigh = |weight| {
        vec![Weight {
            entries: entries("gold"),
            weight,
        }]
    };
    let limit = |tenant: &str| LimitDefinition::Concurrency {
        most: 10_000,
        of: ConcurrencyScope::Queue,
        entries: entries(tenant),
    };
    one.set_weights("mail", &weigh(4)).await.unwrap();
    let job = |(tenant, at): (&str, usize)| JobDefinition {
        queue: "mail".to_owned(),
        limits: vec![limit(tenant)],
        ..JobDefinition::new(format!("{tenant}{at}"), "h")
    };
    let jobs = (0..400)
        .flat_map(|at| [("gold", at), ("iron", at)])
        .map(job)
        .collect();
    create_of(
        &one,
        Definition {
            name: "w".to_owned(),
            jobs,
            ..Definition::default()
        },
        StartMode::Now,
    )
    .await;
    // Weights were there before the keys.
    let [gold, iron] = served(&one, 100).await;
    assert!((78..=82).contains(&gold), "{gold} and {iron}");
    // They change while jobs wait.
    one.set_weights("mail", &[]).await.unwrap();
    let [gold, iron] = served(&one, 100).await;
    assert!((45..=55).contains(&gold), "{gold} and {iron}");
    // Another server hears of them.
    assert_eq!(
        other.claim(&claim(1), at(1)).await.map(|jobs| jobs.len()),
        Ok(0)
    );
    one.set_weights("mail", &weigh(9)).await.unwrap();
    other.poll_store().await.unwrap();
    let [gold, iron] = served(&other, 100).await;
    assert!((86..=92).contains(&gold), "{gold} and {iron}");
}

#[tokio::test]
async fn wrong_limits_are_refused_with_their_place() {
    let engine = server(&Store::Simulated(SimulatedStore::new(4))).await;
    let limits = async |limits: &[LimitDefinition]| {
        engine
            .set_limits(&mail(), limits)
            .await
            .unwrap_err()
            .to_string()
    };
    assert!(
        limits(&[units("a", 1), units("", 1)])
            .await
            .starts_with("limits[1].domain: the domain must have")
    );
    assert!(
        limits(&[running(0, ConcurrencyScope::All)])
            .await
            .starts_with("limits[0].concurrency: 0 jobs")
    );
    assert!(
        limits(&vec![units("a", 1); 5])
            .await
            .starts_with("limits: 5 limits, more than 4")
    );
    let path = LimitDefinition::Units {
        domain: "a".to_owned(),
        entries: entries("$.a..b"),
        hits: 1,
    };
    assert!(
        limits(&[path])
            .await
            .starts_with("limits[0].entries[0]: '$.a..b' is not a path")
    );
    let long = PolicyTarget::Handler("x".repeat(201));
    let error = engine.set_limits(&long, &[]).await.unwrap_err().to_string();
    assert!(
        error.starts_with("name: a name must have 1 to 200 bytes"),
        "{error}"
    );
    assert_eq!(engine.policies(), Default::default());
}

#[tokio::test]
async fn wrong_weights_are_refused_with_their_place() {
    let engine = server(&Store::Simulated(SimulatedStore::new(4))).await;
    let weights = async |weights: &[Weight]| {
        engine
            .set_weights("mail", weights)
            .await
            .unwrap_err()
            .to_string()
    };
    let weight = |weight| Weight {
        entries: entries("a"),
        weight,
    };
    assert_eq!(
        weights(&[weight(0)]).await,
        "weights[0].weight: a weight of 0, expected 1 to 1000"
    );
    assert_eq!(
        weights(&[weight(1_001)]).await,
        "weights[0].weight: a weight of 1001, expected 1 to 1000"
    );
    let all = Weight {
        entries: Vec::new(),
        weight: 1,
    };
    assert_eq!(
        weights(&[all]).await,
        "weights[0].entries: 0 entries, expected 1 to 8"
    );
    assert!(
        weights(&vec![weight(1); MAX_WEIGHTS + 1])
            .await
            .starts_with("weights: 1001 weights")
    );
    let control = Weight {
        entries: entries("a\n"),
        weight: 1,
    };
    assert!(
        weights(&[control])
            .await
            .starts_with("weights[0].entries[0]: the value must have")
    );
    assert_eq!(engine.policies(), Default::default());
}

#[tokio::test]
async fn terms_are_bounded_together() {
    let engine = server(&Store::Simulated(SimulatedStore::new(4))).await;
    let set = async |at: usize| {
        engine
            .set_limits(&PolicyTarget::Queue(format!("q{at}")), &[units("a", 1)])
            .await
    };
    for at in 0..1_000 {
        set(at).await.unwrap();
    }
    set(7).await.unwrap();
    assert!(matches!(
        set(1_000).await,
        Err(EngineError::TooManyPolicies { .. })
    ));
    engine
        .set_limits(&PolicyTarget::Queue("q7".to_owned()), &[])
        .await
        .unwrap();
    set(1_000).await.unwrap();
}

#[tokio::test]
async fn terms_that_the_store_lost_are_written_again() {
    for loss in [DataLoss::Everything, DataLoss::Registers] {
        let store = SimulatedStore::new(4);
        let engine = server(&Store::Simulated(store.clone())).await;
        engine.set_limits(&mail(), &[units("a", 1)]).await.unwrap();
        store.lose(loss);
        assert_eq!(
            server(&Store::Simulated(store.clone())).await.policies(),
            Default::default()
        );
        engine.poll_store().await.unwrap();
        let late = server(&Store::Simulated(store)).await;
        assert_eq!(
            (late.policies(), late.policies().limits(&mail())),
            (engine.policies(), &[units("a", 1)][..])
        );
    }
}
