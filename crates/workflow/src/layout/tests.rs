use hashbrown::HashSet;
use proptest::prelude::*;

use super::*;
use crate::definition::{Definition, JobDefinition};

fn graph(count: usize, arrows: impl IntoIterator<Item = (usize, usize)>) -> Graph {
    let mut jobs: Vec<JobDefinition> = (0..count).map(|at| JobDefinition::new(format!("job-{at}"), "run")).collect();
    for (from, to) in arrows {
        jobs[to].after.push(format!("job-{from}"));
    }
    Graph::build(Definition { name: "test".to_owned(), jobs, ..Definition::default() }).expect("arrows go up")
}

/// What holds of every layout.
fn check(graph: &Graph) -> Layout {
    let layout = Layout::of(graph);
    assert_eq!(layout.nodes.len(), graph.jobs.len());
    let mut columns: Vec<Vec<Node>> = Vec::new();
    for node in &layout.nodes {
        assert!(node.x >= MARGIN && node.y >= MARGIN, "{node:?}");
        let (right, bottom) = (node.x + node.width, node.y + node.height);
        assert!(right <= layout.width - MARGIN && bottom <= layout.height - MARGIN, "{node:?}");
        columns.resize(columns.len().max(node.layer as usize + 1), Vec::new());
        columns[node.layer as usize].push(*node);
    }
    let mut right = 0;
    for column in columns.iter_mut().filter(|column| !column.is_empty()) {
        column.sort_by_key(|node| node.y);
        assert!(column.windows(2).all(|pair| pair[0].y + pair[0].height + PIXELS.gap <= pair[1].y), "boxes overlap");
        assert!(column.iter().all(|node| node.x == column[0].x && node.x > right), "columns overlap");
        right = column[0].x + column[0].width;
    }
    for edge in &layout.edges {
        assert!(edge.points.windows(2).all(|pair| pair[0].x <= pair[1].x), "{edge:?}");
        assert_eq!(edge.points.first(), Some(&port(&layout, edge.from, true)), "{edge:?}");
        assert_eq!(edge.points.last(), Some(&port(&layout, edge.to, false)), "{edge:?}");
    }
    assert_eq!(connected(graph, &layout), arrows(graph), "lines and dependencies differ");
    layout
}

fn port(layout: &Layout, end: End, leaving: bool) -> Point {
    match end {
        End::Junction(junction) => layout.junctions[junction],
        End::Job(job) => {
            let node = layout.nodes[job.index()];
            Point { x: node.x + if leaving { node.width } else { 0 }, y: node.y + node.height / 2 }
        }
    }
}

type Pairs = HashSet<(usize, usize)>;

/// The dependencies that the lines stand for.
fn connected(graph: &Graph, layout: &Layout) -> Pairs {
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); layout.junctions.len()];
    for edge in &layout.edges {
        if let (End::Job(from), End::Junction(junction)) = (edge.from, edge.to) {
            into[junction].push(from.index());
        }
    }
    let mut pairs = Pairs::new();
    for edge in &layout.edges {
        let to = match edge.to {
            End::Job(to) => to.index(),
            End::Junction(_) => continue,
        };
        let from = match edge.from {
            End::Job(from) => vec![from.index()],
            End::Junction(junction) => into[junction].clone(),
        };
        assert!(to < graph.jobs.len());
        pairs.extend(from.into_iter().map(|from| (from, to)));
    }
    pairs
}

fn arrows(graph: &Graph) -> Pairs {
    let children = graph.jobs.iter().enumerate();
    children.flat_map(|(to, job)| job.parents.iter().map(move |from| (from.index(), to))).collect()
}

fn layers(layout: &Layout) -> Vec<u32> {
    layout.nodes.iter().map(|node| node.layer).collect()
}

fn middle(node: Node) -> i32 {
    node.y + node.height / 2
}

#[test]
fn a_diamond_is_symmetric() {
    let layout = check(&graph(4, [(0, 1), (0, 2), (1, 3), (2, 3)]));
    assert_eq!(layers(&layout), [0, 1, 1, 2]);
    let [top, left, right, bottom] = layout.nodes[..] else { panic!("four jobs") };
    assert_eq!(middle(top), middle(bottom));
    assert_eq!((middle(left) + middle(right)) / 2, middle(top));
    assert_eq!(layout.edges.len(), 4);
}

#[test]
fn a_chain_is_one_level_line() {
    let layout = check(&graph(30, (1..30).map(|at| (at - 1, at))));
    assert_eq!(layers(&layout), (0..30).collect::<Vec<u32>>());
    assert!(layout.nodes.iter().all(|node| node.y == layout.nodes[0].y));
    assert!(layout.edges.iter().all(|edge| edge.points.len() == 2));
}

#[test]
fn a_job_without_parents_stands_before_the_one_that_needs_it() {
    let layout = check(&graph(5, [(0, 1), (1, 2), (3, 2)]));
    assert_eq!(layers(&layout), [0, 1, 2, 1, 0]);
}

#[test]
fn a_long_line_passes_between_boxes() {
    let layout = check(&graph(4, [(0, 1), (1, 2), (2, 3), (0, 3)]));
    let long = layout.edges.iter().find(|edge| edge.points.len() > 2).expect("a line that bends");
    let between = &long.points[1..long.points.len() - 1];
    for node in &layout.nodes[1..3] {
        assert!(between.iter().all(|point| point.y < node.y || point.y > node.y + node.height), "{long:?}");
    }
}

#[test]
fn an_all_to_all_step_goes_through_one_junction() {
    let all = (0..40).flat_map(|from| (40..80).map(move |to| (from, to)));
    let layout = check(&graph(80, all));
    assert_eq!((layout.junctions.len(), layout.edges.len()), (1, 80));
    let pair = check(&graph(4, [(0, 2), (0, 3), (1, 2), (1, 3)]));
    assert_eq!((pair.junctions.len(), pair.edges.len()), (0, 4), "too few lines for a junction");
}

#[test]
fn crossings_that_need_not_be_are_undone() {
    // Eight chains whose jobs are numbered against each other.
    let layout = check(&graph(16, (0..8).map(|at| (at, 15 - at))));
    for at in 0..8 {
        assert_eq!(layout.nodes[at].y, layout.nodes[15 - at].y);
    }
}

#[test]
fn large_graphs_are_laid_out_within_bounds() {
    const COUNT: usize = 10_000;
    check(&graph(COUNT, (1..COUNT).map(|at| (at - 1, at))));
    check(&graph(COUNT, (1..COUNT - 1).flat_map(|at| [(0, at), (at, COUNT - 1)])));
    // Each job comes right after the one before it, and the first and the last know everybody: lines of any length.
    let spokes = (2..COUNT - 1).flat_map(|at| [(at - 1, at), (0, at), (at, COUNT - 1)]);
    let layout = check(&graph(COUNT, spokes.chain([(0, 1)])));
    let points: usize = layout.edges.iter().map(|edge| edge.points.len()).sum();
    assert!(points < 10 * COUNT + 60_000 * 2, "{points}");
    check(&graph(COUNT, []));
    let dense =
        (1..20).flat_map(|layer| (0..500 * 20).map(move |at| (layer * 500 - 500 + at / 20, layer * 500 + at % 500)));
    check(&graph(COUNT, dense));
}

#[test]
fn the_same_graph_gives_the_same_layout() {
    let arrows: Vec<(usize, usize)> = (0..300).map(|at| (at * 7 % 59, at * 11 % 61)).collect();
    let graph = || graph(61, arrows.iter().map(|&(one, other)| (one.min(other), one.max(other))).filter(|a| a.0 < a.1));
    assert_eq!(check(&graph()), Layout::of(&graph()));
}

proptest! {
    #[test]
    fn any_graph_is_laid_out_soundly(
        count in 1_usize..40, arrows in proptest::collection::vec((0_usize..40, 0_usize..40), 0..160),
    ) {
        let up = arrows.into_iter().map(|(one, other)| (one.min(other) % count, one.max(other) % count));
        check(&graph(count, up.filter(|(from, to)| from < to)));
    }
}
