//! A recorded request, made again from what its session holds.

use std::{collections::HashMap, sync::Arc};

use entourage_core::{
    Digest, Error, ErrorKind, RequestId, Result,
    event::{Envelope, Event, ModelStarted},
    message::{History, Message, deserialize_value},
    provider::{OutputFormat, Params, Request, ToolChoice},
    session::SessionState,
    tool::{Access, ToolSpec},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::effects::asked::Piece;

/// Looks for one call in a session's events, from the first one on.
pub(super) struct Search {
    call: RequestId,
    state: SessionState,
    texts: HashMap<Digest, String>,
    found: Option<(ModelStarted, History)>,
}

#[derive(Deserialize)]
struct Settings {
    tool_choice: ToolChoice,
    output: OutputFormat,
    params: Params,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    description: String,
    #[serde(deserialize_with = "deserialize_value")]
    schema: Value,
    access: Access,
}

impl Search {
    pub(super) fn new(call: RequestId) -> Self {
        Self { call, state: SessionState::default(), texts: HashMap::new(), found: None }
    }

    pub(super) fn apply(&mut self, envelope: &Envelope) {
        // Any other checkpoint repeats the events before it.
        if matches!(envelope.event, Event::Checkpoint(_)) && envelope.seq > 1 {
            return;
        }
        self.state.apply(envelope);
        let Event::ModelStarted(started) = &envelope.event else { return };
        let new = started.contents.iter().flatten();
        self.texts.extend(new.map(|(digest, text)| (*digest, text.clone())));
        if started.request == Some(self.call) {
            // A call that was made again after its process died has the same id: the newest one counts.
            self.found = Some(((**started).clone(), self.state.history().clone()));
        }
    }

    /// Returns the request; `None` if there is no such call, or if its contents are not stored.
    pub(super) fn request(self) -> Result<Option<Request>> {
        let Some((asked, history)) = self.found.as_ref().filter(|(call, _)| call.contents.is_some()) else {
            return Ok(None);
        };
        let messages = match asked.messages {
            Some(pieces) => self.messages(&pieces, history)?,
            None => Some(history.clone()),
        };
        let Some(messages) = messages else { return Ok(None) };
        let mut request = Request::new(Arc::clone(&asked.model), messages);
        if let Some(instructions) = asked.instructions {
            let Some(text) = self.texts.get(&instructions) else { return Ok(None) };
            request = request.with_instructions(text.as_str());
        }
        if let Some(settings) = asked.settings {
            let Some(settings) = self.read(&settings)? else { return Ok(None) };
            let Settings { tool_choice, output, params } = settings;
            request = request.with_tool_choice(tool_choice).with_output(output).with_params(params);
        }
        if let Some(tools) = asked.tools {
            let Some(tools) = self.read::<Vec<Tool>>(&tools)? else { return Ok(None) };
            let tool = |it: Tool| ToolSpec::new(it.name, it.description, it.schema).with_access(it.access);
            request = request.with_tools(tools.into_iter().map(tool).collect::<Vec<_>>());
        }
        Ok(Some(request))
    }

    fn messages(&self, pieces: &Digest, history: &History) -> Result<Option<History>> {
        let mut messages = History::default();
        let Some(pieces) = self.read::<Vec<Piece>>(pieces)? else { return Ok(None) };
        for piece in pieces {
            match piece {
                Piece::Conversation(from, to) => {
                    messages.extend((from..to).map_while(|at| history.get(at)).cloned());
                }
                Piece::List(list) => {
                    let Some(list) = self.read::<Vec<Digest>>(&list)? else { return Ok(None) };
                    for message in list {
                        let Some(message) = self.read::<Message>(&message)? else { return Ok(None) };
                        messages.push(message);
                    }
                }
            }
        }
        Ok(Some(messages))
    }

    /// Reads a content; `None` if the session does not hold it.
    fn read<T: DeserializeOwned>(&self, content: &Digest) -> Result<Option<T>> {
        let Some(text) = self.texts.get(content) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| {
            Error::new(ErrorKind::Corrupt, "a recorded request cannot be read").caused_by(error)
        })
    }
}
