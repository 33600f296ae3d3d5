//! Assigns units to layers, each after its parents, and routes lines through the layers between.

use hashbrown::HashMap;

use super::junctions::JunctionGraph;
use super::units::{Grouping, Unit};
use crate::graph::Graph;

/// Maximum bends, the points at which lines pass a layer. Beyond it, the longest lines go by a rail
/// above the picture. A picture of 1,000 jobs whose lines pass a few layers each has fewer.
const MAX_BENDS: usize = 60_000;

/// A graph in layers. Vertices are numbered: first the units, then the junctions, then the bends.
#[derive(Debug)]
pub(crate) struct Layered {
    pub(crate) units: Vec<Unit>,
    pub(crate) junctions: usize,
    /// The layer of each vertex.
    pub(crate) layer_of: Vec<u32>,
    /// The vertices of each layer, from top to bottom.
    pub(crate) layers: Vec<Vec<u32>>,
    /// The vertices in the previous layer to which each vertex has lines.
    pub(crate) before: Neighbours,
    /// The vertices in the next layer to which each vertex has lines.
    pub(crate) after: Neighbours,
    /// The lines, from end to end.
    pub(crate) routes: Vec<Route>,
    /// Number of lines that are left out because there are too many.
    pub(crate) undrawn: usize,
}

/// A routed line between units and junctions.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) via: Via,
}

/// The route of a line past the layers between its ends.
#[derive(Debug)]
pub(crate) enum Via {
    /// Through a bend in each layer; empty between adjacent layers.
    Bends(Vec<u32>),
    /// Above the picture.
    Rail,
}

impl Layered {
    /// Whether a line is drawn along the rail, because there are too many bends.
    pub(crate) fn has_rail(&self) -> bool {
        self.routes
            .iter()
            .any(|route| matches!(route.via, Via::Rail))
    }

    pub(crate) fn new(graph: &Graph, grouping: Grouping) -> Self {
        let joined = JunctionGraph::new(graph, grouping);
        let mut layer_of = joined.layers();
        let (lines, undrawn) = joined.lines(&layer_of);
        let routes = routes(&lines, &mut layer_of);
        let depth = layer_of.iter().max().map_or(0, |&last| last as usize + 1);
        let mut layers = vec![Vec::new(); depth];
        for (vertex, &at) in layer_of.iter().enumerate() {
            layers[at as usize].push(vertex as u32);
        }
        let links = links(&routes);
        let after = Neighbours::new(layer_of.len(), links.iter().copied());
        let before = Neighbours::new(layer_of.len(), links.iter().map(|&(from, to)| (to, from)));
        let (units, junctions) = joined.into_parts();
        Self {
            units,
            junctions,
            layer_of,
            layers,
            before,
            after,
            routes,
            undrawn,
        }
    }

    /// The unit at a vertex. `None` if the vertex is a junction or a bend.
    pub(crate) fn unit(&self, vertex: u32) -> Option<&Unit> {
        self.units.get(vertex as usize)
    }
}

/// A list of vertices for each vertex, in one allocation.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    starts: Vec<u32>,
    vertices: Vec<u32>,
}

impl Neighbours {
    fn new(count: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0_u32; count + 1];
        pairs
            .clone()
            .for_each(|(from, _)| starts[from as usize + 1] += 1);
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut vertices = vec![0; starts[count] as usize];
        for (from, to) in pairs {
            vertices[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
        Self { starts, vertices }
    }

    pub(crate) fn adjacent(&self, vertex: u32) -> &[u32] {
        let vertex = vertex as usize;
        &self.vertices[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.vertices.len()
    }
}

/// The end of a line whose other lines share its bends: the end with more lines.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Hub {
    From(u32),
    To(u32),
}

/// The end of each line that has more lines on its side: lines share bends at their hub.
fn hubs(lines: &[(u32, u32)], vertices: usize) -> Vec<Hub> {
    let mut line_counts = vec![(0_u32, 0_u32); vertices];
    for &(from, to) in lines {
        line_counts[from as usize].0 += 1;
        line_counts[to as usize].1 += 1;
    }
    let hub = |&(from, to): &(u32, u32)| {
        if line_counts[from as usize].0 >= line_counts[to as usize].1 {
            Hub::From(from)
        } else {
            Hub::To(to)
        }
    };
    lines.iter().map(hub).collect()
}

/// Routes lines, shortest first until the bends are used up. New bends are appended to `layer`.
fn routes(lines: &[(u32, u32)], layer: &mut Vec<u32>) -> Vec<Route> {
    let hubs = hubs(lines, layer.len());
    let between =
        |&(from, to): &(u32, u32)| (layer[to as usize] - layer[from as usize] - 1) as usize;
    let mut long: Vec<(usize, usize)> = lines.iter().map(between).enumerate().collect();
    long.retain(|&(_, bends)| bends > 0);
    long.sort_by_key(|&(_, bends)| bends);
    let direct = |&(from, to): &(u32, u32)| Route {
        from,
        to,
        via: Via::Bends(Vec::new()),
    };
    let mut routes: Vec<Route> = lines.iter().map(direct).collect();
    let mut shared: HashMap<(Hub, u32), u32> = HashMap::new();
    let mut bends_left = MAX_BENDS;
    for (index, bends) in long {
        let route = &mut routes[index];
        let Some(rest) = bends_left.checked_sub(bends) else {
            route.via = Via::Rail;
            continue;
        };
        bends_left = rest;
        let hub = hubs[index];
        let passed = layer[route.from as usize] + 1..layer[route.to as usize];
        let via = passed.map(|at| {
            *shared.entry((hub, at)).or_insert_with(|| {
                layer.push(at);
                (layer.len() - 1) as u32
            })
        });
        route.via = Via::Bends(via.collect());
    }
    routes
}

/// The distinct segments of all lines between adjacent layers.
fn links(routes: &[Route]) -> Vec<(u32, u32)> {
    let mut links = Vec::with_capacity(routes.len());
    let mut pieces = Vec::new();
    for route in routes {
        match &route.via {
            Via::Bends(bends) if bends.is_empty() => links.push((route.from, route.to)),
            Via::Bends(bends) => {
                let bends = bends.iter().copied();
                let begins = std::iter::once(route.from).chain(bends.clone());
                pieces.extend(begins.zip(bends.chain([route.to])));
            }
            Via::Rail => {}
        }
    }
    pieces.sort_unstable();
    pieces.dedup();
    links.append(&mut pieces);
    links
}
