//! Subjects of the core: a provider that plays a scenario without any wire, and any subject behind a layer.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    message::{Opaque, Signature},
    provider::{CallContext, Delta, DeltaStream, Finish, FinishReason, Provider, Request, ResponseInfo},
};
use futures_util::Stream;
use serde_json::json;

use super::{Capability, Ending, Manifest, Reply, Say, Stage, StreamScenario, Subject, Watch};

/// A subject without a wire: its provider plays the scenario directly, so a layer around it is all that is tested.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spoken;

#[async_trait]
impl Subject for Spoken {
    fn manifest(&self) -> Manifest {
        Manifest::new("spoken")
    }

    async fn play(&self, scenario: &StreamScenario) -> Result<Stage> {
        let watch = Watch::new();
        let replies = Mutex::new(scenario.replies.clone().into());
        Ok(Stage::new(Arc::new(Speaker { replies, watch: watch.clone() })).watched(&watch))
    }
}

struct Speaker {
    replies: Mutex<VecDeque<Reply>>,
    watch: Watch,
}

impl fmt::Debug for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Speaker")
    }
}

#[async_trait]
impl Provider for Speaker {
    fn name(&self) -> &'static str {
        "spoken"
    }

    async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
        let reply = self.replies.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let reply = reply
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the scenario has no reply for this call"))?;
        self.watch.saw_request();
        let open = Open(Some(self.watch.clone()));
        match reply {
            Reply::Refused(failure) => {
                open.end();
                Err(failure.to_error())
            }
            Reply::Silent => {
                std::future::pending::<()>().await;
                drop(open);
                Err(Error::new(ErrorKind::Internal, "silence has ended"))
            }
            Reply::Streamed { says, ending } => {
                let mut items: VecDeque<_> = says.iter().map(|say| Ok(delta(say))).collect();
                let (mut stays, mut unclosed) = (false, false);
                match ending {
                    Ending::Finish(reason) => items.push_back(Ok(Delta::finish(finish(reason)))),
                    Ending::Unclosed(reason) => {
                        items.push_back(Ok(Delta::finish(finish(reason))));
                        unclosed = true;
                    }
                    Ending::Failed(failure) => items.push_back(Err(failure.to_error())),
                    Ending::CutOff => {}
                    Ending::Open => stays = true,
                }
                Ok(Box::pin(Saying { items, stays, unclosed, open: Some(open) }))
            }
        }
    }
}

/// Notifies the watch when it is dropped before the end.
struct Open(Option<Watch>);

impl Open {
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(watch) = &self.0 {
            watch.saw_close();
        }
    }
}

struct Saying {
    items: VecDeque<Result<Delta>>,
    stays: bool,
    /// True if the stream is left after its last item, not ended.
    unclosed: bool,
    open: Option<Open>,
}

impl Stream for Saying {
    type Item = Result<Delta>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.items.pop_front() {
            None if self.stays => Poll::Pending,
            None => {
                let open = self.open.take();
                if let Some(open) = open.filter(|_| !self.unclosed) {
                    open.end();
                }
                Poll::Ready(None)
            }
            item => Poll::Ready(item),
        }
    }
}

fn delta(say: &Say) -> Delta {
    match *say {
        Say::Text(text) => Delta::text(text),
        Say::Reasoning(text) => Delta::Reasoning(text.into()),
        Say::Signature(data) => Delta::signature(Signature::new("spoken", data)),
        Say::Refusal(text) => Delta::Refusal(text.into()),
        Say::CallStart { index, id, name } => Delta::tool_call(index, id, name),
        Say::Arguments { index, json } => Delta::arguments(index, json),
        Say::Block => Delta::Opaque(Box::new(Opaque::new("spoken", json!({"found": 3})))),
        Say::ResponseId(id) => Delta::Response(Box::new(ResponseInfo::new(Some(id.into()), None))),
        Say::ResponseModel(model) => Delta::Response(Box::new(ResponseInfo::new(None, Some(model.into())))),
        Say::Usage(usage) => Delta::Usage(Box::new(usage)),
    }
}

fn finish(reason: FinishReason) -> Finish {
    Finish::from_wire(reason, format!("{reason:?}"))
}

type Wrap = dyn Fn(Arc<dyn Provider>) -> Arc<dyn Provider> + Send + Sync;

/// Another subject's provider behind a layer.
pub struct Layered<S> {
    inner: S,
    manifest: Manifest,
    wrap: Box<Wrap>,
}

impl<S: Subject> Layered<S> {
    /// Wraps the providers of `inner` by `wrap`; `layer` names it in the report.
    #[must_use]
    pub fn new(
        inner: S,
        layer: &str,
        wrap: impl Fn(Arc<dyn Provider>) -> Arc<dyn Provider> + Send + Sync + 'static,
    ) -> Self {
        let manifest = inner.manifest();
        let name = format!("{} behind {layer}", manifest.name);
        Self { inner, manifest: manifest.named(name), wrap: Box::new(wrap) }
    }

    /// Declares that the layer removes `capability`, because of `reason`.
    #[must_use]
    pub fn without(mut self, capability: Capability, reason: impl Into<String>) -> Self {
        self.manifest = self.manifest.without(capability, reason);
        self
    }

    /// Declares that one case cannot pass behind this layer, because of `reason`.
    #[must_use]
    pub fn skipping(mut self, case: impl Into<String>, reason: impl Into<String>) -> Self {
        self.manifest = self.manifest.skipping(case, reason);
        self
    }
}

impl<S: fmt::Debug> fmt::Debug for Layered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered")
            .field("inner", &self.inner)
            .field("manifest", &self.manifest)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl<S: Subject> Subject for Layered<S> {
    fn manifest(&self) -> Manifest {
        self.manifest.clone()
    }

    async fn play(&self, scenario: &StreamScenario) -> Result<Stage> {
        let mut stage = self.inner.play(scenario).await?;
        stage.provider = (self.wrap)(stage.provider);
        Ok(stage)
    }
}
