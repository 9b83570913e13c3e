//! The verifier of a cascade: a closure, or an agent that answers as the checkers of a pair do.

use std::{fmt, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result,
    message::Message,
    run::{Outcome, RunContext, Status},
};
use entourage_runtime::caught;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::fate::Ruling;
use crate::autonomy::{
    Discriminator, Fate,
    check::{Asked, Check},
    fate,
};

/// A closure that refuses an answer with a reason.
pub(super) type VerifyFn = Arc<dyn Fn(&Outcome) -> Result<(), String> + Send + Sync>;

/// The verifier of a cascade.
#[derive(Clone)]
pub(super) enum Verifier {
    /// Each answer will do: only failures and stops escalate.
    Nobody,
    Closure(VerifyFn),
    Agent(Arc<Discriminator>),
}

impl Verifier {
    /// Returns the agent that checks, if one does.
    pub(super) fn agent(&self) -> Option<&Arc<Discriminator>> {
        if let Self::Agent(checker) = self { Some(checker) } else { None }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "Nobody",
            Self::Closure(_) => "Closure",
            Self::Agent(_) => "Agent",
        })
    }
}

/// Asks a closure of the program, on a thread for work that blocks: a run that is cancelled or late waits no longer. A
/// panic refuses the answer.
///
/// # Errors
/// [`ErrorKind::Cancelled`] when the run is.
pub(super) async fn ask(verify: &VerifyFn, outcome: &Outcome, cx: &RunContext) -> Result<Ruling> {
    let (verify, outcome) = (Arc::clone(verify), outcome.clone());
    let ask = move || match caught(|| verify(&outcome)) {
        Ok(Ok(())) => Ruling::Accepted,
        Ok(Err(reason)) => Ruling::Refused(reason),
        Err(panic) => Ruling::Refused(format!("the verifier panicked: {panic}")),
    };
    // Outside of tokio there are no such threads.
    let Ok(tokio) = Handle::try_current() else { return Ok(ask()) };
    // Dropped before it began, it is not called any more.
    let asked = AbortOnDropHandle::new(tokio.spawn_blocking(ask));
    tokio::select! {
        biased;
        ruling = asked => ruling.map_err(|error| {
            Error::new(ErrorKind::Internal, "the verifier was ended from outside").caused_by(error)
        }),
        () = cx.cancellation().cancelled() => Err(Error::cancelled()),
    }
}

/// Returns the subject of a check: each answer is checked for itself, by nobody who saw another one.
pub(super) fn asked(request: &Arc<Message>) -> Asked {
    let said = vec![Arc::clone(request)];
    Asked { request: Arc::clone(request), said, criteria: None, iteration: 1 }
}

/// Reads the end of a check by an agent. What is no clear acceptance refuses the answer.
pub(super) fn read(
    checker: &Discriminator,
    asked: &Asked,
    outcome: &Outcome,
    work: &[Arc<Message>],
) -> Ruling {
    match fate(&outcome.status) {
        Fate::Done | Fate::Cut => match checker.read(asked, outcome, work) {
            verdict if verdict.accepted => Ruling::Accepted,
            verdict => Ruling::Refused(verdict.reason),
        },
        Fate::Again => Ruling::Broken(Status::Cancelled),
        Fate::Over => Ruling::Broken(outcome.status.clone()),
    }
}
