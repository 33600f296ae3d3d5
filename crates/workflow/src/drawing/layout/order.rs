//! The order of each layer from top to bottom, so that few lines cross.

use super::layers::Layered;

/// Maximum sweeps: later sweeps hardly change the order.
const MOST_SWEEPS: usize = 12;
/// Sweeps in a row without fewer crossings after which ordering ends.
const PATIENCE: usize = 4;
/// Maximum lines that all sweeps read: a million take about 50 ms.
const LINE_VISITS: usize = 1_000_000;

/// Orders each layer by the positions of adjacent vertices (barycentre method), down and up, and
/// keeps the best order.
pub(crate) fn reduce_crossings(layered: &mut Layered) {
    follow_lines(layered);
    let mut places = Places::of(layered);
    let mut fewest = crossings_at(layered, &places);
    let mut best = layered.layers.clone();
    let sweeps = (LINE_VISITS / (layered.after.len() + 1)).clamp(2, MOST_SWEEPS);
    let mut in_vain = 0;
    for sweep in 0..sweeps {
        if fewest == 0 || in_vain == PATIENCE {
            break;
        }
        in_vain += 1;
        let depth = layered.layers.len();
        for step in 1..depth {
            let (at, side) = if sweep % 2 == 0 {
                (step, Side::Before)
            } else {
                (depth - 1 - step, Side::After)
            };
            sort_layer(layered, &mut places, at, side);
        }
        let now = crossings_at(layered, &places);
        if now < fewest {
            fewest = now;
            in_vain = 0;
            best.clone_from(&layered.layers);
        }
    }
    layered.layers = best;
}

#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
}

/// The position of each vertex in its layer: as a number, and as a fraction of the layer, which
/// compares layers of different lengths.
struct Places {
    numbers: Vec<u32>,
    shares: Vec<f32>,
}

impl Places {
    fn of(layered: &Layered) -> Self {
        let count = layered.layer.len();
        let mut places = Self {
            numbers: vec![0; count],
            shares: vec![0.0; count],
        };
        layered.layers.iter().for_each(|layer| places.set(layer));
        places
    }

    fn set(&mut self, layer: &[u32]) {
        let step = 1.0 / layer.len() as f32;
        for (place, &vertex) in layer.iter().enumerate() {
            self.numbers[vertex as usize] = place as u32;
            self.shares[vertex as usize] = (place as f32 + 0.5) * step;
        }
    }
}

/// Makes the first order: follows the lines depth first, so that connected vertices are near each
/// other.
fn follow_lines(layered: &mut Layered) {
    let count = layered.layer.len();
    let mut seen = vec![false; count];
    let mut layers = vec![Vec::new(); layered.layers.len()];
    let roots = (0..count as u32).filter(|&vertex| layered.before.of(vertex).is_empty());
    let mut stack: Vec<u32> = Vec::new();
    for root in roots {
        stack.push(root);
        while let Some(vertex) = stack.pop() {
            if !std::mem::replace(&mut seen[vertex as usize], true) {
                layers[layered.layer[vertex as usize] as usize].push(vertex);
                stack.extend(
                    layered
                        .after
                        .of(vertex)
                        .iter()
                        .rev()
                        .filter(|&&next| !seen[next as usize]),
                );
            }
        }
    }
    layered.layers = layers;
}

fn sort_layer(layered: &mut Layered, places: &mut Places, at: usize, side: Side) {
    let wish = |&vertex: &u32| {
        let around = match side {
            Side::Before => layered.before.of(vertex),
            Side::After => layered.after.of(vertex),
        };
        let wish = match around.len() {
            0 => places.shares[vertex as usize],
            count => {
                around
                    .iter()
                    .map(|&other| places.shares[other as usize])
                    .sum::<f32>()
                    / count as f32
            }
        };
        (wish, vertex)
    };
    let mut wishes: Vec<(f32, u32)> = layered.layers[at].iter().map(wish).collect();
    wishes.sort_by(|one, other| one.0.total_cmp(&other.0));
    layered.layers[at] = wishes.into_iter().map(|(_, vertex)| vertex).collect();
    places.set(&layered.layers[at]);
}

/// Number of pairs of lines that cross.
pub(super) fn crossings(layered: &Layered) -> u64 {
    crossings_at(layered, &Places::of(layered))
}

/// Counts crossings between adjacent layers. Lines are read from top to bottom by their begin; each
/// pair whose ends are in reverse order crosses. A Fenwick tree counts these pairs.
fn crossings_at(layered: &Layered, places: &Places) -> u64 {
    let widest = layered.layers.iter().map(Vec::len).max().unwrap_or(0);
    let mut tree = Fenwick {
        sums: vec![0; widest + 1],
    };
    let mut crossings = 0;
    let mut ends: Vec<u32> = Vec::new();
    for layer in &layered.layers {
        let mut lines = 0;
        for &vertex in layer {
            ends.clear();
            ends.extend(
                layered
                    .after
                    .of(vertex)
                    .iter()
                    .map(|&next| places.numbers[next as usize]),
            );
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
