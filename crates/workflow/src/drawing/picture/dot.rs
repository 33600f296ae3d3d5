//! Graph pictures in the language of Graphviz.

use std::fmt::{self, Write};

use super::subject::Picture;

pub(super) fn write(picture: &Picture<'_>, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "digraph {{")?;
    writeln!(out, "  label=\"{}\";", Escaped(&picture.graph.label.name))?;
    writeln!(out, "  rankdir=LR;")?;
    writeln!(
        out,
        "  node [shape=box, style=\"rounded,filled\", fillcolor=\"#f6f7f9\", color=\"#768195\", fontname=\"sans-serif\"];"
    )?;
    for (index, job) in picture.jobs().zip(picture.graph.jobs.iter()) {
        let name = Escaped(&job.name);
        let handler = Escaped(&job.handler);
        write!(out, "  j{index} [label=\"{name}")?;
        if job.handler != job.name {
            write!(out, "\\n{handler}")?;
        }
        match picture.look(index) {
            None => writeln!(out, "\"];")?,
            Some(look) => {
                let (fill, rim) = look.light;
                writeln!(
                    out,
                    "\", tooltip=\"{}\", fillcolor=\"{fill}\", color=\"{rim}\"];",
                    look.word
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
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
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
