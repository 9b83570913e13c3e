//! One call on its way through a chain of models.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::reply::Assembler;
use entourage_core::{
    Error, ErrorKind, Prices, Result, RetryStatus, Usage,
    provider::{CallContext, Delta, DeltaStream, Egress, Params, Profile, Request, Restart},
    tool::ToolSpec,
};
use futures_util::Stream;
use tokio::time::Instant;

use super::{
    Fallback, ModelChoice, Tier,
    stats::{Ended, priced},
};
use crate::layers::{
    attempt::{Opening, is_output},
    tally::Tally,
};

/// True if another model may succeed after this failure.
fn another_may_help(error: &Error, egress: Egress) -> bool {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::Authentication
        | ErrorKind::RateLimited
        | ErrorKind::Overloaded
        | ErrorKind::Timeout
        | ErrorKind::Transport
        | ErrorKind::Protocol
        | ErrorKind::Unsupported => true,
        // Where only some hosts are allowed, the refusal may come from this process and must not be circumvented.
        ErrorKind::PermissionDenied => egress == Egress::Any,
        _ => false,
    }
}

/// The current model.
struct Asked {
    provider: Arc<str>,
    model: Arc<str>,
    profile: Arc<Profile>,
    local: bool,
}

/// Parameters for another model: its own, then those of the request.
fn params(own: &Params, asked: &Params, profile: &Profile, same_service: bool) -> Params {
    let mut asked = asked.clone();
    if !same_service {
        asked.extra = None;
    }
    let mut params = own.clone().or(&asked);
    if let (Some(wanted), Some(most)) = (params.max_output, profile.max_output) {
        params.max_output = Some(wanted.min(most));
    }
    params
}

enum Phase {
    Opening(Opening),
    Streaming(DeltaStream),
    Over,
}

pub(super) struct Chain {
    fallback: Fallback,
    /// Service of the first model.
    source: Arc<str>,
    request: Request,
    cx: CallContext,
    end: Option<Instant>,
    baseline: Option<Prices>,
    /// Number of choices that were tried.
    tried: usize,
    /// Current model; `None` once its figures are recorded.
    asked: Option<Asked>,
    phase: Phase,
    /// Delta to send first.
    first: Option<Delta>,
    attempt: u32,
    /// True once the current attempt showed output.
    shown: bool,
    tally: Tally,
    /// Usage of earlier attempts of the current model.
    used: Usage,
    failures: Vec<(String, Error)>,
}

impl Chain {
    /// A call of the request's model, at the service called `provider`.
    pub(super) fn new(fallback: &Fallback, provider: &str, request: &Request, cx: &CallContext) -> Self {
        let source: Arc<str> = provider.into();
        Self {
            fallback: fallback.clone(),
            request: request.clone(),
            cx: cx.clone(),
            end: cx.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            baseline: fallback.baseline(&request.profile),
            tried: 0,
            asked: Some(Asked {
                provider: Arc::clone(&source),
                model: Arc::clone(&request.model),
                profile: Arc::clone(&request.profile),
                local: fallback.primary == Tier::Local,
            }),
            phase: Phase::Over,
            first: None,
            attempt: cx.attempt,
            shown: false,
            tally: Tally::default(),
            used: Usage::default(),
            failures: Vec::new(),
            source,
        }
    }

    /// Continues with the first model's result.
    pub(super) fn begin(mut self, started: Result<DeltaStream>) -> Result<DeltaStream> {
        match started {
            Ok(stream) => self.phase = Phase::Streaming(stream),
            Err(error) => self.first = Some(self.fail(error)?),
        }
        Ok(Box::pin(self))
    }

    /// Abandons the current model, which failed before any output. Returns the restart with the next one, or the final
    /// error.
    fn fail(&mut self, error: Error) -> Result<Delta> {
        self.phase = Phase::Over;
        let name = self.asked.as_ref().map_or_else(String::new, |it| format!("{}:{}", it.provider, it.model));
        self.close();
        let over = self.end.is_some_and(|end| end <= Instant::now()) || self.cx.cancel.is_cancelled();
        let choice = match another_may_help(&error, self.cx.egress) && !over {
            true => self.fallback.choices.get(self.tried).cloned(),
            false => None,
        };
        let record = error.record();
        self.failures.push((name, error));
        let Some(choice) = choice else { return Err(self.give_up()) };
        self.tried += 1;
        self.attempt = self.attempt.saturating_add(1);
        let mut restart = Restart::new(self.attempt, record, Duration::ZERO);
        restart.provider = Some(Arc::clone(choice.model.provider_name()));
        restart.model = Some(Arc::clone(choice.model.name()));
        self.ask(&choice);
        Ok(Delta::Restart(Box::new(restart)))
    }

    fn ask(&mut self, choice: &ModelChoice) {
        let model = &choice.model;
        let mut request = self.request.clone();
        request.model = Arc::clone(model.name());
        request.profile = Arc::clone(model.profile());
        // Beside them are those by which a model finds and calls them.
        if request.profile.tool_search != Some(true) && request.tools.iter().any(ToolSpec::is_deferred) {
            request.tools = request.tools.iter().filter(|tool| !tool.is_deferred()).cloned().collect();
        }
        let same_service = **model.provider_name() == *self.source;
        request.params =
            Arc::new(params(model.params(), &self.request.params, model.profile(), same_service));
        self.asked = Some(Asked {
            provider: Arc::clone(model.provider_name()),
            model: Arc::clone(model.name()),
            profile: Arc::clone(model.profile()),
            local: choice.tier == Tier::Local,
        });
        self.shown = false;
        self.tally = Tally::default();
        self.used = Usage::default();
        let provider = Arc::clone(model.provider());
        let mut cx = self.cx.clone().with_attempt(self.attempt);
        cx.timeout = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        self.phase = Phase::Opening(Box::pin(async move { provider.stream(request, &cx).await }));
    }

    /// The error of the only failure, or one that lists all.
    fn give_up(&mut self) -> Error {
        let mut failures = std::mem::take(&mut self.failures);
        let Some((name, last)) = failures.pop() else {
            return Error::new(
                ErrorKind::Internal,
                "a chain of models ended without a failure; this is a defect",
            );
        };
        let Some((_, first)) = failures.first() else { return last };
        let decided = another_may_help(&last, self.cx.egress);
        let kind = if decided { first.kind() } else { last.kind() };
        let told = failures.iter().map(|(name, error)| format!("{name}: {error}"));
        let told: Vec<_> = told.chain([format!("{name}: {last}")]).collect();
        let temporary = || {
            failures
                .iter()
                .map(|(_, error)| error)
                .chain([&last])
                .filter(|it| it.retry() == RetryStatus::Temporary)
        };
        let retry = if decided && temporary().next().is_some() {
            RetryStatus::Temporary
        } else {
            RetryStatus::Permanent
        };
        let after = temporary().map(Error::retry_after).min().flatten();
        let text = format!("none of {} models answered: {}", told.len(), told.join("; "));
        let mut error = Error::new(kind, text).with_retry(retry).caused_by(last).during("model.stream");
        if let Some(delay) = after {
            error = error.with_retry_after(delay);
        }
        error
    }

    /// Records the current model's figures.
    fn close(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        let usage = self.used + priced(&asked.profile, asked.local, self.tally.usage());
        self.fallback.stats.add(&Ended {
            provider: &asked.provider,
            model: &asked.model,
            usage,
            failed: !self.tally.finished,
            baseline: self.baseline.as_ref(),
        });
    }

    fn take(&mut self, delta: &mut Delta) {
        if let (Delta::Restart(restart), Some(asked)) = (&*delta, &self.asked) {
            self.attempt = self.attempt.max(restart.attempt);
            self.used += priced(&asked.profile, asked.local, self.tally.usage());
            self.tally = Tally::default();
            self.shown = false;
            return;
        }
        self.tally.push(delta);
        self.shown |= is_output(delta);
        if let (Delta::Usage(usage), Some(asked)) = (delta, &self.asked) {
            // The caller knows only the first model's prices.
            **usage = priced(&asked.profile, asked.local, self.tally.usage());
        }
    }
}

impl Stream for Chain {
    type Item = Result<Delta>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Delta>>> {
        if let Some(delta) = self.first.take() {
            return Poll::Ready(Some(Ok(delta)));
        }
        loop {
            match &mut self.phase {
                Phase::Over => return Poll::Ready(None),
                Phase::Opening(opening) => match ready!(opening.as_mut().poll(task)) {
                    Ok(stream) => self.phase = Phase::Streaming(stream),
                    Err(error) => return Poll::Ready(Some(self.fail(error))),
                },
                Phase::Streaming(stream) => {
                    let next = ready!(stream.as_mut().poll_next(task));
                    return Poll::Ready(self.next(next));
                }
            }
        }
    }
}

impl Chain {
    /// Converts the next item of the current model's stream into the reader's.
    fn next(&mut self, next: Option<Result<Delta>>) -> Option<Result<Delta>> {
        match next {
            Some(Ok(mut delta)) => {
                self.take(&mut delta);
                Some(Ok(delta))
            }
            Some(Err(error)) if !self.shown => Some(self.fail(error)),
            None if !self.shown => Some(self.fail(Assembler::cut_off())),
            end => {
                self.phase = Phase::Over;
                self.close();
                end
            }
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("attempt", &self.attempt)
            .field("tried", &self.tried)
            .finish_non_exhaustive()
    }
}
