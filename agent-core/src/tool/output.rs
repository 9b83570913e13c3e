//! What a tool answers, and how it fails.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::{
    Error, ErrorKind,
    message::{Content, Media, MediaSource},
};

/// The answer of a tool.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ToolOutput {
    /// What the model is shown.
    pub content: Vec<Content>,
    /// Whether the model should take it as a failure.
    pub is_error: bool,
    /// Ends the turn: the result is stored and shown, and no further model call is made (CM07).
    pub stop_turn: bool,
    /// For programs and user interfaces; stored, never shown to the model.
    pub metadata: Option<Value>,
}

impl ToolOutput {
    /// A text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text(text.into())], ..Self::default() }
    }

    /// A failure that the model is told about.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// Adds an image or a document.
    #[must_use]
    pub fn with_media(mut self, media: Media) -> Self {
        self.content.push(Content::Media(media));
        self
    }

    /// Adds data for programs.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Value) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Ends the turn after this result.
    #[must_use]
    pub fn stopping(mut self) -> Self {
        self.stop_turn = true;
        self
    }

    /// The same, or an error result in its place when a file in it is none: a service would refuse the conversation
    /// from then on (CM19).
    pub(crate) fn checked(self) -> Self {
        let broken = self.content.iter().find_map(|piece| match piece {
            Content::Media(Media { mime, source: MediaSource::Base64(text), .. }) if !is_base64(text) => {
                Some(mime)
            }
            _ => None,
        });
        let Some(mime) = broken else { return self };
        let text = format!("the tool answered with a file of type {mime} whose content is no valid base64");
        Self { content: vec![Content::Text(text)], is_error: true, ..self }
    }
}

/// Whether the text is base64 with padding, and not empty.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len().saturating_sub(body.len());
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !body.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && body.bytes().all(known)
}

/// How a tool fails: in a way that the model can mend, or not.
///
/// Any error converts with `?` into [`ToolError::Tell`]; use [`ToolError::fatal`] for what the host must mend.
///
/// ```
/// use entourage_core::tool::ToolError;
///
/// fn parse(text: &str) -> Result<u32, ToolError> {
///     Ok(text.parse::<u32>()?) // the model reads why, and calls again
/// }
/// assert!(matches!(parse("x"), Err(ToolError::Tell(_))));
/// ```
#[derive(Debug)]
pub enum ToolError {
    /// The model gets this text as an error result, and the run goes on.
    Tell(String),
    /// The run ends with this error once the other calls of the step have ended. It is never retried.
    Fatal(Error),
}

impl ToolError {
    /// A failure that the model can mend.
    #[must_use]
    pub fn tell(text: impl Into<String>) -> Self {
        Self::Tell(text.into())
    }

    /// A failure that the host must mend; ends the run.
    #[must_use]
    pub fn fatal(error: impl Into<Error>) -> Self {
        Self::Fatal(error.into())
    }

    /// A failure that the host must mend, from a text.
    #[must_use]
    pub fn fatal_text(text: impl Into<String>) -> Self {
        Self::Fatal(Error::new(ErrorKind::Tool, text.into()))
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tell(text) => f.write_str(text),
            Self::Fatal(error) => error.fmt(f),
        }
    }
}

// Not `std::error::Error` itself, so that every error type converts with `?`.
impl<E: std::error::Error> From<E> for ToolError {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        Self::Tell(text)
    }
}

/// Anything that serializes, as a tool's answer in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Json<T>(pub T);

/// What a tool function may return as its success.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the answer of a tool",
    label = "not a tool's answer",
    note = "return a string, a number, a bool, `()`, a `ToolOutput`, or wrap a type that serializes: `Json(value)`"
)]
pub trait IntoToolOutput {
    /// The answer.
    ///
    /// # Errors
    /// [`ToolError`] when the value cannot be shown, for example because it does not serialize.
    fn into_output(self) -> Result<ToolOutput, ToolError>;
}

impl IntoToolOutput for ToolOutput {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

impl IntoToolOutput for () {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text("done"))
    }
}

impl IntoToolOutput for Value {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(self.to_string()))
    }
}

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(serde_json::to_string(&self.0)?))
    }
}

macro_rules! shown_as_text {
    ($($type:ty),*) => {$(
        impl IntoToolOutput for $type {
            fn into_output(self) -> Result<ToolOutput, ToolError> {
                Ok(ToolOutput::text(self.to_string()))
            }
        }
    )*};
}

shown_as_text!(&str, bool, char, f32, f64, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

impl IntoToolOutput for String {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(self))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cm19_a_file_that_is_none_makes_an_error_result() {
        let image = |data: &str| Media::new("image/png", MediaSource::Base64(data.into()));
        for (data, fine) in [
            ("aGk=", true),
            ("aGkh", true),
            ("YQ==", true),
            ("a+/9", true),
            ("", false),
            ("====", false),
            ("aGk", false),
            ("a===", false),
            ("aG k", false),
            ("aGk\n", false),
            ("a-_=", false),
            ("a=k=", false),
        ] {
            let output = ToolOutput::text("See:").with_media(image(data)).with_metadata(json!(1)).stopping();
            let checked = output.clone().checked();
            if fine {
                assert_eq!(checked, output, "{data:?}");
                continue;
            }
            assert!(checked.is_error && checked.stop_turn && checked.metadata.is_some(), "{data:?}");
            assert!(
                matches!(checked.content.as_slice(), [Content::Text(text)] if text.contains("image/png"))
            );
        }
        let linked = ToolOutput::default()
            .with_media(Media::new("image/png", MediaSource::Url("https://example.invalid/a".into())));
        assert_eq!(linked.clone().checked(), linked);
    }
}
