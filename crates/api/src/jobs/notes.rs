//! Notes of workers about the progress and the log of their jobs. They come with calls that workers
//! make in any case.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_workflow::Note;
#[cfg(test)]
use utoipa::ToSchema;

use super::leases::parse_lease;
use crate::http::body;
use crate::http::problem::{self, Problem};
use crate::http::request_id::RequestId;
use crate::state::app_state::RequestContext;

/// Most notes of one call.
const MAX_NOTES: usize = 1_000;
/// Most bytes of the text of a progress.
const MAX_TEXT_BYTES: usize = 256;
/// Most lines of one note.
const MAX_LINES: usize = 256;
/// Most bytes of all lines of one note.
const MAX_LOG_BYTES: usize = 16 * 1024;

/// Note of a worker about a job that it has: progress, lines for its log, or both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Note))]
pub(crate) struct NoteBody {
    /// The lease that the claim gave.
    lease: String,
    /// How far it is. It takes the place of what was said before.
    #[serde(default, deserialize_with = "body::optional_object")]
    progress: Option<ProgressBody>,
    /// Lines for its log: at most 256, and 16 KiB together.
    #[cfg_attr(test, schema(max_items = 256))]
    log: Option<Vec<String>>,
}

/// How far a job is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = ProgressNote))]
pub(crate) struct ProgressBody {
    #[cfg_attr(test, schema(minimum = 0, maximum = 100))]
    percent: i64,
    /// A word for people: at most 256 bytes.
    text: Option<String>,
}

/// Result of one note.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct NoteItem<'a> {
    /// The status that a single call would have got.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::ProblemBody<'a>>,
}

/// Results of the notes of a call, in the order of the request. `None` if it had no notes.
pub(crate) type NoteResults = Option<Vec<Result<(), Problem>>>;

impl<'a> NoteItem<'a> {
    /// Lists the results of notes for the answer, if the call had notes.
    pub(crate) fn list_from(
        noted: &'a NoteResults,
        request_id: &'a RequestId,
    ) -> Option<Vec<Self>> {
        let item = |noted| Self {
            status: problem::item_status(noted),
            error: problem::item_error(noted, request_id),
        };
        noted.as_ref().map(|noted| noted.iter().map(item).collect())
    }
}

impl NoteBody {
    /// Validates the note. The path of a problem is relative to the note.
    fn resolve(self) -> Result<Note, Problem> {
        let lease = parse_lease(&self.lease, "lease")?;
        if self.progress.is_none() && self.log.is_none() {
            return Err(Problem::field(
                "",
                "the note says nothing: it needs progress, log, or both",
            ));
        }
        let progress = self.progress.map(ProgressBody::resolve).transpose()?;
        let lines = self.log.unwrap_or_default();
        let number = lines.len();
        if number > MAX_LINES {
            let detail =
                format!("{number} lines, more than {MAX_LINES}: send them in several notes");
            return Err(Problem::field("log", detail));
        }
        let bytes: usize = lines.iter().map(String::len).sum();
        if bytes > MAX_LOG_BYTES {
            let detail = format!(
                "the lines have {bytes} bytes, more than {MAX_LOG_BYTES}: shorten them, or send several notes"
            );
            return Err(Problem::field("log", detail));
        }
        Ok(Note {
            lease,
            progress,
            lines,
        })
    }
}

impl ProgressBody {
    fn resolve(self) -> Result<(u8, String), Problem> {
        let wrong = || Problem::field("progress.percent", "expected an integer from 0 to 100");
        let percent = u8::try_from(self.percent).ok();
        let percent = percent
            .filter(|percent| *percent <= 100)
            .ok_or_else(wrong)?;
        let text = self.text.unwrap_or_default();
        if text.len() > MAX_TEXT_BYTES {
            let detail = format!(
                "the text has {} bytes, more than {MAX_TEXT_BYTES}: shorten it",
                text.len()
            );
            return Err(Problem::field("progress.text", detail));
        }
        Ok((percent, text))
    }
}

/// Notes of a call, each valid or not by itself. `None` if it has no notes.
pub(crate) type ParsedNotes = Option<Vec<Result<Note, Problem>>>;

/// Parses the notes of a call.
///
/// # Errors
/// There are too many.
pub(crate) fn parse(raw: Option<Vec<&RawValue>>) -> Result<ParsedNotes, Problem> {
    let Some(raw) = raw else { return Ok(None) };
    body::check_number(raw.len(), MAX_NOTES, "notes")?;
    let parse_note = |(at, raw): (usize, &RawValue)| {
        let note = body::read::<NoteBody>(raw.get().as_bytes()).and_then(NoteBody::resolve);
        note.map_err(|problem| problem.under_prefix(&format!("notes[{at}].")))
    };
    Ok(Some(raw.into_iter().enumerate().map(parse_note).collect()))
}

/// Stores the valid notes. Their results do not affect the rest of the call.
pub(crate) async fn add_notes(request: &RequestContext<'_>, notes: ParsedNotes) -> NoteResults {
    let notes = notes?;
    let (valid, checks) = problem::split_valid(notes);
    let noted = request.engine().add_notes(valid, request.now()).await;
    Some(problem::merge_results(checks, noted))
}

/// The problems of notes that were not stored.
pub(crate) fn problems(noted: &NoteResults) -> impl Iterator<Item = &Problem> {
    problem::problems(noted.iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(note: &str) -> Option<String> {
        let raw: &RawValue = serde_json::from_str(note).unwrap();
        let note = parse(Some(vec![raw])).unwrap().unwrap().remove(0);
        note.err()
            .map(|problem| problem.path().unwrap_or_default().to_owned())
    }

    #[test]
    fn mistakes_of_a_note_are_reported() {
        const LEASE: &str = "01M7Z85C8H08RJZ5Q5JGPKMY04-0-7066ddda7b6a22e8";
        let of = |rest: &str| format!(r#"{{"lease":"{LEASE}"{rest}}}"#);
        let check = |rest: &str, path: &str| {
            assert_eq!(refused(&of(rest)).as_deref(), Some(path), "{rest}")
        };
        let taken = |rest: &str| assert_eq!(refused(&of(rest)), None, "{rest}");
        for percent in ["0", "100"] {
            taken(&format!(r#","progress":{{"percent":{percent}}}"#));
        }
        for percent in ["-1", "101", "256", "1.5", "\"1\"", "null", "1e300"] {
            check(
                &format!(r#","progress":{{"percent":{percent}}}"#),
                "notes[0].progress.percent",
            );
        }
        check(r#","progress":{}"#, "notes[0].progress.percent");
        check(r#","progress":5"#, "notes[0].progress");
        check(
            r#","progress":{"percent":1,"word":"x"}"#,
            "notes[0].progress.word",
        );
        let text = |bytes: usize| {
            format!(
                r#","progress":{{"percent":1,"text":"{}"}}"#,
                "x".repeat(bytes)
            )
        };
        taken(&text(MAX_TEXT_BYTES));
        check(&text(MAX_TEXT_BYTES + 1), "notes[0].progress.text");
        let log = |lines: usize, bytes: usize| {
            format!(
                r#","log":["{}"]"#,
                vec!["x".repeat(bytes); lines].join("\",\"")
            )
        };
        taken(r#","log":[]"#);
        taken(&log(MAX_LINES, MAX_LOG_BYTES / MAX_LINES));
        check(&log(MAX_LINES + 1, 0), "notes[0].log");
        check(&log(1, MAX_LOG_BYTES + 1), "notes[0].log");
        check(r#","log":"line""#, "notes[0].log");
        check(r#","log":["a",5]"#, "notes[0].log[1]");
        check("", "notes[0]");
        assert_eq!(refused(r#"{"log":[]}"#).as_deref(), Some("notes[0].lease"));
        assert_eq!(
            refused(r#"{"lease":"x","log":[]}"#).as_deref(),
            Some("notes[0].lease")
        );
        assert_eq!(refused("5").as_deref(), Some("notes[0]"));
        let raw: &RawValue = serde_json::from_str("5").unwrap();
        assert!(parse(Some(vec![raw; MAX_NOTES + 1])).is_err());
        assert!(parse(None).unwrap().is_none());
    }
}
