//! The calls of one client, in sessions of the runtime.
//!
//! A session has one run at a time, so calls that overlap need several. The first is the client's own; each call takes
//! the first free one, and those that come while it is taken go to sessions beside it (`mcp-…-2`, `mcp-…-3`). The
//! session of a paused call stays aside until the same call comes again.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    event::Event,
    message::ToolResult,
    run::{Outcome, Status},
    tool::Toolset,
};
use entourage_runtime::{RunHandle, Session, Waiting};
use rmcp::model::CallToolResult;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    call::{Call, Caller, without_result},
    offer,
    progress::Progress,
    served::Served,
};

/// Calls that may wait for each one that may run.
const WAITING: usize = 16;
/// Calls of a conversation that may be paused.
const PAUSED: usize = 64;
/// Runs after which a session is left for a new one: the fold of a session grows with its runs.
const RUNS: u32 = 1_000;

pub(crate) struct Conversation {
    id: SessionId,
    /// Calls that run or wait.
    open: Semaphore,
    /// Calls that run.
    running: Semaphore,
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    made: u32,
    free: BTreeMap<u32, Lane>,
    paused: VecDeque<(Call, Lane)>,
    /// Paused calls that are continued at this moment.
    continued: usize,
    /// True once the client has left.
    over: bool,
}

/// A session for calls, one after another.
#[derive(Clone)]
struct Lane {
    number: u32,
    runs: u32,
    session: Session,
}

/// A lane while a call has it. It is free again when this is dropped.
struct Taken<'a> {
    lanes: &'a Mutex<Lanes>,
    lane: Lane,
    /// True if a call of the lane paused.
    paused: bool,
    /// True once the lane is kept elsewhere.
    parked: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let lane = Lane { runs: self.lane.runs.saturating_add(1), ..self.lane.clone() };
        let mut lanes = locked(self.lanes);
        if self.paused {
            lanes.continued = lanes.continued.saturating_sub(1);
        }
        if !self.parked && lane.runs < RUNS {
            lanes.free.insert(lane.number, lane);
        }
    }
}

impl Taken<'_> {
    /// Keeps the lane aside until `call` comes again. Returns both if there is no place for it.
    fn park(mut self, call: Call) -> Option<(Self, Call)> {
        let mut lanes = locked(self.lanes);
        let is_full = lanes.paused.len().saturating_add(lanes.continued) >= PAUSED;
        if lanes.over || is_full && !self.paused {
            drop(lanes);
            return Some((self, call));
        }
        self.parked = true;
        lanes.paused.push_back((call, self.lane.clone()));
        None
    }
}

fn locked(lanes: &Mutex<Lanes>) -> MutexGuard<'_, Lanes> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Conversation {
    /// Creates the conversation of a client. Nothing is stored until its first call.
    pub(crate) fn new(served: &Served) -> Result<Arc<Self>> {
        let id = SessionId::new(format!("mcp-{}", SessionId::generate().as_str()))?;
        let most = served.bounds.calls.clamp(1, Semaphore::MAX_PERMITS / (WAITING + 1));
        let (open, running) = (Semaphore::new(most * (WAITING + 1)), Semaphore::new(most));
        Ok(Arc::new(Self { id, open, running, lanes: Mutex::default() }))
    }

    /// Returns the lane in which this call paused, or else the first free one.
    fn take(&self, served: &Served, call: &Call) -> Result<Taken<'_>> {
        let mut lanes = locked(&self.lanes);
        let asked = lanes.paused.iter().position(|(asked, _)| asked == call);
        let paused = asked.and_then(|place| lanes.paused.remove(place));
        let is_paused = paused.is_some();
        lanes.continued = lanes.continued.saturating_add(usize::from(is_paused));
        let kept = paused.map(|(_, lane)| lane).or_else(|| lanes.free.pop_first().map(|(_, lane)| lane));
        let lane = match kept {
            Some(lane) => lane,
            None => {
                lanes.made = lanes.made.saturating_add(1);
                let number = lanes.made;
                let id = match number {
                    1 => self.id.clone(),
                    number => SessionId::new(format!("{}-{number}", self.id.as_str()))?,
                };
                Lane { number, runs: 0, session: served.runtime.session_with_id(id) }
            }
        };
        Ok(Taken { lanes: &self.lanes, lane, paused: is_paused, parked: false })
    }

    /// Performs one call, once there is room for it. When `stop` is cancelled its run is too, and this returns when
    /// the run has unwound.
    pub(crate) async fn call(
        &self,
        served: &Served,
        call: Call,
        mut progress: Progress,
        stop: &CancellationToken,
    ) -> CallToolResult {
        let result = self.admitted(served, call, &mut progress, stop).await.unwrap_or_else(|refusal| refusal);
        // Its place is free again: a client that reads nothing keeps it from nobody.
        stop.run_until_cancelled(progress.flush()).await;
        result
    }

    /// Performs one call in a place of its own. An error is a refusal.
    async fn admitted(
        &self,
        served: &Served,
        call: Call,
        progress: &mut Progress,
        stop: &CancellationToken,
    ) -> Result<CallToolResult, CallToolResult> {
        call.check()?;
        let _open = self.open.try_acquire().map_err(|_| {
            offer::failure("too many calls wait already; wait for results before you make further calls")
        })?;
        let Some(Ok(_running)) = stop.run_until_cancelled(self.running.acquire()).await else {
            return Err(offer::failure("the call was cancelled before it began"));
        };
        self.perform(served, call, progress, stop).await.map_err(|error| offer::failure(error.message()))
    }

    /// Keeps the lane of a paused call.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when as many calls are paused as may: the question of this one is closed.
    async fn keep(&self, taken: Taken<'_>, call: Call) -> Result<()> {
        let Some((taken, call)) = taken.park(call) else { return Ok(()) };
        self.forget_answered().await;
        let Some((taken, _)) = taken.park(call) else { return Ok(()) };
        taken.lane.session.stop().await?;
        Err(Error::new(
            ErrorKind::Busy,
            format!(
                "the call did not run: somebody has to decide about it, and {PAUSED} calls wait for a decision \
                 already; make it again once there are fewer"
            ),
        ))
    }

    /// Makes room for a paused call: the oldest one that has its answer, and was not made again, is forgotten.
    async fn forget_answered(&self) {
        let paused: Vec<_> = locked(&self.lanes).paused.iter().map(|(_, lane)| lane.clone()).collect();
        for lane in paused {
            let waits = lane.session.pending().await;
            if !waits.is_ok_and(|all| all.iter().all(|it| it.waits_for == Waiting::Resume)) {
                continue;
            }
            let place = |lanes: &Lanes| lanes.paused.iter().position(|(_, it)| it.number == lane.number);
            let forgotten = {
                let mut lanes = locked(&self.lanes);
                place(&lanes).and_then(|place| lanes.paused.remove(place))
            };
            if let Some((_, lane)) = forgotten {
                // Its lane is not used again, so it matters to nobody if this fails.
                let _ = lane.session.stop().await;
                return;
            }
        }
    }

    /// Closes the questions of a client that has left, now and later.
    pub(crate) async fn close(&self) {
        let paused = {
            let mut lanes = locked(&self.lanes);
            lanes.over = true;
            std::mem::take(&mut lanes.paused)
        };
        for (_, lane) in paused {
            // Whatever holds such a session was started from outside, and ends the question.
            let _ = lane.session.stop().await;
        }
    }

    async fn perform(
        &self,
        served: &Served,
        call: Call,
        progress: &mut Progress,
        stop: &CancellationToken,
    ) -> Result<CallToolResult> {
        let agent = Caller {
            name: served.name.clone(),
            call: call.clone(),
            tools: served.tools.tools().keep(|spec| served.scope.offers(spec) || spec.name() == call.name),
            scope: served.scope.clone(),
        };
        let taken = self.take(served, &call)?;
        let session = &taken.lane.session;
        // The run of a paused call may have been ended from outside meanwhile.
        let unfinished = if taken.paused { session.unfinished().await } else { Ok(None) };
        let mut run = match unfinished {
            Ok(Some(_)) => session.resume(agent),
            Ok(None) => session.start(agent, call.prompt()),
            Err(error) => {
                self.keep(taken, call).await?;
                return Err(error);
            }
        };
        let result = watch(&mut run, progress, stop).await;
        let outcome = run.outcome().await;
        match &outcome {
            Ok(Outcome { status: Status::Paused(_), .. }) => self.keep(taken, call).await?,
            // It may be as open as before, and another call would end it.
            Err(_) if taken.paused => self.keep(taken, call).await?,
            _ => drop(taken),
        }
        Ok(match (&outcome, result) {
            (Ok(Outcome { status: Status::Completed | Status::Failed(_), .. }), Some(result)) => {
                offer::result(&result)
            }
            _ => without_result(&outcome),
        })
    }
}

/// Follows a run to its end, and returns the result of its call. The run is cancelled with `stop`.
async fn watch(
    run: &mut RunHandle,
    progress: &mut Progress,
    stop: &CancellationToken,
) -> Option<Arc<ToolResult>> {
    let (session, cancel) = (run.session().clone(), run.cancellation());
    let (mut result, mut stopped) = (None, false);
    loop {
        let next = tokio::select! {
            biased;
            () = stop.cancelled(), if !stopped => {
                stopped = true;
                cancel.cancel();
                continue;
            }
            () = progress.sent() => continue,
            next = run.next() => next,
        };
        let Some(event) = next else { return result };
        progress.see(&event, &session);
        if let Event::ToolFinished(call) = &event.event
            && event.origin.session == session
        {
            result = Some(Arc::clone(&call.result));
        }
    }
}
