//! Capabilities of a terminal, and the width of text in it.

use super::subject::Picture;
use crate::drawing::layout::label::elide;
use crate::model::JobIndex;

/// The terminal that a picture is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Number of columns.
    pub width: usize,
    /// The characters that it can show.
    pub glyphs: Glyphs,
    /// Whether it shows colours.
    pub colour: Colour,
}

/// The characters of a picture. Names keep their own characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glyphs {
    /// Box drawing characters and marks.
    Unicode,
    /// ASCII characters only.
    Ascii,
}

/// Whether colours distinguish states, in addition to their marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// No colours.
    None,
    /// Colours by ANSI sequences.
    Ansi,
}

/// The name of a job, after the mark of its state if there are states.
pub(super) fn label(picture: &Picture<'_>, terminal: &Terminal, job: JobIndex) -> String {
    let gap = if terminal.glyphs == Glyphs::Ascii {
        '~'
    } else {
        '…'
    };
    with_mark(
        picture,
        terminal,
        job,
        &elide(&picture.graph.jobs[job.index()].name, gap),
    )
}

pub(super) fn with_mark(
    picture: &Picture<'_>,
    terminal: &Terminal,
    job: JobIndex,
    text: &str,
) -> String {
    match picture.style(job) {
        Some(style) if terminal.glyphs == Glyphs::Ascii => format!("{} {text}", style.ascii),
        Some(style) => format!("{} {text}", style.mark),
        None => text.to_owned(),
    }
}

/// Columns of a character in most terminals, by Unicode blocks: this is right for all but rare
/// characters.
pub(super) fn char_width(character: char) -> usize {
    match u32::from(character) {
        0x0300..=0x036f
        | 0x200b..=0x200f
        | 0x2028..=0x202e
        | 0x2060..=0x206f
        | 0xfe00..=0xfe0f
        | 0xfeff => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f => {
            2
        }
        0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}
