//! The order of each layer from top to bottom, so that few lines cross.

use super::layers::Layered;

/// After this many sweeps the orders hardly change.
const MOST_SWEEPS: usize = 12;
/// Lines that all sweeps may look at together: 4 million take less than 100 ms.
const LINE_VISITS: usize = 4_000_000;

/// Orders each layer by the places of the jobs around (the barycentre method), down and up, and keeps the best.
pub(crate) fn reduce_crossings(layered: &mut Layered) {
    follow_lines(layered);
    let mut places = Places::of(layered);
    let mut fewest = crossings(layered, &places);
    let mut best = layered.layers.clone();
    let sweeps = (LINE_VISITS / (layered.after.len() + 1)).clamp(2, MOST_SWEEPS);
    for sweep in 0..sweeps {
        if fewest == 0 {
            break;
        }
        let depth = layered.layers.len();
        for step in 1..depth {
            let (at, side) = if sweep % 2 == 0 { (step, Side::Before) } else { (depth - 1 - step, Side::After) };
            sort_layer(layered, &mut places, at, side);
        }
        let now = crossings(layered, &places);
        if now < fewest {
            fewest = now;
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

/// The place of each vertex in its layer.
struct Places(Vec<u32>);

impl Places {
    fn of(layered: &Layered) -> Self {
        let mut places = Self(vec![0; layered.layer.len()]);
        layered.layers.iter().for_each(|layer| places.set(layer));
        places
    }

    fn set(&mut self, layer: &[u32]) {
        for (place, &vertex) in layer.iter().enumerate() {
            self.0[vertex as usize] = place as u32;
        }
    }

    /// The place as a share of the layer, to compare layers of different lengths.
    fn share(&self, layered: &Layered, vertex: u32) -> f64 {
        let layer = &layered.layers[layered.layer[vertex as usize] as usize];
        (f64::from(self.0[vertex as usize]) + 0.5) / layer.len() as f64
    }
}

/// A first order: go along the lines, depth first, so that what belongs together is together.
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
                stack.extend(layered.after.of(vertex).iter().rev().filter(|&&next| !seen[next as usize]));
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
            0 => places.share(layered, vertex),
            count => around.iter().map(|&other| places.share(layered, other)).sum::<f64>() / count as f64,
        };
        (wish, vertex)
    };
    let mut wishes: Vec<(f64, u32)> = layered.layers[at].iter().map(wish).collect();
    wishes.sort_by(|one, other| one.0.total_cmp(&other.0));
    layered.layers[at] = wishes.into_iter().map(|(_, vertex)| vertex).collect();
    places.set(&layered.layers[at]);
}

/// How many pairs of lines cross. In each gap, read the lines from top to bottom by where they begin; each pair that ends the
/// other way round crosses. A Fenwick tree counts them.
fn crossings(layered: &Layered, places: &Places) -> u64 {
    let widest = layered.layers.iter().map(Vec::len).max().unwrap_or(0);
    let mut tree = Fenwick { sums: vec![0; widest + 1] };
    let mut crossings = 0;
    let mut ends: Vec<u32> = Vec::new();
    for layer in &layered.layers {
        let mut lines = 0;
        for &vertex in layer {
            ends.clear();
            ends.extend(layered.after.of(vertex).iter().map(|&next| places.0[next as usize]));
            // Lines with a common begin do not cross: count all of them before adding one.
            crossings += ends.iter().map(|&end| lines - tree.up_to(end)).sum::<u64>();
            ends.iter().for_each(|&end| tree.add(end));
            lines += ends.len() as u64;
        }
        tree.sums.fill(0);
    }
    crossings
}

/// Counts how many numbers up to a bound were added.
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
        let (mut at, mut sum) = (number as usize + 1, 0);
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }
}
