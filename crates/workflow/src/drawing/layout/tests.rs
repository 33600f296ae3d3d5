use hashbrown::HashSet;
use proptest::prelude::*;

use super::*;
use crate::graph::{Definition, JobDefinition};
use crate::model::JobIndex;

fn graph(count: usize, arrows: impl IntoIterator<Item = (usize, usize)>) -> Graph {
    let mut jobs: Vec<JobDefinition> = (0..count)
        .map(|at| JobDefinition::new(format!("job-{at}"), "run"))
        .collect();
    for (from, to) in arrows {
        jobs[to].after.push(format!("job-{from}"));
    }
    Graph::build(Definition {
        name: "test".to_owned(),
        jobs,
        ..Definition::default()
    })
    .expect("arrows go up")
}

/// What holds of every layout.
fn check(graph: &Graph) -> Layout {
    let layout = Layout::new(graph);
    assert_eq!(layout.nodes.len(), graph.jobs.len());
    check_columns(&layout);
    layout
        .blocks
        .iter()
        .for_each(|block| check_block(graph, &layout, block));
    check_edges(&layout);
    let connected = connected(&layout);
    let arrows = arrows(graph);
    if layout.undrawn == 0 {
        assert_eq!(connected, arrows, "lines and dependencies differ");
    } else {
        assert!(connected.is_subset(&arrows), "a line without a dependency");
    }
    layout
}

/// Boxes and frames are in the picture, and do not overlap.
fn check_columns(layout: &Layout) {
    let framed: HashSet<JobIndex> = layout
        .blocks
        .iter()
        .flat_map(|block| block.jobs.iter().copied())
        .collect();
    let alone = layout
        .nodes
        .iter()
        .enumerate()
        .filter(|&(at, _)| !framed.contains(&JobIndex(at as u32)));
    let mut columns: Vec<Vec<Node>> = Vec::new();
    for node in alone
        .map(|(_, node)| node)
        .chain(layout.blocks.iter().map(|block| &block.frame))
    {
        assert!(node.x >= MARGIN && node.y >= MARGIN, "{node:?}");
        let right = node.x + node.width;
        let bottom = node.y + node.height;
        assert!(
            right <= layout.width - MARGIN && bottom <= layout.height - MARGIN,
            "{node:?}"
        );
        columns.resize(columns.len().max(node.layer as usize + 1), Vec::new());
        columns[node.layer as usize].push(*node);
    }
    let mut right = 0;
    for column in columns.iter_mut().filter(|column| !column.is_empty()) {
        column.sort_by_key(|node| node.y);
        assert!(
            column
                .windows(2)
                .all(|pair| pair[0].y + pair[0].height + BOX_GAP <= pair[1].y),
            "boxes overlap"
        );
        assert!(
            column
                .iter()
                .all(|node| node.x == column[0].x && node.x > right),
            "columns overlap"
        );
        right = column.iter().map(|node| node.x + node.width).max().unwrap();
    }
}

/// Each line goes to the right, from port to port.
fn check_edges(layout: &Layout) {
    for edge in &layout.edges {
        assert!(
            edge.points.windows(2).all(|pair| pair[0].x <= pair[1].x),
            "{edge:?}"
        );
        assert_eq!(
            edge.points.first(),
            Some(&port(layout, edge.from, Node::right)),
            "{edge:?}"
        );
        assert_eq!(
            edge.points.last(),
            Some(&port(layout, edge.to, |node| node.x)),
            "{edge:?}"
        );
    }
}

/// The jobs of a block are alike, in its frame, and apart.
fn check_block(graph: &Graph, layout: &Layout, block: &Block) {
    let family = |job: JobIndex| (&graph.jobs[job.index()].parents, graph.children(job));
    let mut taken = HashSet::new();
    let frame = block.frame;
    for &job in &block.jobs {
        assert_eq!(family(job), family(block.jobs[0]));
        let Node {
            x,
            y,
            width,
            height,
            layer,
        } = layout.nodes[job.index()];
        assert!(
            x > frame.x && x + width < frame.x + frame.width,
            "beside the frame"
        );
        assert!(
            y > frame.y + 20 && y + height < frame.y + frame.height,
            "above or below the frame"
        );
        let first = layout.nodes[block.jobs[0].index()];
        let (across, down) = (width + 4, height + 4);
        assert!(
            (x - first.x) % (across + 10 * i32::from(height > 16)) == 0,
            "not in a column"
        );
        assert!(
            (y - first.y) % (down + 10 * i32::from(height > 16)) == 0,
            "not in a row"
        );
        assert!(taken.insert((x, y)), "two in one place");
        assert_eq!(
            (layer, width, height),
            (frame.layer, first.width, first.height)
        );
    }
}

impl Node {
    fn right(self) -> i32 {
        self.x + self.width
    }
}

fn port(layout: &Layout, end: End, side: fn(Node) -> i32) -> Point {
    let beside = |node: Node| Point {
        x: side(node),
        y: node.y + node.height / 2,
    };
    match end {
        End::Junction(junction) => layout.junctions[junction],
        End::Job(job) => beside(layout.nodes[job.index()]),
        End::Block(block) => beside(layout.blocks[block].frame),
    }
}

type Pairs = HashSet<(usize, usize)>;

/// The dependencies that the lines stand for.
fn connected(layout: &Layout) -> Pairs {
    let jobs = |end: End| match end {
        End::Job(job) => vec![job.index()],
        End::Block(block) => layout.blocks[block]
            .jobs
            .iter()
            .map(|job| job.index())
            .collect(),
        End::Junction(_) => panic!("junctions are not joined to each other"),
    };
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); layout.junctions.len()];
    for edge in &layout.edges {
        if let End::Junction(junction) = edge.to {
            into[junction].extend(jobs(edge.from));
        }
    }
    let mut pairs = Pairs::new();
    for edge in layout
        .edges
        .iter()
        .filter(|edge| !matches!(edge.to, End::Junction(_)))
    {
        let from = match edge.from {
            End::Junction(junction) => into[junction].clone(),
            end => jobs(end),
        };
        let to = jobs(edge.to);
        pairs.extend(
            from.iter()
                .flat_map(|&from| to.iter().map(move |&to| (from, to))),
        );
    }
    pairs
}

fn arrows(graph: &Graph) -> Pairs {
    let children = graph.jobs.iter().enumerate();
    children
        .flat_map(|(to, job)| job.parents.iter().map(move |from| (from.index(), to)))
        .collect()
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
    let [top, left, right, bottom] = layout.nodes[..] else {
        panic!("four jobs")
    };
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
    let long = layout
        .edges
        .iter()
        .find(|edge| edge.points.len() > 2)
        .expect("a line that bends");
    let between = &long.points[1..long.points.len() - 1];
    for node in &layout.nodes[1..3] {
        assert!(
            between
                .iter()
                .all(|point| point.y < node.y || point.y > node.y + node.height),
            "{long:?}"
        );
    }
}

#[test]
fn an_all_to_all_step_goes_through_one_junction() {
    let all = (0..20).flat_map(|from| (20..40).map(move |to| (from, to)));
    let layout = check(&graph(40, all));
    assert_eq!((layout.junctions.len(), layout.edges.len()), (1, 40));
    let pair = check(&graph(4, [(0, 2), (0, 3), (1, 2), (1, 3)]));
    assert_eq!(
        (pair.junctions.len(), pair.edges.len()),
        (0, 4),
        "too few lines for a junction"
    );
}

#[test]
fn many_jobs_alike_stand_in_a_frame() {
    let fan = |count: usize| {
        graph(
            count + 2,
            (1..=count).flat_map(|at| [(0, at), (at, count + 1)]),
        )
    };
    let column = check(&fan(24));
    assert_eq!((column.blocks.len(), column.edges.len()), (0, 48));
    for (count, height) in [(25, 42), (200, 42), (201, 16), (9_998, 16)] {
        let layout = check(&fan(count));
        assert_eq!((layout.blocks.len(), layout.edges.len()), (1, 2), "{count}");
        assert_eq!(layout.nodes[1].height, height, "{count}");
        assert!(
            layout.width < 3_000 && layout.height < 2_000,
            "{count}: {} by {}",
            layout.width,
            layout.height
        );
    }
    // Two kinds of jobs after the same one, and one that has a line of its own, in the same layer.
    let kinds = (1..=60).flat_map(|at| [(0, at), (at, 61 + at % 2)]);
    let layout = check(&graph(64, kinds.chain([(1, 63)])));
    assert_eq!(
        layout
            .blocks
            .iter()
            .map(|block| block.jobs.len())
            .collect::<Vec<_>>(),
        [30, 29]
    );
    assert!(
        layout.nodes[1].width < layout.blocks[0].frame.width,
        "a box is not stretched to a frame"
    );
}

#[test]
fn lines_that_are_too_many_come_from_the_nearest_parents() {
    // Everybody comes after a random half of those before it. The first jobs have few parents and
    // keep all of them.
    let random =
        |one: usize, other: usize| ((one * 7_919 + other * 104_729) % 1_009).is_multiple_of(2);
    let arrows = (1..500_usize).flat_map(|to| {
        (0..to)
            .filter(move |&from| random(from, to))
            .map(move |from| (from, to))
    });
    let graph = graph(500, arrows);
    let layout = check(&graph);
    assert_eq!(
        layout.edges.len() + layout.undrawn,
        graph
            .jobs
            .iter()
            .map(|job| job.parents.len())
            .sum::<usize>()
    );
    assert!(
        layout.undrawn > 10_000 && (39_000..=40_000).contains(&layout.edges.len()),
        "{}",
        layout.undrawn
    );
    let drawn = connected(&layout);
    let (near, far): (Vec<JobIndex>, Vec<JobIndex>) = graph.jobs[499]
        .parents
        .iter()
        .partition(|parent| drawn.contains(&(parent.index(), 499)));
    let layer = |job: &JobIndex| layout.nodes[job.index()].layer;
    assert!(
        !far.is_empty() && far.iter().map(layer).max() <= near.iter().map(layer).min(),
        "far before near"
    );
    assert!(
        graph.jobs[40]
            .parents
            .iter()
            .all(|parent| drawn.contains(&(parent.index(), 40)))
    );
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
    check(&graph(
        COUNT,
        (1..COUNT - 1).flat_map(|at| [(0, at), (at, COUNT - 1)]),
    ));
    // Each job comes right after the one before it, and the first and the last know everybody:
    // lines of any length.
    let spokes = (2..COUNT - 1).flat_map(|at| [(at - 1, at), (0, at), (at, COUNT - 1)]);
    let layout = check(&graph(COUNT, spokes.chain([(0, 1)])));
    let points: usize = layout.edges.iter().map(|edge| edge.points.len()).sum();
    assert!(points < 10 * COUNT + 60_000 * 2, "{points}");
    check(&graph(COUNT, []));
    let dense = (1..20).flat_map(|layer| {
        (0..500 * 20).map(move |at| (layer * 500 - 500 + at / 20, layer * 500 + at % 500))
    });
    check(&graph(COUNT, dense));
}

#[test]
fn the_same_graph_gives_the_same_layout() {
    let arrows: Vec<(usize, usize)> = (0..300).map(|at| (at * 7 % 59, at * 11 % 61)).collect();
    let graph = || {
        graph(
            61,
            arrows
                .iter()
                .map(|&(one, other)| (one.min(other), one.max(other)))
                .filter(|a| a.0 < a.1),
        )
    };
    assert_eq!(check(&graph()), Layout::new(&graph()));
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
