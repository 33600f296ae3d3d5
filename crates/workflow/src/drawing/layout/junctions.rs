//! Lines between units, and the junctions that replace many lines.

use std::cmp::Reverse;

use super::units::{Classes, Grouping, Unit, Units};
use crate::graph::Graph;

/// Lines that a junction must save. Few lines are clearer without a junction.
const MIN_SAVED_LINES: usize = 4;
/// Maximum drawn lines: more are a grey plane to a reader and megabytes to a browser. It allows
/// four for each of 10,000 jobs.
const MAX_LINES: usize = 40_000;

/// The units of a graph, and the junctions of units with common parents. Vertices are numbered:
/// first the units, then the junctions.
///
/// **Invariant:** the dependencies of the graph are not copied, because there may be millions.
pub(super) struct JunctionGraph<'a> {
    graph: &'a Graph,
    units: Units,
    /// The junction before each unit, if it has one.
    junction_of: Vec<Option<u32>>,
    /// One of the units after each junction.
    junction_units: Vec<u32>,
}

impl<'a> JunctionGraph<'a> {
    pub(super) fn new(graph: &'a Graph, grouping: Grouping) -> Self {
        let units = Units::new(graph, grouping);
        let count = units.list.len();
        let parents_of = |unit: &Unit| &graph.jobs[unit.first().index()].parents[..];
        let sharing = Classes::from_keys(units.list.iter().map(parents_of));
        let mut joined = Self {
            graph,
            units,
            junction_of: vec![None; count],
            junction_units: Vec::new(),
        };
        // The junction of each class that was already visited; the inner `None` is a class without
        // a junction.
        let mut visited: Vec<Option<Option<u32>>> = vec![None; sharing.sizes.len()];
        let mut parents = Vec::new();
        for (unit, &class) in sharing.class_of.iter().enumerate() {
            joined.junction_of[unit] = *visited[class].get_or_insert_with(|| {
                let children = sharing.sizes[class];
                if children == 1 {
                    return None;
                }
                joined.read_parents(unit as u32, &mut parents);
                let saves = parents.len() * children >= parents.len() + children + MIN_SAVED_LINES;
                saves.then(|| {
                    joined.junction_units.push(unit as u32);
                    (count + joined.junction_units.len() - 1) as u32
                })
            });
        }
        joined
    }

    /// The units, and the number of junctions.
    pub(super) fn into_parts(self) -> (Vec<Unit>, usize) {
        (self.units.list, self.junction_units.len())
    }

    /// The layer of each unit and junction: one after its last parent. A unit without parents is in
    /// the layer before its first child.
    pub(super) fn layers(&self) -> Vec<u32> {
        let count = self.units.list.len() + self.junction_units.len();
        let mut layer = vec![0_u32; count];
        for job in self.graph.in_order() {
            let unit = self.units.unit_of_job[job.index()] as usize;
            if self.units.list[unit].first() != job {
                continue;
            }
            let own_layer = self
                .parents(unit as u32)
                .map(|parent| layer[parent as usize] + 1)
                .max()
                .unwrap_or(0);
            layer[unit] = own_layer;
            if let Some(junction) = self.junction_of[unit] {
                layer[junction as usize] = own_layer;
                layer[unit] += 1;
            }
        }
        let mut first_after = vec![u32::MAX; count];
        for (target, unit) in self.line_targets() {
            let after = layer[target as usize];
            for parent in self.parents(unit) {
                let first = &mut first_after[parent as usize];
                *first = after.min(*first);
            }
        }
        for unit in 0..self.units.list.len() {
            let is_first = self.parents(unit as u32).next().is_none();
            if is_first && first_after[unit] != u32::MAX {
                layer[unit] = first_after[unit] - 1;
            }
        }
        layer
    }

    /// The drawn lines, and the number of lines that are left out. If there are too many, each
    /// vertex keeps at most the same number of lines from its nearest parents. A vertex with
    /// parents keeps the line that determines its layer.
    pub(super) fn lines(&self, layer: &[u32]) -> (Vec<(u32, u32)>, usize) {
        let mut parents = Vec::new();
        let line_counts = self.line_targets().map(|(_, unit)| {
            self.read_parents(unit, &mut parents);
            parents.len()
        });
        let mut line_counts: Vec<usize> = line_counts.collect();
        let total: usize = line_counts.iter().sum();
        let max_lines = max_per_vertex(&mut line_counts, MAX_LINES);
        let mut lines = Vec::with_capacity(total.min(MAX_LINES) + self.units.list.len());
        for (target, unit) in self.line_targets() {
            self.read_parents(unit, &mut parents);
            if parents.len() > max_lines {
                parents.select_nth_unstable_by_key(max_lines, |&parent| {
                    (Reverse(layer[parent as usize]), parent)
                });
                parents.truncate(max_lines);
                parents.sort_unstable();
            }
            lines.extend(parents.iter().map(|&parent| (parent, target)));
        }
        let undrawn = total - lines.len();
        let junction_lines = self.junction_of.iter().enumerate();
        lines.extend(
            junction_lines.filter_map(|(unit, junction)| Some(((*junction)?, unit as u32))),
        );
        (lines, undrawn)
    }

    /// The vertices at the ends of dependency lines, each with a unit that has these parents.
    fn line_targets(&self) -> impl Iterator<Item = (u32, u32)> {
        let count = self.units.list.len() as u32;
        let without_junction = (0..count)
            .filter(|&unit| self.junction_of[unit as usize].is_none())
            .map(|unit| (unit, unit));
        without_junction.chain((count..).zip(self.junction_units.iter().copied()))
    }

    /// The units before a unit, with duplicates.
    fn parents(&self, unit: u32) -> impl Iterator<Item = u32> {
        let first = self.units.list[unit as usize].first();
        let parents = self.graph.jobs[first.index()].parents.iter();
        parents.map(|parent| self.units.unit_of_job[parent.index()])
    }

    /// The distinct units before a unit, ascending.
    fn read_parents(&self, unit: u32, parents: &mut Vec<u32>) {
        parents.clear();
        parents.extend(self.parents(unit));
        parents.sort_unstable();
        parents.dedup();
    }
}

/// The largest bound of each count that keeps the sum of the bounded counts within `max_total`; at
/// least 1.
fn max_per_vertex(counts: &mut [usize], max_total: usize) -> usize {
    counts.sort_unstable();
    let mut rest = max_total;
    for (index, &count) in counts.iter().enumerate() {
        let share = rest / (counts.len() - index);
        if count > share {
            return share.max(1);
        }
        rest -= count;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_takes_from_those_that_have_most() {
        let check = |counts: &[usize], most, expected| {
            assert_eq!(max_per_vertex(&mut counts.to_vec(), most), expected)
        };
        check(&[], 10, usize::MAX);
        check(&[5, 5], 10, usize::MAX);
        check(&[0, 8, 1, 8], 10, 4);
        check(&[3, 9, 2], 9, 4);
        check(&[1, 1, 1], 2, 1);
    }
}
