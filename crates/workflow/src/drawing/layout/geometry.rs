//! The parts of a layout: boxes, frames and lines with their coordinates.

use crate::model::JobIndex;

/// A point of the picture, in pixels from its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Pixels to the right.
    pub x: i32,
    /// Pixels down.
    pub y: i32,
}

/// Positions of everything that is drawn. All numbers are pixels; text is estimated at 13 pixels
/// for names and 11 for handlers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Width of the picture with its margin.
    pub width: i32,
    /// Height of the picture with its margin.
    pub height: i32,
    /// A box for each job, in the order of the graph. Boxes do not overlap.
    pub nodes: Vec<Node>,
    /// Frames of more than 24 jobs with the same parents and children. Lines end at the frame. Up
    /// to 200 jobs of a frame have normal boxes, more have squares of 16 pixels.
    pub blocks: Vec<Block>,
    /// Points at which the lines of jobs with the same parents meet.
    pub junctions: Vec<Point>,
    /// The lines. A line of a block stands for all its jobs. A line of a junction stands for all
    /// pairs of a job before and a job after it.
    pub edges: Vec<Edge>,
    /// Number of lines that are left out. Beyond 40,000 lines, jobs with many parents have lines
    /// from the nearest of them only.
    pub undrawn: usize,
}

/// A frame around jobs with the same parents and children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The frame. The first 28 pixels of its height are free for a text.
    pub frame: Node,
    /// The jobs in the frame, ascending.
    pub jobs: Vec<JobIndex>,
}

/// The box of a job, or the frame of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Node {
    /// The left side.
    pub x: i32,
    /// The upper side.
    pub y: i32,
    /// Width, to the right of `x`.
    pub width: i32,
    /// Height, down from `y`.
    pub height: i32,
    /// The column, from 0. A job is in a later column than its parents.
    pub layer: u32,
}

/// A line, from the right side of a box or a junction to the left side of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The begin of the line.
    pub from: End,
    /// The end of the line.
    pub to: End,
    /// Begin, bends and end. `x` never decreases. Level pieces pass between boxes, the others are
    /// between layers.
    pub points: Vec<Point>,
}

/// The object at an end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A job.
    Job(JobIndex),
    /// A block, by its index in [`Layout::blocks`].
    Block(usize),
    /// A junction, by its index in [`Layout::junctions`].
    Junction(usize),
}

pub(super) const BOX_HEIGHT: i32 = 42;
/// Pixels between boxes. A line between boxes is 2 high, so it is 6 from each.
pub(super) const BOX_GAP: i32 = 14;
