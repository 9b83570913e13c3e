//! Recording of model calls in the format of recorded interactions, and replay of such a recording.
//!
//! No files are read or written here: a recording is JSON text. Text that looks like a credential never gets into it.

mod asked;
mod expect;
mod replay;
mod scrub;
mod tape;
mod write;

pub use replay::Replay;

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, bound,
    provider::{
        CallContext, Delta, DeltaStream, Layer, Provider, Request, WireExchange, WireRequest, Wiretap,
    },
};
use futures_util::Stream;

use self::{
    scrub::Scrubber,
    tape::{End, Failed, Sent, Tape},
};

/// Default bound on the bytes of replies and bodies in a recorder.
const LIMIT: usize = 64 << 20;

/// Layer that records the calls of every provider that it is put around. Cloning shares it; both it and a reference to
/// it are layers.
///
/// It belongs outermost (see [`crate::layers`]): one entry then is what the caller got, whatever happened below. What
/// failed attempts sent over the wire is recorded beside it.
///
/// # What is left out
/// Of headers, all but those that describe a body, name the request, or state limits. Of everything else the following,
/// replaced by as many `x`: text registered with [`Recorder::secret`]; keys that begin like those of well-known
/// services (`sk-…`) and signed web tokens; tokens after `Bearer` or `Basic`; the values of fields such as `api_key`,
/// `access_token`, `password`, and of `key=` and `sig=`, if they have a digit or 24 characters; e-mail addresses. A
/// credential of any other shape must be registered.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_core::provider::Model;
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::{AgentExt, layers::{Recorder, Replay}};
/// # use entourage_testkit::ScriptedProvider;
/// # let scripted = ScriptedProvider::new().text("Hello!");
/// # let model = scripted.model();
///
/// let recorder = Recorder::new().secret("correct horse");
/// let agent = ReactAgent::builder("a", model.layer(&recorder)).build().unwrap();
/// agent.ask("Hi. It is correct horse.").await.unwrap();
/// let recording = recorder.to_json("greeting").unwrap();
/// assert!(!recording.contains("correct horse"));
///
/// let replay = Replay::from_json(&recording).unwrap().secret("correct horse");
/// let model = Model::new(replay.provider(), "scripted");
/// let agent = ReactAgent::builder("a", model).build().unwrap();
/// assert_eq!(agent.ask("Hi. It is correct horse.").await.unwrap(), "Hello!");
/// assert_eq!(replay.remaining(), 0);
/// # });
/// ```
#[derive(Clone, Default)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    limit: AtomicUsize,
    kept: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    scrubber: Scrubber,
    tapes: Vec<Arc<Mutex<Tape>>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { limit: AtomicUsize::new(LIMIT), kept: AtomicUsize::new(0), state: Mutex::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// An empty recorder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves out this text wherever it occurs, also in its escaped forms in JSON or a query. Empty text is ignored.
    #[must_use]
    pub fn secret(self, text: impl AsRef<str>) -> Self {
        lock(&self.0.state).scrubber.register(text.as_ref());
        self
    }

    /// Bounds the bytes of replies and bodies, 64 MiB by default. Calls go on beyond the bound, but then there is no
    /// recording.
    #[must_use]
    pub fn limit(self, bytes: usize) -> Self {
        self.0.limit.store(bytes, Ordering::Relaxed);
        self
    }

    /// Number of calls that have begun.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.0.state).tapes.len()
    }

    /// The recording so far: one sequence, named `id`, of the calls in the order in which they began.
    ///
    /// A call in flight, and one that its caller dropped, is recorded as far as it came.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when the calls exceeded the bound; [`ErrorKind::Internal`] when a secret could not be
    /// removed, because it is a number or a word of the recordings' own format.
    pub fn to_json(&self, id: &str) -> Result<String> {
        let (scrubber, tapes) = {
            let state = lock(&self.0.state);
            (state.scrubber.clone(), state.tapes.clone())
        };
        let limit = self.0.limit.load(Ordering::Relaxed);
        if self.0.kept.load(Ordering::Relaxed) > limit {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the calls are larger than the {limit} bytes that the recorder keeps; raise its limit or record fewer"
                ),
            ));
        }
        write::sequence(id, &tapes, &scrubber)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({} calls)", self.count())
    }
}

impl Shared {
    /// Counts `bytes` more; true if they may be kept.
    fn admits(&self, bytes: usize) -> bool {
        let kept = self.kept.fetch_add(bytes, Ordering::Relaxed);
        kept.saturating_add(bytes) <= self.limit.load(Ordering::Relaxed)
    }
}

impl Layer for Recorder {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(Recorded { inner, recorder: self })
    }
}

impl Layer for &Recorder {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        self.clone().layer(inner)
    }
}

#[derive(Debug)]
struct Recorded {
    inner: Arc<dyn Provider>,
    recorder: Recorder,
}

#[async_trait]
impl Provider for Recorded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let tape = Arc::new(Mutex::new(Tape::new(self.inner.name(), request.clone())));
        lock(&self.recorder.0.state).tapes.push(Arc::clone(&tape));
        let tap = Tap { tape: Arc::clone(&tape), recorder: self.recorder.clone(), outer: cx.wiretap.clone() };
        let cx = cx.clone().with_wiretap(Arc::new(tap));
        match self.inner.stream(request, &cx).await {
            Ok(stream) => Ok(Box::pin(Taping { stream, tape, recorder: self.recorder.clone() })),
            Err(error) => {
                lock(&tape).end = End::Failed(Failed::new(&error, true));
                Err(error)
            }
        }
    }
}

/// A stream that is recorded on its way.
struct Taping {
    stream: DeltaStream,
    tape: Arc<Mutex<Tape>>,
    recorder: Recorder,
}

impl Stream for Taping {
    type Item = Result<Delta>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = std::task::ready!(self.stream.as_mut().poll_next(cx));
        let mut tape = lock(&self.tape);
        match &item {
            Some(Ok(delta)) if self.recorder.0.admits(size_of_val(delta) + weight(delta)) => {
                tape.deltas.push(delta.clone());
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => tape.end = End::Failed(Failed::new(error, false)),
            None if matches!(tape.end, End::Open) => tape.end = End::Closed,
            None => {}
        }
        drop(tape);
        Poll::Ready(item)
    }
}

/// Estimated bytes of a delta.
fn weight(delta: &Delta) -> usize {
    match delta {
        Delta::Text(text) | Delta::Reasoning(text) | Delta::Refusal(text) => text.len(),
        Delta::ToolCallArguments { text, .. } => text.len(),
        Delta::ReasoningSignature(signature) => signature.data.len(),
        Delta::Opaque(block) => bound::value(&block.data),
        _ => 64,
    }
}

/// Wiretap that records the traffic of the inner provider, and passes it on to an outer one.
struct Tap {
    tape: Arc<Mutex<Tape>>,
    recorder: Recorder,
    outer: Option<Arc<dyn Wiretap>>,
}

// The traffic is not scrubbed, so neither of these shows it.
impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("outer", &self.outer).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tapped").field("outer", &self.outer).finish_non_exhaustive()
    }
}

impl Wiretap for Tap {
    fn request(&self, request: &WireRequest<'_>) -> Box<dyn WireExchange> {
        let mut sent = Sent::from(request);
        if !self.recorder.0.admits(request.body.len()) {
            sent.body = Vec::new();
        }
        let mut tape = lock(&self.tape);
        tape.exchanges.push(sent);
        Box::new(Tapped {
            tape: Arc::clone(&self.tape),
            place: tape.exchanges.len() - 1,
            recorder: self.recorder.clone(),
            outer: self.outer.as_ref().map(|outer| outer.request(request)),
        })
    }
}

struct Tapped {
    tape: Arc<Mutex<Tape>>,
    place: usize,
    recorder: Recorder,
    outer: Option<Box<dyn WireExchange>>,
}

impl Tapped {
    fn edit(&self, change: impl FnOnce(&mut Sent)) {
        if let Some(sent) = lock(&self.tape).exchanges.get_mut(self.place) {
            change(sent);
        }
    }
}

impl WireExchange for Tapped {
    fn answer(&mut self, status: u16, headers: &[(String, String)]) {
        self.edit(|sent| {
            sent.status = Some(status);
            sent.answer_headers = headers.to_vec();
        });
        if let Some(outer) = &mut self.outer {
            outer.answer(status, headers);
        }
    }

    fn body(&mut self, piece: &[u8]) {
        if self.recorder.0.admits(piece.len()) {
            self.edit(|sent| sent.answer.extend_from_slice(piece));
        }
        if let Some(outer) = &mut self.outer {
            outer.body(piece);
        }
    }
}
