//! Graph pictures as SVG, drawn from the layout of the graph.

use std::fmt::{self, Write};

use super::state_style::{STATE_STYLES, StateStyle};
use super::subject::Picture;
use crate::drawing::layout::geometry::{Block, Edge, End, Layout, Node, Point};
use crate::drawing::layout::label::elide;
use crate::graph::GraphJob;
use crate::model::JobIndex;

/// Beginning of each rule of the style sheet.
const RULE_PREFIX: &str = ".tidegate-graph";
const LEGEND_HEIGHT: i32 = 28;
/// Pixels of a legend entry: a swatch, a word, a number and some space.
const LEGEND_ENTRY_WIDTH: i32 = 128;
const MARGIN: i32 = 16;
/// Pixels between a frame and its text.
const FRAME_PADDING: i32 = 12;
/// Pixels of a character of small text; most characters are narrower.
const SMALL_ADVANCE: i32 = 6;

pub(super) fn write(picture: &Picture<'_>, out: &mut impl Write) -> fmt::Result {
    let layout = Layout::new(picture.graph);
    let legend = Legend::new(picture, &layout);
    let width = layout.width.max(legend.width());
    let height = layout.height + legend.height();
    let name = xml_text(&picture.graph.label.name);
    write!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="tidegate-graph" role="graphics-document document" width="{width}" height="{height}" viewBox="0 0 {width} {height}">"#
    )?;
    write!(
        out,
        "<title>{name}</title><desc>{}</desc>",
        picture.summary(picture.jobs())
    )?;
    write_style(out)?;
    write_lines(&layout, out)?;
    layout
        .blocks
        .iter()
        .try_for_each(|block| write_frame(picture, block, out))?;
    for (job, node) in picture.jobs().zip(&layout.nodes) {
        write_job_box(picture, job, *node, out)?;
    }
    legend.write(layout.height, out)?;
    out.write_str("</svg>\n")
}

/// Writes the lines and the junctions between them.
fn write_lines(layout: &Layout, out: &mut impl Write) -> fmt::Result {
    out.write_str(r#"<g class="lines">"#)?;
    layout
        .edges
        .iter()
        .try_for_each(|edge| write_line(edge, out))?;
    for Point { x, y } in &layout.junctions {
        write!(out, r#"<circle cx="{x}" cy="{y}" r="3"/>"#)?;
    }
    out.write_str("</g>")
}

/// Writes the style sheet. All rules contain the class of the picture, so that a page can contain
/// several pictures.
fn write_style(out: &mut impl Write) -> fmt::Result {
    write!(
        out,
        "<style>{RULE_PREFIX}{{background:#fff;font-family:system-ui,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:13px}}\
         {RULE_PREFIX} text{{fill:#1b2330}}{RULE_PREFIX} .small{{font-size:11px;fill:#5b6675}}\
         {RULE_PREFIX} .mark{{font-size:15px}}{RULE_PREFIX} .square{{font-size:10px}}{RULE_PREFIX} rect{{fill:#f6f7f9;stroke:#768195;stroke-width:1.5}}\
         {RULE_PREFIX} .frame{{fill:none;stroke:#8a94a6;stroke-dasharray:1 3}}{RULE_PREFIX} .lines path{{fill:none;stroke:#8a94a6;stroke-width:1.5}}{RULE_PREFIX} .lines circle,{RULE_PREFIX} .head{{fill:#8a94a6}}\
         {RULE_PREFIX} .skipped rect,{RULE_PREFIX} .cancelled rect{{stroke-dasharray:4 3}}"
    )?;
    write_state_rules(out, |style| style.light)?;
    write!(
        out,
        "@media (prefers-color-scheme:dark){{{RULE_PREFIX}{{background:#14171c}}{RULE_PREFIX} text{{fill:#e6e9ee}}{RULE_PREFIX} .small{{fill:#9aa4b2}}\
         {RULE_PREFIX} rect{{fill:#20242c;stroke:#7d889b}}"
    )?;
    write_state_rules(out, |style| style.dark)?;
    out.write_str(
        "}</style><defs><marker id=\"tidegate-head\" class=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" \
         markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0.5 8 4 0 7.5z\"/></marker></defs>",
    )
}

fn write_state_rules(
    out: &mut impl Write,
    colours: fn(&StateStyle) -> (&'static str, &'static str),
) -> fmt::Result {
    for state_style in &STATE_STYLES {
        let word = state_style.word;
        let (fill, rim) = colours(state_style);
        write!(
            out,
            "{RULE_PREFIX} .{word} rect{{fill:{fill};stroke:{rim}}}{RULE_PREFIX} .{word} .mark{{fill:{rim}}}"
        )?;
    }
    Ok(())
}

/// Writes a line. Level pieces are straight; the others are curves that begin and end level.
fn write_line(edge: &Edge, out: &mut impl Write) -> fmt::Result {
    let [first, rest @ ..] = &edge.points[..] else {
        return Ok(());
    };
    write!(out, r#"<path d="M{} {}"#, first.x, first.y)?;
    let mut last = *first;
    for &Point { x, y } in rest {
        if y == last.y {
            write!(out, "H{x}")?;
        } else {
            let middle = i32::midpoint(last.x, x);
            write!(out, "C{middle} {} {middle} {y} {x} {y}", last.y)?;
        }
        last = Point { x, y };
    }
    let head = if matches!(edge.to, End::Junction(_)) {
        ""
    } else {
        r#"" marker-end="url(#tidegate-head)"#
    };
    write!(out, r#"{head}"/>"#)
}

/// Writes the frame of a block with the number of its jobs, and their states if these fit.
fn write_frame(picture: &Picture<'_>, block: &Block, out: &mut impl Write) -> fmt::Result {
    let Node {
        x,
        y,
        width,
        height,
        ..
    } = block.frame;
    let summary = picture.summary(block.jobs.iter().copied());
    let fits = summary.len() as i32 * SMALL_ADVANCE <= width - 2 * FRAME_PADDING;
    let text = if fits {
        &*summary
    } else {
        summary.split(':').next().unwrap_or_default()
    };
    write!(
        out,
        r#"<g><title>{summary}</title><rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>"#
    )?;
    write!(
        out,
        r#"<text class="small" x="{}" y="{}">{text}</text></g>"#,
        x + FRAME_PADDING,
        y + 19
    )
}

/// Writes the mark of a state into the box of a job.
fn write_mark(node: Node, mark: impl fmt::Display, out: &mut impl Write) -> fmt::Result {
    let (class, left, down) = if node.width == node.height {
        ("mark square", 8, 4)
    } else {
        ("mark", 16, 5)
    };
    let left = node.x + left;
    let base = node.y + node.height / 2 + down;
    write!(
        out,
        r#"<text class="{class}" x="{left}" y="{base}" text-anchor="middle">{mark}</text>"#
    )
}

fn write_job_box(
    picture: &Picture<'_>,
    job: JobIndex,
    node: Node,
    out: &mut impl Write,
) -> fmt::Result {
    let Node {
        x,
        y,
        width,
        height,
        ..
    } = node;
    let definition = &picture.graph.jobs[job.index()];
    let name = xml_text(&definition.name);
    let handler = xml_text(&definition.handler);
    let state_style = picture.style(job);
    match state_style.map(|style| style.word) {
        Some(word) => write!(
            out,
            r#"<g class="{word}" role="img"><title>{name}, handler {handler}, {word}</title>"#
        ),
        None => write!(
            out,
            r#"<g role="img"><title>{name}, handler {handler}</title>"#
        ),
    }?;
    let is_square = width == height;
    let radius = if is_square { 3 } else { 6 };
    write!(
        out,
        r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>"#
    )?;
    if let Some(state_style) = state_style {
        write_mark(node, state_style.mark, out)?;
    }
    if !is_square {
        let left = x + if state_style.is_some() { 30 } else { 14 };
        write_job_text(definition, left, node, out)?;
    }
    out.write_str("</g>")
}

/// Writes the name of a job, and its handler below if that differs.
fn write_job_text(job: &GraphJob, left: i32, node: Node, out: &mut impl Write) -> fmt::Result {
    let Node { y, height, .. } = node;
    let name = xml_text(&elide(&job.name, '…'));
    let handler = xml_text(&elide(&job.handler, '…'));
    if job.name == job.handler {
        let middle = y + height / 2 + 5;
        return write!(out, r#"<text x="{left}" y="{middle}">{name}</text>"#);
    }
    write!(out, r#"<text x="{left}" y="{}">{name}</text>"#, y + 18)?;
    write!(
        out,
        r#"<text class="small" x="{left}" y="{}">{handler}</text>"#,
        y + 33
    )
}

/// The states that occur, and the number of lines that are not drawn.
struct Legend {
    entries: Vec<(&'static str, char, u32)>,
    undrawn: usize,
}

impl Legend {
    fn new(picture: &Picture<'_>, layout: &Layout) -> Self {
        let counts = picture.counts(picture.jobs());
        let entries = counts.iter().flat_map(|counts| counts.entries());
        let entries = entries
            .zip(&STATE_STYLES)
            .map(|((word, number), state_style)| (word, state_style.mark, number))
            .filter(|&(_, _, number)| number > 0);
        Self {
            entries: entries.collect(),
            undrawn: layout.undrawn,
        }
    }

    fn width(&self) -> i32 {
        let notes = if self.undrawn > 0 { 2 } else { 0 };
        2 * MARGIN + (self.entries.len() as i32 + notes) * LEGEND_ENTRY_WIDTH
    }

    fn height(&self) -> i32 {
        if self.entries.is_empty() && self.undrawn == 0 {
            0
        } else {
            LEGEND_HEIGHT
        }
    }

    fn write(&self, top: i32, out: &mut impl Write) -> fmt::Result {
        let mut x = MARGIN;
        for (word, mark, number) in &self.entries {
            write!(
                out,
                r#"<g class="{word}"><rect x="{x}" y="{top}" width="16" height="16" rx="3"/><text class="mark" x="{}" y="{}" text-anchor="middle">{mark}</text><text class="small" x="{}" y="{}">{word} {number}</text></g>"#,
                x + 8,
                top + 13,
                x + 22,
                top + 12
            )?;
            x += LEGEND_ENTRY_WIDTH;
        }
        if self.undrawn > 0 {
            write!(
                out,
                r#"<text class="small" x="{x}" y="{}">{} more lines are not drawn</text>"#,
                top + 12,
                self.undrawn
            )?;
        }
        Ok(())
    }
}

/// Text that is escaped for XML, between tags and in attributes.
fn xml_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML does not allow these characters. New names contain none; handlers of old stored
            // graphs may.
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            other => escaped.push(other),
        }
    }
    escaped
}
