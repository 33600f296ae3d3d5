//! What nobody asked for: time, servers that die, and stores that fail or lose things.

use std::time::Duration;

use tidegate_workflow::{Action, DataLoss, Partition, Paused, Status, WorkflowId};

use super::check::what_is_left;
use super::ground::{PARTITIONS, Weather};
use super::world::{SERVERS, World};

impl World {
    pub(crate) async fn fate_strikes(&mut self) {
        if self.rng.u8(..4) == 0 {
            let seconds = [1, 3, 7, 25, 40][self.rng.usize(..5)];
            self.now = self.now + Duration::from_secs(seconds);
        }
        let changes = if self.weather == Weather::Fair { 25 } else { 8 };
        if self.rng.u8(..changes) == 0 {
            let climate = self.ground.climate();
            let bad = climate[self.rng.usize(..climate.len())];
            self.weather = if self.weather == Weather::Fair {
                bad
            } else {
                Weather::Fair
            };
        }
        // A server starts, and a store is repaired, when it works.
        if self.weather == Weather::Fair {
            self.ground.becomes(Weather::Fair, &mut self.rng).await;
            self.ground.holds_still();
            self.ask_again().await;
            if self.rng.u8(..25) == 0 {
                // The server dies, and with it all that it had in memory.
                let which = self.rng.usize(..SERVERS);
                self.engines[which] = self.ground.other_engine().await;
            }
            if self.rng.u8(..40) == 0 {
                self.lose_something().await;
            }
        }
    }

    /// Servers ask again, within a second, about what did not work. Until then they pass over partitions that did not answer.
    async fn ask_again(&self) {
        for engine in &self.engines {
            for partition in engine.store_failures().into_keys() {
                engine.probe(partition).await;
            }
        }
    }

    async fn lose_something(&mut self) {
        let ids: Vec<WorkflowId> = self.snapshots.keys().copied().collect();
        let loss = match self.rng.u8(..4) {
            0 => DataLoss::Everything,
            1 if !ids.is_empty() => DataLoss::State(ids[self.rng.usize(..ids.len())]),
            2 => DataLoss::Ready(Partition(self.rng.u16(..PARTITIONS))),
            _ => DataLoss::Registers,
        };
        if !self.ground.lose(loss) {
            return;
        }
        match loss {
            DataLoss::Everything => self.lost.clear(),
            DataLoss::State(id) => _ = self.lost.insert(id),
            DataLoss::Ready(_) => self.write_ready_rows_again().await,
            DataLoss::Registers => {}
        }
        self.hear_of_the_loss(loss).await;
        self.snapshots = what_is_left(&self.engines[0], &self.lost).await;
    }

    /// What the manual says: pausing and resuming writes the rows of a workflow again.
    async fn write_ready_rows_again(&self) {
        let running = self
            .snapshots
            .iter()
            .filter(|(_, is)| is.meta().status == Status::Running);
        for (id, _) in running {
            self.engines[0]
                .act(*id, Action::Pause, self.now)
                .await
                .unwrap();
            self.engines[1]
                .act(*id, Action::Resume, self.now)
                .await
                .unwrap();
        }
    }

    /// Servers look around, and operators resume what they want resumed.
    async fn hear_of_the_loss(&mut self, loss: DataLoss) {
        if !matches!(loss, DataLoss::Everything | DataLoss::Registers) {
            return;
        }
        for queue in &self.queues {
            self.engines[0]
                .set_queue_paused(queue, Paused::No)
                .await
                .unwrap();
        }
        for engine in &self.engines {
            let _whether_jobs_were_found = engine.poll_store().await.unwrap();
        }
        self.paused.clear();
    }
}
