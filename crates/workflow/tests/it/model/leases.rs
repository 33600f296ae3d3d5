//! Who has which job.

use std::collections::BTreeMap;

use tidegate_workflow::{JobIndex, JobState, LeaseRef, Outcome, WorkflowId};

use super::check::Snapshots;
use super::ground::Weather;
use super::step::Step;
use super::told::Told;
use super::world::World;

impl World {
    /// No job is leased to two, and none to nobody.
    pub(crate) fn check_leases(&mut self, before: &Snapshots, steps: &[Step], told: &[Told]) {
        let mut leased: BTreeMap<(WorkflowId, JobIndex), LeaseRef> = BTreeMap::new();
        for lease in told
            .iter()
            .flat_map(Told::claimed)
            .map(|claimed| claimed.lease)
        {
            let other = leased.insert((lease.workflow, lease.job), lease);
            let twice = other.is_some_and(|other| other != lease);
            let moved = steps
                .iter()
                .any(|step| step.acts_on() == Some(lease.workflow));
            // It may have been reported in the same moment, and be ready again.
            let reported = other.is_some_and(|other| steps.iter().any(|step| step.reports(other)));
            assert!(
                !twice || moved || reported,
                "{lease} and {other:?} were handed out together"
            );
        }
        self.told.extend(leased.into_values());
        for (step, told) in steps.iter().zip(told) {
            if let Told::Repeated(unheard, ..) = told {
                self.told.extend(unheard);
            }
            if let (
                Step::Report(lease, outcome, Some(_)),
                Told::Reported(Ok(reported), Ok(claimed)),
            ) = (step, told)
            {
                let back = matches!(outcome, Outcome::Returned { pause } if pause.is_zero());
                let again = claimed
                    .iter()
                    .any(|got| (got.lease.workflow, got.lease.job) == (lease.workflow, lease.job));
                let same = back && again && !reported.already && steps.len() == 1;
                assert!(!same, "given back, and back at once: {before:?}");
            }
        }
        self.check_that_somebody_has_each(steps, told);
    }

    /// Each job that runs has a worker who knows of it, unless an answer could not be given.
    fn check_that_somebody_has_each(&mut self, steps: &[Step], told: &[Told]) {
        let left = steps.iter().zip(told).any(|(step, told)| {
            // The first answer was given to somebody who is gone.
            matches!((told, step.deed()), (Told::Nothing, Step::ReportTwice(..)))
        });
        // What two callers reported together reached one of them, who may be gone.
        let shared = |at: JobIndex, lease: LeaseRef| {
            let reported = |of: &LeaseRef| {
                of.successor(at) == lease
                    && steps.iter().filter(|step| step.reports(*of)).count() > 1
            };
            steps
                .iter()
                .flat_map(Step::reported)
                .any(|of| reported(&of))
        };
        let excused = self.weather != Weather::Fair || left;
        for (&workflow, is) in &self.snapshots {
            for (at, job) in is.jobs().iter().enumerate() {
                let index = tidegate_workflow::JobIndex(at as u32);
                let lease = LeaseRef {
                    workflow,
                    job: index,
                    token: job.token,
                };
                if matches!(job.state, JobState::Running { .. }) && !self.told.contains(&lease) {
                    assert!(
                        excused || shared(index, lease),
                        "{lease} is leased, and nobody knows of it"
                    );
                    self.told.insert(lease);
                }
            }
        }
    }
}
