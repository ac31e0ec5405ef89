//! `/v1/admin/...`: what operators want. Each answers when it is committed and applied.
//!
//! All take JSON and nothing else, so that no page in a browser can give a command to a node that it happens to reach.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use serde::Deserialize;

use crate::dto::{Apply, Done, Drain, EndTicks, Transfer};
use crate::error::ApiError;
use crate::router::App;
use crate::service::Order;

/// The body of commands that say all in their path: `{}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

type Answer = Result<Json<Done>, ApiError>;
type Body<T> = Result<Json<T>, JsonRejection>;

pub(crate) async fn apply(State(app): State<App>, body: Body<Apply>) -> Answer {
    let Json(apply) = body.map_err(|error| unusable(&error))?;
    carry_out(&app, Order::Apply(apply)).await
}

pub(crate) async fn pipeline(
    State(app): State<App>,
    Path((name, action)): Path<(String, String)>,
    body: Body<Nothing>,
) -> Answer {
    let Json(Nothing {}) = body.map_err(|error| unusable(&error))?;
    let order = match action.as_str() {
        "remove" => Order::RemovePipeline(name),
        "pause" => Order::PausePipeline(name),
        "resume" => Order::ResumePipeline(name),
        _ => {
            let path = format!("/v1/admin/pipelines/{name}/{action}");
            return Err(ApiError::unknown_route(&path));
        }
    };
    carry_out(&app, order).await
}

pub(crate) async fn hold_feed(
    State(app): State<App>,
    Path(name): Path<String>,
    body: Body<Nothing>,
) -> Answer {
    let Json(Nothing {}) = body.map_err(|error| unusable(&error))?;
    carry_out(&app, Order::HoldFeed(name)).await
}

pub(crate) async fn accept_ticks(
    State(app): State<App>,
    Path(name): Path<String>,
    body: Body<Nothing>,
) -> Answer {
    let Json(Nothing {}) = body.map_err(|error| unusable(&error))?;
    carry_out(&app, Order::AcceptTicks(name)).await
}

pub(crate) async fn end_ticks(
    State(app): State<App>,
    Path(name): Path<String>,
    body: Body<EndTicks>,
) -> Answer {
    let Json(end) = body.map_err(|error| unusable(&error))?;
    carry_out(&app, Order::EndTicks(name, end)).await
}

pub(crate) async fn remove_member(
    State(app): State<App>,
    Path(number): Path<String>,
    body: Body<Nothing>,
) -> Answer {
    let Json(Nothing {}) = body.map_err(|error| unusable(&error))?;
    let number = number.parse().map_err(|_| {
        ApiError::bad_query(
            format!("{number:?} is no number of a node"),
            "give the node's id, 1 to 65535",
        )
    })?;
    carry_out(&app, Order::RemoveMember(number)).await
}

pub(crate) async fn transfer(State(app): State<App>, body: Body<Transfer>) -> Answer {
    let Json(transfer) = body.map_err(|error| unusable(&error))?;
    carry_out(&app, Order::Transfer(transfer.to)).await
}

/// Of this node alone: it is not passed on.
pub(crate) async fn drain(State(app): State<App>, body: Body<Drain>) -> Answer {
    let Json(drain) = body.map_err(|error| unusable(&error))?;
    let done = app
        .call(move |service| service.drain(drain.drained))
        .await?;
    Ok(done.map(Json)?)
}

async fn carry_out(app: &App, order: Order) -> Answer {
    let done = app.call(move |service| service.order(&order)).await?;
    Ok(done.map(Json)?)
}

fn unusable(error: &JsonRejection) -> ApiError {
    ApiError::bad_query(
        error.body_text(),
        "send JSON with content-type: application/json; {} where the path says all",
    )
}
