//! Why a request failed: a status for programs and a message for people.

use std::any::Any;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use engine::EngineError;
use sql::ErrorCode;

use crate::ClientError;
use crate::metrics::QueryOutcome;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) sentence: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self {
            status,
            sentence: sentence.into(),
        }
    }

    /// The request is invalid.
    pub(crate) fn bad(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }

    /// The requested resource does not exist.
    pub(crate) fn not_found(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, sentence)
    }

    /// The outcome of the request for the metrics.
    pub(crate) fn ending(&self) -> QueryOutcome {
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => QueryOutcome::Stopped,
            status if status.is_server_error() => QueryOutcome::Failed,
            _ => QueryOutcome::Rejected,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        text(self.status, &self.sentence)
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let status = match error.code {
            _ if error.retry_after.is_some() => StatusCode::TOO_MANY_REQUESTS,
            ErrorCode::NO_DATABASE | ErrorCode::NO_TABLE => StatusCode::NOT_FOUND,
            ErrorCode::DATABASE_DENIED | ErrorCode::TABLE_DENIED => StatusCode::FORBIDDEN,
            ErrorCode::LOGIN_DENIED => StatusCode::UNAUTHORIZED,
            ErrorCode::TABLE_EXISTS => StatusCode::CONFLICT,
            ErrorCode::STORAGE | ErrorCode::INTERNAL => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorCode::SERVER_ENDS
            | ErrorCode::INTERRUPTED
            | ErrorCode::OUT_OF_RESOURCES
            | ErrorCode::TEMPORARY_FULL => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::PACKET_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE,
            // All others are mistakes of whoever asks, also those that have no number of their own: what is the server's own failure has
            // a number above.
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.sentence)
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        ClientError::from(error).into()
    }
}

/// A message as a response.
pub(crate) fn text(status: StatusCode, sentence: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{sentence}\n")));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// The response to a request whose handler panicked.
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response<Body> {
    let known = panic.downcast_ref::<&str>().copied();
    let known = known.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(
        panic = known.unwrap_or("unknown"),
        "a request made the server panic"
    );
    text(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the server panicked while it handled this request, which is a bug of the server: its log says more",
    )
}
