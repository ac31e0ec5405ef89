//! The routes, and how a request reaches the service.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::routes;
use crate::service::Service;

/// Queries that read rows at once. More wait, so that they take neither memory nor disk from the ticks.
const QUERIES: usize = 8;
/// How long a query waits for its turn.
const QUERY_WAIT: Duration = Duration::from_secs(5);

/// What answers may hold together until they are sent.
const ANSWERS_KIB: u32 = 64 << 10;

/// An answer with rows.
pub(crate) type Rows = axum::http::Response<Vec<u8>>;

/// What every handler has.
#[derive(Clone)]
pub(crate) struct App {
    service: Arc<dyn Service>,
    queries: Arc<Semaphore>,
    /// Room for answers that are not sent yet, in KiB.
    answers: Arc<Semaphore>,
}

/// Bytes of an answer that take room until they are sent, or given up.
struct Held {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
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

    /// The same for calls that read rows, of which only some run at once, and whose answers all together are bounded until
    /// they are sent.
    pub(crate) async fn query(
        &self,
        call: impl FnOnce(&dyn Service) -> Result<Rows, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let turn = tokio::time::timeout(QUERY_WAIT, Arc::clone(&self.queries).acquire_owned());
        let Ok(Ok(permit)) = turn.await else {
            return Err(ApiError::busy());
        };
        // The permit goes with the call: a client that hangs up does not end the reading.
        let called = self.call(move |service| (call(service), permit)).await?;
        // The turn lasts until there is room: else any number of answers would wait for it.
        let (answer, _turn) = called;
        let (head, bytes) = answer?.into_parts();
        let size = u32::try_from(bytes.len() / 1024 + 1).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.answers).acquire_many_owned(size.min(ANSWERS_KIB));
        let Ok(Ok(room)) = tokio::time::timeout(QUERY_WAIT, room).await else {
            return Err(ApiError::busy());
        };
        let held = Bytes::from_owner(Held { bytes, _room: room });
        Ok(Response::from_parts(head, Body::from(held)))
    }
}

/// The routes of a node, answered by `service`.
pub fn router(service: Arc<dyn Service>) -> Router {
    let app = App {
        service,
        queries: Arc::new(Semaphore::new(QUERIES)),
        answers: Arc::new(Semaphore::new(ANSWERS_KIB as usize)),
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
        .route("/v1/admin/transfer", post(routes::admin::transfer))
        .route("/v1/admin/drain", post(routes::admin::drain))
        .route(
            "/v1/admin/feeds/{name}/hold",
            post(routes::admin::hold_feed),
        )
        .route(
            "/v1/admin/feeds/{name}/accept",
            post(routes::admin::accept_ticks),
        )
        .route("/v1/admin/feeds/{name}/end", post(routes::admin::end_ticks))
        .route("/healthz", get(routes::health::alive))
        .route("/readyz", get(routes::health::ready))
        .route("/metrics", get(routes::health::metrics))
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(axum::middleware::from_fn(refuse_bad_escapes))
        .with_state(app)
}

/// What is not escaped as it must be would be taken for something else.
async fn refuse_bad_escapes(request: Request, next: Next) -> Response {
    let uri = request.uri();
    match [uri.path(), uri.query().unwrap_or_default()].map(is_escaped) {
        [true, true] => next.run(request).await,
        _ => {
            let message = "the address has a % that no two hexadecimal digits follow, or bytes that are not UTF-8";
            ApiError::bad_query(message, "escape it as UTF-8: % itself is %25").into_response()
        }
    }
}

fn is_escaped(text: &str) -> bool {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        plain.push(match byte {
            b'%' => match (digit(bytes.next()), digit(bytes.next())) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or_default(),
                _ => return false,
            },
            byte => byte,
        });
    }
    std::str::from_utf8(&plain).is_ok()
}

async fn unknown_route(uri: Uri) -> ApiError {
    ApiError::unknown_route(uri.path())
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(method.as_str(), uri.path())
}
