//! Every failed request has the same JSON shape, also those that the router itself refuses.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::dto::{ErrorBody, ErrorDetail};
use crate::service::ServiceError;

/// A failed request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    code: &'static str,
    message: String,
    hint: String,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: String, hint: String) -> Self {
        Self {
            status,
            code,
            message,
            hint,
        }
    }

    /// 400: a parameter that cannot be used.
    pub(crate) fn bad_query(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "bad_query",
            message.into(),
            hint.into(),
        )
    }

    /// 400: a parameter that this route does not have.
    pub(crate) fn unknown_parameter(message: String, hint: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unknown_parameter", message, hint)
    }

    /// 404: no such pipeline.
    pub(crate) fn unknown_pipeline(name: &str, known: &[String]) -> Self {
        let hint = match known {
            [] => "this cluster has no pipelines yet".to_owned(),
            known => format!("the pipelines are: {}", known.join(", ")),
        };
        let message = format!("there is no pipeline {name:?}");
        Self::new(StatusCode::NOT_FOUND, "unknown_pipeline", message, hint)
    }

    /// 404: no such route.
    pub(crate) fn unknown_route(path: &str) -> Self {
        let hint = "the routes are /v1/pipelines, /v1/pipelines/{name}/windows, \
                    /v1/pipelines/{name}/open, /v1/pipelines/{name}/dead-letters, /v1/cluster, \
                    /healthz, /readyz and /metrics; /v1/admin/... for commands";
        let message = format!("there is nothing at {path}");
        Self::new(
            StatusCode::NOT_FOUND,
            "unknown_route",
            message,
            hint.to_owned(),
        )
    }

    /// 405: all routes are read with GET, but for commands.
    pub(crate) fn method_not_allowed(method: &str, path: &str) -> Self {
        let message = format!("{path} does not take {method}");
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let hint = match path.starts_with("/v1/admin/") {
            true => "use POST",
            false => "use GET",
        };
        Self::new(status, "method_not_allowed", message, hint.to_owned())
    }

    /// 503: more queries at once than the node takes.
    pub(crate) fn busy() -> Self {
        let message = "too many queries are running".to_owned();
        let hint = "ask again in a moment, or ask another node".to_owned();
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message, hint)
    }

    /// 500: the service's call ended in a panic; the log has it.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let hint = "the node's log tells more; ask another node".to_owned();
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            message.into(),
            hint,
        )
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        let message = error.to_string();
        match error {
            ServiceError::UnknownPipeline(_) => {
                let hint = "ask /v1/pipelines for their names".to_owned();
                Self::new(StatusCode::NOT_FOUND, "unknown_pipeline", message, hint)
            }
            ServiceError::Gone { .. } => {
                let hint = "ask without the cursor, or ask another node".to_owned();
                Self::new(StatusCode::GONE, "gone", message, hint)
            }
            ServiceError::Unavailable(_) => {
                let hint = "ask another node, or ask again in a moment".to_owned();
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    message,
                    hint,
                )
            }
            ServiceError::Conflict(_) => {
                let hint = "look at unisono status, correct the command, and try again".to_owned();
                Self::new(StatusCode::CONFLICT, "conflict", message, hint)
            }
            ServiceError::Internal(_) => Self::internal(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self {
            status,
            code,
            message,
            hint,
        } = self;
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(code, message, "a request failed");
        }
        let error = ErrorDetail {
            code: code.to_owned(),
            message,
            hint,
        };
        (status, Json(ErrorBody { error })).into_response()
    }
}
