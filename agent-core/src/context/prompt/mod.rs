//! Instructions for a model, and their templates. Pure: every fact is handed in.
//!
//! The text of a prompt is recorded by name, version and content hash, so that a change of behaviour can be traced to
//! a change of words. Facts are data: text in them is never read as a template.

mod facts;

use std::sync::Arc;

use crate::Digest;

pub use facts::{ContextFile, GitFacts, PromptFacts};

/// System instructions, and the id of their template.
///
/// Plain text becomes instructions without a template. So replacing the text also removes the id: a record never names
/// a template whose words were not sent.
///
/// ```
/// use entourage_core::context::Instructions;
///
/// let plain = Instructions::from("Be brief.");
/// assert_eq!((plain.text(), plain.template()), ("Be brief.", None));
/// let own = Instructions::from_template("Be brief.", "brief@1#53c1").prefixed("You speak for Example Ltd.");
/// assert_eq!((own.text(), own.template()), ("You speak for Example Ltd.\n\nBe brief.", Some("brief@1#53c1")));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instructions {
    text: Arc<str>,
    template: Option<Arc<str>>,
}

impl Instructions {
    /// Instructions rendered from a template by other means than this crate's. `id` is recorded with each call, see
    /// [`ModelStarted::template`](crate::event::ModelStarted). Choose it so that other words have another id.
    #[must_use]
    pub fn from_template(text: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), template: Some(id.into()) }
    }

    /// Puts `prefix` and a blank line before the text, for services that require certain words first. An empty prefix
    /// changes nothing. The template id stays, since its words do.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str) -> Self {
        if !prefix.is_empty() {
            self.text = if self.text.is_empty() {
                prefix.into()
            } else {
                format!("{prefix}\n\n{}", self.text).into()
            };
        }
        self
    }

    /// The text of the instructions.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The id of the template that the text was rendered from.
    #[must_use]
    pub fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }

    /// Creates instructions of a program's own text, under a version that changes with its words.
    #[must_use]
    pub fn built_in(name: &str, version: u32, text: &'static str) -> Self {
        let hash: String = Digest::of([text.as_bytes()]).to_string().chars().take(12).collect();
        Self::from_template(text, format!("{name}@{version}#{hash}"))
    }

    /// Creates instructions of this text, and of the template with this id if it was made from one.
    #[must_use]
    pub fn new(text: Arc<str>, template: Option<Arc<str>>) -> Self {
        Self { text, template }
    }

    /// Returns the text and the id of its template.
    #[must_use]
    pub fn into_parts(self) -> (Arc<str>, Option<Arc<str>>) {
        (self.text, self.template)
    }
}

impl From<Arc<str>> for Instructions {
    fn from(text: Arc<str>) -> Self {
        Self { text, template: None }
    }
}

impl From<&str> for Instructions {
    fn from(text: &str) -> Self {
        Arc::<str>::from(text).into()
    }
}

impl From<String> for Instructions {
    fn from(text: String) -> Self {
        Arc::<str>::from(text).into()
    }
}
