//! Layout of a graph in pixels, for a page that draws it.

use serde::Serialize;
use tidegate_workflow::layout::{Block, Edge, End, Layout, Node, Point};
use tidegate_workflow::{JobIndex, Snapshot};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::enum_text::{StateWord, StatusWord};
use crate::http::json::Id;

/// Where a graph is drawn, in pixels from the upper left corner.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct GraphLayout<'a> {
    id: Id,
    status: StatusWord,
    width: u32,
    height: u32,
    /// One box for each job, in the order of the definition.
    nodes: Vec<LayoutNode<'a>>,
    /// Frames around many jobs with the same jobs before them and after them. Lines lead to the frame.
    blocks: Vec<LayoutBlock>,
    /// Where lines meet that many jobs have in common.
    junctions: Vec<PixelPoint>,
    edges: LayoutEdges,
    /// Lines that are left out: beyond 40,000, jobs have lines from the nearest jobs before them only.
    undrawn: usize,
}

/// A box.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct LayoutNode<'a> {
    index: usize,
    name: &'a str,
    handler: &'a str,
    state: StateWord,
    /// Whether it cannot run because a job before it has failed.
    blocked: bool,
    x: u32,
    y: u32,
    width: u32,
    height: u32,
    layer: u32,
}

/// A frame around jobs, which are given by their index.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct LayoutBlock {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
    layer: u32,
    jobs: Vec<u32>,
}

/// All lines, in lists of numbers: there may be tens of thousands of them.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct LayoutEdges {
    /// Two numbers for each line: where it begins and where it ends. Nodes are counted first, then blocks, then junctions: with 10 nodes, 10 is the
    /// first block.
    ends: Vec<usize>,
    /// The number of points of each line.
    lengths: Vec<usize>,
    /// Two numbers, x and y, for each point of the first line, then of the second, and so on.
    points: Vec<u32>,
}

/// A point: x and y.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Point, value_type = Vec<u32>, min_items = 2, max_items = 2))]
struct PixelPoint([u32; 2]);

fn pixels(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn point(point: &Point) -> PixelPoint {
    PixelPoint([pixels(point.x), pixels(point.y)])
}

impl<'a> GraphLayout<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let layout = Layout::new(snapshot.graph());
        let node = |(at, node): (usize, &Node)| LayoutNode::new(snapshot, at, node);
        Self {
            id: Id(snapshot.id()),
            status: snapshot.meta().status.into(),
            width: pixels(layout.width),
            height: pixels(layout.height),
            nodes: layout.nodes.iter().enumerate().map(node).collect(),
            blocks: layout.blocks.iter().map(LayoutBlock::from_block).collect(),
            junctions: layout.junctions.iter().map(point).collect(),
            edges: LayoutEdges::from_layout(&layout),
            undrawn: layout.undrawn,
        }
    }
}

impl LayoutBlock {
    fn from_block(Block { frame, jobs }: &Block) -> Self {
        Self {
            x: pixels(frame.x),
            y: pixels(frame.y),
            width: pixels(frame.width),
            height: pixels(frame.height),
            layer: frame.layer,
            jobs: jobs.iter().map(|job| job.0).collect(),
        }
    }
}

impl<'a> LayoutNode<'a> {
    fn new(snapshot: &'a Snapshot, index: usize, node: &Node) -> Self {
        let definition = &snapshot.graph().jobs[index];
        let job = &snapshot.jobs()[index];
        Self {
            index,
            name: &definition.name,
            handler: &definition.handler,
            state: job.state.into(),
            blocked: snapshot.is_blocked(JobIndex(index as u32)),
            x: pixels(node.x),
            y: pixels(node.y),
            width: pixels(node.width),
            height: pixels(node.height),
            layer: node.layer,
        }
    }
}

impl LayoutEdges {
    fn from_layout(layout: &Layout) -> Self {
        let nodes = layout.nodes.len();
        let blocks = layout.blocks.len();
        let end_index = |end: End| match end {
            End::Job(job) => job.index(),
            End::Block(end_index) => nodes + end_index,
            End::Junction(end_index) => nodes + blocks + end_index,
        };
        let mut all = Self::default();
        for Edge { from, to, points } in &layout.edges {
            all.ends.extend([end_index(*from), end_index(*to)]);
            all.lengths.push(points.len());
            all.points
                .extend(points.iter().flat_map(|at| [pixels(at.x), pixels(at.y)]));
        }
        all
    }
}
