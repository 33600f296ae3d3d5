//! Pictures of a workflow.

use axum::http::header;
use axum::response::IntoResponse;
use tidegate_workflow::layout::{End, Layout, Point};
use tidegate_workflow::picture::{Colour, Glyphs, Picture, Terminal};
use tidegate_workflow::{JobIndex, Snapshot};

use super::json::Json;
use super::problem::Problem;
use super::query::Query;
use super::route::Form;
use super::{Answer, Ask};

/// Columns of a text that says nothing of its reader.
const WIDTH: usize = 120;

pub(super) async fn graph(ask: &Ask<'_>, form: Form) -> Answer {
    let id = ask.workflow()?;
    let mut query = Query::new(ask.query)?;
    let terminal = if form == Form::Text { Some(terminal(&mut query)?) } else { None };
    query.end()?;
    let snapshot = ask.api.engine.show(id).await?;
    let states = snapshot.states();
    let picture = Picture::new(snapshot.graph(), Some(&states));
    let (kind, text) = match (form, terminal) {
        (Form::Json, _) => return Ok(layout(&snapshot).ok()),
        (Form::Svg, _) => ("image/svg+xml", picture.svg()),
        (Form::Dot, _) => ("text/vnd.graphviz; charset=utf-8", picture.dot()),
        (Form::Mermaid, _) => ("text/vnd.mermaid; charset=utf-8", picture.mermaid()),
        (Form::Text, terminal) => {
            let terminal = terminal.expect("it was read for this form");
            ("text/plain; charset=utf-8", picture.text(&terminal))
        }
    };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
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
    let glyphs = if flag("ascii")? { Glyphs::Ascii } else { Glyphs::Unicode };
    let colour = if flag("colour")? { Colour::Ansi } else { Colour::None };
    Ok(Terminal { width, glyphs, colour })
}

/// Where everything is drawn, for a page that draws it itself.
fn layout(snapshot: &Snapshot) -> Json {
    let graph = snapshot.graph();
    let layout = Layout::of(graph);
    let number = |json: &mut Json, name: &str, number: i32| json.key(name).number(number.max(0) as u64);
    let point = |json: &mut Json, point: &Point| {
        json.array([point.x, point.y], |json, number| json.number(number.max(0) as u64));
    };
    let end = |json: &mut Json, end: End| {
        json.object(|json| match end {
            End::Job(job) => json.key("job").number(job.0),
            End::Junction(place) => json.key("junction").number(place as u64),
        });
    };
    Json::of(|json| {
        json.key("id").plain(snapshot.id());
        json.key("status").plain(snapshot.meta().status.word());
        number(json, "width", layout.width);
        number(json, "height", layout.height);
        json.key("nodes").array(layout.nodes.iter().enumerate(), |json, (at, node)| {
            let (about, job) = (&graph.jobs[at], &snapshot.jobs()[at]);
            json.object(|json| {
                json.key("index").number(at as u64);
                json.key("name").string(&about.name);
                json.key("handler").string(&about.handler);
                json.key("state").plain(job.state.word());
                json.key("blocked").boolean(snapshot.is_blocked(JobIndex(at as u16)));
                for (name, value) in [("x", node.x), ("y", node.y), ("width", node.width), ("height", node.height)] {
                    number(json, name, value);
                }
                json.key("layer").number(node.layer);
            });
        });
        json.key("junctions").array(&layout.junctions, point);
        json.key("edges").array(&layout.edges, |json, edge| {
            json.object(|json| {
                end(json.key("from"), edge.from);
                end(json.key("to"), edge.to);
                json.key("points").array(&edge.points, point);
            });
        });
    })
}
