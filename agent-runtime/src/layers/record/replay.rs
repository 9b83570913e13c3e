//! A provider that answers from a recording, and refuses requests that are not in it.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    provider::{CallContext, DeltaStream, Provider, Request},
};
use futures_util::{StreamExt, stream};
use serde::Deserialize;

use super::{asked::Asked, lock, scrub::Scrubber, tape::Entry, write::FORMAT};

/// Provider that replays a recording of [`super::Recorder`]. Cloning shares it.
///
/// Calls are answered in the order in which they were recorded. Each request must equal the recorded one in model,
/// instructions, tools, tool choice, form of the reply, parameters and messages. One that differs, or one too many, is
/// an [`ErrorKind::Diverged`] error that names the difference; it uses nothing up.
#[derive(Clone)]
pub struct Replay(Arc<Recording>);

struct Recording {
    provider: String,
    calls: Vec<Call>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    scrubber: Scrubber,
    next: usize,
}

struct Call {
    asked: Asked,
    entries: Vec<Entry>,
}

/// The parts of a recording that a replay reads.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    recorder: u32,
    #[serde(default)]
    provider: String,
    interactions: Vec<Interaction>,
}

#[derive(Deserialize)]
struct Interaction {
    asked: Option<Asked>,
    deltas: Option<Vec<Entry>>,
}

impl Replay {
    /// A replay of the text that [`super::Recorder::to_json`] gave.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] when the text is not such a recording, [`ErrorKind::NewerVersion`] when a newer version
    /// of this library made it.
    pub fn from_json(json: &str) -> Result<Self> {
        let corrupt =
            |text: &str| Error::new(ErrorKind::Corrupt, format!("the recording cannot be replayed: {text}"));
        let stored: Stored =
            serde_json::from_str(json).map_err(|error| corrupt("it cannot be read").caused_by(error))?;
        if stored.recorder > FORMAT {
            let text = format!("the recording has format {}, update entourage to read it", stored.recorder);
            return Err(Error::new(ErrorKind::NewerVersion, text));
        }
        if stored.recorder == 0 {
            return Err(corrupt("it was not made by a `Recorder` and has no deltas; record it again"));
        }
        let calls = stored.interactions.into_iter().filter_map(|one| match (one.asked, one.deltas) {
            (Some(asked), Some(entries)) => Some(Ok(Call { asked, entries })),
            // An attempt that another one followed.
            (None, None) => None,
            _ => Some(Err(corrupt("an interaction is incomplete"))),
        });
        let calls = calls.collect::<Result<_>>()?;
        Ok(Self(Arc::new(Recording { provider: stored.provider, calls, state: Mutex::default() })))
    }

    /// Removes this text from requests before they are compared. Needed for each secret that the recorder was given.
    #[must_use]
    pub fn secret(self, text: impl AsRef<str>) -> Self {
        lock(&self.0.state).scrubber.register(text.as_ref());
        self
    }

    /// The provider to give to models.
    #[must_use]
    pub fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.clone())
    }

    /// Number of recorded calls that were not asked for yet: 0 when everything was replayed.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.0.calls.len().saturating_sub(lock(&self.0.state).next)
    }

    /// Entries of the next call, if `request` equals the recorded one.
    fn take(&self, request: &Request) -> Result<Vec<Entry>> {
        let mut state = lock(&self.0.state);
        let number = state.next + 1;
        let Some(call) = self.0.calls.get(state.next) else {
            return Err(diverged(&format!(
                "the recording holds {} calls and this is one more",
                self.0.calls.len()
            )));
        };
        if let Some(difference) = Asked::of(request, &state.scrubber)?.difference(&call.asked) {
            return Err(diverged(&format!("in call {number} {difference}")));
        }
        state.next = number;
        Ok(call.entries.clone())
    }
}

fn diverged(what: &str) -> Error {
    let text =
        format!("the request differs from the recording: {what}; make the same request or record again");
    Error::new(ErrorKind::Diverged, text).during("model.stream")
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replay({}, {} of {} calls left)", self.0.provider, self.remaining(), self.0.calls.len())
    }
}

#[async_trait]
impl Provider for Replay {
    fn name(&self) -> &str {
        &self.0.provider
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let entries = self.take(&request)?;
        if let [Entry::Error { error }] = entries.as_slice()
            && error.refused
        {
            return Err(error.to_error());
        }
        Ok(Box::pin(stream::iter(entries).map(Entry::into_item)))
    }
}
