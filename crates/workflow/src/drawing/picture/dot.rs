//! Graph pictures in the language of Graphviz.

use std::fmt::{self, Write};

use super::subject::Picture;

pub(super) fn write(picture: &Picture<'_>, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "digraph {{")?;
    writeln!(out, "  label=\"{}\";", DotText(&picture.graph.label.name))?;
    writeln!(out, "  rankdir=LR;")?;
    writeln!(
        out,
        "  node [shape=box, style=\"rounded,filled\", fillcolor=\"#f6f7f9\", color=\"#768195\", fontname=\"sans-serif\"];"
    )?;
    for (index, job) in picture.jobs().zip(picture.graph.jobs.iter()) {
        let name = DotText(&job.name);
        let handler = DotText(&job.handler);
        write!(out, "  j{index} [label=\"{name}")?;
        if job.handler != job.name {
            write!(out, "\\n{handler}")?;
        }
        match picture.style(index) {
            None => writeln!(out, "\"];")?,
            Some(style) => {
                let (fill, rim) = style.light;
                writeln!(
                    out,
                    "\", tooltip=\"{}\", fillcolor=\"{fill}\", color=\"{rim}\"];",
                    style.word
                )?;
            }
        }
    }
    for (index, job) in picture.jobs().zip(picture.graph.jobs.iter()) {
        for parent in &job.parents {
            writeln!(out, "  j{parent} -> j{index};")?;
        }
    }
    writeln!(out, "}}")
}

/// Text of a label. Graphviz interprets backslashes and HTML entities in labels.
struct DotText<'a>(&'a str);

impl fmt::Display for DotText<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '"' => formatter.write_str("\\\"")?,
                '\\' => formatter.write_str("\\\\")?,
                '&' => formatter.write_str("&amp;")?,
                other => formatter.write_char(other)?,
            }
        }
        Ok(())
    }
}
