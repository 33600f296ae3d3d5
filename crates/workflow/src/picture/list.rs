//! A graph as a list by layers, for graphs that are too large to draw.

use std::fmt::{self, Write};

use super::Picture;
use super::text::{Colour, Glyphs, Terminal, columns, label};
use crate::id::JobIndex;
use crate::layout::{Alike, Layered, Unit};
use crate::state::JobState;

/// What is left out is counted.
const MAX_LAYERS: usize = 30;
const MAX_JOBS: usize = 10;
const MAX_PARENTS: usize = 3;

pub(super) fn write(picture: &Picture<'_>, terminal: &Terminal, out: &mut String) -> fmt::Result {
    line(terminal, out, &format!("{}, {}", picture.graph.label.name, picture.summary(picture.jobs())), None)?;
    let layered = Layered::of(picture.graph, Alike::Apart);
    let units = |layer: &Vec<u32>| -> Vec<&Unit> { layer.iter().filter_map(|&vertex| layered.unit(vertex)).collect() };
    let jobs =
        |layer: &Vec<u32>| -> Vec<JobIndex> { units(layer).iter().flat_map(|unit| unit.jobs()).copied().collect() };
    let layers: Vec<Vec<JobIndex>> = layered.layers.iter().map(jobs).filter(|jobs| !jobs.is_empty()).collect();
    let (shown, rest) = layers.split_at(layers.len().min(MAX_LAYERS));
    for (place, layer) in shown.iter().enumerate() {
        self::layer(picture, terminal, out, (place + 1, layer))?;
    }
    if !rest.is_empty() {
        let jobs: Vec<JobIndex> = rest.concat();
        let text = format!("{} {} more layers, {}", dots(terminal), rest.len(), picture.summary(jobs.iter().copied()));
        line(terminal, out, &text, None)?;
    }
    Ok(())
}

fn layer(
    picture: &Picture<'_>,
    terminal: &Terminal,
    out: &mut String,
    (number, jobs): (usize, &[JobIndex]),
) -> fmt::Result {
    if let [job] = *jobs {
        let text = format!("layer {number}: {}{}", label(picture, terminal, job), after(picture, job));
        return line(terminal, out, &text, picture.look(job).map(|look| look.ansi));
    }
    line(terminal, out, &format!("layer {number}, {}", picture.summary(jobs.iter().copied())), None)?;
    let mut jobs = jobs.to_vec();
    jobs.sort_by_key(|&job| picture.state(job).map(interest));
    for &job in jobs.iter().take(MAX_JOBS) {
        let text = format!("  {}{}", label(picture, terminal, job), after(picture, job));
        line(terminal, out, &text, picture.look(job).map(|look| look.ansi))?;
    }
    match jobs.len().saturating_sub(MAX_JOBS) {
        0 => Ok(()),
        more => line(terminal, out, &format!("  {} {more} more", dots(terminal)), None),
    }
}

/// What a reader looks for comes first.
pub(super) fn interest(state: JobState) -> u8 {
    match state {
        JobState::Failed => 0,
        JobState::Running { .. } => 1,
        JobState::Ready => 2,
        JobState::Scheduled { .. } => 3,
        JobState::Cancelled | JobState::Skipped => 4,
        JobState::Waiting => 5,
        JobState::Succeeded => 6,
    }
}

fn after(picture: &Picture<'_>, job: JobIndex) -> String {
    let parents = &picture.graph.jobs[job.index()].parents;
    let mut text = String::new();
    for (place, parent) in parents.iter().take(MAX_PARENTS).enumerate() {
        text.push_str(if place == 0 { "  after " } else { ", " });
        text.push_str(&picture.graph.jobs[parent.index()].name);
    }
    match parents.len().saturating_sub(MAX_PARENTS) {
        0 => {}
        more => text.push_str(&format!(" and {more} more")),
    }
    text
}

const fn dots(terminal: &Terminal) -> &'static str {
    match terminal.glyphs {
        Glyphs::Unicode => "…",
        Glyphs::Ascii => "...",
    }
}

/// Writes a line, cut at the edge of the terminal.
fn line(terminal: &Terminal, out: &mut String, text: &str, ansi: Option<&str>) -> fmt::Result {
    let mut left = terminal.width;
    let fits = |character: &char| {
        let rest = left.checked_sub(columns(*character));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let text: String = text.chars().take_while(fits).collect();
    let text = text.trim_end();
    match ansi.filter(|_| terminal.colour == Colour::Ansi) {
        Some(ansi) => writeln!(out, "\x1b[{ansi}m{text}\x1b[0m"),
        None => writeln!(out, "{text}"),
    }
}
