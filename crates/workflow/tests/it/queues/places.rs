//! Jobs at work whose number is bounded.

use tidegate_workflow::{
    ConcurrencyScope, EngineError, LimitDefinition, Refusal, StartMode, Store,
};

use crate::support::{LEASE, at, create_of, definition, server, succeed, take};

on_every_store! { @ simulated: a_lease_whose_place_is_gone_is_not_extended }
on_every_store! { @ sqlite: a_lease_whose_place_is_gone_is_not_extended }

/// Its place was given to it again, although another job may have had it by then.
async fn a_lease_whose_place_is_gone_is_not_extended(store: Store) {
    let engine = server(&store).await;
    let mut wanted = definition("bounded free");
    wanted.jobs[0].limits = vec![LimitDefinition::Concurrency {
        most: 1,
        of: ConcurrencyScope::Queue,
        entries: Vec::new(),
    }];
    create_of(&engine, wanted, StartMode::Now).await;
    let claimed = take(&engine, 1).await;
    let leases = ["bounded", "free"].map(|name| {
        claimed
            .iter()
            .find(|claimed| claimed.job().name == name)
            .unwrap()
            .lease
    });
    let extend = async |seconds| {
        engine
            .extend(
                leases.map(|lease| (lease, at(seconds) + LEASE)).into(),
                at(seconds),
            )
            .await
    };
    assert_eq!(extend(20).await, [Ok(()), Ok(())]);
    let late = extend(60).await;
    assert_eq!(late[1], Ok(()), "nobody has taken it back");
    let Err(EngineError::Refused(Refusal::LeaseLost {
        reason: "expired", ..
    })) = &late[0]
    else {
        panic!("{late:?}")
    };
    succeed(&engine, leases[1], 61).await.unwrap();
}
