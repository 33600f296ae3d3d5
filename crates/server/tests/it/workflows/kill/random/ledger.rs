//! What all clients did and were told, and what follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// What a request may still do after its caller has gone: servers give up on a store before.
const LATE: Duration = Duration::from_secs(6);
/// Clocks of servers and of their store are read at different moments.
const MARGIN: Duration = Duration::from_millis(500);

type Job = (String, String);

/// A job in somebody's hands.
#[derive(Debug, Clone)]
struct Held {
    lease: String,
    fence: Option<u64>,
    /// Before it was asked for, and after it was answered.
    asked: Instant,
    heard: Instant,
    /// When the lease ends, as it was said.
    ends: Instant,
}

#[derive(Debug, Default)]
struct Pages {
    created: BTreeSet<String>,
    removed: BTreeSet<String>,
    held: BTreeMap<Job, Vec<Held>>,
    /// When a report with a lease was first sent.
    reported: BTreeMap<String, Instant>,
    /// When operators did something to a workflow.
    touched: BTreeMap<String, Vec<(Instant, Instant)>>,
    /// What was sent as the output of a job.
    sent: BTreeMap<Job, BTreeSet<String>>,
    /// What was taken as the output of a job.
    accepted: BTreeMap<Job, Vec<String>>,
    /// What came from parents.
    inputs: Vec<(String, String, String)>,
    wrong: Vec<String>,
}

/// What all clients did and were told.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pages: Mutex<Pages>,
    numbers: AtomicU64,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reports as the server knows them.
pub(super) fn as_sent(reports: &[Value]) -> Vec<Value> {
    let mut reports = reports.to_vec();
    for report in &mut reports {
        report.as_object_mut().unwrap().remove("job");
    }
    reports
}

/// The workflow and the job of a claimed job.
fn job_of(job: &Value) -> Job {
    (text(&job["workflow_id"]), text(&job["job"]))
}

/// When a moment is that an answer names, as in `2026-11-21T12:05:00.000000Z`. It is less than half a day away.
#[expect(
    clippy::disallowed_methods,
    reason = "Redis has the clock of this machine"
)]
fn moment(told: &Value) -> Instant {
    const DAY: f64 = 86_400.0;
    let told = told
        .as_str()
        .and_then(|told| told.strip_suffix('Z')?.split_once('T'))
        .expect("it is a moment")
        .1;
    let seconds = told
        .split(':')
        .fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap());
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
        % DAY;
    let ahead = (seconds - now + 1.5 * DAY) % DAY - DAY / 2.0;
    let span = Duration::from_secs_f64(ahead.abs());
    if ahead < 0.0 {
        Instant::now() - span
    } else {
        Instant::now() + span
    }
}

impl Ledger {
    fn write<T>(&self, write: impl FnOnce(&mut Pages) -> T) -> T {
        write(&mut self.pages.lock().unwrap())
    }

    pub(super) fn create(&self, id: &str) {
        self.write(|pages| pages.created.insert(id.to_owned()));
    }

    /// All workflows that somebody knows of: a creation that nobody heard of has jobs all the same.
    pub(super) fn known(&self) -> BTreeSet<String> {
        self.write(|pages| {
            let worked_on = pages
                .accepted
                .keys()
                .chain(pages.held.keys())
                .map(|(id, _)| id);
            pages
                .created
                .iter()
                .chain(worked_on)
                .chain(pages.inputs.iter().map(|(id, ..)| id))
                .cloned()
                .collect()
        })
    }

    /// Somebody asks that it be removed, now or later.
    pub(super) fn remove(&self, id: &str) {
        self.write(|pages| pages.removed.insert(id.to_owned()));
    }

    pub(super) fn may_be_gone(&self, id: &str) -> bool {
        self.write(|pages| pages.removed.contains(id))
    }

    /// An operator is about to do something to a workflow, which may take place some time after its answer was given up.
    pub(super) fn touch(&self, id: &str) {
        let span = (Instant::now(), Instant::now() + LATE);
        self.write(|pages| pages.touched.entry(id.to_owned()).or_default().push(span));
    }

    /// A client got a job. One that it gets for a repeated report has the lease of the first time.
    pub(super) fn hold(&self, job: &Value, asked: Instant) {
        let (lease, ends) = (text(&job["lease"]), moment(&job["lease_expires_at"]));
        let held = Held {
            lease,
            fence: job["fence"].as_u64(),
            asked,
            heard: Instant::now(),
            ends,
        };
        self.see_inputs(job);
        let key = job_of(job);
        self.write(|pages| {
            let others = pages.held.get(&key).cloned().unwrap_or_default();
            for other in others.iter().filter(|other| other.lease != held.lease) {
                if let Some(wrong) = pages.clash(&key, other, &held) {
                    pages.wrong.push(wrong);
                }
            }
            pages.held.entry(key).or_default().push(held);
        });
    }

    /// A lease was made longer.
    pub(super) fn extend(&self, lease: &str, extended: &Value) {
        let ends = moment(&extended["lease_expires_at"]);
        self.write(|pages| {
            for held in pages
                .held
                .values_mut()
                .flatten()
                .filter(|held| held.lease == lease)
            {
                held.ends = held.ends.max(ends);
            }
        });
    }

    /// A report with this lease is sent.
    pub(super) fn report(&self, lease: &str) {
        self.write(|pages| {
            _ = pages
                .reported
                .entry(lease.to_owned())
                .or_insert_with(Instant::now)
        });
    }

    /// A report that a job succeeded, with an output that no other has.
    pub(super) fn success(&self, job: &Value, by: &str) -> Value {
        let output = format!("{by}-{}", self.numbers.fetch_add(1, Relaxed));
        let key = job_of(job);
        self.write(|pages| {
            _ = pages
                .sent
                .entry(key.clone())
                .or_default()
                .insert(output.clone())
        });
        self.report(job["lease"].as_str().unwrap());
        json!({"lease": job["lease"], "outcome": "succeeded", "output": output, "job": key})
    }

    /// An operator is about to mark a job.
    pub(super) fn mark(&self, id: &str, job: &str, output: &str) {
        let key = (id.to_owned(), job.to_owned());
        self.write(|pages| _ = pages.sent.entry(key).or_default().insert(output.to_owned()));
    }

    /// Reports were answered.
    pub(super) fn accept(&self, reports: &[Value], answer: &Value) {
        let items = answer["reports"].as_array().unwrap();
        assert_eq!(items.len(), reports.len(), "{answer}");
        for (report, item) in reports.iter().zip(items) {
            let taken = item["status"] == 200
                && item["already"] != true
                && report["outcome"] == "succeeded";
            if taken {
                let key = (text(&report["job"][0]), text(&report["job"][1]));
                let output = text(&report["output"]);
                self.write(|pages| pages.accepted.entry(key).or_default().push(output));
            }
        }
    }

    /// What a job was given was returned by its parent.
    pub(super) fn see_inputs(&self, job: &Value) {
        let (id, name) = job_of(job);
        for input in job["inputs"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|input| !input["output"].is_null())
        {
            let (parent, output) = (text(&input["job"]), text(&input["output"]));
            self.write(|pages| {
                let sent = pages.sent.get(&(id.clone(), parent.clone()));
                if !sent.is_some_and(|sent| sent.contains(&output)) {
                    pages.wrong.push(format!(
                        "{name} of {id} was given '{output}', which {parent} never returned"
                    ));
                }
                pages.inputs.push((id.clone(), parent, output));
            });
        }
    }

    pub(super) fn check_output(&self, id: &str, name: &str, job: &Value) {
        let key = (id.to_owned(), name.to_owned());
        self.write(|pages| {
            let output = text(&job["output"]);
            if job["state"] == "succeeded" && !output.is_empty() {
                let sent = pages
                    .sent
                    .get(&key)
                    .is_some_and(|sent| sent.contains(&output));
                assert!(
                    sent,
                    "{name} of {id} has the output '{output}', which nobody sent"
                );
            }
            if let Some(accepted) = pages.accepted.get(&key).filter(|_| !pages.is_touched(id)) {
                assert_eq!(
                    (&job["state"], accepted),
                    (&json!("succeeded"), &vec![output]),
                    "{job}"
                );
            }
        });
    }

    /// In workflows that no operator touched, what came from a parent is what it returned in the end.
    pub(super) fn check_inputs(&self, outputs: &BTreeMap<Job, Value>) {
        self.write(|pages| {
            for (id, parent, output) in pages.inputs.iter().filter(|(id, ..)| !pages.is_touched(id))
            {
                assert_eq!(
                    outputs.get(&(id.clone(), parent.clone())),
                    Some(&json!(output)),
                    "{parent} of {id}"
                );
            }
        });
    }

    pub(super) fn check_nothing_is_wrong(&self) {
        self.write(|pages| {
            let untouched = pages
                .created
                .iter()
                .filter(|id| !pages.is_touched(id))
                .count();
            let (created, held) = (
                pages.created.len(),
                pages.held.values().map(Vec::len).sum::<usize>(),
            );
            let inputs = pages.inputs.len();
            eprintln!(
                "{created} workflows, {untouched} of them untouched, {held} leases, {inputs} inputs"
            );
            assert!(pages.wrong.is_empty(), "{:#?}", pages.wrong);
        });
    }
}

impl Pages {
    fn is_touched(&self, id: &str) -> bool {
        self.touched.contains_key(id)
    }

    /// Why two leases of a job could not both be given out.
    fn clash(&self, job: &Job, one: &Held, other: &Held) -> Option<String> {
        let (from, to) = (one.asked.min(other.asked), one.heard.max(other.heard));
        let reported = |held: &Held| self.reported.get(&held.lease).is_some_and(|&at| at <= to);
        let mut spans = self.touched.get(&job.0).into_iter().flatten();
        let touched = spans.any(|&(begin, end)| begin <= to && end >= from);
        if reported(one) || reported(other) || touched {
            return None;
        }
        let both = other.heard + MARGIN < one.ends && one.heard + MARGIN < other.ends;
        // Whichever was first, the other one has a higher number.
        let ordered = if one.heard < other.asked {
            one.fence < other.fence
        } else {
            one.fence != other.fence
        };
        let numbered = one.fence.is_none() || ordered;
        (both || !numbered)
            .then(|| format!("{job:?} was handed to two at once: {one:?} and {other:?}"))
    }
}
