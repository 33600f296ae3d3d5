//! Graph pictures as Mermaid flowcharts.

use std::fmt::{self, Write};

use super::look::LOOKS;
use super::subject::Picture;

pub(super) fn write(picture: &Picture<'_>, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "flowchart LR")?;
    for (index, job) in picture.jobs().zip(picture.graph.jobs.iter()) {
        write!(out, "  j{index}[\"{}", Escaped(&job.name))?;
        if job.handler != job.name {
            write!(out, "<br/>{}", Escaped(&job.handler))?;
        }
        writeln!(out, "\"]")?;
    }
    for (index, job) in picture.jobs().zip(picture.graph.jobs.iter()) {
        for parent in &job.parents {
            writeln!(out, "  j{parent} --> j{index}")?;
        }
    }
    for look in &LOOKS {
        let mut jobs = picture.jobs().filter(|&job| {
            picture
                .look(job)
                .is_some_and(|other| other.word == look.word)
        });
        let Some(first) = jobs.next() else { continue };
        let (fill, rim) = look.light;
        writeln!(
            out,
            "  classDef {} fill:{fill},stroke:{rim},color:#1b2330",
            look.word
        )?;
        write!(out, "  class j{first}")?;
        jobs.try_for_each(|job| write!(out, ",j{job}"))?;
        writeln!(out, " {}", look.word)?;
    }
    Ok(())
}

/// Text of a label. Mermaid searches the whole source for directives, comments, styles, Markdown
/// and HTML before it parses quotes, so all but plain characters are written as codes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if character.is_alphanumeric() || " -_.,/+=".contains(character) {
                formatter.write_char(character)?;
            } else {
                write!(formatter, "#{};", u32::from(character))?;
            }
        }
        Ok(())
    }
}
