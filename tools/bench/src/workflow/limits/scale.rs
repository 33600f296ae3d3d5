//! `--limits-at-scale`: a million jobs behind closed keys, tenants of very different size, weights, and jobs beside decisions.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::behind::{self, Behind};
use super::fairness::{self, Fairness};
use super::mixed::{self, Mixed};
use super::weights::{self, Shares};
use crate::figures::{self, Table, duration};
use crate::workflow::arguments::Arguments;

/// How much of it.
#[derive(Args)]
pub(in crate::workflow) struct Scale {
    /// Measures only what many jobs under limits do to others, and prints the tables: all of it, or the parts that are named.
    #[arg(long, value_enum, value_delimiter = ',', num_args = 0.., default_missing_value = "behind,fairness,weights,mixed")]
    limits_at_scale: Vec<Part>,
    /// Jobs that wait behind closed keys, and jobs of the large tenant.
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) waiting: usize,
    /// Tenants whose keys are closed, and small tenants beside the large one.
    #[arg(long, default_value_t = 1_000)]
    pub(super) tenants: usize,
    /// Length of a turn with jobs that arrive all the time.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub(super) span: Duration,
    /// For how long shares are counted.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub(super) shares_span: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Behind,
    Fairness,
    Weights,
    Mixed,
}

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(in crate::workflow) struct Results {
    behind: Vec<Behind>,
    fairness: Vec<Fairness>,
    weights: Vec<Shares>,
    mixed: Vec<Mixed>,
}

impl Scale {
    pub(in crate::workflow) fn is_wanted(&self) -> bool {
        !self.limits_at_scale.is_empty()
    }

    fn wants(&self, part: Part) -> bool {
        self.limits_at_scale.contains(&part)
    }
}

pub(in crate::workflow) async fn measure(arguments: &Arguments) -> anyhow::Result<Results> {
    let scale = &arguments.scale;
    let mut results = Results {
        behind: Vec::new(),
        fairness: Vec::new(),
        weights: Vec::new(),
        mixed: Vec::new(),
    };
    if scale.wants(Part::Behind) {
        results.behind = behind::measure(arguments).await?;
    }
    if scale.wants(Part::Fairness) {
        results.fairness = fairness::measure(arguments).await?;
    }
    if scale.wants(Part::Weights) {
        results.weights = weights::measure(arguments).await?;
    }
    if scale.wants(Part::Mixed) {
        results.mixed = mixed::measure(arguments).await?;
    }
    Ok(results)
}

impl figures::Results for Results {
    const NAME: &str = "limits-at-scale";

    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        if !self.behind.is_empty() {
            tables.push(Table::new("behind", behind::sheet(&self.behind)));
            tables.push(Table::new("held", behind::held(&self.behind)));
        }
        if !self.fairness.is_empty() {
            tables.push(Table::new("fairness", fairness::sheet(&self.fairness)));
        }
        if !self.weights.is_empty() {
            tables.push(Table::new("weights", weights::sheet(&self.weights)));
        }
        if !self.mixed.is_empty() {
            tables.push(Table::new("mixed", mixed::sheet(&self.mixed)));
        }
        tables
    }
}
