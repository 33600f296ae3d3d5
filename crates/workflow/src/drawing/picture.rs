//! Pictures of a graph: for a page, for other programs, and for a terminal.
//!
//! A picture is a text in one of four languages. With the states of the jobs, colours and marks
//! show the states; marks help readers who cannot distinguish the colours. Text of the graph never
//! becomes syntax of the picture.

mod channel;
mod dot;
mod list;
mod look;
mod mermaid;
mod subject;
mod svg;
mod terminal;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use thiserror::Error;

pub use self::subject::Picture;
pub use self::terminal::{Colour, Glyphs, Terminal};

/// Maximum bytes of a picture. An SVG of 10,000 jobs has 5 MB, Graphviz text of a million
/// dependencies 20 MB.
pub const MAX_PICTURE: usize = 32 << 20;

/// A picture would be larger than [`MAX_PICTURE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the picture has more than {} MiB", MAX_PICTURE >> 20)]
pub struct TooLarge;

impl Picture<'_> {
    /// A page element of its own in SVG 1.1, with a legend. It follows the colour scheme of its
    /// reader, and a screen reader finds the name, handler and state of each job. About 400 bytes
    /// for each job and 100 for each line. Of more than 40,000 lines the rest is counted and not
    /// drawn.
    ///
    /// # Errors
    /// The picture is too large.
    pub fn svg(&self) -> Result<String, TooLarge> {
        Page::of(|out| svg::write(self, out))
    }

    /// The graph in the language of Graphviz. Every dependency is a line of text.
    ///
    /// # Errors
    /// The picture is too large.
    pub fn dot(&self) -> Result<String, TooLarge> {
        Page::of(|out| dot::write(self, out))
    }

    /// The graph as a Mermaid flowchart. Mermaid itself refuses more than 500 dependencies unless
    /// its site allows more.
    ///
    /// # Errors
    /// The picture is too large.
    pub fn mermaid(&self) -> Result<String, TooLarge> {
        Page::of(|out| mermaid::write(self, out))
    }

    /// The graph in characters; each line ends in a line feed. If it does not fit, jobs with the
    /// same parents and children are drawn as one. If that does not fit either, the text is a list
    /// by layers of at most a few hundred lines.
    #[must_use]
    pub fn text(&self, terminal: &Terminal) -> String {
        let mut out = String::new();
        text::write(self, terminal, &mut out).expect("a string takes any text");
        out
    }
}

/// A text of at most [`MAX_PICTURE`] bytes.
struct Page(String);

impl Page {
    fn of(write: impl FnOnce(&mut Self) -> fmt::Result) -> Result<String, TooLarge> {
        let mut page = Self(String::new());
        write(&mut page).map_err(|fmt::Error| TooLarge)?;
        Ok(page.0)
    }
}

impl fmt::Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_PICTURE {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
