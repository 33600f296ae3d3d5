//! What a layout says: boxes, frames and lines with their places.

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
    /// More than 24 jobs with the same parents and the same children stand in a frame, which has their lines. Up to 200 of them
    /// have boxes as others, more have squares of 16 pixels.
    pub blocks: Vec<Block>,
    /// Where the lines of jobs that have all their parents in common meet.
    pub junctions: Vec<Point>,
    /// The lines. One from or to a block stands for all its jobs, one through a junction for all pairs of a job before it and a
    /// job after it.
    pub edges: Vec<Edge>,
    /// Lines that are left out. Beyond 40,000, jobs with many parents have lines from the nearest of them only.
    pub undrawn: usize,
}

/// A frame around jobs that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The frame. The first 28 pixels of its height are free for a text.
    pub frame: Node,
    /// What stands in it, ascending.
    pub jobs: Vec<JobIndex>,
}

/// The box of a job, or the frame of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    /// A block, by its place in [`Layout::blocks`].
    Block(usize),
    /// A junction, by its place in [`Layout::junctions`].
    Junction(usize),
}

pub(super) const BOX_HEIGHT: i32 = 42;
/// Between boxes. Lines that pass between them are 2 high, so there are 12 pixels to a neighbour of theirs.
pub(super) const BOX_GAP: i32 = 14;
