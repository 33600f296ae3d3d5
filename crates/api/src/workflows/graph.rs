//! Pictures of a workflow. They are drawn on a blocking thread, so that claims and reports do not
//! wait.

use tidegate_workflow::Snapshot;
use tidegate_workflow::picture::{Colour, Glyphs, MAX_PICTURE, Picture, Terminal, TooLarge};
use tokio::task::spawn_blocking;

use super::layout::GraphLayout;
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;

use crate::state::app_state::{HandlerResult, RequestContext};
use crate::views::fair_lock::FairLock;

/// Format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GraphFormat {
    Json,
    Svg,
    Dot,
    Mermaid,
    Text,
}

/// Columns of a text if the request names no width.
const DEFAULT_WIDTH: usize = 120;
/// Lock for drawing: one picture at a time takes no more than one core. A waiting request holds
/// nothing but its connection.
static DRAWING_LOCK: FairLock = FairLock::new("pictures are drawn");

pub(crate) async fn graph(request: &RequestContext<'_>, format: GraphFormat) -> HandlerResult {
    let id = request.workflow()?;
    let mut query = Query::new(request.query)?;
    let terminal = if format == GraphFormat::Text {
        Some(terminal(&mut query)?)
    } else {
        None
    };
    query.finish()?;
    // A picture of ten thousand jobs takes less than a tenth of a second.
    let lock = DRAWING_LOCK.acquire(&request.caller()).await?;
    let snapshot = request.api.show(id).await?;
    // If the reader goes away, the picture is still drawn, and then dropped.
    let drawing = spawn_blocking(move || {
        draw(&snapshot, format, terminal.as_ref()).map(|picture| (picture, lock))
    });
    let drawn = drawing
        .await
        .map_err(|error| Problem::new(Code::Internal, format!("drawing the graph: {error}")))?;
    let (picture, lock) = drawn.map_err(too_large)?;
    // The lock is held until the quota is reserved, so that few pictures are in memory.
    let answer = request.answer_reserved(media_type(format), picture).await;
    drop(lock);
    answer
}

fn too_large(error: TooLarge) -> Problem {
    let help = "graph.txt is short for any graph, and /jobs has all jobs in pages";
    Problem::new(Code::PayloadTooLarge, format!("{error}: {help}"))
}

const fn media_type(format: GraphFormat) -> &'static str {
    match format {
        GraphFormat::Json => "application/json",
        GraphFormat::Svg => "image/svg+xml",
        GraphFormat::Dot => "text/vnd.graphviz; charset=utf-8",
        GraphFormat::Mermaid => "text/vnd.mermaid; charset=utf-8",
        GraphFormat::Text => "text/plain; charset=utf-8",
    }
}

fn draw(
    snapshot: &Snapshot,
    format: GraphFormat,
    terminal: Option<&Terminal>,
) -> Result<Vec<u8>, TooLarge> {
    let states = snapshot.states();
    let picture = Picture::new(snapshot.graph(), Some(&states));
    let text = match format {
        GraphFormat::Json => {
            return Some(json::text(&GraphLayout::new(snapshot)))
                .filter(|text| text.len() <= MAX_PICTURE)
                .ok_or(TooLarge);
        }
        GraphFormat::Svg => picture.svg()?,
        GraphFormat::Dot => picture.dot()?,
        GraphFormat::Mermaid => picture.mermaid()?,
        GraphFormat::Text => picture.text(terminal.expect("it was read for this format")),
    };
    Ok(text.into_bytes())
}

fn terminal(query: &mut Query) -> Result<Terminal, Problem> {
    let width = match query.remove("width") {
        Some(text) => text
            .parse()
            .ok()
            .filter(|width| (20..=10_000).contains(width))
            .ok_or_else(|| Problem::field("width", "expected a number from 20 to 10000"))?,
        None => DEFAULT_WIDTH,
    };
    let mut flag = |name: &str| match query.remove(name).as_deref() {
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
