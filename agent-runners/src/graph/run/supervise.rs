//! Asking the supervisor: when, once at a time, and what becomes of its answer.

use std::{fmt::Display, sync::Arc};

use entourage_core::{
    Error, SessionId,
    event::Recorded,
    run::{Delegate, Outcome, Pause, RunContext, Spawn, Status},
};
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        Change, Interventions, SupervisorAnswered, SupervisorAsked,
        schedule::State,
        supervisor::{News, ROUNDS, Supervisor},
    },
    drive::{Drive, Woken},
    machine::{Machine, guarded},
    track::Told,
};
use crate::{below::Below, typed::OutcomeExt};

/// Most characters about a refused step.
const LONGEST: usize = 500;

/// The reason that a task is not tried again which failed as nobody may better by themselves.
const FINAL: &str =
    "leave for it was refused, or what bounds it is used up, so it is not tried again; do without it";

/// What a run keeps of its supervisor.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// How often it was asked.
    asked: u32,
    /// Nodes that failed for good since it was asked, by place.
    failed: Vec<usize>,
    /// True when something else happened that it is to know.
    called: bool,
    /// The run in which it is asked now.
    asking: Option<Arc<SupervisorAsked>>,
    /// Changes that an earlier process made since: the answer that is taken once more may have asked for them.
    made: Vec<Change>,
    /// Steps of its last answer that were refused.
    refused: Vec<String>,
    /// Reason why it is waited for and does not go on.
    pause: Option<Pause>,
}

/// End of a supervisor's run.
pub(super) enum Advice {
    Ended(Box<Outcome>),
    Paused(Pause),
    Broken(Error),
}

impl Machine {
    /// Notes that a node failed for good.
    pub(super) fn note_failure(&mut self, place: usize) {
        if self.graph.supervisor.is_some() {
            self.watch.failed.push(place);
        }
    }

    /// Notes that the supervisor is to be asked, whatever the nodes do.
    pub(super) fn call_supervisor(&mut self) {
        self.watch.called = true;
    }

    /// True when the supervisor is asked now, or is to be asked.
    pub(super) fn is_watched(&self) -> bool {
        self.watch.asking.is_some() || self.is_to_ask()
    }

    /// True for a node that failed, was skipped or cancelled.
    pub(super) fn is_failed(&self, id: &str) -> bool {
        let state = self.place(id).and_then(|place| self.schedule.state(place));
        state.is_some_and(|state| state.is_terminal() && state != State::Completed)
    }

    /// True for a node that failed as nobody may try again by themselves.
    fn is_final(&self, id: &str) -> bool {
        self.place(id).and_then(|place| self.final_failure(place)).is_some()
    }

    /// True for a node that is over, and keeps what needs it from beginning.
    fn blocks(&self, id: &str) -> bool {
        let state = self.place(id).and_then(|place| self.schedule.state(place));
        state.is_some_and(|state| state.is_terminal() && !self.schedule.gives(state))
    }

    /// True when nothing goes on, not all is done, and a step that was to change that was refused.
    fn is_stuck(&self) -> bool {
        let counts = self.schedule.counts();
        !self.watch.refused.is_empty() && self.schedule.is_over() && counts.failed + counts.cancelled > 0
    }

    fn is_to_ask(&self) -> bool {
        let has_news = self.watch.called || !self.watch.failed.is_empty() || self.is_stuck();
        let left = self.graph.supervisor.is_some() && self.watch.asked < ROUNDS;
        has_news && left && self.watch.asking.is_none() && !self.schedule.is_closed()
    }

    /// Returns the reason of the supervisor's pause.
    pub(super) fn watch_pause(&self) -> Option<Pause> {
        self.watch.pause.clone()
    }

    pub(super) fn recall_asked(&mut self, asked: &Arc<SupervisorAsked>) {
        self.watch.asked = asked.round;
        self.watch.asking = Some(Arc::clone(asked));
        (self.watch.called, self.watch.failed, self.watch.made) = (false, Vec::new(), Vec::new());
    }

    /// Notes a change of an earlier process.
    pub(super) fn recall_made(&mut self, change: &Change) {
        if self.watch.asking.is_some() {
            self.watch.made.push(change.clone());
        }
    }

    /// True for a step that an earlier process took before it died. Each such step counts once.
    fn is_made(&mut self, change: &Change) -> bool {
        let made = self.watch.made.iter().position(|made| made == change);
        made.map(|place| self.watch.made.swap_remove(place)).is_some()
    }

    pub(super) fn recall_answered(&mut self, answered: &SupervisorAnswered) {
        self.watch.asking = None;
        self.watch.refused.clone_from(&answered.refused);
    }

    fn news(&self, asked: &SupervisorAsked) -> News {
        let (report, refused) = (self.report(), self.watch.refused.clone());
        News { report, failed: asked.about.clone(), run: asked.run, refused }
    }
}

impl Drive<'_> {
    /// Records that the supervisor is asked, if it is to know something.
    pub(super) fn ask_supervisor(&mut self) {
        if self.is_ending() || self.cx.effects().is_pausing() || !self.machine.is_to_ask() {
            return;
        }
        // Earlier records come first.
        self.flush();
        let places = std::mem::take(&mut self.machine.watch.failed);
        let about: Vec<_> = places.iter().map(|place| self.machine.id(*place)).collect();
        let (round, above) = (self.machine.watch.asked.saturating_add(1), self.cx.run());
        let Some(supervisor) = self.machine.graph.supervisor.clone() else { return };
        let asked = self.cx.session().in_role(supervisor.role).and_then(|child| {
            self.cx
                .append_with(|_, seq| Ok(SupervisorAsked { round, child, run: above.started_at(seq), about }))
        });
        match asked {
            Ok(asked) => {
                self.machine.recall_asked(&asked);
                self.to_advise = true;
                self.staged = true;
            }
            Err(error) => self.give_up(error),
        }
    }

    /// Asks the supervisor anew if a run of an earlier process was asking it.
    pub(super) fn resume_supervisor(&mut self) {
        if self.machine.graph.beside.as_ref().is_some_and(|beside| beside.is_calling()) {
            self.machine.call_supervisor();
        }
        if self.machine.watch.asking.is_some() {
            self.to_advise = true;
        }
    }

    /// Begins the supervisor's run, once it is stored that it is asked.
    pub(super) fn launch_supervisor(&mut self) {
        if !std::mem::take(&mut self.to_advise) || self.is_ending() {
            return;
        }
        let (Some(supervisor), Some(asked)) =
            (self.machine.graph.supervisor.clone(), self.machine.watch.asking.clone())
        else {
            return;
        };
        self.advised = true;
        let (cx, news) = (self.cx, self.machine.news(&asked));
        let stop = self.advice_stop.clone();
        self.waiting.push(
            async move { Woken::Advised(consult(&supervisor, &news, asked.child.clone(), stop, cx).await) }
                .boxed(),
        );
    }

    /// Takes the steps that the supervisor asks for.
    pub(super) fn advised(&mut self, advice: Advice) {
        self.advised = false;
        let outcome = match advice {
            Advice::Broken(error) => return self.give_up(error),
            Advice::Paused(pause) => {
                self.machine.watch.pause = Some(pause);
                return;
            }
            Advice::Ended(outcome) => outcome,
        };
        if self.is_ending() {
            return;
        }
        let (refused, problem) = match (&outcome.status, outcome.value::<Interventions>()) {
            (Status::Completed, Ok(answer)) => (self.intervene(&answer), None),
            (Status::Completed, Err(error)) => (Vec::new(), Some(error.message().to_owned())),
            (status, _) => (Vec::new(), Some(status.to_string())),
        };
        let round = self.machine.watch.asked;
        let answered = SupervisorAnswered { round, refused, problem };
        self.machine.recall_answered(&answered);
        self.machine.told.push(Told::Record(Recorded::new(answered)));
        self.flush();
    }

    /// Returns the steps that cannot be taken, with the reasons.
    fn intervene(&mut self, answer: &Interventions) -> Vec<String> {
        let mut refused = Vec::new();
        for step in answer.steps.iter().take(Interventions::MOST) {
            let Some(change) = step.change(|id| self.machine.blocks(id)) else { continue };
            // A person may: a supervisor is a model, which would have them asked until they give in.
            if let Change::Retry { node } | Change::Reassign { node, .. } = &change
                && self.machine.is_final(node)
            {
                refused.push(told(&change, &FINAL));
                continue;
            }
            let now = self.now();
            let changed = self.machine.carry_out(&change, now, Machine::is_made);
            self.flush();
            if let Err(error) = changed {
                refused.push(told(&change, &error));
            }
        }
        refused
    }
}

/// Says why a change is refused. The names in it are the model's own, of any length.
fn told(change: &Change, why: &dyn Display) -> String {
    format!("{change}: {why}").chars().take(LONGEST).collect()
}

async fn consult(
    supervisor: &Supervisor,
    news: &News,
    child: SessionId,
    stop: CancellationToken,
    cx: &RunContext,
) -> Advice {
    let asked = guarded("asking the supervisor", || (supervisor.ask)(news));
    let task = match asked {
        Ok(task) => task,
        Err(error) => return Advice::Broken(error),
    };
    let spawn = Spawn::new(Arc::clone(&supervisor.agent), task).with_role(supervisor.role);
    // It helps those who hold all the slots.
    let delegate = Delegate::new(child, spawn).run(news.run).cancelled_by(stop).part_of_run();
    match Below::run(delegate, cx).await {
        Ok(ended) => match &ended.outcome.status {
            Status::Paused(pause) => Advice::Paused(pause.clone()),
            _ => Advice::Ended(ended.outcome),
        },
        Err(error) => match error.pause() {
            Some(pause) => Advice::Paused(pause.clone()),
            None => Advice::Broken(error),
        },
    }
}
