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
    pub(super) continuation: Option<(i32, usize)>,
    /// The column of the net. `None` if the net is straight.
    pub(super) track: Option<usize>,
}

impl Net {
    /// The rows that its column spans.
    pub(super) fn span(&self) -> (i32, i32) {
        let rows = self.left.iter().chain(&self.right).copied();
        let rows = rows.chain(self.continuation.map(|(row, _)| row));
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
pub(super) fn assign_tracks(mut nets: Vec<Net>, mut free: Vec<i32>) -> Option<Vec<Net>> {
    let mut first_halves: HashMap<usize, usize> = HashMap::new();
    let mut tracks: Vec<Vec<(i32, i32)>> = Vec::new();
    let mut unassigned: Vec<usize> = (0..nets.len())
        .filter(|&net| !nets[net].is_straight())
        .collect();
    while !unassigned.is_empty() {
        let blockers = blockers(&nets, &unassigned);
        let is_next = |net| {
            blockers[net]
                .iter()
                .all(|other| !unassigned.contains(other))
        };
        let Some(index) = unassigned.iter().position(is_next) else {
            let mut waiting = unassigned.iter().copied();
            let split = waiting.find(|&net| can_split(&nets[net], &first_halves, net))?;
            let second_place = split_net(&mut nets, split, &mut free)?;
            first_halves.insert(second_place, split);
            unassigned.push(second_place);
            continue;
        };
        let net = unassigned.remove(index);
        let mut span = nets[net].span();
        if let Some(&first) = first_halves.get(&net) {
            let row = nets[first].continuation.map_or(span.0, |(row, _)| row);
            span = (span.0.min(row), span.1.max(row));
        }
        let before = blockers[&net].iter().filter_map(|&net| nets[net].track);
        let first_track = before.max().map_or(0, |last| last + 1);
        nets[net].track = Some(occupy_track(&mut tracks, first_track, span));
    }
    Some(nets)
}

/// Occupies rows of the first track from `first` on in which they are free. Returns that track.
fn occupy_track(tracks: &mut Vec<Vec<(i32, i32)>>, first: usize, span: (i32, i32)) -> usize {
    let is_free = |&(low, high): &(i32, i32)| high < span.0 || span.1 < low;
    let track = (first..tracks.len())
        .find(|&track| tracks[track].iter().all(is_free))
        .unwrap_or(tracks.len().max(first));
    tracks.resize(tracks.len().max(track + 1), Vec::new());
    tracks[track].push(span);
    track
}

/// Splits a net at the free row that is nearest to its middle. Returns the index of the second half, which is
/// added at the end. `None` if no row is free.
fn split_net(nets: &mut Vec<Net>, split: usize, free: &mut Vec<i32>) -> Option<usize> {
    let (low, high) = nets[split].span();
    let nearest = free
        .iter()
        .enumerate()
        .min_by_key(|&(_, row)| (row * 2 - low - high).abs())?
        .0;
    let row = free.swap_remove(nearest);
    let second = Net {
        right: std::mem::take(&mut nets[split].right),
        ..Net::default()
    };
    let second_place = nets.len();
    nets[split].continuation = Some((row, second_place));
    nets.push(second);
    Some(second_place)
}

fn can_split(net: &Net, first_halves: &HashMap<usize, usize>, place: usize) -> bool {
    net.continuation.is_none() && !first_halves.contains_key(&place) && !net.right.is_empty()
}

/// For each unassigned net, the nets whose column must be to the left of its own.
fn blockers(nets: &[Net], open: &[usize]) -> HashMap<usize, Vec<usize>> {
    let mut entering: HashMap<i32, usize> = HashMap::new();
    for (index, net) in nets
        .iter()
        .enumerate()
        .filter(|(_, net)| !net.is_straight())
    {
        entering.extend(net.left.iter().map(|&row| (row, index)));
    }
    let mut blockers: HashMap<usize, Vec<usize>> = HashMap::new();
    for &index in open {
        let others = nets[index]
            .right
            .iter()
            .filter_map(|row| entering.get(row))
            .filter(|&&other| other != index);
        blockers.entry(index).or_default().extend(others);
    }
    for (index, net) in nets.iter().enumerate() {
        if let Some((_, second)) = net.continuation {
            blockers.entry(second).or_default().push(index);
        }
    }
    blockers
}
