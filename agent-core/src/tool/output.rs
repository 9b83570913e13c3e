//! Results and failures of tools.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::{
    Error,
    base::setters,
    message::{Content, Media},
    spec::Labels,
};

/// Result of a tool.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ToolOutput {
    /// Content as the model is shown it.
    pub content: Vec<Content>,
    /// True if the model should take the result as a failure.
    pub is_error: bool,
    /// True to end the turn: the result is stored and shown, and no further model call is made.
    pub stop_turn: bool,
    /// Data for programs and user interfaces; stored, never shown to the model.
    pub metadata: Option<Value>,
    /// Labels of the result, beside those that the tool declares for all of its results.
    pub labels: Labels,
}

impl ToolOutput {
    /// A result with one text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text(text.into())], ..Self::default() }
    }

    /// An error result with one text, for the model.
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

    setters! {
        /// Adds data for programs.
        with_metadata(metadata: Value) sets metadata = Some(metadata);
        /// Sets the labels of the result, beside those that the tool declares for all of its results.
        with_labels(labels: Labels) sets labels = labels;
        /// Ends the turn after this result.
        stopping() sets stop_turn = true;
    }
}

/// Failure of a tool: one that the model can correct, or one that ends the run.
///
/// Any error converts with `?` into [`ToolError::Tell`]; use [`ToolError::fatal`] for a failure that the host must
/// correct.
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
    /// Text for the model, as an error result; the run goes on.
    Tell(String),
    /// Error that ends the run once the other calls of the step have ended. It is never retried.
    Fatal(Error),
}

impl ToolError {
    /// A failure that the model can correct.
    #[must_use]
    pub fn tell(text: impl Into<String>) -> Self {
        Self::Tell(text.into())
    }

    /// A failure that the host must correct; ends the run.
    #[must_use]
    pub fn fatal(error: impl Into<Error>) -> Self {
        Self::Fatal(error.into())
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

/// Result of a tool in JSON, from any value that serializes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Json<T>(pub T);

/// Success value of a tool function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the answer of a tool",
    label = "not a tool's answer",
    note = "return a string, a number, a bool, `()`, a `ToolOutput`, or wrap a type that serializes: `Json(value)`"
)]
pub trait IntoToolOutput {
    /// Converts the value into a result.
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
