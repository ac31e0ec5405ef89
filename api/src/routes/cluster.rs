//! `/v1/cluster`.

use axum::Json;
use axum::extract::State;

use crate::dto::ClusterInfo;
use crate::error::ApiError;
use crate::router::App;

pub(crate) async fn show(State(app): State<App>) -> Result<Json<ClusterInfo>, ApiError> {
    app.call(|service| service.cluster()).await.map(Json)
}
