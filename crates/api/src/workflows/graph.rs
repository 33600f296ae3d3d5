//! Pictures of a workflow. Drawing takes a thread of its own, so that claims and reports do not wait for it.

use axum::http::header;
use axum::response::IntoResponse;
use axum::{Extension, body::Bytes};
use tidegate_workflow::Snapshot;
use tidegate_workflow::picture::{Colour, Glyphs, MAX_PICTURE, Picture, Terminal, TooLarge};
use tokio::task::spawn_blocking;

use super::layout::GraphLayout;
use super::turns::Turns;
use crate::edge::ask::{Answer, Ask};
use crate::edge::json;
use crate::edge::problem::{Code, Problem};
use crate::edge::query::Query;
use crate::edge::room::{self, HasRoom};
use crate::edge::route::Form;

/// Columns of a text that says nothing of its reader.
const WIDTH: usize = 120;
/// One picture is drawn at a time, so that drawing takes no more than one core of the machine. Whoever waits holds nothing but a
/// connection.
static TURNS: Turns = Turns::new("pictures are drawn");

pub(crate) async fn graph(ask: &Ask<'_>, form: Form) -> Answer {
    let id = ask.workflow()?;
    let mut query = Query::new(ask.query)?;
    let terminal = if form == Form::Text {
        Some(terminal(&mut query)?)
    } else {
        None
    };
    query.end()?;
    // A picture of ten thousand jobs takes less than a tenth of a second.
    let turn = TURNS.take(&ask.caller()).await?;
    let snapshot = ask.api.show(id).await?;
    // If the reader goes away, the picture is finished and dropped.
    let drawing = spawn_blocking(move || {
        drawn(&snapshot, form, terminal.as_ref()).map(|picture| (picture, turn))
    });
    let drawn = drawing
        .await
        .map_err(|error| Problem::new(Code::Internal, format!("drawing the graph: {error}")))?;
    let (picture, turn) = drawn.map_err(|error: TooLarge| {
        let help = "graph.txt is short for any graph, and /jobs has all jobs in pages";
        Problem::new(Code::PayloadTooLarge, format!("{error}: {help}"))
    })?;
    // The next one is drawn when this one is on its way.
    let picture: Bytes = room::keep(&ask.api.rooms.answers, &ask.caller(), picture).await?;
    drop(turn);
    Ok((
        Extension(HasRoom),
        [(header::CONTENT_TYPE, media_type(form))],
        picture,
    )
        .into_response())
}

const fn media_type(form: Form) -> &'static str {
    match form {
        Form::Json => "application/json",
        Form::Svg => "image/svg+xml",
        Form::Dot => "text/vnd.graphviz; charset=utf-8",
        Form::Mermaid => "text/vnd.mermaid; charset=utf-8",
        Form::Text => "text/plain; charset=utf-8",
    }
}

fn drawn(
    snapshot: &Snapshot,
    form: Form,
    terminal: Option<&Terminal>,
) -> Result<Vec<u8>, TooLarge> {
    let states = snapshot.states();
    let picture = Picture::new(snapshot.graph(), Some(&states));
    let text = match form {
        Form::Json => {
            return Some(json::text(&GraphLayout::of(snapshot)))
                .filter(|text| text.len() <= MAX_PICTURE)
                .ok_or(TooLarge);
        }
        Form::Svg => picture.svg()?,
        Form::Dot => picture.dot()?,
        Form::Mermaid => picture.mermaid()?,
        Form::Text => picture.text(terminal.expect("it was read for this form")),
    };
    Ok(text.into_bytes())
}

fn terminal(query: &mut Query) -> Result<Terminal, Problem> {
    let width = match query.take("width") {
        Some(text) => text
            .parse()
            .ok()
            .filter(|width| (20..=10_000).contains(width))
            .ok_or_else(|| Problem::field("width", "expected a number from 20 to 10000"))?,
        None => WIDTH,
    };
    let mut flag = |name: &str| match query.take(name).as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::field(name, "expected true or false")),
    };
    let glyphs = if flag("ascii")? {
        Glyphs::Ascii
    } else {
        Glyphs::Unicode
    };
    let colour = if flag("colour")? {
        Colour::Ansi
    } else {
        Colour::None
    };
    Ok(Terminal {
        width,
        glyphs,
        colour,
    })
}
