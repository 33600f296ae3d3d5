//! What is kept of overrides, in every store.

use super::*;

/// Runs a test against every store of overrides, each empty.
async fn for_every_store(test: impl AsyncFn(OverrideStore)) {
    test(OverrideStore::memory()).await;
    let (redis, cluster) = tokio::join!(RedisServer::start(), RedisCluster::start(3, 0));
    test(OverrideStore::redis(client(&redis), "")).await;
    let config = cluster.config();
    let cluster = tidegate_pipeline::Client::new(config).expect("default bounds are valid");
    test(OverrideStore::redis(cluster, "prefix:")).await;
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

async fn kept(
    store: &OverrideStore,
    known: &mut Arc<Overrides>,
    second: u64,
) -> Vec<LimitOverride> {
    *known = store
        .read(known, at(second), deadline())
        .await
        .expect("the store answers");
    known.iter().cloned().collect()
}

#[tokio::test]
async fn what_one_server_puts_others_read() {
    for_every_store(async |store| {
        let (mut here, mut there) = (Arc::default(), Arc::default());
        assert_eq!(kept(&store, &mut here, NOW).await, []);
        let pause = one(key("ten=x"), JOBS, Some(NOW + 60));
        let scale = one(rule("test-domain.ten"), scaled(0.5), None);
        for new in [&pause, &scale] {
            store.put(new, at(NOW), deadline()).await.unwrap();
        }
        let both = vec![scale.clone(), pause.clone()];
        assert_eq!(kept(&store, &mut here, NOW).await, both);
        assert_eq!(kept(&store, &mut there, NOW).await, both);
        assert_eq!(kept(&store, &mut there, NOW).await, both);

        let other = one(key("ten=x"), ALL, None);
        store.put(&other, at(NOW), deadline()).await.unwrap();
        assert_eq!(
            kept(&store, &mut here, NOW).await,
            [scale.clone(), other.clone()],
            "in place of the earlier one"
        );
        let removed = async |kind| store.remove(&other.target, kind, deadline()).await.unwrap();
        assert!(!removed(EffectKind::Scaled).await);
        assert!(removed(EffectKind::Paused).await);
        assert!(!removed(EffectKind::Paused).await);
        assert_eq!(kept(&store, &mut there, NOW).await, [scale]);
    })
    .await;
}

/// A vendor that asks for an hour is not asked again after a second because another worker was told that.
#[tokio::test]
async fn of_two_reports_of_throttling_the_later_end_holds_in_any_order() {
    for_every_store(async |store| {
        let throttled = |by: &str, until| LimitOverride {
            by: by.to_owned(),
            ..one(key("ten=x"), OverrideEffect::Throttled(Reach::Jobs), until)
        };
        let (hour, second, two_hours) = (
            throttled("hour", Some(NOW + 3_600)),
            throttled("second", Some(NOW + 1)),
            throttled("two hours", Some(NOW + 7_200)),
        );
        for (new, holds) in [
            (&second, &second),
            (&hour, &hour),
            (&second, &hour),
            (&two_hours, &two_hours),
            (&hour, &two_hours),
            (&second, &two_hours),
        ] {
            store.put(new, at(NOW), deadline()).await.unwrap();
            assert_eq!(
                kept(&store, &mut Arc::default(), NOW).await,
                std::slice::from_ref(holds),
                "after {}",
                new.by
            );
        }
        // What is over holds nobody up, and a report without an end is the latest.
        store
            .put(
                &throttled("late", Some(NOW + 7_201)),
                at(NOW + 7_200),
                deadline(),
            )
            .await
            .unwrap();
        let endless = throttled("endless", None);
        for new in [&endless, &two_hours] {
            store.put(new, at(NOW + 7_200), deadline()).await.unwrap();
        }
        assert_eq!(
            kept(&store, &mut Arc::default(), NOW + 7_200).await,
            [endless]
        );
        // People shorten what they decided themselves.
        for until in [None, Some(NOW + 60), Some(NOW + 30)] {
            let paused = one(key("ten=y"), JOBS, until);
            store.put(&paused, at(NOW), deadline()).await.unwrap();
            assert!(
                kept(&store, &mut Arc::default(), NOW)
                    .await
                    .contains(&paused),
                "{until:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn servers_that_report_throttling_at_once_keep_the_latest_end() {
    let redis = RedisServer::start().await;
    let mut reports = tokio::task::JoinSet::new();
    for seconds in 1..=64_u64 {
        let store = OverrideStore::redis(client(&redis), "");
        let report = one(
            key("ten=x"),
            OverrideEffect::Throttled(Reach::Jobs),
            Some(NOW + seconds * 37 % 64),
        );
        reports.spawn(async move { store.put(&report, at(NOW), deadline()).await });
    }
    while let Some(put) = reports.join_next().await {
        put.unwrap().unwrap();
    }
    let kept = kept(
        &OverrideStore::redis(client(&redis), ""),
        &mut Arc::default(),
        NOW,
    )
    .await;
    assert_eq!(kept[0].until, Some(at(NOW + 63)));
}

#[tokio::test]
async fn what_has_ended_is_removed_by_who_reads_it() {
    for_every_store(async |store| {
        let (mut known, mut other) = (Arc::default(), Arc::default());
        for (text, until) in [
            ("ten=a", Some(NOW + 10)),
            ("ten=b", None),
            ("ten=c", Some(NOW + 100)),
        ] {
            store
                .put(&one(key(text), JOBS, until), at(NOW), deadline())
                .await
                .unwrap();
        }
        assert_eq!(kept(&store, &mut known, NOW).await.len(), 3);
        assert_eq!(kept(&store, &mut other, NOW).await.len(), 3);
        assert_eq!(kept(&store, &mut known, NOW + 30).await.len(), 2);
        // An earlier clock sees that it is gone.
        assert_eq!(kept(&store, &mut Arc::default(), NOW).await.len(), 2);
        // One that was renewed stays.
        store
            .put(
                &one(key("ten=c"), JOBS, Some(NOW + 200)),
                at(NOW),
                deadline(),
            )
            .await
            .unwrap();
        assert_eq!(kept(&store, &mut other, NOW + 150).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn the_number_of_overrides_is_bounded_and_people_have_room() {
    for_every_store(async |store| {
        let put = async |number: usize, effect, now| {
            let new = one(key(&format!("ten={number}")), effect, Some(NOW + 10));
            store.put(&new, at(now), deadline()).await
        };
        let throttled = OverrideEffect::Throttled(Reach::Jobs);
        for number in 0..900 {
            put(number, throttled, NOW).await.unwrap();
        }
        assert_eq!(
            put(900, throttled, NOW).await,
            Err(OverrideError::TooMany { most: 900 })
        );
        put(7, throttled, NOW).await.expect("it is there already");
        for number in 0..100 {
            put(number, JOBS, NOW).await.unwrap();
        }
        assert_eq!(
            put(100, JOBS, NOW).await,
            Err(OverrideError::TooMany { most: 1_000 })
        );
        assert_eq!(kept(&store, &mut Arc::default(), NOW).await.len(), 1_000);
        put(100, JOBS, NOW + 20)
            .await
            .expect("the others have ended");

        let long = LimitOverride {
            reason: "x".repeat(1_024),
            ..one(key("ten=x"), JOBS, None)
        };
        let refused = store.put(&long, at(NOW), deadline()).await.unwrap_err();
        assert!(
            matches!(refused, OverrideError::TooLong { most: 1_024, .. }),
            "{refused}"
        );
    })
    .await;
}

#[tokio::test]
async fn records_of_a_later_version_are_kept_and_have_no_effect() {
    let redis = RedisServer::start().await;
    let store = OverrideStore::redis(client(&redis), "p_");
    store
        .put(&one(key("ten=x"), JOBS, None), at(NOW), deadline())
        .await
        .unwrap();
    assert_eq!(
        redis.raw("HSET p_tidegate:overrides [later] {} version x"),
        ":1\r\n"
    );
    let known = store
        .read(&Arc::default(), at(NOW), deadline())
        .await
        .unwrap();
    assert_eq!((known.len(), known.unreadable()), (1, 1));
    assert_eq!(redis.raw("HLEN p_tidegate:overrides"), ":3\r\n");
    // Without a change, the fields are not read again.
    let same = store.read(&known, at(NOW), deadline()).await.unwrap();
    assert!(Arc::ptr_eq(&known, &same));
    assert_eq!(redis.raw("FLUSHALL"), "+OK\r\n");
    assert!(
        store
            .read(&known, at(NOW), deadline())
            .await
            .unwrap()
            .is_empty()
    );
}
