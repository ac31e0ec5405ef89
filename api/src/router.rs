//! The routes, and how a request reaches the service.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::{get, post};
use tokio::sync::Semaphore;

use crate::error::ApiError;
use crate::routes;
use crate::service::Service;

/// Queries that read rows at once. More wait, so that they take neither memory nor disk from the ticks.
const QUERIES: usize = 8;
/// How long a query waits for its turn.
const QUERY_WAIT: Duration = Duration::from_secs(5);

/// What every handler has.
#[derive(Clone)]
pub(crate) struct App {
    service: Arc<dyn Service>,
    queries: Arc<Semaphore>,
}

impl App {
    /// Calls the service on a thread that may block.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Service) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = Arc::clone(&self.service);
        let answer = tokio::task::spawn_blocking(move || call(service.as_ref())).await;
        answer.map_err(|error| ApiError::internal(format!("the request was broken off: {error}")))
    }

    /// The same for calls that read rows, of which only some run at once.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Service) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = tokio::time::timeout(QUERY_WAIT, Arc::clone(&self.queries).acquire_owned());
        let Ok(Ok(permit)) = turn.await else {
            return Err(ApiError::busy());
        };
        // The permit goes with the call: a client that hangs up does not end the reading.
        self.call(move |service| {
            let _permit = permit;
            call(service)
        })
        .await?
    }
}

/// The routes of a node, answered by `service`.
pub fn router(service: Arc<dyn Service>) -> Router {
    let app = App {
        service,
        queries: Arc::new(Semaphore::new(QUERIES)),
    };
    Router::new()
        .route("/v1/pipelines", get(routes::pipelines::list))
        .route("/v1/pipelines/{name}/windows", get(routes::rows::windows))
        .route(
            "/v1/pipelines/{name}/dead-letters",
            get(routes::rows::dead_letters),
        )
        .route("/v1/pipelines/{name}/open", get(routes::rows::open))
        .route("/v1/cluster", get(routes::cluster::show))
        .route("/v1/admin/apply", post(routes::admin::apply))
        .route(
            "/v1/admin/pipelines/{name}/{action}",
            post(routes::admin::pipeline),
        )
        .route(
            "/v1/admin/members/{number}/remove",
            post(routes::admin::remove_member),
        )
        .route("/healthz", get(routes::health::alive))
        .route("/readyz", get(routes::health::ready))
        .route("/metrics", get(routes::health::metrics))
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

async fn unknown_route(uri: Uri) -> ApiError {
    ApiError::unknown_route(uri.path())
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(method.as_str(), uri.path())
}

/// Serves `app` on a bound socket until the process ends.
///
/// # Errors
/// The socket cannot be used any more.
pub async fn serve(listener: tokio::net::TcpListener, app: Router) -> std::io::Result<()> {
    axum::serve(listener, app).await
}
