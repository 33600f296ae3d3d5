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
mod joined;
pub(crate) mod label;
pub(crate) mod layers;
mod neighbours;
mod order;
pub(crate) mod place;
pub(crate) mod shape;
#[cfg(test)]
mod tests;
pub(crate) mod units;

use self::block::Grid;
use self::layers::{Layered, Via};
use self::place::rows;
use self::shape::{BOX_GAP, BOX_HEIGHT};
pub use self::shape::{Block, Edge, End, Layout, Node, Point};
use self::units::{Alike, Unit};
use crate::graph::Graph;

/// Pixels of free space around the picture.
const MARGIN: i32 = 16;

const BEND_HEIGHT: i32 = 2;

impl Layout {
    /// Lays out a graph.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        let layered = ordered(Layered::of(graph, Alike::Together));
        let size = |unit: &Unit| match unit {
            Unit::Job(job) => (label::box_width(&graph.jobs[job.index()]), BOX_HEIGHT),
            Unit::Block(jobs) => Grid::of(graph, jobs).size(),
        };
        let (widths, heights): (Vec<i32>, Vec<i32>) = layered.units.iter().map(size).unzip();
        let mut rows = rows(&layered, &heights, BEND_HEIGHT, BOX_GAP);
        let has_rail = layered
            .routes
            .iter()
            .any(|route| matches!(route.via, Via::Rail));
        let top = MARGIN + if has_rail { BOX_GAP } else { 0 };
        rows.iter_mut().for_each(|row| *row += top);
        let columns = place::columns(&layered, &widths, &rows, MARGIN);
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

    /// Numbers of line crossings in the order of definition and in the drawn order: they show the
    /// gain of ordering the layers.
    #[must_use]
    pub fn crossings(graph: &Graph) -> (u64, u64) {
        let layered = Layered::of(graph, Alike::Together);
        (
            order::crossings(&layered),
            order::crossings(&ordered(layered)),
        )
    }
}

/// Reorders the vertices within each layer so that few lines cross.
pub(crate) fn ordered(mut layered: Layered) -> Layered {
    order::reduce_crossings(&mut layered);
    layered
}

/// The parts of a layout during drawing.
struct Drawing<'a> {
    graph: &'a Graph,
    layered: &'a Layered,
    rows: &'a [i32],
    columns: &'a [place::Column],
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
                    let grid = Grid::of(self.graph, jobs);
                    let corner = Point {
                        x: frame.x,
                        y: frame.y,
                    };
                    for (place, job) in jobs.iter().enumerate() {
                        nodes[job.index()] = grid.node(place, corner, frame.layer);
                    }
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
            width: self.columns.last().map_or(0, place::Column::right) + MARGIN,
            height: self.lowest() + MARGIN,
            nodes,
            blocks,
            junctions: junctions.collect(),
            edges: self.edges(&ends),
            undrawn: self.layered.undrawn,
        }
    }

    /// The lowest point of all units and bends.
    fn lowest(&self) -> i32 {
        let below = |vertex: usize| {
            self.heights
                .get(vertex)
                .map_or(BEND_HEIGHT, |height| height / 2)
        };
        let rows = self.rows.iter().enumerate();
        rows.map(|(vertex, row)| row + below(vertex))
            .max()
            .unwrap_or(0)
    }

    /// Widens all boxes of a layer to the widest. Frames keep their widths.
    fn align_boxes(&mut self) {
        for layer in &self.layered.layers {
            let is_job = |vertex: &&u32| matches!(self.layered.unit(**vertex), Some(Unit::Job(_)));
            let jobs: Vec<usize> = layer
                .iter()
                .filter(is_job)
                .map(|&vertex| vertex as usize)
                .collect();
            let widest = jobs.iter().map(|&job| self.widths[job]).max().unwrap_or(0);
            jobs.into_iter().for_each(|job| self.widths[job] = widest);
        }
    }

    fn frame(&self, unit: usize) -> Node {
        let height = self.heights[unit];
        Node {
            x: self.column(unit).left,
            y: self.rows[unit] - height / 2,
            width: self.widths[unit],
            height,
            layer: self.layered.layer[unit],
        }
    }

    fn point(&self, vertex: usize) -> Point {
        Point {
            x: self.column(vertex).left,
            y: self.rows[vertex],
        }
    }

    fn column(&self, vertex: usize) -> place::Column {
        self.columns[self.layered.layer[vertex] as usize]
    }

    fn edges(&self, ends: &[End]) -> Vec<Edge> {
        let end = |vertex: usize| {
            ends.get(vertex)
                .copied()
                .unwrap_or_else(|| End::Junction(vertex - ends.len()))
        };
        let edges = self.layered.routes.iter().map(|route| {
            let from = route.from as usize;
            let to = route.to as usize;
            let begin = Point {
                x: self.point(from).x + self.widths.get(from).copied().unwrap_or(0),
                y: self.rows[from],
            };
            let mut points = Vec::with_capacity(4);
            pass(&mut points, begin);
            pass(
                &mut points,
                Point {
                    x: self.column(from).right(),
                    y: begin.y,
                },
            );
            match &route.via {
                Via::Bends(bends) => {
                    for &bend in bends {
                        let column = self.column(bend as usize);
                        let y = self.rows[bend as usize];
                        pass(&mut points, Point { x: column.left, y });
                        pass(
                            &mut points,
                            Point {
                                x: column.right(),
                                y,
                            },
                        );
                    }
                }
                Via::Rail => {
                    let first = self.columns[self.layered.layer[from] as usize + 1].left;
                    let last = self.columns[self.layered.layer[to] as usize - 1].right();
                    pass(
                        &mut points,
                        Point {
                            x: first,
                            y: MARGIN,
                        },
                    );
                    pass(&mut points, Point { x: last, y: MARGIN });
                }
            }
            pass(&mut points, self.point(to));
            Edge {
                from: end(from),
                to: end(to),
                points,
            }
        });
        edges.collect()
    }
}

/// Appends a point. Duplicates and the middle one of three level points are left out.
fn pass(points: &mut Vec<Point>, next: Point) {
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
