//! A block of jobs with the same parents and children, in rows and columns within a frame.

use super::geometry::{BOX_GAP, BOX_HEIGHT, Node, Point};
use super::label;
use crate::graph::Graph;
use crate::model::JobIndex;

/// Maximum jobs of a block that have boxes with names. A frame with more would be larger than a
/// screen, so its jobs become squares.
const MAX_NAMED_JOBS: usize = 200;
/// Side of a square in pixels: it fits the mark of a state.
const SQUARE_SIDE: i32 = 16;
const SQUARE_GAP: i32 = 4;
/// Pixels between a frame and its jobs; a line of text is above the jobs.
const PADDING: i32 = 12;
const HEADER_HEIGHT: i32 = 28;
/// Minimum width of a frame in pixels: a line with the counts of a few states fits.
const MIN_WIDTH: i32 = 240;
/// Ratio of width to height of a frame, similar to a screen.
const ASPECT: f64 = 1.6;

/// The arrangement of a block's jobs.
pub(super) struct Grid {
    cell: (i32, i32),
    gap: i32,
    columns: usize,
    rows: usize,
}

impl Grid {
    pub(super) fn new(graph: &Graph, jobs: &[JobIndex]) -> Self {
        let widths = jobs
            .iter()
            .map(|job| label::box_width(&graph.jobs[job.index()]));
        let (cell, gap) = match jobs.len() {
            0..=MAX_NAMED_JOBS => ((widths.max().unwrap_or(0), BOX_HEIGHT), BOX_GAP),
            _ => ((SQUARE_SIDE, SQUARE_SIDE), SQUARE_GAP),
        };
        let pitch = |side: i32| f64::from(side + gap);
        let columns = (jobs.len() as f64 * ASPECT * pitch(cell.1) / pitch(cell.0))
            .sqrt()
            .round()
            .max(1.0) as usize;
        Self {
            cell,
            gap,
            columns,
            rows: jobs.len().div_ceil(columns),
        }
    }

    /// Width and height of the frame. The height is even, so that its middle is whole.
    pub(super) fn size(&self) -> (i32, i32) {
        let across = |count: usize, side: i32| count as i32 * (side + self.gap) - self.gap;
        let width = across(self.columns, self.cell.0) + 2 * PADDING;
        (
            width.max(MIN_WIDTH),
            HEADER_HEIGHT + across(self.rows, self.cell.1) + PADDING,
        )
    }

    /// The box of the job at `index` of a block in column `layer` whose upper left corner is at
    /// `corner`.
    pub(super) fn node(&self, index: usize, corner: Point, layer: u32) -> Node {
        let column = (index % self.columns) as i32;
        let row = (index / self.columns) as i32;
        let (width, height) = self.cell;
        let x = corner.x + PADDING + column * (width + self.gap);
        let y = corner.y + HEADER_HEIGHT + row * (height + self.gap);
        Node {
            x,
            y,
            width,
            height,
            layer,
        }
    }
}
