//! The colours and marks of job states in all pictures.

use crate::model::JobState;

/// The style of a state.
#[derive(Debug)]
pub(super) struct StateStyle {
    pub(super) word: &'static str,
    /// A character that most fonts contain.
    pub(super) mark: char,
    pub(super) ascii: char,
    /// The ANSI code of a terminal colour.
    pub(super) ansi: &'static str,
    /// Fill and border colours of a box on a light page.
    pub(super) light: (&'static str, &'static str),
    /// Fill and border colours of a box on a dark page.
    pub(super) dark: (&'static str, &'static str),
}

const fn style(
    state: usize,
    (mark, ascii): (char, char),
    ansi: &'static str,
    light: (&'static str, &'static str),
    dark: (&'static str, &'static str),
) -> StateStyle {
    StateStyle {
        word: JobState::WORDS[state],
        mark,
        ascii,
        ansi,
        light,
        dark,
    }
}

/// Styles in the order of [`JobState::WORDS`].
pub(super) const STATE_STYLES: [StateStyle; 8] = [
    style(
        0,
        ('…', '.'),
        "90",
        ("#f6f7f9", "#768195"),
        ("#20242c", "#7d889b"),
    ),
    style(
        1,
        ('◷', '~'),
        "35",
        ("#f3eefc", "#7e57c2"),
        ("#2a2338", "#a583e0"),
    ),
    style(
        2,
        ('•', 'o'),
        "36",
        ("#e6f1fd", "#1f78d1"),
        ("#172a40", "#58a6f5"),
    ),
    style(
        3,
        ('▶', '>'),
        "33",
        ("#fff4d9", "#b97a00"),
        ("#3a2e0f", "#f0b429"),
    ),
    style(
        4,
        ('✓', '+'),
        "32",
        ("#e5f6ea", "#23913f"),
        ("#14301c", "#4cc46a"),
    ),
    style(
        5,
        ('✗', 'X'),
        "31",
        ("#fde8e8", "#d1242f"),
        ("#3d1619", "#ff6b6b"),
    ),
    style(
        6,
        ('⊘', '-'),
        "90",
        ("#ececec", "#5f6670"),
        ("#2b2d31", "#9aa0aa"),
    ),
    style(
        7,
        ('»', '/'),
        "90",
        ("#fbfbfc", "#8b93a1"),
        ("#1b1e24", "#778191"),
    ),
];

impl StateStyle {
    pub(super) const fn for_state(state: JobState) -> &'static Self {
        &STATE_STYLES[state.index()]
    }
}

/// The rank of a state in lists: states that readers search for are first.
pub(super) fn display_rank(state: JobState) -> u8 {
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
