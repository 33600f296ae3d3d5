//! Reads the first rows of many lanes with one script for each partition.

use tidegate_pipeline::{Arg, Batch, Outcome};

use super::keys::Set;
use super::read::reply::{self, answer};
use super::{RedisStore, key_arg, text_arg};
use crate::codec::StoreError;
use crate::model::Partition;
use crate::store::query::lane_scan::{LaneRows, LaneScan};

const SCRIPT: &str = include_str!("lane_scan/lane_scan.lua");

impl RedisStore {
    pub(crate) async fn lanes(
        &self,
        wanted: &[(Partition, Vec<LaneScan>)],
        rows_per_lane: usize,
        max_lanes: usize,
    ) -> Vec<Result<Vec<LaneRows>, StoreError>> {
        let mut batch = Batch::new();
        for (partition, scans) in wanted {
            let key = self.keys.set(*partition, Set::Ready);
            let bounds: Vec<(Vec<u8>, Vec<u8>)> = scans.iter().map(bounds).collect();
            let head = [
                text_arg(SCRIPT),
                Arg::Integer(1),
                key_arg(&key),
                Arg::Integer(rows_per_lane as i64),
                Arg::Integer(max_lanes as i64),
            ];
            let bounds = bounds
                .iter()
                .flat_map(|(from, to)| [Arg::Bytes(from), Arg::Bytes(to)]);
            batch
                .unit()
                .repeatable("EVAL", &head.into_iter().chain(bounds).collect::<Vec<_>>());
        }
        self.send(batch).await.iter().map(parse_scans).collect()
    }
}

fn bounds(LaneScan { from, to }: &LaneScan) -> (Vec<u8>, Vec<u8>) {
    (
        [b"[", from.as_slice()].concat(),
        [b"(", to.as_slice()].concat(),
    )
}

fn parse_scans(outcome: &Outcome) -> Result<Vec<LaneRows>, StoreError> {
    let scan = |scan| {
        let values = reply::array(scan)?;
        let Some((all, rows)) = values.split_first() else {
            return Ok((Vec::new(), true));
        };
        let rows = rows.iter().map(|row| {
            Ok(reply::bytes(row)?
                .map(|row| row.to_vec())
                .unwrap_or_default())
        });
        Ok((
            rows.collect::<Result<_, StoreError>>()?,
            reply::count(all)? == 1,
        ))
    };
    reply::array(answer(outcome)?)?
        .into_iter()
        .map(scan)
        .collect()
}
