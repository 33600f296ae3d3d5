//! One thing done to many workflows.

use serde::Deserialize;
use tidegate_workflow::{Action, EngineError, Filter, Order, Query as ListQuery, WorkflowId};
use tokio::task::JoinSet;

use crate::edge::ask::{Answer, Ask};
use crate::edge::json::Json;
use crate::edge::problem::{Code, Problem};
use crate::edge::query::status;
use crate::edge::route::WorkflowAction;
use crate::edge::{body, time};
use crate::workflows;

/// Actions at a time: enough to share writes, few enough to leave room for workers.
const AT_A_TIME: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkBody {
    action: Word,
    filter: FilterBody,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Cancel,
    Retry,
    Pause,
    Resume,
    Delete,
    Start,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterBody {
    status: Option<body::Names>,
    name: Option<String>,
    tag: Option<String>,
    created_after: Option<String>,
    created_before: Option<String>,
}

impl FilterBody {
    fn resolve(self) -> Result<Filter, Problem> {
        let words = self.status.unwrap_or_default().0;
        let statuses = words.iter().enumerate().map(|(at, word)| status(word, &format!("filter.status[{at}]")));
        let moment = |text: Option<String>, path: &str| {
            let wrong = || Problem::field(path, "expected a time such as 2026-11-21T12:00:00Z");
            text.map(|text| time::read(&text).ok_or_else(wrong)).transpose()
        };
        Ok(Filter {
            statuses: statuses.collect::<Result<_, _>>()?,
            name: self.name,
            tag: self.tag,
            created_from: moment(self.created_after, "filter.created_after")?,
            created_to: moment(self.created_before, "filter.created_before")?,
            id_prefix: None,
        })
    }
}

const fn action(word: Word) -> Result<WorkflowAction, Action> {
    match word {
        Word::Cancel => Ok(WorkflowAction::Cancel),
        Word::Retry => Ok(WorkflowAction::Retry),
        Word::Pause => Ok(WorkflowAction::Pause),
        Word::Resume => Ok(WorkflowAction::Resume),
        Word::Start => Ok(WorkflowAction::Start),
        Word::Delete => Err(Action::Delete),
    }
}

pub(crate) async fn bulk(ask: &Ask<'_>) -> Answer {
    let BulkBody { action: word, filter, limit, cursor } = body::read(ask.body)?;
    let filter = filter.resolve()?;
    let limit = limit.unwrap_or(workflows::MOST_ITEMS);
    if !(1..=workflows::MOST_ITEMS).contains(&limit) {
        return Err(Problem::field("limit", format!("expected a number from 1 to {}", workflows::MOST_ITEMS)));
    }
    let after = cursor.map(|cursor| cursor.parse()).transpose();
    let after = after.map_err(|_| Problem::new(Code::InvalidCursor, "it is not one of next_cursor").at("cursor"))?;
    let query = ListQuery { filter, order: Order::OldestFirst, limit, after };
    let page = ask.api.engine.list(&query).await?;
    let action = action(word).map_or_else(|action| action, workflows::action);
    let matched = page.items.len();
    let mut failed: Vec<(WorkflowId, EngineError)> = Vec::new();
    let mut acting = JoinSet::new();
    for item in page.items {
        if acting.len() >= AT_A_TIME {
            failed.extend(acting.join_next().await.into_iter().flatten().flatten());
        }
        let (engine, action, now) = (ask.api.engine.clone(), action.clone(), ask.api.now());
        let act = async move {
            let refused = engine.act(item.workflow, action, now).await.err();
            refused.map(|error| (item.workflow, error))
        };
        acting.spawn(act);
    }
    while let Some(acted) = acting.join_next().await {
        failed.extend(acted.ok().flatten());
    }
    failed.sort_by_key(|(id, _)| *id);
    let json = Json::of(|json| {
        json.key("matched").number(matched as u64);
        json.key("done").number((matched - failed.len()) as u64);
        json.key("failed").array(failed, |json, (id, error)| {
            let problem = Problem::from(error);
            json.object(|json| {
                json.key("id").plain(id);
                json.key("status").number(problem.status().as_u16());
                problem.write(json.key("error"), None);
            });
        });
        json.key("more").boolean(page.next.is_some());
        json.key("next_cursor").maybe(page.next, Json::plain);
    });
    Ok(json.ok())
}
