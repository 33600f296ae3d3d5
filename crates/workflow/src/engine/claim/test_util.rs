//! Shorter calls of workers, for tests.

use super::Claim;
use super::claimed::Claimed;
use super::report::{Extension, Report, ReportAnswer};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::machine::Intent;
use crate::model::{LeaseRef, Timestamp};
use crate::queue::{ClaimMode, ExcludedJobs};

impl Engine {
    /// Leases ready jobs to a worker, the most urgent first. The list is empty if there are none.
    ///
    /// # Errors
    /// The store failed before any job was leased.
    ///
    /// # Cancellation
    /// When the future is dropped, leased jobs are returned to their queues at once.
    pub async fn claim(&self, claim: &Claim, now: Timestamp) -> Result<Vec<Claimed>, EngineError> {
        self.claim_except(claim, &[], now).await
    }

    /// [`Engine::claim`] without the jobs of some leases: the worker returned them and wants other
    /// ones.
    ///
    /// # Errors
    /// The store failed before any job was leased.
    pub async fn claim_except(
        &self,
        claim: &Claim,
        except: &[LeaseRef],
        now: Timestamp,
    ) -> Result<Vec<Claimed>, EngineError> {
        self.deliver(
            self.lease_except(claim, except, ClaimMode::Immediate, now)
                .await?,
        )
        .await
    }

    /// Waits until one of these queues may have work for [`Engine::claim`]. The call must precede
    /// the claim that may find nothing, so that work that arrives in between is not missed.
    pub fn arrival<'a>(&'a self, queues: &'a [String]) -> impl Future<Output = ()> + 'a {
        self.arrival_except(queues, None, &[])
    }

    /// [`Engine::arrival`] for [`Engine::claim_except`].
    pub fn arrival_except<'a>(
        &'a self,
        queues: &'a [String],
        handlers: Option<&[String]>,
        except: &[LeaseRef],
    ) -> impl Future<Output = ()> + use<'a> {
        let waiting =
            self.queues()
                .start_waiting(queues, handlers, ExcludedJobs::from_leases(except), None);
        async { drop(waiting.arrived().await) }
    }

    /// Applies reports, independently of each other, and leases more jobs to the worker: first
    /// those that its reports made ready, which do not enter the queue, then others. Jobs that the
    /// worker returned are excluded.
    ///
    /// # Cancellation
    /// When the future is dropped, reports may have been accepted. Leased jobs are returned to
    /// their queues at once.
    pub async fn report(
        &self,
        reports: Vec<Report>,
        next_claim: Option<&Claim>,
        now: Timestamp,
    ) -> (
        Vec<Result<ReportAnswer, EngineError>>,
        Result<Vec<Claimed>, EngineError>,
    ) {
        let next_claim = next_claim.map(|claim| (claim, ClaimMode::Immediate));
        let (reported, leases) = self.report_and_lease(reports, next_claim, now).await;
        let claimed = match leases {
            Ok(leases) => self.deliver(leases).await,
            Err(error) => Err(error),
        };
        (reported, claimed)
    }

    /// Extends leases, independently of each other, of workers that continue.
    pub async fn extend(
        &self,
        extensions: Vec<Extension>,
        now: Timestamp,
    ) -> Vec<Result<(), EngineError>> {
        self.extend_for(extensions, Intent::Continue, now).await
    }
}
