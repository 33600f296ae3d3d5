//! Coordinates: each vertex is level with its neighbours as far as the order and the space between
//! boxes allow.

use super::layers::Layered;

/// A layer from left to right. Its width is 0 if it has no job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) left: i32,
    pub(super) width: i32,
}

impl Column {
    pub(super) fn right(&self) -> i32 {
        self.left + self.width
    }
}

/// Rounds of aligning all layers down and up; further rounds move little.
const ROUNDS: usize = 4;
/// Weight of a bend against a unit of weight 1: a straight long line matters more than a box in the
/// middle of its lines.
const BEND_WEIGHT: f64 = 8.0;
/// Weight of a vertex without lines on the aligned side: it stays unless another vertex needs its
/// position.
const IDLE_WEIGHT: f64 = 0.01;
/// Minimum pixels between layers, used where lines are level.
const LEAST_GAP: i32 = 48;
/// Maximum pixels between layers, used where lines are steep.
const MOST_GAP: i32 = 160;
/// Pixels of rise for which a line gets one more pixel of width.
const RISE: i32 = 6;

#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
    Both,
}

/// The middle of each vertex from top to bottom; the top of the highest is at 0.
///
/// `heights` are those of the units. Junctions and bends are `bend` high, and vertices are `gap`
/// apart. Coordinates are whole numbers, so that rounding never makes boxes touch.
pub(crate) fn rows(layered: &Layered, heights: &[i32], bend: i32, gap: i32) -> Vec<i32> {
    let middles = vec![0.0; layered.layer.len()];
    let mut placing = Placing {
        layered,
        heights,
        bend,
        gap,
        middles,
        pools: Vec::new(),
    };
    for layer in &layered.layers {
        placing.stack(layer);
    }
    let downwards = || layered.layers.iter();
    for _ in 0..ROUNDS {
        downwards().for_each(|layer| placing.settle(layer, Side::Before));
        downwards()
            .rev()
            .for_each(|layer| placing.settle(layer, Side::After));
    }
    downwards().for_each(|layer| placing.settle(layer, Side::Both));
    downwards()
        .rev()
        .for_each(|layer| placing.settle(layer, Side::Both));
    placing.rounded()
}

struct Placing<'a> {
    layered: &'a Layered,
    heights: &'a [i32],
    bend: i32,
    gap: i32,
    middles: Vec<f64>,
    pools: Vec<Pool>,
}

/// Adjacent vertices of a layer that touch and move as one.
struct Pool {
    weight: f64,
    weighted: f64,
    vertices: usize,
}

impl Pool {
    fn mean(&self) -> f64 {
        self.weighted / self.weight
    }
}

impl Placing<'_> {
    fn height(&self, vertex: u32) -> i32 {
        self.heights
            .get(vertex as usize)
            .copied()
            .unwrap_or(self.bend)
    }

    /// Distance between the middles of adjacent vertices of a layer.
    fn distance(&self, upper: u32, lower: u32) -> i32 {
        let halves = (self.height(upper) + self.height(lower) + 1) / 2;
        halves + self.gap
    }

    /// Stacks a layer around 0.
    fn stack(&mut self, layer: &[u32]) {
        let mut middle = 0;
        for (place, &vertex) in layer.iter().enumerate() {
            middle += if place == 0 {
                0
            } else {
                self.distance(layer[place - 1], vertex)
            };
            self.middles[vertex as usize] = f64::from(middle);
        }
        layer
            .iter()
            .for_each(|&vertex| self.middles[vertex as usize] -= f64::from(middle) / 2.0);
    }

    /// The desired middle of a vertex, and its weight.
    fn wish(&self, vertex: u32, side: Side) -> (f64, f64) {
        let before = self.layered.before.of(vertex);
        let after = self.layered.after.of(vertex);
        let (one, other): (&[u32], &[u32]) = match side {
            Side::Before => (before, &[]),
            Side::After => (&[], after),
            Side::Both => (before, after),
        };
        let count = one.len() + other.len();
        if count == 0 {
            return (self.middles[vertex as usize], IDLE_WEIGHT);
        }
        let sum: f64 = one
            .iter()
            .chain(other)
            .map(|&vertex| self.middles[vertex as usize])
            .sum();
        let weight = if self.layered.unit(vertex).is_some() {
            1.0
        } else {
            BEND_WEIGHT
        };
        (sum / count as f64, weight)
    }

    /// Moves a layer as near to its desired middles as order and spacing allow, by least squares.
    /// With the spacing subtracted, middles must not decrease; adjacent vertices that would are
    /// pooled. Linear in the layer and its lines.
    fn settle(&mut self, layer: &[u32], side: Side) {
        self.pools.clear();
        let mut offset = 0;
        for (place, &vertex) in layer.iter().enumerate() {
            offset += if place == 0 {
                0
            } else {
                self.distance(layer[place - 1], vertex)
            };
            let (wish, weight) = self.wish(vertex, side);
            let mut pool = Pool {
                weight,
                weighted: weight * (wish - f64::from(offset)),
                vertices: 1,
            };
            while let Some(above) = self.pools.pop_if(|above| above.mean() > pool.mean()) {
                pool.weight += above.weight;
                pool.weighted += above.weighted;
                pool.vertices += above.vertices;
            }
            self.pools.push(pool);
        }
        let mut rest = layer;
        let mut offset = 0;
        let mut upper = None;
        for pool in &self.pools {
            let (pooled, below) = rest.split_at(pool.vertices);
            for &vertex in pooled {
                offset += upper.map_or(0, |upper| self.distance(upper, vertex));
                self.middles[vertex as usize] = pool.mean() + f64::from(offset);
                upper = Some(vertex);
            }
            rest = below;
        }
    }

    /// Middles as whole numbers from top to bottom; the highest top is at 0.
    fn rounded(&self) -> Vec<i32> {
        let mut rows: Vec<i32> = self
            .middles
            .iter()
            .map(|middle| middle.floor() as i32)
            .collect();
        for layer in &self.layered.layers {
            // Distances are whole, but sums of large floats may be slightly less.
            for pair in layer.windows(2) {
                let least = rows[pair[0] as usize] + self.distance(pair[0], pair[1]);
                rows[pair[1] as usize] = rows[pair[1] as usize].max(least);
            }
        }
        let top = |(vertex, row): (usize, &i32)| row - self.height(vertex as u32) / 2;
        let highest = rows.iter().enumerate().map(top).min().unwrap_or(0);
        rows.iter_mut().for_each(|row| *row -= highest);
        rows
    }
}

/// The columns of the layers, as wide as the widest unit. The gap between layers is wider where
/// lines are steep.
pub(super) fn columns(layered: &Layered, widths: &[i32], rows: &[i32], margin: i32) -> Vec<Column> {
    let width = |&vertex: &u32| widths.get(vertex as usize).copied().unwrap_or(0);
    let mut left = margin;
    let columns = layered.layers.iter().map(|layer| {
        let column = Column {
            left,
            width: layer.iter().map(width).max().unwrap_or(0),
        };
        let lines = layer
            .iter()
            .flat_map(|&from| layered.after.of(from).iter().map(move |&to| (from, to)));
        let farthest = lines
            .map(|(from, to)| rows[from as usize].abs_diff(rows[to as usize]))
            .max()
            .unwrap_or(0);
        let gap = (LEAST_GAP + farthest as i32 / RISE).min(MOST_GAP);
        left = column.right() + gap;
        column
    });
    columns.collect()
}
