//! Positions of the jobs of a graph and of the lines between them, in a picture that reads from
//! left to right.
//!
//! The drawing is layered. Jobs with the same parents and children are one block (`units`). Jobs
//! with many common parents get their lines through one junction (`junctions`), so an all-to-all
//! step has as many lines as jobs. Each unit is one layer after its last parent (`layers`). Layers
//! are ordered so that few lines cross (`order`), and units are moved level with their neighbours
//! (`coordinates`).
//!
//! **Invariants:** the layout is pure and deterministic. Time is linear in jobs and dependencies
//! except for sorting. Memory is linear in jobs, because the number of drawn lines is bounded.

mod block;
pub(crate) mod coordinates;
pub(crate) mod geometry;
mod junctions;
pub(crate) mod label;
pub(crate) mod layers;
pub(crate) mod order;
#[cfg(test)]
mod tests;
pub(crate) mod units;

use self::block::Grid;
use self::coordinates::vertical_positions;
use self::geometry::{BOX_GAP, BOX_HEIGHT};
pub use self::geometry::{Block, Edge, End, Layout, Node, Point};
use self::layers::{Layered, Route, Via};
use self::order::reduce_crossings;
use self::units::{Grouping, Unit};
use crate::graph::Graph;
use crate::model::JobIndex;

/// Pixels of free space around the picture.
const MARGIN: i32 = 16;

const BEND_HEIGHT: i32 = 2;

impl Layout {
    /// Lays out a graph.
    #[must_use]
    pub fn new(graph: &Graph) -> Self {
        let layered = reduce_crossings(Layered::new(graph, Grouping::Blocks));
        let size = |unit: &Unit| match unit {
            Unit::Job(job) => (label::box_width(&graph.jobs[job.index()]), BOX_HEIGHT),
            Unit::Block(jobs) => Grid::new(graph, jobs).size(),
        };
        let (widths, heights): (Vec<i32>, Vec<i32>) = layered.units.iter().map(size).unzip();
        let mut rows = vertical_positions(&layered, &heights, BEND_HEIGHT, BOX_GAP);
        let top = MARGIN + if layered.has_rail() { BOX_GAP } else { 0 };
        rows.iter_mut().for_each(|row| *row += top);
        let columns = coordinates::columns(&layered, &widths, &rows, MARGIN);
        Drawing {
            graph,
            layered: &layered,
            rows: &rows,
            columns: &columns,
            widths,
            heights,
        }
        .layout()
    }
}

/// The parts of a layout during drawing.
struct Drawing<'a> {
    graph: &'a Graph,
    layered: &'a Layered,
    rows: &'a [i32],
    columns: &'a [coordinates::Column],
    /// Widths of the units.
    widths: Vec<i32>,
    heights: Vec<i32>,
}

impl Drawing<'_> {
    fn layout(mut self) -> Layout {
        self.align_boxes();
        let mut nodes = vec![Node::default(); self.graph.jobs.len()];
        let mut blocks = Vec::new();
        // The line end that each unit is.
        let mut ends = Vec::with_capacity(self.layered.units.len());
        for (at, unit) in self.layered.units.iter().enumerate() {
            let frame = self.frame(at);
            match unit {
                Unit::Job(job) => {
                    nodes[job.index()] = frame;
                    ends.push(End::Job(*job));
                }
                Unit::Block(jobs) => {
                    self.place_in_block(jobs, frame, &mut nodes);
                    ends.push(End::Block(blocks.len()));
                    blocks.push(Block {
                        frame,
                        jobs: jobs.clone(),
                    });
                }
            }
        }
        let units = self.layered.units.len();
        let junctions = (units..units + self.layered.junctions).map(|vertex| self.point(vertex));
        Layout {
            width: self.columns.last().map_or(0, coordinates::Column::right) + MARGIN,
            height: self.lowest() + MARGIN,
            nodes,
            blocks,
            junctions: junctions.collect(),
            edges: self.edges(&ends),
            undrawn: self.layered.undrawn,
        }
    }

    /// Sets the nodes of the jobs of a block.
    fn place_in_block(&self, jobs: &[JobIndex], frame: Node, nodes: &mut [Node]) {
        let grid = Grid::new(self.graph, jobs);
        let corner = Point {
            x: frame.x,
            y: frame.y,
        };
        for (index, job) in jobs.iter().enumerate() {
            nodes[job.index()] = grid.node(index, corner, frame.layer);
        }
    }

    /// The lowest point of all units and bends.
    fn lowest(&self) -> i32 {
        let lowest = |(vertex, row): (usize, &i32)| {
            let height = self.heights.get(vertex);
            row + height.map_or(BEND_HEIGHT, |height| height / 2)
        };
        self.rows.iter().enumerate().map(lowest).max().unwrap_or(0)
    }

    /// Widens all boxes of a layer to the widest. Frames keep their widths.
    fn align_boxes(&mut self) {
        for layer in &self.layered.layers {
            let is_job = |vertex: &&u32| matches!(self.layered.unit(**vertex), Some(Unit::Job(_)));
            let jobs = || layer.iter().filter(is_job).map(|&vertex| vertex as usize);
            let widest = jobs().map(|job| self.widths[job]).max().unwrap_or(0);
            jobs().for_each(|job| self.widths[job] = widest);
        }
    }

    fn frame(&self, unit: usize) -> Node {
        let height = self.heights[unit];
        Node {
            x: self.column(unit).left,
            y: self.rows[unit] - height / 2,
            width: self.widths[unit],
            height,
            layer: self.layered.layer_of[unit],
        }
    }

    fn point(&self, vertex: usize) -> Point {
        Point {
            x: self.column(vertex).left,
            y: self.rows[vertex],
        }
    }

    fn column(&self, vertex: usize) -> coordinates::Column {
        self.columns[self.layered.layer_of[vertex] as usize]
    }

    fn edges(&self, ends: &[End]) -> Vec<Edge> {
        let end = |vertex: usize| {
            ends.get(vertex)
                .copied()
                .unwrap_or_else(|| End::Junction(vertex - ends.len()))
        };
        let edge = |route: &Route| Edge {
            from: end(route.from as usize),
            to: end(route.to as usize),
            points: self.points_of(route),
        };
        self.layered.routes.iter().map(edge).collect()
    }

    /// The points of a line: its begin, where it turns, and its end.
    fn points_of(&self, route: &Route) -> Vec<Point> {
        let from = route.from as usize;
        let to = route.to as usize;
        let mut points = Vec::with_capacity(4);
        let mut push = |x, y| push_point(&mut points, Point { x, y });
        let begin = self.point(from);
        let width = self.widths.get(from).copied().unwrap_or(0);
        push(begin.x + width, begin.y);
        push(self.column(from).right(), begin.y);
        match &route.via {
            Via::Bends(bends) => {
                for bend in bends.iter().map(|&bend| bend as usize) {
                    push(self.column(bend).left, self.rows[bend]);
                    push(self.column(bend).right(), self.rows[bend]);
                }
            }
            Via::Rail => {
                let layer = |vertex: usize| self.layered.layer_of[vertex] as usize;
                push(self.columns[layer(from) + 1].left, MARGIN);
                push(self.columns[layer(to) - 1].right(), MARGIN);
            }
        }
        let target = self.point(to);
        push(target.x, target.y);
        points
    }
}

/// Appends a point. Duplicates and the middle one of three level points are left out.
fn push_point(points: &mut Vec<Point>, next: Point) {
    if points.last() == Some(&next) {
        return;
    }
    if let [.., before, last] = points[..]
        && before.y == last.y
        && last.y == next.y
    {
        points.pop();
    }
    points.push(next);
}
