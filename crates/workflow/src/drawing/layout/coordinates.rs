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
const ALIGNMENT_ROUNDS: usize = 4;
/// Weight of a bend against a unit of weight 1: a straight long line matters more than a box in the
/// middle of its lines.
const BEND_WEIGHT: f64 = 8.0;
/// Weight of a vertex without lines on the aligned side: it stays unless another vertex needs its
/// position.
const IDLE_WEIGHT: f64 = 0.01;
/// Minimum pixels between layers, used where lines are level.
const MIN_LAYER_GAP: i32 = 48;
/// Maximum pixels between layers, used where lines are steep.
const MAX_LAYER_GAP: i32 = 160;
/// Pixels of rise for which a line gets one more pixel of width.
const RISE_PER_PIXEL: i32 = 6;

#[derive(Clone, Copy)]
enum AlignTo {
    Before,
    After,
    Both,
}

/// The middle of each vertex from top to bottom; the top of the highest is at 0.
///
/// `heights` are those of the units. Junctions and bends are `bend` high, and vertices are `gap`
/// apart. Coordinates are whole numbers, so that rounding never makes boxes touch.
pub(crate) fn vertical_positions(
    layered: &Layered,
    heights: &[i32],
    bend: i32,
    gap: i32,
) -> Vec<i32> {
    let mut placing = CoordinateAssignment {
        layered,
        heights,
        bend,
        gap,
        middles: vec![0.0; layered.layer_of.len()],
        pools: Vec::new(),
    };
    for layer in &layered.layers {
        placing.stack(layer);
    }
    for _ in 0..ALIGNMENT_ROUNDS {
        placing.align_down_and_up(AlignTo::Before, AlignTo::After);
    }
    placing.align_down_and_up(AlignTo::Both, AlignTo::Both);
    placing.rounded()
}

struct CoordinateAssignment<'a> {
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

impl CoordinateAssignment<'_> {
    fn height(&self, vertex: u32) -> i32 {
        let height = self.heights.get(vertex as usize);
        height.copied().unwrap_or(self.bend)
    }

    /// Distance between the middles of adjacent vertices of a layer.
    fn distance(&self, upper: u32, lower: u32) -> i32 {
        let halves = (self.height(upper) + self.height(lower) + 1) / 2;
        halves + self.gap
    }

    /// The distances of the middles of a layer to the first of them, with the least spacing.
    fn offsets(&self, layer: &[u32]) -> Vec<i32> {
        let mut offset = 0;
        let mut offsets = vec![0];
        for pair in layer.windows(2) {
            offset += self.distance(pair[0], pair[1]);
            offsets.push(offset);
        }
        offsets
    }

    /// Stacks a layer around 0.
    fn stack(&mut self, layer: &[u32]) {
        let offsets = self.offsets(layer);
        let half = offsets.last().map_or(0.0, |&last| f64::from(last) / 2.0);
        for (&vertex, offset) in layer.iter().zip(offsets) {
            self.middles[vertex as usize] = f64::from(offset) - half;
        }
    }

    /// The desired middle of a vertex, and its weight.
    fn target(&self, vertex: u32, side: AlignTo) -> (f64, f64) {
        let before = self.layered.before.adjacent(vertex);
        let after = self.layered.after.adjacent(vertex);
        let (first, second): (&[u32], &[u32]) = match side {
            AlignTo::Before => (before, &[]),
            AlignTo::After => (&[], after),
            AlignTo::Both => (before, after),
        };
        let middle = |&vertex: &u32| self.middles[vertex as usize];
        let count = first.len() + second.len();
        if count == 0 {
            return (middle(&vertex), IDLE_WEIGHT);
        }
        let sum: f64 = first.iter().chain(second).map(middle).sum();
        let weight = if self.layered.unit(vertex).is_some() {
            1.0
        } else {
            BEND_WEIGHT
        };
        (sum / count as f64, weight)
    }

    fn align_down_and_up(&mut self, down: AlignTo, up: AlignTo) {
        let layers = &self.layered.layers;
        layers
            .iter()
            .for_each(|layer| self.align_layer(layer, down));
        layers
            .iter()
            .rev()
            .for_each(|layer| self.align_layer(layer, up));
    }

    /// Moves a layer as near to its desired middles as order and spacing allow, by least squares.
    /// With the spacing subtracted, middles must not decrease; adjacent vertices that would are
    /// pooled. Linear in the layer and its lines.
    fn align_layer(&mut self, layer: &[u32], side: AlignTo) {
        self.pools.clear();
        let offsets = self.offsets(layer);
        for (&vertex, &offset) in layer.iter().zip(&offsets) {
            let (target, weight) = self.target(vertex, side);
            let mut pool = Pool {
                weight,
                weighted: weight * (target - f64::from(offset)),
                vertices: 1,
            };
            while let Some(above) = self.pools.pop_if(|above| above.mean() > pool.mean()) {
                pool.weight += above.weight;
                pool.weighted += above.weighted;
                pool.vertices += above.vertices;
            }
            self.pools.push(pool);
        }
        let mut vertices = layer.iter().zip(offsets);
        for pool in &self.pools {
            for (&vertex, offset) in vertices.by_ref().take(pool.vertices) {
                self.middles[vertex as usize] = pool.mean() + f64::from(offset);
            }
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
                let min_row = rows[pair[0] as usize] + self.distance(pair[0], pair[1]);
                rows[pair[1] as usize] = rows[pair[1] as usize].max(min_row);
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
        let rises = layer.iter().flat_map(|&from| {
            let after = layered.after.adjacent(from).iter();
            after.map(move |&to| rows[from as usize].abs_diff(rows[to as usize]))
        });
        let max_rise = rises.max().unwrap_or(0);
        let gap = (MIN_LAYER_GAP + max_rise as i32 / RISE_PER_PIXEL).min(MAX_LAYER_GAP);
        left = column.right() + gap;
        column
    });
    columns.collect()
}
