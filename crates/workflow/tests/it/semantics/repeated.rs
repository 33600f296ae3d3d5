//! Calls that are repeated, or that come too late.

use super::*;

on_every_store! {
    a_retry_that_is_sent_twice_is_done_once
    a_retry_is_judged_by_the_state_that_it_changes
    an_action_by_status_leaves_what_has_another_by_now
    a_key_belongs_to_a_definition_however_it_is_spelled
    a_key_belongs_to_a_definition_in_whatever_trace
}

/// The answer to the first was lost; the job failed once more before the second arrives.
async fn a_retry_that_is_sent_twice_is_done_once(store: Store) {
    let engine = server(&store).await;
    let other = server(&store).await;
    let id = create_of(&engine, definition("a b<a c"), StartMode::Now).await;
    for (step, action) in [
        (0, Action::RetryFailed),
        (10, Action::RetryJob("a".to_owned())),
        (20, restart("a")),
    ] {
        let a = one(&take(&engine, step).await, "a").lease;
        report(&engine, a, failure(), step + 1).await.unwrap();
        let act = |engine: Engine, seconds| {
            let action = action.clone();
            async move {
                engine
                    .act_if(id, action, as_of(step + 1), at(seconds))
                    .await
                    .map(|acted| acted.already_done)
            }
        };
        assert_eq!(act(engine.clone(), step + 2).await, Ok(false), "{action:?}");
        assert_eq!(
            act(other.clone(), step + 3).await,
            Ok(true),
            "{action:?}: it is ready"
        );
        let again = one(&take(&other, step + 3).await, "a").lease;
        assert_eq!(
            act(other.clone(), step + 4).await,
            Ok(true),
            "{action:?}: it runs"
        );
        report(&other, again, failure(), step + 5).await.unwrap();
        assert_eq!(
            act(engine.clone(), step + 6).await,
            Ok(true),
            "{action:?}: it failed once more"
        );
        assert_eq!(
            state(&engine.show(id).await.unwrap(), "a"),
            "failed",
            "{action:?}"
        );
        // Who has seen that may do it again.
        engine
            .act_if(id, action.clone(), as_of(step + 5), at(step + 7))
            .await
            .unwrap();
    }
}

/// It was looked at first and done then: a job that had succeeded in between lost its output and ran again.
async fn a_retry_is_judged_by_the_state_that_it_changes(store: Store) {
    let engine = server(&store).await;
    let other = server(&store).await;
    let id = create_of(&engine, definition("a b"), StartMode::Now).await;
    let both = take(&engine, 1).await;
    report(&engine, one(&both, "a").lease, failure(), 2)
        .await
        .unwrap();
    // The first server remembers that it failed.
    other
        .act(
            id,
            Action::MarkSucceeded {
                job: "a".to_owned(),
                output: None,
            },
            at(3),
        )
        .await
        .unwrap();
    let retried = engine
        .act(id, Action::RetryJob("a".to_owned()), at(4))
        .await;
    assert!(
        matches!(
            retried,
            Err(EngineError::Refused(Refusal::WrongJobState { .. }))
        ),
        "{retried:?}"
    );
    assert_eq!(state(&engine.show(id).await.unwrap(), "a"), "succeeded");
}

/// An action on all that were pending cancelled one that had been started meanwhile.
async fn an_action_by_status_leaves_what_has_another_by_now(store: Store) {
    let engine = server(&store).await;
    let other = server(&store).await;
    let id = create_of(&engine, definition("a"), StartMode::Later).await;
    let pending = Condition {
        statuses: vec![Status::Pending],
        ..Condition::default()
    };
    other.act(id, Action::Start, at(1)).await.unwrap();
    let cancelled = engine.act_if(id, Action::Cancel, pending, at(2)).await;
    assert!(
        matches!(
            cancelled,
            Err(EngineError::Refused(Refusal::WrongStatus { .. }))
        ),
        "{cancelled:?}"
    );
    assert_eq!(
        engine.show(id).await.unwrap().meta().status,
        Status::Running
    );
}

async fn a_key_belongs_to_a_definition_however_it_is_spelled(store: Store) {
    let engine = server(&store).await;
    let create = async |globals: &str, params: &str| {
        let mut wanted = definition("a");
        wanted.idempotency_key = Some("key".to_owned());
        wanted.globals = Some(Json::parse(globals).unwrap());
        wanted.jobs[0].params = Some(Json::parse(params).unwrap());
        engine
            .create(vec![new(wanted, StartMode::Now)], at(0))
            .await
            .remove(0)
            .map(|created| created.existing)
    };
    assert_eq!(
        create(r#"{"a":1,"b":2}"#, r#"{"c":[1.50]}"#).await,
        Ok(false)
    );
    assert_eq!(
        create(r#"{"b": 2, "a": 1}"#, r#"{ "c": [15e-1] }"#).await,
        Ok(true)
    );
    let other = create(r#"{"b":2,"a":1}"#, r#"{"c":[1.51]}"#).await;
    assert!(
        matches!(other, Err(EngineError::KeyMismatch { .. })),
        "{other:?}"
    );
}

async fn a_key_belongs_to_a_definition_in_whatever_trace(store: Store) {
    let engine = server(&store).await;
    let create = async |globals: Option<&str>| {
        let mut wanted = definition("a");
        wanted.idempotency_key = Some("key".to_owned());
        wanted.globals = globals.map(|globals| Json::parse(globals).unwrap());
        engine
            .create(vec![new(wanted, StartMode::Now)], at(0))
            .await
            .remove(0)
            .map(|created| created.existing)
    };
    assert_eq!(
        create(Some(r#"{"$trace":{"traceparent":"1"}}"#)).await,
        Ok(false)
    );
    for same in [Some(r#"{"$trace":{"traceparent":"2"}}"#), Some("{}"), None] {
        assert_eq!(create(same).await, Ok(true));
    }
    let other = create(Some(r#"{"$trace":{"traceparent":"1"},"a":1}"#)).await;
    assert!(
        matches!(other, Err(EngineError::KeyMismatch { .. })),
        "{other:?}"
    );
}
