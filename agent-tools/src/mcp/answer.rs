//! Answers of a server over HTTP that are no messages of the protocol.

use std::{error::Error, fmt};

use entourage_core::bound;
use rmcp::{
    model::ErrorData,
    service::{ClientInitializeError, ServiceError},
    transport::streamable_http_client::{HttpStatusError, StreamableHttpError},
};

use super::{content, long, unread};

/// An answer that is no message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Status(u16),
    /// Something of this type.
    Kind(String),
}

impl Answer {
    pub(super) fn of_call(error: &ServiceError) -> Option<Self> {
        let ServiceError::TransportSend(error) = error else { return None };
        Self::read(error.error.as_ref())
    }

    pub(super) fn of_handshake(error: &ClientInitializeError) -> Option<Self> {
        match error {
            ClientInitializeError::TransportError { error, .. } => Self::read(error.error.as_ref()),
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => Self::of_handshake(fallback),
            _ => None,
        }
    }

    /// Reads the error of a request to a server at an address. `None` where it did not answer.
    pub(super) fn read(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<HttpStatusError>() {
                return Some(Self::Status(error.status));
            }
            match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
                Some(StreamableHttpError::HttpStatus(error)) => return Some(Self::Status(error.status)),
                Some(StreamableHttpError::Client(error)) if error.status().is_some() => {
                    return error.status().map(|status| Self::Status(status.as_u16()));
                }
                Some(StreamableHttpError::UnexpectedContentType(kind)) => {
                    let kind = kind.as_deref().unwrap_or("no type");
                    return Some(Self::Kind(content::told(kind, bound::WORD)));
                }
                // `HTTP 403 Forbidden: …`, and what stands in the body.
                Some(StreamableHttpError::UnexpectedServerResponse(text)) => {
                    let status = text.strip_prefix("HTTP ")?.get(..3)?.parse().ok()?;
                    return Some(Self::Status(status));
                }
                _ => {}
            }
            cause = error.source();
        }
        None
    }

    /// True if nothing was performed: the request was refused as it is, or not taken on.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(300..=407 | 409..=499 | 503))
    }

    /// True if the request is answered in the same way another time: the server does not know it, or does not let it.
    pub(super) fn is_same_again(&self) -> bool {
        let is_for_now = |status| matches!(status, 408 | 425 | 429);
        matches!(self, Self::Status(status @ 400..=499) if !is_for_now(*status))
    }
}

/// True if the server at an address performed nothing of what was asked, and can be asked on another connection: nobody
/// was there, or it knows the session no more.
pub(super) fn is_for_another(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| match cause.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::SessionExpired) => true,
        Some(StreamableHttpError::Client(error)) => error.is_connect(),
        _ => false,
    })
}

/// The cause of all other causes of an error, which names the network's reason.
pub(super) fn deepest<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

/// The words of a server that refused, in a reason, or those of this side in place of an answer that was not read.
pub(super) fn refusal(error: &ErrorData) -> String {
    if matches!(error.code.0, long::CODE | unread::CODE) {
        return error.message.to_string();
    }
    format!("it refused: {} (code {})", error.message, error.code.0)
}

/// The reason that a request failed, without types of the library.
pub(super) fn reason(error: &ServiceError) -> String {
    if let Some(answer) = Answer::of_call(error) {
        return format!("it answered with {answer}");
    }
    match error {
        ServiceError::McpError(error) => refusal(error),
        ServiceError::TransportSend(error) => format!("no connection: {}", deepest(error.error.as_ref())),
        ServiceError::TransportClosed => "the connection ended".to_owned(),
        ServiceError::UnexpectedResponse => "its answer cannot be read".to_owned(),
        other => other.to_string(),
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "HTTP {status}"),
            Self::Kind(kind) => write!(f, "`{kind}`, which is no answer of an MCP server"),
        }
    }
}
