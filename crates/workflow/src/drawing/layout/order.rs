//! The order of each layer from top to bottom, so that few lines cross.

use super::layers::Layered;

/// Maximum sweeps: later sweeps hardly change the order.
const MAX_SWEEPS: usize = 12;
/// Sweeps in a row without fewer crossings after which ordering ends.
const MAX_SWEEPS_WITHOUT_GAIN: usize = 4;
/// Maximum lines that all sweeps read: a million take about 50 ms.
const MAX_LINE_VISITS: usize = 1_000_000;

/// Orders each layer by the positions of adjacent vertices (barycentre method), down and up, and
/// keeps the best order.
pub(crate) fn reduce_crossings(mut layered: Layered) -> Layered {
    follow_lines(&mut layered);
    let mut ranks = Ranks::new(&layered);
    let mut fewest = crossings(&layered, &ranks);
    let mut best = layered.layers.clone();
    let sweeps = (MAX_LINE_VISITS / (layered.after.len() + 1)).clamp(2, MAX_SWEEPS);
    let mut sweeps_without_gain = 0;
    for sweep in 0..sweeps {
        if fewest == 0 || sweeps_without_gain == MAX_SWEEPS_WITHOUT_GAIN {
            break;
        }
        sweeps_without_gain += 1;
        let depth = layered.layers.len();
        for step in 1..depth {
            let (at, side) = if sweep % 2 == 0 {
                (step, SweepSide::Before)
            } else {
                (depth - 1 - step, SweepSide::After)
            };
            sort_layer(&mut layered, &mut ranks, at, side);
        }
        let now = crossings(&layered, &ranks);
        if now < fewest {
            fewest = now;
            sweeps_without_gain = 0;
            best.clone_from(&layered.layers);
        }
    }
    layered.layers = best;
    layered
}

#[derive(Clone, Copy)]
enum SweepSide {
    Before,
    After,
}

/// The position of each vertex in its layer: as a number, and as a fraction of the layer, which
/// compares layers of different lengths.
struct Ranks {
    positions: Vec<u32>,
    fractions: Vec<f32>,
}

impl Ranks {
    fn new(layered: &Layered) -> Self {
        let count = layered.layer_of.len();
        let mut ranks = Self {
            positions: vec![0; count],
            fractions: vec![0.0; count],
        };
        layered.layers.iter().for_each(|layer| ranks.set(layer));
        ranks
    }

    fn set(&mut self, layer: &[u32]) {
        let step = 1.0 / layer.len() as f32;
        for (rank, &vertex) in layer.iter().enumerate() {
            self.positions[vertex as usize] = rank as u32;
            self.fractions[vertex as usize] = (rank as f32 + 0.5) * step;
        }
    }
}

/// Makes the first order: follows the lines depth first, so that connected vertices are near each
/// other.
fn follow_lines(layered: &mut Layered) {
    let count = layered.layer_of.len();
    let mut visited = vec![false; count];
    let mut layers = vec![Vec::new(); layered.layers.len()];
    let roots = (0..count as u32).filter(|&vertex| layered.before.adjacent(vertex).is_empty());
    let mut stack: Vec<u32> = Vec::new();
    for root in roots {
        stack.push(root);
        while let Some(vertex) = stack.pop() {
            if !std::mem::replace(&mut visited[vertex as usize], true) {
                layers[layered.layer_of[vertex as usize] as usize].push(vertex);
                let after = layered.after.adjacent(vertex).iter().rev();
                stack.extend(after.filter(|&&next| !visited[next as usize]));
            }
        }
    }
    layered.layers = layers;
}

fn sort_layer(layered: &mut Layered, ranks: &mut Ranks, at: usize, side: SweepSide) {
    let target = |&vertex: &u32| {
        let neighbours = match side {
            SweepSide::Before => layered.before.adjacent(vertex),
            SweepSide::After => layered.after.adjacent(vertex),
        };
        let fraction = |&vertex: &u32| ranks.fractions[vertex as usize];
        let target = match neighbours.len() {
            0 => fraction(&vertex),
            count => neighbours.iter().map(fraction).sum::<f32>() / count as f32,
        };
        (target, vertex)
    };
    let mut targets: Vec<(f32, u32)> = layered.layers[at].iter().map(target).collect();
    targets.sort_by(|one, other| one.0.total_cmp(&other.0));
    layered.layers[at] = targets.into_iter().map(|(_, vertex)| vertex).collect();
    ranks.set(&layered.layers[at]);
}

/// Counts crossings between adjacent layers. Lines are read from top to bottom by their begin; each
/// pair whose ends are in reverse order crosses. A Fenwick tree counts these pairs.
fn crossings(layered: &Layered, ranks: &Ranks) -> u64 {
    let widest = layered.layers.iter().map(Vec::len).max().unwrap_or(0);
    let mut tree = Fenwick {
        sums: vec![0; widest + 1],
    };
    let mut crossings = 0;
    let mut ends: Vec<u32> = Vec::new();
    for layer in &layered.layers {
        let mut lines = 0;
        for &vertex in layer {
            let after = layered.after.adjacent(vertex).iter();
            ends.clear();
            ends.extend(after.map(|&next| ranks.positions[next as usize]));
            // Lines with a common begin do not cross, so all are counted before one is added.
            crossings += ends.iter().map(|&end| lines - tree.up_to(end)).sum::<u64>();
            ends.iter().for_each(|&end| tree.add(end));
            lines += ends.len() as u64;
        }
        tree.sums.fill(0);
    }
    crossings
}

/// Counts the added numbers up to a bound.
struct Fenwick {
    sums: Vec<u64>,
}

impl Fenwick {
    fn add(&mut self, number: u32) {
        let mut at = number as usize + 1;
        while at < self.sums.len() {
            self.sums[at] += 1;
            at += at & at.wrapping_neg();
        }
    }

    fn up_to(&self, number: u32) -> u64 {
        let mut at = number as usize + 1;
        let mut sum = 0;
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }
}
