use std::time::{Duration, Instant};
use tidegate_pipeline::{Client, Config};
use tidegate_workflow::change::*;
use tidegate_workflow::rows::*;
use tidegate_workflow::*;

fn ts(n: u64) -> Timestamp {
    Timestamp::from_micros(1_795_000_000_000_000 + n)
}
fn meta(version: u64, status: Status, over: bool) -> Vec<u8> {
    let at = ts(version * 17);
    postcard::to_allocvec(&Meta {
        version,
        writer: 0xdead_beef,
        status,
        created_at: at,
        started_at: Some(at),
        finished_at: over.then_some(at),
        retention: None,
        expires_at: over.then_some(at),
        timer: (!over).then_some(at),
        counts: Counts::default(),
    })
    .unwrap()
}
fn job(state: JobState, v: u64) -> Vec<u8> {
    let at = ts(v);
    postcard::to_allocvec(&Job {
        state,
        attempt: 1,
        lost: 0,
        token: 0x1234_5678_9abc_def0,
        worker: Some("worker-1".into()),
        ready_at: Some(at),
        started_at: Some(at),
        finished_at: Some(at),
        ..Job::default()
    })
    .unwrap()
}
fn rows(id: WorkflowId, status: Status) -> Vec<Row> {
    [Section::Status(status), Section::Name("order-fulfilment", status)]
        .iter()
        .map(|s| {
            let mut r = s.prefix();
            r.extend(id.bytes());
            r
        })
        .collect()
}
fn ready(id: WorkflowId, j: u16, v: u64) -> Row {
    ReadyEntry { queue: "default".into(), priority: 0, since: ts(v), workflow: id, job: JobIndex(j) }.row()
}
const OUT: &[u8] = br#"{"ok":true,"n":12345}"#;
fn steps(id: WorkflowId) -> Vec<Change> {
    let r = Status::Running;
    let mut index = rows(id, r);
    let mut c = Section::All.prefix();
    c.extend(id.bytes());
    index.push(c);
    let jd = |n: &str, after: &[&str]| JobDefinition {
        after: after.iter().map(|&a| a.to_owned()).collect(),
        ..JobDefinition::new(n, "handler")
    };
    let graph = Graph::build(Definition {
        name: "order-fulfilment".into(),
        jobs: vec![jd("fetch", &[]), jd("store", &["fetch"])],
        ..Definition::default()
    })
    .unwrap();
    let graph_bytes = postcard::to_allocvec(&graph).unwrap();
    let label = postcard::to_allocvec(&graph.label).unwrap();
    let put = |p: Put| Write::Put(Box::new(p));
    let lease = JobState::Running { expires: ts(99) };
    let w = [
        put(Put {
            meta: meta(1, r, false),
            birth: Some(Birth { graph: graph_bytes, label, idempotency_key: None }),
            jobs: vec![(JobIndex(0), job(JobState::Ready, 1))],
            ready: RowChange { remove: vec![], add: vec![ready(id, 0, 1)] },
            index: RowChange { remove: vec![], add: index },
            ..Put::default()
        }),
        put(Put {
            meta: meta(2, r, false),
            jobs: vec![(JobIndex(0), job(lease, 2))],
            ready: RowChange { remove: vec![ready(id, 0, 1)], add: vec![] },
            timer: Moved::To(ts(30_000_000)),
            ..Put::default()
        }),
        put(Put {
            meta: meta(3, r, false),
            jobs: vec![(JobIndex(0), job(JobState::Succeeded, 3)), (JobIndex(1), job(JobState::Ready, 3))],
            results: vec![(ResultField::Output(JobIndex(0)), OUT.to_vec())],
            ready: RowChange { remove: vec![], add: vec![ready(id, 1, 3)] },
            timer: Moved::Away,
            ..Put::default()
        }),
        put(Put {
            meta: meta(4, r, false),
            jobs: vec![(JobIndex(1), job(lease, 4))],
            ready: RowChange { remove: vec![ready(id, 1, 3)], add: vec![] },
            timer: Moved::To(ts(30_000_000)),
            ..Put::default()
        }),
        put(Put {
            meta: meta(5, Status::Succeeded, true),
            jobs: vec![(JobIndex(1), job(JobState::Succeeded, 5))],
            results: vec![(ResultField::Output(JobIndex(1)), OUT.to_vec())],
            index: RowChange { remove: rows(id, r), add: rows(id, Status::Succeeded) },
            timer: Moved::Away,
            expiry: Moved::To(ts(7 * 86_400_000_000)),
            ..Put::default()
        }),
        // A chain step with hand-over: what steps 3 and 4 are together.
        put(Put {
            meta: meta(6, r, false),
            jobs: vec![(JobIndex(0), job(JobState::Succeeded, 3)), (JobIndex(1), job(lease, 3))],
            results: vec![(ResultField::Output(JobIndex(0)), OUT.to_vec())],
            timer: Moved::To(ts(30_000_001)),
            ..Put::default()
        }),
    ];
    let mut before = None;
    w.into_iter()
        .map(|write| {
            let next = match &write {
                Write::Put(p) => p.meta.clone(),
                Write::Delete(_) => unreachable!(),
            };
            Change { workflow: id, expected: std::mem::replace(&mut before, Some(next)), write }
        })
        .collect()
}
fn cpu(pid: &str) -> f64 {
    // nanoseconds on cpu
    let s = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    s.split(' ').next().unwrap().parse::<f64>().unwrap() / 1000.0
}
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (port, pid, per_call, n) =
        (&args[1], &args[2], args[3].parse::<usize>().unwrap(), args[4].parse::<usize>().unwrap());
    let client = Client::new(Config::single(format!("127.0.0.1:{port}").parse().unwrap())).unwrap();
    let store = Store::Redis(RedisStore::open(client, RedisOptions::default()).await.unwrap());
    let names = ["create", "claim", "report", "claim2", "finish", "(handover)"];
    for round in 0..3 {
        let all: Vec<Vec<Change>> = (0..n)
            .map(|i| {
                steps(WorkflowId::new(ts(i as u64 * 1000), Partition((i / per_call % 16) as u16), fastrand::u128(..)))
            })
            .collect();
        let mut total = 0.0;
        for (step, name) in names.iter().enumerate() {
            let groups: Vec<Vec<Change>> =
                all.chunks(per_call).map(|g| g.iter().map(|s| s[step].clone()).collect()).collect();
            let (before, at) = (cpu(pid), Instant::now());
            for four in groups.chunks(4) {
                let calls: Vec<_> = four
                    .iter()
                    .map(|g| {
                        let store = store.clone();
                        let g = g.clone();
                        tokio::spawn(async move {
                            let r = store.apply(g[0].workflow.partition(), &g).await.unwrap();
                            assert!(r.iter().all(|r| *r == Applied::Done), "{r:?}");
                        })
                    })
                    .collect();
                for c in calls {
                    c.await.unwrap();
                }
            }
            let us = (cpu(pid) - before) / n as f64;
            if step < 5 {
                total += us;
            }
            println!(
                "round {round} {name:10} {us:6.2} us redis cpu/change  wall {:6.2} us/change",
                at.elapsed().as_micros() as f64 / n as f64
            );
        }
        println!("2-job workflow: {total:.1} us, {:.1} us/job", total / 2.0);
        let _ = Duration::ZERO;
    }
}
