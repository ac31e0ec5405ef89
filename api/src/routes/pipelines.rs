//! `/v1/pipelines`.

use axum::Json;
use axum::extract::State;

use crate::dto::Pipelines;
use crate::error::ApiError;
use crate::router::App;

pub(crate) async fn list(State(app): State<App>) -> Result<Json<Pipelines>, ApiError> {
    let pipelines = app.call(|service| service.pipelines()).await?;
    Ok(Json(Pipelines { pipelines }))
}
