//! Graph pictures in characters, for graphs that fit a terminal.

use std::fmt::{self, Write};

use hashbrown::HashMap;

use super::channel::{self, Net};
use super::list;
use super::state_style::display_rank;
use super::subject::Picture;
use super::terminal::{Colour, Glyphs, Terminal, char_width, label, with_mark};
use crate::drawing::layout::coordinates::vertical_positions;
use crate::drawing::layout::layers::Layered;
use crate::drawing::layout::order::reduce_crossings;
use crate::drawing::layout::units::{Grouping, Unit};
use crate::model::JobIndex;

/// Maximum size of a drawn graph. Larger graphs become lists, because lines over several screens
/// cannot be followed.
const MAX_UNITS: usize = 200;
const MAX_ROWS: i32 = 100;
/// Maximum height at which jobs have an empty row between them, which is easier to read.
const MAX_LOOSE_ROWS: i32 = 30;

pub(super) fn write(picture: &Picture<'_>, terminal: &Terminal, out: &mut String) -> fmt::Result {
    let draw = |grouping| Canvas::draw(picture, terminal, grouping);
    match draw(Grouping::Separate).or_else(|| draw(Grouping::Blocks)) {
        Some(canvas) => canvas.write(terminal, out),
        None => list::write(picture, terminal, out),
    }
}

/// Directions in which a line leaves a cell, as bits.
const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;

#[derive(Debug, Clone, Copy, Default)]
enum Cell {
    #[default]
    Blank,
    /// The directions of a line, and whether it turns or passes here.
    Line(u8, LineKind),
    Head,
    Char(char, Option<&'static str>),
    /// The right half of a wide character.
    Covered,
}

/// Whether a line turns or passes in a cell. A line that turns or branches hides lines that pass.
/// So a line that ends at a glyph without an arm towards it continues behind it, and unconnected
/// lines never seem connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Passes,
    Turns,
}

struct Canvas {
    cells: Vec<Vec<Cell>>,
}

impl Canvas {
    /// Draws a picture. `None` if it does not fit the terminal.
    fn draw(picture: &Picture<'_>, terminal: &Terminal, grouping: Grouping) -> Option<Self> {
        let layered = Layered::new(picture.graph, grouping);
        if layered.units.len() > MAX_UNITS || layered.has_rail() {
            return None;
        }
        let layered = reduce_crossings(layered);
        let rows = vertex_rows(&layered)?;
        let mut canvas = Self {
            cells: vec![Vec::new(); height(&rows) as usize],
        };
        let mut left = 0;
        for layer in &layered.layers {
            let label = |&vertex| VertexLabel::new(picture, terminal, &layered, vertex);
            let labels: Vec<VertexLabel> = layer.iter().map(label).collect();
            let right = left + labels.iter().map(|label| label.width).max().unwrap_or(0);
            // A label ends with a space, which may be cut.
            if right > terminal.width.saturating_add(1) {
                return None;
            }
            for (label, &vertex) in labels.iter().zip(layer) {
                let row = rows[vertex as usize];
                let end = canvas.draw_label(label, row, left);
                if !layered.after.adjacent(vertex).is_empty() {
                    canvas.draw_level_line(row, end, right + 1);
                }
            }
            left = canvas.draw_gap(&layered, &rows, layer, right)?;
        }
        (canvas.width() <= terminal.width).then_some(canvas)
    }

    fn width(&self) -> usize {
        self.cells.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn cell(&mut self, row: i32, column: usize) -> &mut Cell {
        let row = &mut self.cells[row as usize];
        if row.len() <= column {
            row.resize(column + 1, Cell::Blank);
        }
        &mut row[column]
    }

    /// Writes a label and returns the column at which its line can begin.
    fn draw_label(&mut self, label: &VertexLabel, row: i32, left: usize) -> usize {
        let mut column = left;
        for &(character, width) in &label.characters {
            *self.cell(row, column) = Cell::Char(character, label.ansi);
            (1..width).for_each(|more| *self.cell(row, column + more) = Cell::Covered);
            column += width;
        }
        // A space follows a name. A line that passes has neither.
        column + usize::from(column > left)
    }

    fn draw_directions(&mut self, row: i32, column: usize, directions: u8, kind: LineKind) {
        let cell = self.cell(row, column);
        *cell = match (*cell, kind) {
            (Cell::Line(_, LineKind::Turns), LineKind::Passes) => *cell,
            (Cell::Line(existing, before), _) if before == kind => {
                Cell::Line(existing | directions, kind)
            }
            _ => Cell::Line(directions, kind),
        };
    }

    /// Draws a level line over the columns `begin..end`.
    fn draw_level_line(&mut self, row: i32, begin: usize, end: usize) {
        (begin..end)
            .for_each(|column| self.draw_directions(row, column, LEFT | RIGHT, LineKind::Passes));
    }

    /// Draws the lines between a layer that ends at `right` and the next one. Returns the column at
    /// which the next layer begins.
    fn draw_gap(
        &mut self,
        layered: &Layered,
        rows: &[i32],
        layer: &[u32],
        right: usize,
    ) -> Option<usize> {
        let (nets, arrivals) = layer_nets(layered, rows, layer);
        let height = self.cells.len() as i32;
        let used = |row: &i32| {
            nets.iter()
                .any(|net| net.left.contains(row) || net.right.contains(row))
        };
        let free = (0..height).filter(|row| !used(row)).collect();
        let nets = channel::assign_tracks(nets, free)?;
        let last_track = nets.iter().filter_map(|net| net.track).max();
        let tracks = last_track.map_or(0, |last| last + 1);
        let begin = right + 1;
        let end = begin + 2 * tracks + usize::from(tracks == 0);
        for net in &nets {
            self.draw_net(net, &nets, begin, end);
        }
        for (row, is_job) in arrivals {
            if is_job {
                *self.cell(row, end) = Cell::Head;
            } else {
                self.draw_level_line(row, end, end + 2);
            }
        }
        Some(end + 2)
    }

    fn draw_net(&mut self, net: &Net, nets: &[Net], begin: usize, end: usize) {
        let Some(track) = net.track else {
            for &row in &net.right {
                self.draw_level_line(row, begin, end);
            }
            return;
        };
        let at = |track: usize| begin + 2 * track + 1;
        let column = at(track);
        for &row in &net.left {
            self.draw_level_line(row, begin, column);
            self.draw_directions(row, column, LEFT, LineKind::Turns);
        }
        for &row in &net.right {
            self.draw_directions(row, column, RIGHT, LineKind::Turns);
            self.draw_level_line(row, column + 1, end);
        }
        if let Some((row, second)) = net.continuation {
            let other = nets[second].track.map_or(column, at);
            self.draw_directions(row, column, RIGHT, LineKind::Turns);
            self.draw_level_line(row, column + 1, other);
            self.draw_directions(row, other, LEFT, LineKind::Turns);
        }
        let came_from = nets
            .iter()
            .filter_map(|first| first.continuation)
            .find(|&(_, second)| std::ptr::eq(&nets[second], net));
        let (top, bottom) = net.span();
        let row = came_from.map_or(top, |(row, _)| row);
        self.draw_upright_line(column, top.min(row), bottom.max(row));
    }

    /// Draws an upright line over the rows `top..=bottom`.
    fn draw_upright_line(&mut self, column: usize, top: i32, bottom: i32) {
        for row in top..=bottom {
            let up = if row > top { UP } else { 0 };
            let down = if row < bottom { DOWN } else { 0 };
            self.draw_directions(row, column, up | down, LineKind::Turns);
        }
    }

    fn write(&self, terminal: &Terminal, out: &mut String) -> fmt::Result {
        for row in &self.cells {
            let begin = out.len();
            let mut current = None;
            for cell in row {
                let (character, ansi) = match *cell {
                    Cell::Blank => (' ', None),
                    Cell::Line(directions, _) => (line_glyph(directions, terminal.glyphs), None),
                    Cell::Head if terminal.glyphs == Glyphs::Ascii => ('>', None),
                    Cell::Head => ('→', None),
                    Cell::Char(character, ansi) => (character, ansi),
                    Cell::Covered => continue,
                };
                set_colour(&mut current, ansi, out)?;
                out.push(character);
            }
            set_colour(&mut current, None, out)?;
            out.truncate(begin + out[begin..].trim_end().len());
            out.push('\n');
        }
        Ok(())
    }
}

fn height(rows: &[i32]) -> i32 {
    rows.iter().max().map_or(0, |last| last + 1)
}

/// The row of each vertex, with free rows between them if there are not too many. `None` if there
/// are too many without.
fn vertex_rows(layered: &Layered) -> Option<Vec<i32>> {
    let heights = vec![1; layered.units.len()];
    let loose = vertical_positions(layered, &heights, 1, 1);
    if height(&loose) <= MAX_LOOSE_ROWS {
        return Some(loose);
    }
    let rows = vertical_positions(layered, &heights, 1, 0);
    (height(&rows) <= MAX_ROWS).then_some(rows)
}

/// The lines from a layer to the next, and the rows at which they arrive, each with whether a job
/// is there. Jobs with the same children share a line, which leads to all of these children and to
/// no others.
fn layer_nets(layered: &Layered, rows: &[i32], layer: &[u32]) -> (Vec<Net>, Vec<(i32, bool)>) {
    let mut nets: Vec<Net> = Vec::new();
    let mut net_by_children: HashMap<Vec<u32>, usize> = HashMap::new();
    let mut arrivals: Vec<(i32, bool)> = Vec::new();
    for &from in layer {
        let mut children = layered.after.adjacent(from).to_vec();
        if children.is_empty() {
            continue;
        }
        children.sort_unstable();
        let child_rows: Vec<i32> = children.iter().map(|&to| rows[to as usize]).collect();
        let is_job = children.iter().map(|&to| layered.unit(to).is_some());
        arrivals.extend(child_rows.iter().copied().zip(is_job));
        let net_index = *net_by_children.entry(children).or_insert(nets.len());
        match nets.get_mut(net_index) {
            Some(net) => net.left.push(rows[from as usize]),
            None => nets.push(Net {
                left: vec![rows[from as usize]],
                right: child_rows,
                ..Net::default()
            }),
        }
    }
    (nets, arrivals)
}

/// Writes the sequence that changes the colour, if it changes.
fn set_colour(
    current: &mut Option<&'static str>,
    ansi: Option<&'static str>,
    out: &mut String,
) -> fmt::Result {
    if *current != ansi {
        write!(out, "\x1b[{}m", ansi.unwrap_or("0"))?;
        *current = ansi;
    }
    Ok(())
}

fn line_glyph(directions: u8, glyphs: Glyphs) -> char {
    match (glyphs, directions) {
        (Glyphs::Unicode, _) => [
            ' ', '│', '│', '│', '─', '┘', '┐', '┤', '─', '└', '┌', '├', '─', '┴', '┬', '┼',
        ][usize::from(directions)],
        (Glyphs::Ascii, 1..=3) => '|',
        (Glyphs::Ascii, 4 | 8 | 12) => '-',
        (Glyphs::Ascii, _) => '+',
    }
}

/// The mark and name of a unit, as characters with their columns. Empty for lines that pass.
#[derive(Default)]
struct VertexLabel {
    characters: Vec<(char, usize)>,
    width: usize,
    ansi: Option<&'static str>,
}

impl VertexLabel {
    fn new(picture: &Picture<'_>, terminal: &Terminal, layered: &Layered, vertex: u32) -> Self {
        let (text, job) = match layered.unit(vertex) {
            None => return Self::default(),
            Some(Unit::Job(job)) => (label(picture, terminal, *job), *job),
            Some(Unit::Block(jobs)) => block_label(picture, terminal, jobs),
        };
        // Characters of no width belong to the previous cell; a canvas of cells cannot hold them.
        let characters: Vec<(char, usize)> = text
            .chars()
            .map(|character| (character, char_width(character)))
            .filter(|&(_, width)| width > 0)
            .collect();
        let style = picture.style(job);
        Self {
            width: characters.iter().map(|&(_, width)| width).sum::<usize>() + 1,
            characters,
            ansi: style
                .map(|style| style.ansi)
                .filter(|_| terminal.colour == Colour::Ansi),
        }
    }
}

/// Returns a text such as "299 jobs: 298 succeeded, 1 failed", and the job whose state matters most
/// to readers.
fn block_label(
    picture: &Picture<'_>,
    terminal: &Terminal,
    jobs: &[JobIndex],
) -> (String, JobIndex) {
    let jobs = jobs.iter().copied();
    let first = jobs
        .clone()
        .min_by_key(|&job| picture.state(job).map(display_rank))
        .expect("a block has jobs");
    let summary = picture.summary(jobs);
    (with_mark(picture, terminal, first, &summary), first)
}
