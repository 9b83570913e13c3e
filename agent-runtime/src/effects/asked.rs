//! The contents of a model call's request, for its record: each is stored once in a session, and named by its digest.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{
    Digest, Result,
    bound::VALUE,
    event::ModelStarted,
    message::{History, Message},
    provider::{OutputFormat, OutputSchema, Request},
    session::SessionState,
    tool::ToolSpec,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    engine::{check_numbers, check_schemas},
    texts::{Settings, Shared, Texts, text},
};

/// Digests in one list of messages.
const LIST: usize = 32;

/// Contents of the newest request of a run, so that what did not change is not digested again.
#[derive(Debug, Default)]
pub(crate) struct Newest(Mutex<Parts>);

#[derive(Debug, Default)]
struct Parts {
    instructions: Option<(Arc<str>, Digest)>,
    tools: Option<(Arc<[ToolSpec]>, Digest)>,
    /// Without a digest if they are those of a request that sets nothing.
    settings: Option<(Settings, Option<Digest>)>,
    /// The schemas that passed the check.
    checked: (Arc<[ToolSpec]>, Option<Arc<OutputSchema>>),
    /// Messages that are not the conversation's.
    messages: Vec<(Arc<Message>, Digest)>,
}

impl Newest {
    /// Checks a request as [`check_request`](crate::engine::check_request) does, its schemas only when they changed.
    pub(crate) fn check(&self, request: &Request) -> Result<()> {
        check_numbers(request)?;
        let output = match &request.output {
            OutputFormat::Schema(schema) => Some(schema),
            _ => None,
        };
        if request.tools.is_empty() && output.is_none() {
            return Ok(());
        }
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same_output = match (&parts.checked.1, output) {
            (Some(known), Some(schema)) => Arc::ptr_eq(known, schema),
            (_, output) => output.is_none(),
        };
        if !same_output || !Arc::ptr_eq(&parts.checked.0, &request.tools) {
            check_schemas(request)?;
            parts.checked = (Arc::clone(&request.tools), output.cloned());
        }
        Ok(())
    }

    /// Adds the contents of the request to the start of its call, in a session of this state.
    pub(crate) fn record(
        &self,
        texts: &Texts,
        request: &Request,
        state: &SessionState,
        started: &mut ModelStarted,
    ) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = New { state, known: texts, texts: BTreeMap::new(), bytes: 0 };
        if !request.instructions.is_empty() {
            started.instructions = Some(parts.instructions(&request.instructions, &mut new));
        }
        if !request.tools.is_empty() {
            started.tools = Some(parts.tools(&request.tools, &mut new));
        }
        started.settings = parts.settings(request, &mut new);
        // A step shows the conversation, also where an engine made its messages anew. Any other call has its own.
        let is_step = started.key.is_none();
        if !is_same(&request.messages, state.history(), is_step) {
            started.messages = Some(parts.messages(&request.messages, &mut new, is_step));
        }
        started.contents = Some(new.texts);
    }
}

impl Parts {
    fn instructions(&mut self, text: &Arc<str>, new: &mut New<'_>) -> Digest {
        match &self.instructions {
            Some((known, digest)) if Arc::ptr_eq(known, text) && new.state.holds(digest) => *digest,
            _ => {
                let digest = new.add_shared(Shared::Instructions(Arc::clone(text)));
                self.instructions = Some((Arc::clone(text), digest));
                digest
            }
        }
    }

    fn tools(&mut self, specs: &Arc<[ToolSpec]>, new: &mut New<'_>) -> Digest {
        match &self.tools {
            Some((known, digest)) if Arc::ptr_eq(known, specs) && new.state.holds(digest) => *digest,
            _ => {
                let digest = new.add_shared(Shared::Tools(Arc::clone(specs)));
                self.tools = Some((Arc::clone(specs), digest));
                digest
            }
        }
    }

    fn settings(&mut self, request: &Request, new: &mut New<'_>) -> Option<Digest> {
        if let Some((known, digest)) = &self.settings
            && known.are_of(request)
            && digest.as_ref().is_none_or(|digest| new.state.holds(digest))
        {
            return *digest;
        }
        let settings = Settings::of(request);
        let digest = (!settings.are_none()).then(|| new.add_shared(Shared::Settings(settings.clone())));
        self.settings = Some((settings, digest));
        digest
    }

    fn messages(&mut self, messages: &History, new: &mut New<'_>, is_step: bool) -> Digest {
        let conversation = new.state.history().iter().zip(0_usize..);
        let places: HashMap<_, _> = conversation.map(|(message, at)| (Arc::as_ptr(message), at)).collect();
        let known_here = |message: &Arc<Message>| places.get(&Arc::as_ptr(message)).copied();
        // Messages that came from another process are the conversation's by what they say.
        let crossed = is_step && !messages.iter().any(|message| known_here(message).is_some());
        let mut next = 0;
        let place = |message: &Arc<Message>, next: usize| {
            if !crossed {
                return known_here(message);
            }
            let is_it = |at: &usize| new.state.history().get(*at).is_some_and(|known| known == message);
            (next..new.state.history().len()).chain(0..next).find(is_it)
        };
        let mut known = std::mem::take(&mut self.messages).into_iter();
        let (mut pieces, mut others) = (Vec::new(), Vec::new());
        for message in messages {
            if let Some(at) = place(message, next) {
                next = at.saturating_add(1);
                new.list(&mut others, &mut pieces);
                match pieces.last_mut() {
                    Some(Piece::Conversation(_, end)) if *end == at => *end = next,
                    _ => pieces.push(Piece::Conversation(at, next)),
                }
                continue;
            }
            let digest = match known.next() {
                Some((same, digest)) if Arc::ptr_eq(&same, message) && new.state.holds(&digest) => digest,
                _ => new.add(text(message)),
            };
            self.messages.push((Arc::clone(message), digest));
            others.push(digest);
            if others.len() == LIST {
                new.list(&mut others, &mut pieces);
            }
        }
        new.list(&mut others, &mut pieces);
        new.add(text(&pieces))
    }
}

/// A piece of a list of messages.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged, try_from = "Value")]
pub(crate) enum Piece {
    /// The conversation's messages from the first place to the one before the second.
    Conversation(usize, usize),
    /// A list of digests, by its digest.
    List(Digest),
}

impl TryFrom<Value> for Piece {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> serde_json::Result<Self> {
        if value.is_array() {
            return serde_json::from_value(value).map(|(from, to)| Self::Conversation(from, to));
        }
        serde_json::from_value(value).map(Self::List)
    }
}

/// Texts that a session does not hold.
struct New<'a> {
    state: &'a SessionState,
    known: &'a Texts,
    texts: BTreeMap<Digest, String>,
    bytes: usize,
}

impl New<'_> {
    /// Adds a list of digests, if there are any, and empties it.
    fn list(&mut self, digests: &mut Vec<Digest>, pieces: &mut Vec<Piece>) {
        if !digests.is_empty() {
            pieces.push(Piece::List(self.add(text(digests))));
            digests.clear();
        }
    }

    /// Adds a text, unless the session holds it or the event would become too large. Returns its digest.
    fn add(&mut self, text: String) -> Digest {
        let digest = Digest::of([text.as_bytes()]);
        self.insert(digest, text.len(), || text);
        digest
    }

    /// Adds a text that other sessions have too.
    fn add_shared(&mut self, shared: Shared) -> Digest {
        let (digest, text) = self.known.of(shared);
        self.insert(digest, text.len(), || text.to_string());
        digest
    }

    fn insert(&mut self, digest: Digest, length: usize, text: impl FnOnce() -> String) {
        let bytes = self.bytes.saturating_add(length);
        if bytes <= VALUE && !self.state.holds(&digest) && self.texts.insert(digest, text()).is_none() {
            self.bytes = bytes;
        }
    }
}

/// True for the conversation itself.
fn is_same(messages: &History, history: &History, is_step: bool) -> bool {
    match is_step {
        true => messages == history,
        false => {
            messages.len() == history.len() && messages.iter().zip(history).all(|(a, b)| Arc::ptr_eq(a, b))
        }
    }
}
