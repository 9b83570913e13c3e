//! Effects that wait: for children, for a signal, for time to pass.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    event::{ChildFinished, EffectKey, Event, WaitStarted},
    run::{Observation, Pause, RunContext, Status},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use serde_json::Value;

use crate::{
    children::child::{ChildEnd, ended},
    run::local::{LocalEffects, child_end, observed},
};

impl LocalEffects {
    pub(super) async fn wait_any(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        recorded: &[Event],
        children: Vec<SessionId>,
        timeout: Option<Duration>,
    ) -> Result<Observation> {
        if let Some(known) = child_end(recorded) {
            return Ok(known);
        }
        let left = self.begin_wait(key, recorded, timeout);
        self.site.commit().await?;
        let ended = tokio::select! {
            biased;
            () = cx.cancellation().cancelled() => return Err(Error::cancelled()),
            ended = self.first_ended(children) => Some(ended?),
            () = pass(left) => None,
        };
        let (child, outcome) = ended.map(|(child, end)| (child, end.outcome)).unzip();
        if let Some(outcome) = &outcome {
            self.site.read_labelled(outcome.labels);
        }
        if let Some(key) = key {
            let end = ChildFinished::new(child.clone(), outcome.as_deref().cloned(), key);
            self.site.note(Event::ChildFinished(Arc::new(end)));
        }
        Ok(Observation::Child { child, outcome, work: Vec::new(), total: None })
    }

    /// Waits for the first child to end; ties go to the order given. Paused children are passed over, and when only
    /// such are left, their pause is the error. So is a child whose end cannot be known.
    pub(crate) async fn first_ended(&self, children: Vec<SessionId>) -> Result<(SessionId, ChildEnd)> {
        let mut waiting = FuturesUnordered::new();
        let mut seats = Vec::new();
        for child in children {
            let below = self.children().get(&child).map(|below| (below.outcome.clone(), below.seat));
            let (outcome, seat) = below.ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    "this child was waited for already, or is no child of this run",
                )
                .with("child", child.as_str())
            })?;
            waiting.push(ended(child, outcome));
            seats.extend(seat);
        }
        let mut pause: Option<Pause> = None;
        let mut lent = None;
        loop {
            // Only a wait that blocks lends the run's slot.
            let next = match waiting.next().now_or_never() {
                Some(next) => next,
                None => {
                    lent = lent.or_else(|| self.pool().waiting(&seats));
                    waiting.next().await
                }
            };
            let Some((child, end)) = next else { break };
            let end = end?;
            if let Status::Paused(reason) = end.outcome.status {
                pause = Some(reason);
                continue;
            }
            self.children().remove(&child);
            return self.unless_lost(end).map(|end| (child, end));
        }
        Err(pause.map_or_else(
            || Error::new(ErrorKind::InvalidInput, "there is no child to wait for"),
            Error::paused,
        ))
    }

    /// Records that a wait begins, so that changed code cannot put another effect in its place, and returns its
    /// duration. The time of its end is recorded, and so survives a restart. While the process lives, the requested
    /// duration counts, whatever the clock does.
    fn begin_wait(
        &self,
        key: Option<EffectKey>,
        recorded: &[Event],
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        for event in recorded {
            if let Event::WaitStarted(wait) = event {
                return wait.until.map(|until| until.since(self.site.now()));
            }
        }
        if let Some(key) = key {
            let until = timeout.map(|timeout| self.site.now().after(timeout));
            self.site.note(Event::WaitStarted(Arc::new(WaitStarted::new(until, None, key))));
        }
        timeout
    }

    pub(super) async fn sleep(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        recorded: &[Event],
        time: Duration,
    ) -> Result<Observation> {
        if recorded.iter().any(|event| matches!(event, Event::Observed(_))) {
            return Ok(Observation::Slept);
        }
        let left = self.begin_wait(key, recorded, Some(time));
        self.site.commit().await?;
        tokio::select! {
            biased;
            () = cx.cancellation().cancelled() => return Err(Error::cancelled()),
            () = pass(left) => {}
        }
        self.observe(key, Value::Null);
        Ok(Observation::Slept)
    }

    pub(super) fn signal(
        &self,
        key: Option<EffectKey>,
        recorded: &[Event],
        name: &str,
    ) -> Result<Observation> {
        if let Some(value) = observed(recorded) {
            return Ok(Observation::Signal(value));
        }
        let key = key.ok_or_else(|| Error::new(ErrorKind::Unsupported, "a signal needs a keyed effect"))?;
        let begun = recorded.iter().any(|event| matches!(event, Event::WaitStarted(_)));
        let (taken, came) = self.site.read(|state| (state.has_taken(name), state.has_signal(name)));
        // The wait is recorded before its result, so that changed code cannot put another effect in its place.
        if !taken && (came || !begun) {
            let wait = WaitStarted::new(None, Some(name.to_owned()), key);
            self.site.note(Event::WaitStarted(Arc::new(wait)));
        }
        match self.site.journal.take_signal(name) {
            Some(value) => {
                self.observe(Some(key), value.clone());
                Ok(Observation::Signal(value))
            }
            None => Err(Error::paused(Pause::Signal { name: name.to_owned(), until: None })),
        }
    }
}

/// Completes when `time` is over; never without one.
async fn pass(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
