//! Check of a provider's stream against its contract, for authors of providers and layers.
//!
//! It changes nothing in a stream that keeps the contract.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::reply::Assembler;
use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    provider::{CallContext, Delta, DeltaStream, Layer, Provider, Request},
};
use futures_util::Stream;

/// Maximum of deltas after a finish before the stream counts as endless. Services send one or two.
const AFTERWORDS: u32 = 64;

/// Layer that turns a breach of the stream's contract into an [`ErrorKind::Protocol`] error, which ends the stream.
///
/// # Checks
/// - One [`Delta::Finish`]. After it come only usage, response and warnings, at most 64, and then the end.
/// - A stream that ends without one was cut off: the error is [`Assembler::cut_off`], which is temporary.
/// - Tool calls begin in rising order of their indices, each once and before its arguments.
/// - A [`Delta::Restart`] announces a higher attempt than the one before, and not after a finish. It voids the calls
///   before it.
/// - Nothing follows an error.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_core::{ErrorKind, message::History, provider::{CallContext, FinishReason}};
/// use entourage_runtime::reply::ProviderExt;
/// use entourage_runtime::layers::Check;
/// use entourage_testkit::{Script, ScriptedProvider};
///
/// let late = Script::new().finish(FinishReason::Stop).text("One more thing");
/// let service = ScriptedProvider::new().step(late);
/// let model = service.model().layer(Check::new());
/// let error = model.provider().complete(model.request(History::default()), &CallContext::new()).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Protocol);
/// assert!(error.message().contains("content after its finish"));
/// # });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Check {}

impl Check {
    /// A layer with all checks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Layer for Check {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(Checked { inner })
    }
}

#[derive(Debug)]
struct Checked {
    inner: Arc<dyn Provider>,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for Checked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let stream = self.inner.stream(request, cx).await?;
        let rules = Rules { attempt: cx.attempt, ..Rules::default() };
        Ok(Box::pin(CheckedStream { provider: self.name().into(), stream: Some(stream), rules }))
    }
}

struct CheckedStream {
    provider: Box<str>,
    /// Inner stream; `None` once it has ended or broken a rule.
    stream: Option<DeltaStream>,
    rules: Rules,
}

impl Stream for CheckedStream {
    type Item = Result<Delta>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Delta>>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let item = ready!(stream.as_mut().poll_next(task));
        let verdict = match &item {
            Some(_) if self.rules.failed => Err("it went on after its error".into()),
            Some(Ok(delta)) => self.rules.admit(delta),
            Some(Err(_)) => {
                self.rules.failed = true;
                Ok(())
            }
            None => {
                self.stream = None;
                let whole = self.rules.failed || self.rules.finished;
                return Poll::Ready((!whole).then(|| Err(Assembler::cut_off())));
            }
        };
        Poll::Ready(match verdict {
            Ok(()) => item,
            Err(broken) => {
                self.stream = None;
                Some(Err(self.error(&broken)))
            }
        })
    }
}

impl CheckedStream {
    fn error(&self, broken: &str) -> Error {
        let text =
            format!("the stream broke its contract: {broken}; fix the provider or layer that produced it");
        Error::new(ErrorKind::Protocol, text).during("model.stream").with("provider", &*self.provider)
    }
}

/// State of the checks: what has come, as far as it decides what may follow.
#[derive(Debug, Default)]
struct Rules {
    attempt: u32,
    /// Indices of the calls that began, rising.
    calls: Vec<u32>,
    finished: bool,
    afterwords: u32,
    failed: bool,
}

type Verdict = Result<(), String>;

impl Rules {
    #[inline]
    fn admit(&mut self, delta: &Delta) -> Verdict {
        if self.finished {
            return self.admit_afterword(delta);
        }
        match delta {
            Delta::ToolCallStart(call) => self.begin(call.index),
            Delta::ToolCallArguments { index, .. } if self.calls.binary_search(index).is_err() => {
                Err(format!("it sent arguments of call {index}, which never began"))
            }
            Delta::Restart(restart) if restart.attempt <= self.attempt => {
                Err(format!("attempt {} was followed by attempt {}", self.attempt, restart.attempt))
            }
            Delta::Restart(restart) => {
                self.attempt = restart.attempt;
                self.calls.clear();
                Ok(())
            }
            Delta::Finish(_) => {
                self.finished = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, index: u32) -> Verdict {
        match self.calls.last() {
            Some(_) if self.calls.binary_search(&index).is_ok() => Err(format!("call {index} began twice")),
            Some(last) if *last > index => Err(format!("call {index} began after call {last}")),
            _ => {
                self.calls.push(index);
                Ok(())
            }
        }
    }

    fn admit_afterword(&mut self, delta: &Delta) -> Verdict {
        match delta {
            Delta::Usage(_) | Delta::Response(_) | Delta::Warning(_) => {}
            Delta::Finish(_) => return Err("it finished twice".into()),
            Delta::Restart(_) => return Err("it restarted after its finish".into()),
            _ => return Err("it sent content after its finish".into()),
        }
        self.afterwords += 1;
        if self.afterwords > AFTERWORDS {
            return Err(format!("it sent more than {AFTERWORDS} pieces after its finish"));
        }
        Ok(())
    }
}
