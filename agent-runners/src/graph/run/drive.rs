//! The loop of a run: it starts nodes, waits for the next event, and records the result before anything acts on it. All
//! work of the run happens in its own futures: nothing is spawned.

use std::collections::HashMap;

use entourage_core::{
    Error, ErrorKind, Result, SessionId, Timestamp,
    event::Recorded,
    run::{Pause, RunContext},
};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    super::{NodeStarted, Work, control::Command, schedule::State},
    attempt::Step,
    machine::Machine,
    supervise::Advice,
    track::{Attempt, Ended, Told},
};

/// A graph's run in progress.
pub(super) struct Drive<'a> {
    pub(super) cx: &'a RunContext,
    pub(super) machine: Machine,
    commands: mpsc::Receiver<Command>,
    pub(super) waiting: FuturesUnordered<BoxFuture<'a, Woken>>,
    /// Tokens that stop the running attempts.
    stops: HashMap<usize, CancellationToken>,
    /// Started nodes that are not polled yet, since their start is not stored.
    wave: Vec<usize>,
    /// Callers to answer once their change is stored.
    answers: Vec<(oneshot::Sender<Result<()>>, Result<()>)>,
    pub(super) staged: bool,
    /// True until it is stored that the supervisor is asked.
    pub(super) to_advise: bool,
    /// True while the supervisor's run goes on.
    pub(super) advised: bool,
    /// Stops that run.
    pub(super) advice_stop: CancellationToken,
    /// Reason why the run starts nothing more: it ends once all its attempts have unwound.
    over: Option<Error>,
}

/// Result of a wait.
pub(super) enum Woken {
    /// An attempt at this node ended.
    Ended(usize, Ended),
    /// The wait for the retry after this attempt is over.
    Due(usize, u32),
    /// The supervisor's run ended.
    Advised(Advice),
}

impl<'a> Drive<'a> {
    /// Records the beginning of the run.
    pub(super) fn record_begin(&mut self) {
        if self.is_heard() {
            let started = Recorded::new(self.machine.started());
            self.append(&started);
        }
    }

    /// A run that is over is told so by its first effect, or by its commit.
    fn append(&mut self, record: &Recorded) {
        drop(self.cx.effects().append(self.cx, None, &mut |_, _| Ok(record.clone())));
        self.staged = true;
    }

    pub(super) fn new(cx: &'a RunContext, machine: Machine, commands: mpsc::Receiver<Command>) -> Self {
        Self {
            cx,
            machine,
            commands,
            waiting: FuturesUnordered::new(),
            stops: HashMap::new(),
            wave: Vec::new(),
            answers: Vec::new(),
            staged: false,
            to_advise: false,
            advised: false,
            advice_stop: cx.cancellation().child_token(),
            over: None,
        }
    }

    /// Drives the run until every node is over.
    ///
    /// # Errors
    /// A cancel, a pause, an error of the store, [`ErrorKind::Diverged`] from below.
    pub(super) async fn run(&mut self) -> Result<()> {
        self.stop_what_was_stopping();
        self.resume_supervisor();
        loop {
            self.machine.heard = self.is_heard();
            self.start();
            self.ask_supervisor();
            self.flush();
            self.commit().await;
            if self.launch().await {
                continue;
            }
            if let Some(end) = self.is_done() {
                return end;
            }
            self.wait().await;
        }
    }

    /// True when the run starts nothing more.
    pub(super) fn is_ending(&self) -> bool {
        self.over.is_some()
    }

    fn is_heard(&self) -> bool {
        self.cx.effects().has_readers()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.cx.effects().time()
    }

    /// Returns the end of the run, once nothing is left to wait for.
    fn is_done(&mut self) -> Option<Result<()>> {
        if !self.stops.is_empty() || !self.wave.is_empty() || self.advised {
            return None;
        }
        if let Some(error) = self.over.take() {
            return Some(Err(error));
        }
        if self.machine.is_over() {
            return Some(Ok(()));
        }
        if self.cx.effects().is_pausing() {
            return Some(Err(Error::paused(self.machine.pause().unwrap_or(Pause::Asked))));
        }
        if !self.waiting.is_empty() {
            return None;
        }
        Some(Err(match self.machine.pause() {
            Some(pause) => Error::paused(pause),
            None => Error::new(ErrorKind::Internal, "tasks remain, but none can start"),
        }))
    }

    /// Stops attempts that were being stopped when an earlier process died: an agent is resumed so that it can unwind.
    fn stop_what_was_stopping(&mut self) {
        let stopping = |place: &usize| self.machine.schedule.state(*place) == Some(State::Stopping);
        // A map ends with its items.
        let expanded = |place: &usize| self.machine.has_items(*place);
        let places = (0..self.machine.tracks.len()).filter(stopping);
        let left: Vec<_> = places.filter(|place| !expanded(place)).collect();
        left.into_iter().for_each(|place| self.unwind(place));
    }

    /// Lets an attempt unwind that is being stopped, and that this process does not run.
    fn unwind(&mut self, place: usize) {
        match self.machine.child(place) {
            Some(child) => {
                let stop = self.cx.cancellation().child_token();
                stop.cancel();
                self.work(place, child, stop);
            }
            None => self.settle(place, Ended::new(Attempt::Cancelled)),
        }
    }

    /// Starts every node that can run, up to recording its start.
    fn start(&mut self) {
        // A graph whose steps never wait would otherwise never see the cancel.
        let left = self.over.is_none() && !self.machine.schedule.is_over();
        if left && self.cx.cancellation().is_cancelled() {
            self.give_up(Error::cancelled());
        }
        if self.over.is_some() || self.cx.effects().is_pausing() {
            return;
        }
        let now = self.now();
        while let Some(place) = self.machine.schedule.start() {
            let fresh = self.machine.begin(place, now);
            let begun = match fresh {
                Some(attempt) => self.record_start(place, attempt),
                None => Ok(()),
            };
            if let Err(error) = begun {
                self.machine.settle(place, Ended::new(Attempt::Failed(error)), now);
            } else if self.machine.is_map(place) {
                self.machine.expand(place, now);
            } else {
                self.wave.push(place);
            }
        }
    }

    /// Records the start of an attempt. A child's session is named after this record, so that a resumed run finds it.
    fn record_start(&mut self, place: usize, attempt: u32) -> Result<()> {
        let agent = self.machine.agent(place);
        if !self.machine.heard {
            if agent.is_some() {
                let child = self.cx.session().child(u64::from(attempt), place as u64 + 1)?;
                self.machine.set_child(place, child);
            }
            return Ok(());
        }
        let (node, session) = (self.machine.id(place), self.cx.session());
        // Earlier records come first.
        self.flush();
        let started = self.cx.append_with(|_, seq| {
            let child = agent.as_ref().map(|_| session.child(seq, 0)).transpose()?;
            let agent = agent.map(|agent| agent.name().into());
            Ok(NodeStarted { node, attempt, agent, child })
        })?;
        self.staged = true;
        if let Some(child) = &started.child {
            self.machine.set_child(place, child.clone());
        }
        Ok(())
    }

    /// Carries out what the machine has queued, in order.
    pub(super) fn flush(&mut self) {
        if self.machine.told.is_empty() {
            return;
        }
        for told in std::mem::take(&mut self.machine.told) {
            match told {
                // A broken run must not record anything more of its nodes.
                Told::Record(_) if self.is_broken() => {}
                Told::Record(record) => self.append(&record),
                Told::Stop(place) => {
                    if let Some(stop) = self.stops.get(&place) {
                        stop.cancel();
                    }
                }
                Told::Unwind(place) => self.unwind(place),
                Told::Wait(place, at) => {
                    let attempt = self.machine.tracks.get(place).map_or(0, |track| track.attempt);
                    let wait = at.since(self.now());
                    let due = async move {
                        tokio::time::sleep(wait).await;
                        Woken::Due(place, attempt)
                    };
                    self.waiting.push(due.boxed());
                }
            }
        }
    }

    /// True when the run ends for a reason that its record must not show.
    fn is_broken(&self) -> bool {
        self.over.as_ref().is_some_and(|error| error.kind() != ErrorKind::Cancelled)
    }

    /// Stores what was recorded, then answers the callers that wait for it.
    async fn commit(&mut self) {
        // A cancelled run must end quickly: its last events are stored with its end.
        if self.staged && self.over.is_none() {
            self.staged = false;
            if let Err(error) = self.cx.commit().await {
                let told = error.record();
                self.answers.iter_mut().for_each(|(_, answer)| *answer = Err(told.to_error()));
                self.give_up(error);
            }
        }
        for (tell, answer) in self.answers.drain(..) {
            // The caller may be gone.
            drop(tell.send(answer));
        }
    }

    /// Begins the attempts whose start is stored. Returns true when one of them has already ended.
    async fn launch(&mut self) -> bool {
        let mut ended = false;
        let mut wave = std::mem::take(&mut self.wave);
        for place in wave.drain(..) {
            tokio::task::coop::consume_budget().await;
            if self.over.is_some() || self.machine.schedule.state(place) == Some(State::Stopping) {
                self.settle(place, Ended::new(Attempt::Cancelled));
                ended = true;
                continue;
            }
            match self.machine.child(place) {
                Some(child) => {
                    let stop = self.cx.cancellation().child_token();
                    self.work(place, child, stop);
                }
                None => ended |= self.step(place).await,
            }
        }
        self.launch_supervisor();
        // Its capacity is kept for the next wave.
        self.wave = wave;
        ended
    }

    async fn step(&mut self, place: usize) -> bool {
        let inputs = self.machine.inputs(place);
        let Some(node) = self.machine.node(place) else { return false };
        let Work::Step(step) = &node.work else { return false };
        let limit = node.timeout;
        match Step::begin(step, &inputs).await {
            Ok(result) => {
                self.settle(place, Ended::new(result));
                true
            }
            Err(step) => {
                let stop = CancellationToken::new();
                self.stops.insert(place, stop.clone());
                let ending = async move { Woken::Ended(place, step.end(limit, stop).await) };
                self.waiting.push(ending.boxed());
                false
            }
        }
    }

    fn work(&mut self, place: usize, child: SessionId, stop: CancellationToken) {
        let Some(worker) = self.machine.worker(place, child, stop.clone()) else { return };
        self.stops.insert(place, stop);
        let cx = self.cx;
        let ending = async move { Woken::Ended(place, worker.run(cx).await) };
        self.waiting.push(ending.boxed());
    }

    /// Waits for the next event, and handles everything else that is ready by then.
    async fn wait(&mut self) {
        let cancelled = self.cx.cancellation();
        let going_on = self.over.is_none();
        tokio::select! {
            biased;
            () = cancelled.cancelled(), if going_on => self.give_up(Error::cancelled()),
            Some(command) = self.commands.recv(), if going_on => self.command(command),
            Some(woken) = self.waiting.next(), if !self.waiting.is_empty() => self.woken(woken),
        }
        // These belong into one transaction.
        while let Some(Some(woken)) = self.waiting.next().now_or_never() {
            self.woken(woken);
        }
    }

    fn woken(&mut self, woken: Woken) {
        match woken {
            Woken::Advised(advice) => self.advised(advice),
            Woken::Due(place, after) => {
                let now = self.now();
                self.machine.due(place, after, now);
            }
            Woken::Ended(place, ended) => {
                self.stops.remove(&place);
                // A child may see the cancel before this loop does.
                if self.over.is_none() && self.cx.cancellation().is_cancelled() {
                    self.give_up(Error::cancelled());
                }
                self.settle(place, ended);
            }
        }
    }

    fn settle(&mut self, place: usize, ended: Ended) {
        let now = self.now();
        let ended = match ended.result {
            Attempt::Broken(error) => {
                self.give_up(error);
                Ended { result: Attempt::Cancelled, ..ended }
            }
            Attempt::Done(value) if self.cx.effects().is_stored() => match value.check() {
                Ok(()) => Ended { result: Attempt::Done(value), ..ended },
                Err(error) => Ended { result: Attempt::Failed(error), ..ended },
            },
            result => Ended { result, ..ended },
        };
        self.machine.settle(place, ended, now);
        self.flush();
    }

    /// Stops everything; the run ends with `error` once all of it has unwound.
    pub(super) fn give_up(&mut self, error: Error) {
        if self.over.is_some() {
            return;
        }
        self.over = Some(error);
        self.advice_stop.cancel();
        self.machine.schedule.cancel_all();
        let now = self.now();
        self.machine.follow(now);
        self.flush();
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Change(change, tell) => {
                let now = self.now();
                let answer = self.machine.carry_out(&change, now, |_, _| false);
                self.flush();
                self.answers.push((tell, answer));
            }
            Command::Call => self.machine.call_supervisor(),
            Command::Report(tell) => drop(tell.send(self.machine.report())),
            Command::Working(tell) => {
                let asked = usize::from(self.machine.is_watched());
                // Whoever asked may have gone.
                let _ = tell.send(self.stops.len() + self.wave.len() + asked);
            }
        }
    }
}
