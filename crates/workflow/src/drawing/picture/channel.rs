//! The channel between two layers in a terminal: each line that goes up or down gets a column of
//! it.

use hashbrown::HashMap;

/// Lines that are drawn as one tree: from a job to its children, or from jobs to their only child.
#[derive(Debug, Default)]
pub(super) struct Net {
    /// Rows at which the net enters from the left.
    pub(super) left: Vec<i32>,
    /// Rows at which the net leaves to the right.
    pub(super) right: Vec<i32>,
    /// The row at which the net continues in the column of another net, and that net.
    pub(super) onward: Option<(i32, usize)>,
    /// The column of the net. `None` if the net is straight.
    pub(super) track: Option<usize>,
}

impl Net {
    /// The rows that its column spans.
    pub(super) fn span(&self) -> (i32, i32) {
        let rows = self
            .left
            .iter()
            .chain(&self.right)
            .copied()
            .chain(self.onward.map(|(row, _)| row));
        rows.fold((i32::MAX, i32::MIN), |(low, high), row| {
            (low.min(row), high.max(row))
        })
    }

    fn is_straight(&self) -> bool {
        let (low, high) = self.span();
        low == high
    }
}

/// Gives each net its column, from left to right, so that a line is never drawn over another one.
/// On a row where one net comes in and others go out, the one that comes in has to turn off first.
/// Nets that wait for each other are drawn in two columns, by a row that is `free`; without one
/// there is no drawing.
pub(super) fn assign(mut nets: Vec<Net>, free: impl Iterator<Item = i32>) -> Option<Vec<Net>> {
    let mut free: Vec<i32> = free.collect();
    let mut first_halves: HashMap<usize, usize> = HashMap::new();
    let mut tracks: Vec<Vec<(i32, i32)>> = Vec::new();
    let mut open: Vec<usize> = (0..nets.len())
        .filter(|&net| !nets[net].is_straight())
        .collect();
    while !open.is_empty() {
        let blockers = blockers(&nets, &open);
        let Some(place) = open
            .iter()
            .position(|net| blockers[net].iter().all(|other| !open.contains(other)))
        else {
            let split = open
                .iter()
                .copied()
                .find(|net| splittable(&nets[*net], &first_halves, *net))?;
            let (low, high) = nets[split].span();
            let nearest = free
                .iter()
                .enumerate()
                .min_by_key(|&(_, row)| (row * 2 - low - high).abs())?
                .0;
            let row = free.swap_remove(nearest);
            let second = Net {
                right: std::mem::take(&mut nets[split].right),
                left: Vec::new(),
                onward: None,
                track: None,
            };
            let second_place = nets.len();
            nets[split].onward = Some((row, second_place));
            nets.push(second);
            first_halves.insert(second_place, split);
            open.push(second_place);
            continue;
        };
        let net = open.remove(place);
        let mut span = nets[net].span();
        if let Some(&first) = first_halves.get(&net) {
            let row = nets[first].onward.map_or(span.0, |(row, _)| row);
            span = (span.0.min(row), span.1.max(row));
        }
        let after = blockers[&net]
            .iter()
            .filter_map(|&other| nets[other].track)
            .max()
            .map_or(0, |last| last + 1);
        let fits = |track: &Vec<(i32, i32)>| {
            track
                .iter()
                .all(|&(low, high)| high < span.0 || span.1 < low)
        };
        let track = (after..tracks.len())
            .find(|&track| fits(&tracks[track]))
            .unwrap_or(tracks.len().max(after));
        tracks.resize(tracks.len().max(track + 1), Vec::new());
        tracks[track].push(span);
        nets[net].track = Some(track);
    }
    Some(nets)
}

fn splittable(net: &Net, first_halves: &HashMap<usize, usize>, place: usize) -> bool {
    net.onward.is_none() && !first_halves.contains_key(&place) && !net.right.is_empty()
}

/// For each unassigned net, the nets whose column must be to the left of its own.
fn blockers(nets: &[Net], open: &[usize]) -> HashMap<usize, Vec<usize>> {
    let mut entering: HashMap<i32, usize> = HashMap::new();
    for (place, net) in nets
        .iter()
        .enumerate()
        .filter(|(_, net)| !net.is_straight())
    {
        entering.extend(net.left.iter().map(|&row| (row, place)));
    }
    let mut blockers: HashMap<usize, Vec<usize>> = HashMap::new();
    for &place in open {
        let others = nets[place]
            .right
            .iter()
            .filter_map(|row| entering.get(row))
            .filter(|&&other| other != place);
        blockers.entry(place).or_default().extend(others);
    }
    for (place, net) in nets.iter().enumerate() {
        if let Some((_, second)) = net.onward {
            blockers.entry(second).or_default().push(place);
        }
    }
    blockers
}
