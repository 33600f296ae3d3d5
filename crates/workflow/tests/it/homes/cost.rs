//! What several servers ask of Redis.

use super::*;

async fn asked(redis: &RedisServer, command: &str) -> u64 {
    let stats = redis.raw("INFO commandstats");
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// A server that is alone tells nobody, and a worker that finds nothing asks once.
#[tokio::test]
async fn a_server_that_is_alone_costs_redis_nothing_more() {
    let (store, redis) = redis().await;
    let server = servers(&store, 1).await.remove(0);
    let told = asked(&redis, "spublish").await;
    let _ = create(&server.engine, "a b c", StartMode::Now).await;
    assert_eq!(asked(&redis, "spublish").await, told);
    assert_eq!(
        server.engine.claim(&claim(10), at(1)).await.unwrap().len(),
        3
    );
    assert!(
        server
            .engine
            .claim(&claim(10), at(1))
            .await
            .unwrap()
            .is_empty()
    );
    let read = asked(&redis, "zrange").await;
    for _ in 0..10 {
        assert!(
            server
                .engine
                .claim(&claim(10), at(1))
                .await
                .unwrap()
                .is_empty()
        );
    }
    assert_eq!(asked(&redis, "zrange").await, read);
}

/// One job, and a worker that waits at each of eight servers: one of them claims it, and the others look once or twice.
#[tokio::test]
async fn a_job_is_no_reason_for_a_stampede() {
    const SERVERS: usize = 8;
    const JOBS: usize = 20;
    const PARTITIONS: u16 = 16;
    let redis = RedisServer::start().await;
    let options = RedisOptions::new("test:", PARTITIONS, SOON).unwrap();
    let store = Store::Redis(
        RedisStore::open(Client::new(redis.config()).unwrap(), options)
            .await
            .unwrap(),
    );
    let servers = servers(&store, SERVERS).await;
    let (done, mut taken) = tokio::sync::mpsc::channel(JOBS);
    let workers: Vec<_> = servers
        .iter()
        .map(|server| (server.engine.clone(), done.clone()))
        .collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (engine, done) in workers {
        tasks.spawn(async move {
            loop {
                let lease = work(&engine).await[0].lease;
                succeed(&engine, lease, 1).await.unwrap();
                done.send(()).await.unwrap();
            }
        });
    }
    for server in &servers {
        until(|| server.engine.receives_notifications()).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = (
        asked(&redis, "evalsha").await,
        asked(&redis, "zrange").await,
    );
    for job in 0..JOBS {
        create(&servers[job % SERVERS].engine, "a", StartMode::Now).await;
        timeout(SOON, taken.recv()).await.unwrap();
    }
    let spent = (
        asked(&redis, "evalsha").await - before.0,
        asked(&redis, "zrange").await - before.1,
    );
    // Created, claimed and reported.
    let late = spent.0.saturating_sub(3 * JOBS as u64);
    assert!(
        spent.0 <= 6 * JOBS as u64,
        "{} calls of the script for {JOBS} jobs",
        spent.0
    );
    // A few looks at each server, at a partition or two; and at a few partitions, and then at all, after a claim that came too late. If
    // all servers looked at all partitions, that would be 2,560.
    let most = (5 * SERVERS * JOBS) as u64 + 2 * late * u64::from(PARTITIONS);
    assert!(
        spent.1 <= most,
        "{} reads for {JOBS} jobs, {late} claims came too late",
        spent.1
    );
}

/// All of them read all partitions, went for the same jobs, and all but one came too late.
#[tokio::test]
async fn a_server_without_work_of_its_own_looks_at_a_few_partitions_first() {
    let redis = RedisServer::start().await;
    let options = RedisOptions::new("test:", 16, SOON).unwrap();
    let client = Client::new(redis.config()).unwrap();
    let store = Store::Redis(RedisStore::open(client, options).await.unwrap());
    let servers = servers(&store, 2).await;
    for _ in 0..100 {
        create(&servers[0].engine, "a", StartMode::Now).await;
    }
    // It has heard of all these when it hears of one that comes after them.
    until(|| servers[1].engine.receives_notifications()).await;
    let after = ["after".to_owned()];
    let arrival = servers[1].engine.arrival(&after);
    let mut last = definition("b");
    last.jobs[0].queue = "after".to_owned();
    create_of(&servers[0].engine, last, StartMode::Now).await;
    timeout(SOON, arrival).await.expect("it hears of the job");
    let before = asked(&redis, "zrange").await;
    assert_eq!(
        servers[1]
            .engine
            .claim(&claim(1), at(1))
            .await
            .unwrap()
            .len(),
        1
    );
    // Its own eight, and three others.
    assert_eq!(asked(&redis, "zrange").await - before, 11);
}

/// All was made at home, and the others came for the same jobs: every third change was refused, and made again.
#[tokio::test]
async fn servers_do_not_compete_for_jobs_that_were_made_at_one_of_them() {
    const WORKFLOWS: usize = 1_000;
    let redis = RedisServer::start().await;
    let options = RedisOptions::new("test:", 16, SOON).unwrap();
    let store = Store::Redis(
        RedisStore::open(Client::new(redis.config()).unwrap(), options)
            .await
            .unwrap(),
    );
    let servers = servers(&store, 2).await;
    let new = |_| crate::support::new(definition("a b<a"), StartMode::Now);
    let mut partitions = BTreeSet::new();
    for _ in 0..WORKFLOWS / 2 / 100 {
        for created in servers[0]
            .engine
            .create((0..100).map(new).collect(), at(0))
            .await
        {
            partitions.insert(created.unwrap().workflow.partition());
        }
    }
    assert!(
        !partitions.is_disjoint(&servers[1].homes()),
        "a batch is for all"
    );
    for _ in 0..WORKFLOWS / 2 {
        create(&servers[0].engine, "a b<a", StartMode::Now).await;
    }
    let mut workers = tokio::task::JoinSet::new();
    for server in &servers {
        let engine = server.engine.clone();
        workers.spawn(async move {
            let mut done = 0;
            loop {
                let claimed = engine.claim(&claim(5), at(1)).await.unwrap();
                if claimed.is_empty() {
                    return done;
                }
                for claimed in claimed {
                    succeed(&engine, claimed.lease, 1).await.unwrap();
                    done += 1;
                }
            }
        });
    }
    let done = workers.join_all().await;
    let conflicts: u64 = servers.iter().map(|server| server.engine.conflicts()).sum();
    assert_eq!(done.iter().sum::<usize>(), 2 * WORKFLOWS);
    // Whoever is done first helps the other one.
    assert!(conflicts <= WORKFLOWS as u64 / 5, "{conflicts} of {done:?}");
}
