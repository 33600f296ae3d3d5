//! Jobs in layers, each in a later one than its parents, and what lines pass on their way.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::graph::Graph;
use crate::id::JobIndex;

/// A junction has to save this many lines. Few lines are clearer without one.
const LEAST_SAVING: usize = 4;
/// Places where lines pass a layer. Those of the longest lines are left out beyond this: they go by a rail above the picture. A
/// picture of a thousand jobs whose lines pass a few layers each stays below it.
const MAX_BENDS: usize = 60_000;

/// A graph in layers. Vertices are numbered: first the jobs, then the junctions, then the bends.
#[derive(Debug)]
pub(crate) struct Layered {
    pub(crate) jobs: usize,
    pub(crate) junctions: usize,
    /// The layer of each vertex.
    pub(crate) layer: Vec<u32>,
    /// The vertices of each layer, from top to bottom.
    pub(crate) layers: Vec<Vec<u32>>,
    /// The vertices that each one has lines to in the layer before.
    pub(crate) before: Neighbours,
    /// The vertices that each one has lines to in the layer after.
    pub(crate) after: Neighbours,
    /// The lines, from end to end.
    pub(crate) routes: Vec<Route>,
}

/// A line between jobs and junctions.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) via: Via,
}

/// How a line gets past the layers between its ends.
#[derive(Debug)]
pub(crate) enum Via {
    /// Through a bend in each of them; none between neighbours.
    Bends(Vec<u32>),
    /// Above the picture.
    Rail,
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
        pairs.clone().for_each(|(from, _)| starts[from as usize + 1] += 1);
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

    pub(crate) fn of(&self, vertex: u32) -> &[u32] {
        let vertex = vertex as usize;
        &self.vertices[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.vertices.len()
    }
}

impl Layered {
    pub(crate) fn of(graph: &Graph) -> Self {
        let joined = Joined::of(graph);
        let jobs = graph.jobs.len();
        let mut layer = joined.layers(graph);
        let routes = routes(&joined.arcs, &mut layer);
        let depth = layer.iter().max().map_or(0, |&last| last as usize + 1);
        let mut layers = vec![Vec::new(); depth];
        for (vertex, &at) in layer.iter().enumerate() {
            layers[at as usize].push(vertex as u32);
        }
        let links = links(&routes);
        let after = Neighbours::new(layer.len(), links.iter().copied());
        let before = Neighbours::new(layer.len(), links.iter().map(|&(from, to)| (to, from)));
        Self { jobs, junctions: joined.junctions, layer, layers, before, after, routes }
    }

    /// Whether a vertex is a job, and which.
    pub(crate) fn job(&self, vertex: u32) -> Option<JobIndex> {
        ((vertex as usize) < self.jobs).then_some(JobIndex(vertex as u16))
    }
}

/// Lines between jobs, and between jobs and the junctions that stand for many of them.
struct Joined {
    junctions: usize,
    /// The junction that a job comes after, for jobs that have one.
    junction_of: Vec<Option<u32>>,
    arcs: Vec<(u32, u32)>,
}

impl Joined {
    fn of(graph: &Graph) -> Self {
        let mut sharing: HashMap<&[JobIndex], usize> = HashMap::new();
        for job in &graph.jobs {
            *sharing.entry(&job.parents).or_default() += 1;
        }
        let mut joined = Self { junctions: 0, junction_of: Vec::with_capacity(graph.jobs.len()), arcs: Vec::new() };
        let mut junctions: HashMap<&[JobIndex], u32> = HashMap::new();
        for (at, job) in graph.jobs.iter().enumerate() {
            let (parents, children) = (job.parents.len(), sharing[&job.parents[..]]);
            let own = |parent: &JobIndex| (parent.index() as u32, at as u32);
            if parents * children < parents + children + LEAST_SAVING {
                joined.arcs.extend(job.parents.iter().map(own));
                joined.junction_of.push(None);
                continue;
            }
            let junction = match junctions.entry(&job.parents) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(free) => {
                    let junction = (graph.jobs.len() + joined.junctions) as u32;
                    joined.junctions += 1;
                    joined.arcs.extend(job.parents.iter().map(|parent| (parent.index() as u32, junction)));
                    *free.insert(junction)
                }
            };
            joined.arcs.push((junction, at as u32));
            joined.junction_of.push(Some(junction));
        }
        joined
    }

    /// The layer of each job and junction: one after the last that comes before it. A job without parents goes right before the
    /// first that needs it.
    fn layers(&self, graph: &Graph) -> Vec<u32> {
        let mut layer = vec![0_u32; graph.jobs.len() + self.junctions];
        for job in graph.in_order() {
            let parents = &graph.jobs[job.index()].parents;
            let own = parents.iter().map(|parent| layer[parent.index()] + 1).max().unwrap_or(0);
            layer[job.index()] = match self.junction_of[job.index()] {
                None => own,
                Some(junction) => {
                    layer[junction as usize] = own;
                    own + 1
                }
            };
        }
        let mut first_after: Vec<Option<u32>> = vec![None; graph.jobs.len() + self.junctions];
        for &(from, to) in &self.arcs {
            let first = &mut first_after[from as usize];
            *first = Some(first.map_or(layer[to as usize], |first| first.min(layer[to as usize])));
        }
        for (at, job) in graph.jobs.iter().enumerate() {
            if let (true, Some(first)) = (job.parents.is_empty(), first_after[at]) {
                layer[at] = first - 1;
            }
        }
        layer
    }
}

/// Lines share the bends at the end that has more of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Hub {
    From(u32),
    To(u32),
}

/// The lines with their bends, shortest lines first while there are bends. New bends are appended to `layer`.
fn routes(arcs: &[(u32, u32)], layer: &mut Vec<u32>) -> Vec<Route> {
    let mut lines_of = vec![(0_u32, 0_u32); layer.len()];
    for &(from, to) in arcs {
        lines_of[from as usize].0 += 1;
        lines_of[to as usize].1 += 1;
    }
    let between = |&(from, to): &(u32, u32)| (layer[to as usize] - layer[from as usize] - 1) as usize;
    let mut long: Vec<(usize, usize)> = arcs.iter().map(between).enumerate().filter(|&(_, bends)| bends > 0).collect();
    long.sort_by_key(|&(_, bends)| bends);
    let direct = |&(from, to): &(u32, u32)| Route { from, to, via: Via::Bends(Vec::new()) };
    let mut routes: Vec<Route> = arcs.iter().map(direct).collect();
    let mut shared: HashMap<(Hub, u32), u32> = HashMap::new();
    let mut left = MAX_BENDS;
    for (place, bends) in long {
        let route = &mut routes[place];
        let Some(rest) = left.checked_sub(bends) else {
            route.via = Via::Rail;
            continue;
        };
        left = rest;
        let many_from = lines_of[route.from as usize].0 >= lines_of[route.to as usize].1;
        let hub = if many_from { Hub::From(route.from) } else { Hub::To(route.to) };
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

/// The pieces of all lines, each between neighbouring layers and once.
fn links(routes: &[Route]) -> Vec<(u32, u32)> {
    let mut links = Vec::with_capacity(routes.len());
    let mut pieces = Vec::new();
    for route in routes {
        match &route.via {
            Via::Bends(bends) if bends.is_empty() => links.push((route.from, route.to)),
            Via::Bends(bends) => {
                let ends = std::iter::once(route.from).chain(bends.iter().copied());
                pieces.extend(ends.zip(bends.iter().copied().chain([route.to])));
            }
            Via::Rail => {}
        }
    }
    pieces.sort_unstable();
    pieces.dedup();
    links.append(&mut pieces);
    links
}
