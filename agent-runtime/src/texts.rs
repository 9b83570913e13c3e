//! Texts of contents that many sessions of a runtime record, such as instructions and the tools of an agent.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{
    Digest,
    provider::{OutputFormat, Params, Request, ToolChoice},
    tool::ToolSpec,
};
use serde::Serialize;

/// Most contents that many sessions share, and most bytes of one, of which a runtime keeps the text and its digest.
const SHARED: usize = 48;
const SHARED_BYTES: usize = 256 << 10;

/// A content that is the same in many sessions of a runtime.
#[derive(Debug)]
pub(crate) enum Shared {
    Instructions(Arc<str>),
    Tools(Arc<[ToolSpec]>),
    Settings(Settings),
}

/// The settings of a request: what is neither instructions, tools nor messages.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    tool_choice: ToolChoice,
    output: OutputFormat,
    params: Arc<Params>,
}

/// The settings of a request, as they are recorded.
#[derive(Serialize)]
struct Told<'a> {
    output: &'a OutputFormat,
    params: Params,
    tool_choice: &'a ToolChoice,
}

impl Settings {
    pub(crate) fn of(request: &Request) -> Self {
        let Request { tool_choice, output, params, .. } = request;
        Self { tool_choice: tool_choice.clone(), output: output.clone(), params: Arc::clone(params) }
    }

    /// True if those of the request are the same.
    pub(crate) fn are_of(&self, request: &Request) -> bool {
        self.are(&request.tool_choice, &request.output, &request.params)
    }

    /// True for the same parameters, at one address, and an equal rest.
    fn are(&self, tool_choice: &ToolChoice, output: &OutputFormat, params: &Arc<Params>) -> bool {
        Arc::ptr_eq(&self.params, params) && (&self.tool_choice, &self.output) == (tool_choice, output)
    }

    /// True for those of a request that sets nothing.
    pub(crate) fn are_none(&self) -> bool {
        (&self.tool_choice, &self.output) == (&ToolChoice::Auto, &OutputFormat::Text)
            && self.told() == Params::default()
    }

    /// Returns the parameters without what a program passes on to a service, which may be a secret.
    fn told(&self) -> Params {
        let mut told = Params::clone(&self.params);
        (told.metadata, told.extra) = (BTreeMap::new(), None);
        told
    }
}

impl Shared {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Instructions(one), Self::Instructions(other)) => Arc::ptr_eq(one, other),
            (Self::Tools(one), Self::Tools(other)) => Arc::ptr_eq(one, other),
            (Self::Settings(one), Self::Settings(Settings { tool_choice, output, params })) => {
                one.are(tool_choice, output, params)
            }
            _ => false,
        }
    }

    fn text(&self) -> Arc<str> {
        match self {
            Self::Instructions(text) => Arc::clone(text),
            Self::Tools(specs) => text(specs).into(),
            Self::Settings(settings) => {
                let Settings { tool_choice, output, .. } = settings;
                text(&Told { output, params: settings.told(), tool_choice }).into()
            }
        }
    }
}

/// The texts and digests of contents that many sessions share, so that each is written and digested once.
#[derive(Debug, Default)]
pub(crate) struct Texts(Mutex<VecDeque<(Shared, Digest, Arc<str>)>>);

impl Texts {
    /// Returns the digest and the text of a content.
    pub(crate) fn of(&self, shared: Shared) -> (Digest, Arc<str>) {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, digest, text)) = known().iter().find(|(known, ..)| known.is(&shared)) {
            return (*digest, Arc::clone(text));
        }
        let text = shared.text();
        let digest = Digest::of([text.as_bytes()]);
        if text.len() <= SHARED_BYTES {
            let mut known = known();
            known.truncate(SHARED - 1);
            known.push_front((shared, digest, Arc::clone(&text)));
        }
        (digest, text)
    }
}

/// Writes a content as JSON.
pub(crate) fn text(content: &impl Serialize) -> String {
    // Their keys are texts, so it does not fail.
    serde_json::to_string(content).unwrap_or_default()
}
