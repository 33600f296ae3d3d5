//! A graph as a list by layers, for graphs that are too large to draw.

use std::fmt::{self, Write};

use super::state_style::display_rank;
use super::subject::Picture;
use super::terminal::{Colour, Glyphs, Terminal, char_width, label};
use crate::drawing::layout::layers::Layered;
use crate::drawing::layout::units::{Grouping, Unit};
use crate::model::JobIndex;

/// Limits of the list. Layers, jobs and parents beyond them are counted and not listed.
const MAX_LAYERS: usize = 30;
const MAX_JOBS: usize = 10;
const MAX_PARENTS: usize = 3;

pub(super) fn write(picture: &Picture<'_>, terminal: &Terminal, out: &mut String) -> fmt::Result {
    write_line(
        terminal,
        out,
        &format!(
            "{}, {}",
            picture.graph.label.name,
            picture.summary(picture.jobs())
        ),
        None,
    )?;
    let layered = Layered::new(picture.graph, Grouping::Separate);
    let jobs = |layer: &Vec<u32>| -> Vec<JobIndex> {
        let units = layer.iter().filter_map(|&vertex| layered.unit(vertex));
        units.flat_map(Unit::jobs).copied().collect()
    };
    let layers: Vec<Vec<JobIndex>> = layered
        .layers
        .iter()
        .map(jobs)
        .filter(|jobs| !jobs.is_empty())
        .collect();
    let (shown, rest) = layers.split_at(layers.len().min(MAX_LAYERS));
    for (place, layer) in shown.iter().enumerate() {
        write_layer(picture, terminal, out, place + 1, layer)?;
    }
    if !rest.is_empty() {
        let jobs: Vec<JobIndex> = rest.concat();
        let text = format!(
            "{} {} more layers, {}",
            dots(terminal),
            rest.len(),
            picture.summary(jobs.iter().copied())
        );
        write_line(terminal, out, &text, None)?;
    }
    Ok(())
}

fn write_layer(
    picture: &Picture<'_>,
    terminal: &Terminal,
    out: &mut String,
    number: usize,
    jobs: &[JobIndex],
) -> fmt::Result {
    let write_job = |out: &mut String, start: &str, job: JobIndex| {
        let name = label(picture, terminal, job);
        let text = format!("{start}{name}{}", parents_text(picture, job));
        let ansi = picture.style(job).map(|style| style.ansi);
        write_line(terminal, out, &text, ansi)
    };
    if let [job] = *jobs {
        return write_job(out, &format!("layer {number}: "), job);
    }
    write_line(
        terminal,
        out,
        &format!("layer {number}, {}", picture.summary(jobs.iter().copied())),
        None,
    )?;
    let mut jobs = jobs.to_vec();
    jobs.sort_by_key(|&job| picture.state(job).map(display_rank));
    for &job in jobs.iter().take(MAX_JOBS) {
        write_job(out, "  ", job)?;
    }
    match jobs.len().saturating_sub(MAX_JOBS) {
        0 => Ok(()),
        more => write_line(
            terminal,
            out,
            &format!("  {} {more} more", dots(terminal)),
            None,
        ),
    }
}

fn parents_text(picture: &Picture<'_>, job: JobIndex) -> String {
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

/// Writes a text, wrapped to the width of the terminal.
fn write_line(
    terminal: &Terminal,
    out: &mut String,
    text: &str,
    ansi: Option<&str>,
) -> fmt::Result {
    for text in wrap(text, terminal.width) {
        match ansi.filter(|_| terminal.colour == Colour::Ansi) {
            Some(ansi) => writeln!(out, "\x1b[{ansi}m{text}\x1b[0m")?,
            None => writeln!(out, "{text}")?,
        }
    }
    Ok(())
}

/// `text` in lines of at most `max_columns` columns, broken between words where that is possible.
fn wrap(text: &str, max_columns: usize) -> Vec<String> {
    // Continuation lines are indented unless the terminal is very narrow.
    let indent = if max_columns < 20 { 0 } else { 4 };
    let width = |text: &str| text.chars().map(char_width).sum::<usize>();
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_inclusive(' ').filter(|_| max_columns > 0) {
        if used > indent && used + width(word.trim_end()) > max_columns {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            used = indent;
        }
        for character in word.chars() {
            // A trailing space needs no column.
            if character != ' ' && used > indent && used + char_width(character) > max_columns {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
                used = indent;
            }
            line.push(character);
            used += char_width(character);
        }
    }
    lines.push(line);
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}
