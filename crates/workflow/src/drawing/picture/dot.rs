//! Graph pictures in the language of Graphviz.

use std::fmt::{self, Write};

use super::subject::Picture;

pub(super) fn write(picture: &Picture<'_>, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "digraph {{")?;
    writeln!(out, "  label=\"{}\";", dot_text(&picture.graph.label.name))?;
    writeln!(out, "  rankdir=LR;")?;
    writeln!(
        out,
        "  node [shape=box, style=\"rounded,filled\", fillcolor=\"#f6f7f9\", color=\"#768195\", fontname=\"sans-serif\"];"
    )?;
    for (index, job) in picture.jobs().zip(picture.graph.jobs.iter()) {
        let name = dot_text(&job.name);
        let handler = dot_text(&job.handler);
        write!(out, "  j{index} [label=\"{name}")?;
        if job.handler != job.name {
            write!(out, "\\n{handler}")?;
        }
        if let Some(style) = picture.style(index) {
            let (fill, rim) = style.light;
            let word = style.word;
            write!(
                out,
                "\", tooltip=\"{word}\", fillcolor=\"{fill}\", color=\"{rim}"
            )?;
        }
        writeln!(out, "\"];")?;
    }
    for (index, job) in picture.jobs().zip(picture.graph.jobs.iter()) {
        for parent in &job.parents {
            writeln!(out, "  j{parent} -> j{index};")?;
        }
    }
    writeln!(out, "}}")
}

/// Text of a label. Graphviz interprets backslashes and HTML entities in labels.
fn dot_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '&' => escaped.push_str("&amp;"),
            other => escaped.push(other),
        }
    }
    escaped
}
