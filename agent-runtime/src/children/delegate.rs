//! Agents in child sessions: beside their run, in tasks of their own, or as parts of it, which it polls itself.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    event::{ChildFinished, ChildStarted, EffectKey, Event},
    run::{Delegate, Observation, RunContext, Status},
    session::SessionState,
};
use tokio::{runtime::Handle, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{
    children::{
        child::{Below, ChildEnd, Kept, Turn, check_found, known_end, open_kept, run_child, seated},
        pool::{Number, Pool, Seat, refusal, too_many},
    },
    effects::{
        site::Site,
        stopwatch::{Stopwatch, passed},
        subtree::Subtree,
    },
    permission::reads_unasked,
    run::{
        execute::Within,
        local::{LocalEffects, child_end, observed},
    },
    session::{delivery::nest::Nest, journal::Journal},
};

/// Most times that a child's session is opened, while a process that was overtaken is faster there.
const TRIES: u32 = 3;

impl LocalEffects {
    /// Runs a child and waits for its end. Dropping the future cancels the child, and the run's end waits for it.
    pub(crate) async fn delegate(&self, cx: &RunContext, delegate: Box<Delegate>) -> Result<Observation> {
        if !self.take_up(&delegate.child) {
            return Err(Error::new(ErrorKind::InvalidInput, "an agent runs in this child session already")
                .with("child", delegate.child.as_str()));
        }
        let seat = match delegate.part_of_run {
            true => None,
            false => Some(self.seat(delegate.spawn.at_once).map_err(|refused| too_many(&refused))?),
        };
        self.site.commit().await?;
        let child = delegate.child.clone();
        let held = Held::new(cx, &delegate);
        let Held { cancel, subtree, .. } = held.clone();
        let end = match seat {
            Some(seat) => {
                let until_dropped = cancel.drop_guard();
                self.start_held(cx, delegate, Some(seat), held);
                let (_, end) = self.first_ended(vec![child.clone()]).await?;
                until_dropped.disarm();
                end
            }
            None => {
                let work = Some(Box::pin(self.work(cx, delegate, None, held)) as _);
                let end = Part { local: self, child: &child, cancel, work }.await;
                match end.outcome.status {
                    Status::Paused(ref reason) => return Err(Error::paused(reason.clone())),
                    _ => self.unless_lost(end)?,
                }
            }
        };
        self.site.read_labelled(end.outcome.labels);
        let mut total = None;
        if let Some(subtree) = subtree {
            // Figures that cannot be read are unknown, and no reason to fail.
            drop(Box::pin(subtree.complete(&self.site.env, &child)).await);
            total = subtree.total().map(Box::new);
        }
        Ok(Observation::Child { child: Some(child), outcome: Some(end.outcome), work: end.work, total })
    }

    /// Forgets that the child paused, if it did: it may go on, or unwind. Returns false while it runs.
    fn take_up(&self, child: &SessionId) -> bool {
        let mut children = self.children();
        let rests = |below: &Below| {
            let end = below.outcome.borrow();
            end.as_ref().is_some_and(|end| matches!(end.outcome.status, Status::Paused(_)))
        };
        let rests = children.get(child).map(rests);
        if rests == Some(true) {
            children.remove(child);
        }
        rests != Some(false)
    }

    /// Runs a child of a hand-written agent and waits for its end, which is recorded: the child is not begun again.
    pub(crate) async fn delegate_once(
        &self,
        cx: &RunContext,
        key: EffectKey,
        recorded: Vec<Event>,
        mut delegate: Box<Delegate>,
    ) -> Result<Observation> {
        if let Some(known) = child_end(&recorded) {
            return Ok(known);
        }
        if let Some(refused) = observed(&recorded) {
            return Err(too_many(&refused));
        }
        if recorded.is_empty() {
            let (child, agent) = (delegate.child.clone(), delegate.spawn.agent.name().to_owned());
            self.site.note(Event::ChildStarted(Arc::new(ChildStarted::new(child, agent, delegate.run, key))));
        }
        // A child that had a slot before a restart waits for another one.
        delegate.spawn.at_once &= recorded.is_empty();
        let at_once = delegate.spawn.at_once;
        match self.delegate(cx, delegate).await {
            Ok(Observation::Child { child, outcome, .. }) => {
                let end = ChildFinished::new(child.clone(), outcome.as_deref().cloned(), key);
                self.site.note(Event::ChildFinished(Arc::new(end)));
                Ok(Observation::Child { child, outcome, work: Vec::new(), total: None })
            }
            Err(error) if at_once && error.kind() == ErrorKind::TooMany => {
                self.observe(Some(key), refusal(self.site.env.sub_agents));
                Err(error)
            }
            other => other,
        }
    }

    /// Starts the child beside this run.
    pub(crate) fn start_child(&self, cx: &RunContext, delegate: Box<Delegate>, seat: Option<Seat>) {
        let held = Held::new(cx, &delegate);
        self.start_held(cx, delegate, seat, held);
    }

    fn start_held(&self, cx: &RunContext, delegate: Box<Delegate>, seat: Option<Seat>, held: Held) {
        let (child, number) = (delegate.child.clone(), seat.as_ref().and_then(Seat::number));
        // A large future is moved several times on its way into a task; a box is moved cheaply.
        let work = Box::pin(self.work(cx, delegate, seat, held));
        if self.site.life.is_over() {
            return;
        }
        self.go_on_beside(child, number, work);
    }

    /// Lets the child's work go on in a task of its own.
    fn go_on_beside(&self, child: SessionId, seat: Option<Number>, work: Work) {
        let (tell, outcome) = watch::channel(None);
        {
            let mut children = self.children();
            // After the run's end nobody waits for it.
            if !self.site.life.is_over() {
                children.insert(child, Below { outcome, seat });
            }
        }
        self.site.env.tasks.spawn(Nest::inherited(async move {
            let end = work.await;
            tell.send_replace(Some(end));
        }));
    }

    /// Returns the child's work, from its beginning to its end. Without a seat it takes no slot.
    fn work(
        &self,
        cx: &RunContext,
        delegate: Box<Delegate>,
        seat: Option<Seat>,
        held: Held,
    ) -> impl Future<Output = ChildEnd> + Send + use<> {
        let pool = seat.as_ref().map_or_else(|| self.pool(), Seat::pool).clone();
        let kept = delegate.run.map(|_| Arc::clone(self.kept.get_or_init(Kept::default)));
        let (cx, site, left_open) = (cx.clone(), Arc::clone(&self.site), self.mark_of_rest());
        // While the call that starts it is known to run.
        let held = Held { clock: site.clock_of_child(&cx), ..held };
        async move {
            let (seat, seats) = match seat {
                Some(seat) => (seated(seat, &held.cancel).await, true),
                None => (None, false),
            };
            let unseated = seats && seat.is_none();
            let mut tries = TRIES;
            let end = loop {
                let open = open_kept(&site, &delegate, kept.as_ref()).await;
                let open = open.and_then(|journal| check_found(&journal, &site, &delegate).map(|()| journal));
                let journal = match open {
                    Ok(journal) => journal,
                    Err(error) => break Err(error),
                };
                match known_end(&journal, delegate.run.map_or(Turn::Only, Turn::Of)).await {
                    Ok(None) => {}
                    Ok(Some(end)) => break Ok(end),
                    Err(error) => break Err(error),
                }
                let held = held.clone().apart(&site, delegate.limit);
                let (limit, cancel, clock) = (delegate.limit, held.cancel.clone(), held.clock.clone());
                // Pinned here, since a function keeps a future that it is given twice.
                let run =
                    pin!(begin(&cx, &site, &journal, (*delegate).clone(), held, pool.clone(), unseated));
                let end = within(limit, cancel, clock, run).await;
                if let Err(error) = &end
                    && journal.came_second()
                {
                    tries = tries.saturating_sub(1);
                    if tries > 0 {
                        // A process that this run was taken from is still at work there.
                        continue;
                    }
                    journal.refused(error);
                }
                break end;
            };
            let end = end.unwrap_or_else(|error| ChildEnd::lost(&error));
            if end.is_open() {
                left_open.store(true, Ordering::Relaxed);
            }
            match seat {
                Some(seat) if matches!(end.outcome.status, Status::Paused(_)) => seat.leave_unfinished(),
                // The slot is passed on before the run above hears of the end.
                seat => drop(seat),
            }
            end
        }
    }
}

/// Parts of a child's run that the run above holds too.
#[derive(Clone)]
struct Held {
    /// The token that cancels the child: a given one, or one of its own.
    cancel: CancellationToken,
    /// Counter of the model calls of the child and all below it.
    subtree: Option<Arc<Subtree>>,
    /// The clock of the time limits that the child is under.
    clock: Option<Arc<Stopwatch>>,
}

impl Held {
    fn new(cx: &RunContext, delegate: &Delegate) -> Self {
        let cancel = delegate.cancel.clone().unwrap_or_else(|| cx.cancellation().child_token());
        Self { cancel, subtree: delegate.counted.then(Arc::default), clock: None }
    }

    /// Returns the same with a token and a clock of its own for the time limit, if there is one: whoever gave the token
    /// sees that it did not cancel. Where something is stored, the run may be tried again, and its end cancels the
    /// token.
    fn apart(mut self, site: &Site, limit: Option<Duration>) -> Self {
        if limit.is_some() || site.env.store.is_some() {
            self.cancel = self.cancel.child_token();
        }
        if limit.is_some() && site.env.approver.is_some() {
            self.clock = Some(Stopwatch::below(self.clock.as_ref()));
        }
        self
    }
}

/// Waits for the run's end. Cancels it at its time limit, for which `clock` was made, and waits until it has unwound.
async fn within<T>(
    limit: Option<Duration>,
    cancel: CancellationToken,
    clock: Option<Arc<Stopwatch>>,
    mut run: Pin<&mut impl Future<Output = T>>,
) -> T {
    if let Some(limit) = limit {
        tokio::select! {
            biased;
            ended = &mut run => return ended,
            () = passed(limit, || clock.clone()) => cancel.cancel(),
        }
    }
    run.await
}

/// Begins the child's run in its session.
fn begin(
    cx: &RunContext,
    site: &Site,
    journal: &Arc<Journal>,
    delegate: Delegate,
    held: Held,
    pool: Pool,
    unseated: bool,
) -> impl Future<Output = Result<ChildEnd>> + Send + use<> {
    let Delegate { spawn, run, opening, cancel: given, .. } = delegate;
    let Held { cancel, subtree, clock } = held;
    if let (Some(subtree), Some(above)) = (&subtree, &site.subtree) {
        subtree.put_below(above);
    }
    if let Some(subtree) = subtree.as_ref().filter(|_| journal.read(|state| state.run().is_none())) {
        subtree.begin();
    }
    let scope = cx.scope().narrow(&spawn.scope);
    let within = Box::new(Within {
        path: Some(Arc::clone(&site.origin.agent)),
        reads_unasked: site.env.readers_unasked && reads_unasked(Some(cx.scope()), &scope),
        scope,
        cancel,
        emitter: site.emitter.clone(),
        todos: spawn.shares_todos.then(|| site.todos.clone()),
        budget: cx.budget().cloned(),
        run,
        opening,
        title: spawn.title,
        pool: Some(pool),
        unseated,
        subtree: subtree.or_else(|| site.subtree.clone()),
        clock,
        root: Some(Arc::clone(&site.root)),
        above: site.journal.as_above(site.origin.run),
        labels: site.read(SessionState::labels),
        owns_cancel: given.is_none(),
        deps: site.deps.clone(),
    });
    run_child(&site.env, journal, spawn.agent, spawn.task, run.map_or(Turn::Only, Turn::Of), within)
}

/// The work of a child.
type Work = Pin<Box<dyn Future<Output = ChildEnd> + Send>>;

/// A child that its run only waits for, and so polls itself. If the wait is dropped, the child is cancelled and unwinds
/// in a task, which the run's end waits for.
struct Part<'a> {
    local: &'a LocalEffects,
    child: &'a SessionId,
    cancel: CancellationToken,
    /// `None` once it has ended.
    work: Option<Work>,
}

impl Future for Part<'_> {
    type Output = ChildEnd;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<ChildEnd> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let end = std::task::ready!(work.as_mut().poll(task));
        self.work = None;
        Poll::Ready(end)
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        self.cancel.cancel();
        // Without a tokio runtime all is over.
        if Handle::try_current().is_ok() {
            self.local.go_on_beside(self.child.clone(), None, work);
        }
    }
}
