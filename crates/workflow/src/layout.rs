//! Where the jobs of a graph and the lines between them go in a picture that reads from left to right.
//!
//! A layered drawing: each job is put one layer after the last of its parents (`layers`), the layers are ordered so that few
//! lines cross (`order`), and jobs are moved level with the jobs around them (`place`). Every step is linear in jobs and lines but
//! for sorting. Jobs that have many parents in common get their lines through one junction, so the lines of an all-to-all step are
//! as many as its jobs and not their product.
//!
//! **Invariant:** pure and deterministic: the same graph gives the same layout.

mod label;
mod layers;
mod order;
mod place;
#[cfg(test)]
mod tests;

pub(crate) use label::elided;
pub(crate) use layers::{Layered, Via};
pub(crate) use place::{Spacing, rows};

use crate::graph::Graph;
use crate::id::JobIndex;

/// A point of the picture, in pixels from its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// To the right.
    pub x: i32,
    /// Down.
    pub y: i32,
}

/// Where everything is drawn. All numbers are pixels; text is estimated at 13 pixels for names and 11 for handlers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Of the whole, with a margin.
    pub width: i32,
    /// Of the whole, with a margin.
    pub height: i32,
    /// A box for each job, in the order of the graph. Boxes do not overlap.
    pub nodes: Vec<Node>,
    /// Where the lines of jobs that have all their parents in common meet.
    pub junctions: Vec<Point>,
    /// The lines. Those through a junction stand for all pairs of a job before it and a job after it.
    pub edges: Vec<Edge>,
}

/// The box of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The left side.
    pub x: i32,
    /// The upper side.
    pub y: i32,
    /// To the right of `x`.
    pub width: i32,
    /// Down from `y`.
    pub height: i32,
    /// The column, from 0. A job is in a later one than its parents.
    pub layer: u32,
}

/// A line, from the right side of a box or a junction to the left side of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Where it begins.
    pub from: End,
    /// Where it ends.
    pub to: End,
    /// Begin, bends and end. `x` never falls; pieces that are level pass between boxes, the others lie between layers.
    pub points: Vec<Point>,
}

/// What is at an end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A job.
    Job(JobIndex),
    /// A junction, by its place in [`Layout::junctions`].
    Junction(usize),
}

/// Free space around the picture.
const MARGIN: i32 = 16;
const NODE_HEIGHT: i32 = 42;

/// Boxes are 14 pixels apart, and lines that pass between them 12.
const PIXELS: Spacing = Spacing { job: NODE_HEIGHT, bend: 2, gap: 14 };

impl Layout {
    /// Lays out a graph.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        let layered = ordered(graph);
        let mut rows = rows(&layered, &PIXELS);
        let has_rail = layered.routes.iter().any(|route| matches!(route.via, Via::Rail));
        let top = MARGIN + if has_rail { PIXELS.gap } else { 0 };
        rows.iter_mut().for_each(|row| *row += top);
        let columns = place::columns(graph, &layered, &rows, MARGIN);
        Drawing { layered: &layered, rows: &rows, columns: &columns }.layout()
    }
}

/// A graph in layers with few crossings.
pub(crate) fn ordered(graph: &Graph) -> Layered {
    let mut layered = Layered::of(graph);
    order::reduce_crossings(&mut layered);
    layered
}

/// The parts of a layout while its lines are drawn.
struct Drawing<'a> {
    layered: &'a Layered,
    rows: &'a [i32],
    columns: &'a [place::Column],
}

impl Drawing<'_> {
    fn layout(&self) -> Layout {
        let jobs = self.layered.jobs;
        let nodes: Vec<Node> = (0..jobs).map(|job| self.node(job)).collect();
        let junctions = (jobs..jobs + self.layered.junctions).map(|vertex| self.point(vertex)).collect();
        let width = self.columns.last().map_or(0, place::Column::right) + MARGIN;
        let lowest = self.rows.iter().map(|row| row + NODE_HEIGHT / 2).max().unwrap_or(0);
        Layout { width, height: lowest + MARGIN, nodes, junctions, edges: self.edges() }
    }

    fn node(&self, job: usize) -> Node {
        let layer = self.layered.layer[job];
        let column = self.columns[layer as usize];
        let y = self.rows[job] - NODE_HEIGHT / 2;
        Node { x: column.left, y, width: column.width, height: NODE_HEIGHT, layer }
    }

    fn point(&self, vertex: usize) -> Point {
        Point { x: self.column(vertex).left, y: self.rows[vertex] }
    }

    fn column(&self, vertex: usize) -> place::Column {
        self.columns[self.layered.layer[vertex] as usize]
    }

    fn end(&self, vertex: usize) -> End {
        match vertex.checked_sub(self.layered.jobs) {
            None => End::Job(JobIndex(vertex as u16)),
            Some(junction) => End::Junction(junction),
        }
    }

    fn edges(&self) -> Vec<Edge> {
        let edges = self.layered.routes.iter().map(|route| {
            let (from, to) = (route.from as usize, route.to as usize);
            let leaving = Point { x: self.column(from).right(), y: self.rows[from] };
            let mut points = Vec::with_capacity(4);
            if from >= self.layered.jobs {
                pass(&mut points, self.point(from));
            }
            pass(&mut points, leaving);
            match &route.via {
                Via::Bends(bends) => {
                    for &bend in bends {
                        let (column, y) = (self.column(bend as usize), self.rows[bend as usize]);
                        pass(&mut points, Point { x: column.left, y });
                        pass(&mut points, Point { x: column.right(), y });
                    }
                }
                Via::Rail => {
                    let first = self.columns[self.layered.layer[from] as usize + 1].left;
                    let last = self.columns[self.layered.layer[to] as usize - 1].right();
                    pass(&mut points, Point { x: first, y: MARGIN });
                    pass(&mut points, Point { x: last, y: MARGIN });
                }
            }
            pass(&mut points, self.point(to));
            Edge { from: self.end(from), to: self.end(to), points }
        });
        edges.collect()
    }
}

/// Adds a point that is not there yet; one between two that are level with it is left out.
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
