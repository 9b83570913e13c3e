//! The end of a life, compared with its record.

use entourage_core::{
    Result,
    event::Event,
    run::{Outcome, Status},
    session::SessionState,
};

use crate::session::journal::script::{Script, is_from_outside, is_same};

/// Compares the end of a life with its record. Returns the run's outcome if this was its end.
pub(super) fn judge(
    script: &mut Script,
    state: &mut SessionState,
    ended: Option<Result<Outcome>>,
) -> Result<Option<Outcome>> {
    if let Some(flaw) = script.take_flaw() {
        return Err(flaw);
    }
    if let Some(ended) = ended {
        let made = match ended {
            Ok(mut outcome) => {
                state.run().into_iter().for_each(|run| run.count(&mut outcome));
                outcome
            }
            Err(error) => {
                let mut outcome = state.spent();
                outcome.status = Status::of(&error);
                outcome
            }
        };
        if let Some(place) = script.unasked() {
            return Err(script.ended_otherwise(place, &made.status));
        }
        if let Some((place, recorded)) = script.ending(state) {
            // The process may have come as far, and stored no end.
            if is_from_outside(&recorded.status) || is_outcome(recorded, &made) {
                return Ok(Some(recorded.clone()));
            }
            return Err(script.ended_otherwise(place, &made.status));
        }
        let pauses = match script.peek() {
            Some((_, Event::RunPaused(paused))) => made.status == Status::Paused(paused.pause.clone()),
            _ => false,
        };
        match script.peek().map(|(place, _)| place) {
            Some(place) if pauses => {
                script.through(state, place);
                // The run was ended from outside while it was paused.
                if let Some((_, recorded)) = script.ending(state) {
                    return Ok(Some(recorded.clone()));
                }
                if script.is_last() {
                    return Ok(Some(made));
                }
            }
            Some(place) => return Err(script.ended_otherwise(place, &made.status)),
            None => {}
        }
    }
    if let Some((_, recorded)) = script.ending(state).filter(|(_, end)| is_from_outside(&end.status)) {
        return Ok(Some(recorded.clone()));
    }
    script.finish_life(state);
    Ok(None)
}

fn is_outcome(recorded: &Outcome, made: &Outcome) -> bool {
    let status = match (&recorded.status, &made.status) {
        (Status::Failed(recorded), Status::Failed(made)) => is_same(recorded, made),
        (recorded, made) => recorded == made,
    };
    let mut made = made.clone();
    made.status.clone_from(&recorded.status);
    // Those of the session come to the agent's own.
    let labels = recorded.labels.contains(made.labels);
    made.labels = recorded.labels;
    status && labels && made == *recorded
}
