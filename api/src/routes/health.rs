//! `/healthz`, `/readyz`, `/metrics`: for those who watch the node.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::error::ApiError;
use crate::prometheus;
use crate::query;
use crate::router::App;
use crate::routes::rows::{Pairs, pairs_of};

/// The process answers. It asks the node nothing: a supervisor must not kill a node that is only waiting for a leader.
pub(crate) async fn alive() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// 200 when the node serves, or the pipeline that is asked for does here; else 503 with the reasons.
pub(crate) async fn ready(State(app): State<App>, pairs: Pairs) -> Result<Response, ApiError> {
    let pipeline = query::parse_ready(&pairs_of(pairs)?)?;
    let readiness = app
        .call(move |service| service.readiness(pipeline.as_deref()))
        .await??;
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Ok((status, Json(readiness)).into_response())
}

pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, ApiError> {
    let text = app
        .call(|service| prometheus::render(&service.metrics()))
        .await?;
    Ok(([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response())
}
