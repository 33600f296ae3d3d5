//! Graph pictures as Mermaid flowcharts.

use std::fmt::{self, Write};

use super::state_style::STATE_STYLES;
use super::subject::Picture;

pub(super) fn write(picture: &Picture<'_>, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "flowchart LR")?;
    for (index, job) in picture.jobs().zip(picture.graph.jobs.iter()) {
        write!(out, "  j{index}[\"{}", mermaid_text(&job.name))?;
        if job.handler != job.name {
            write!(out, "<br/>{}", mermaid_text(&job.handler))?;
        }
        writeln!(out, "\"]")?;
    }
    for (index, job) in picture.jobs().zip(picture.graph.jobs.iter()) {
        for parent in &job.parents {
            writeln!(out, "  j{parent} --> j{index}")?;
        }
    }
    write_classes(picture, out)
}

/// Writes the colours of each state, and the jobs in that state.
fn write_classes(picture: &Picture<'_>, out: &mut impl Write) -> fmt::Result {
    for style in &STATE_STYLES {
        let mut jobs = picture.jobs().filter(|&job| {
            picture
                .style(job)
                .is_some_and(|other| other.word == style.word)
        });
        let Some(first) = jobs.next() else { continue };
        let (fill, rim) = style.light;
        writeln!(
            out,
            "  classDef {} fill:{fill},stroke:{rim},color:#1b2330",
            style.word
        )?;
        write!(out, "  class j{first}")?;
        jobs.try_for_each(|job| write!(out, ",j{job}"))?;
        writeln!(out, " {}", style.word)?;
    }
    Ok(())
}

/// Text of a label. Mermaid searches the whole source for directives, comments, styles, Markdown
/// and HTML before it parses quotes, so all but plain characters are written as codes.
fn mermaid_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_alphanumeric() || " -_.,/+=".contains(character) {
            escaped.push(character);
        } else {
            escaped.push_str(&format!("#{};", u32::from(character)));
        }
    }
    escaped
}
