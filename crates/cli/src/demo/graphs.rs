//! The workflows of the demo.

use std::time::Duration;

use serde_json::{Value, json};

/// A kind of workflow that the demo creates at a fixed interval.
pub(super) struct Repeated {
    /// Interval between two workflows.
    pub(super) every: Duration,
    /// Definition of the workflow with this number.
    pub(super) graph: fn(u64) -> Value,
}

/// All kinds of workflows.
pub(super) fn repeated() -> [Repeated; 4] {
    let every = |seconds, graph| Repeated {
        every: Duration::from_secs(seconds),
        graph,
    };
    [
        every(3, order),
        every(20, thumbnails),
        every(60, crawl),
        every(120, report),
    ]
}

/// Order workflow. Some orders fail at the payment, permanently or in one attempt.
fn order(number: u64) -> Value {
    let cents = 900 + number * 37 % 9_000;
    json!({
        "name": "order", "tags": ["shop"], "globals": {"order": number, "cents": cents},
        "jobs": [
            {"name": "reserve", "handler": "stock.reserve"},
            {"name": "charge", "handler": "bank.charge", "after": "reserve", "retries": 2},
            {"name": "pack", "handler": "stock.pack", "after": "charge"},
            {"name": "invoice", "handler": "mail.invoice", "after": "charge"},
            {"name": "ship", "handler": "stock.ship", "after": ["pack", "invoice"]},
        ],
    })
}

/// Thumbnails workflow: one job, then 24 parallel jobs, then one job.
fn thumbnails(number: u64) -> Value {
    let names: Vec<_> = (1..=24)
        .map(|width| format!("resize-{}", width * 40))
        .collect();
    let mut jobs = vec![
        json!({"name": "fetch", "handler": "image.fetch", "params": {"image": format!("{number}.jpeg")}}),
    ];
    jobs.extend(
        names
            .iter()
            .map(|name| json!({"name": name, "handler": "image.resize", "after": "fetch"})),
    );
    jobs.push(json!({"name": "publish", "handler": "image.publish", "after": names}));
    json!({"name": "thumbnails", "tags": ["images"], "jobs": jobs})
}

/// Crawl workflow: 40 jobs share a rate limit with calls of the gateway, more than the limit allows
/// at a time.
fn crawl(number: u64) -> Value {
    let names: Vec<_> = (1..=40).map(|page| format!("page-{page}")).collect();
    let limits = json!([{"domain": "partner", "entries": [["client", "crawler"]]}]);
    let page =
        |name| json!({"name": name, "handler": "partner.page", "queue": "crawl", "limits": limits});
    let mut jobs: Vec<_> = names.iter().map(page).collect();
    jobs.push(json!({"name": "index", "handler": "partner.index", "after": names}));
    json!({"name": "crawl", "tags": ["partner"], "globals": {"run": number}, "jobs": jobs})
}

/// Report workflow: five steps of thirty jobs. Each job depends on two jobs of the step before.
fn report(number: u64) -> Value {
    const WIDTH: usize = 30;
    let name = |step: usize, job: usize| format!("step-{step}-{}", job % WIDTH + 1);
    let job = |step: usize, job: usize| match step {
        1 => json!({"name": name(1, job), "handler": "report.read", "queue": "reports"}),
        _ => json!({
            "name": name(step, job), "handler": "report.sum", "queue": "reports",
            "limits": [{"concurrency": 4, "of": "workflow"}],
            "after": [name(step - 1, job), name(step - 1, job + 1)],
        }),
    };
    let jobs: Vec<_> = (1..=5)
        .flat_map(|step| (0..WIDTH).map(move |number| (step, number)))
        .collect();
    let jobs: Vec<_> = jobs
        .into_iter()
        .map(|(step, number)| job(step, number))
        .collect();
    json!({"name": "report", "tags": ["nightly"], "globals": {"run": number}, "jobs": jobs})
}
