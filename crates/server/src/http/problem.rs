//! Why a request is not answered: a status for programs and a sentence for people.

use std::any::Any;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use engine::EngineError;
use sql::ErrorCode;

use crate::Refusal;
use crate::metrics::Ending;

/// A request that is not answered.
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

    /// The request is wrong.
    pub(crate) fn bad(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }

    /// What is asked of does not exist.
    pub(crate) fn not_found(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, sentence)
    }

    /// What the request comes to.
    pub(crate) fn ending(&self) -> Ending {
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => Ending::Stopped,
            status if status.is_server_error() => Ending::Failed,
            _ => Ending::Refused,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        text(self.status, &self.sentence)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.code {
            ErrorCode::NO_DATABASE | ErrorCode::NO_TABLE => StatusCode::NOT_FOUND,
            ErrorCode::STORAGE | ErrorCode::INTERNAL | ErrorCode::OTHER => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            ErrorCode::SERVER_ENDS | ErrorCode::INTERRUPTED | ErrorCode::OUT_OF_RESOURCES => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ErrorCode::PACKET_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, refusal.sentence)
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        Refusal::from(error).into()
    }
}

/// A sentence as a response.
pub(crate) fn text(status: StatusCode, sentence: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{sentence}\n")));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// What a client is told of a mistake of the server's.
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response<Body> {
    let known = panic.downcast_ref::<&str>().copied();
    let known = known.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(
        panic = known.unwrap_or("unknown"),
        "a request made the server stumble"
    );
    text(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the server stumbled over this request, which is a mistake of the server's: its log says more",
    )
}
