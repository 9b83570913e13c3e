//! Intake: passes frames to a wire's reading, and applies the rules of all wires to its deltas.
//!
//! Split characters are joined here, absurd figures become unknown, and an endless reply is ended.

use std::collections::VecDeque;

use entourage_core::{
    Error, ErrorKind, Result, Usage,
    provider::{Delta, Warning, WarningKind},
};

use crate::{
    framing::Frame,
    json::Halves,
    stream::{MAX_AFTER_FINISH, Reading},
};

/// Bounds of a reply: bytes of frames, and consecutive frames without a delta. The reader bounds the content; these
/// end a reply that never has any. Keep-alives are not frames: silence is bounded by time.
const MAX_REPLY: usize = 512 << 20;
const MAX_EMPTY: u32 = 100_000;

/// The state of one reply.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    halves: Halves,
    taken: usize,
    /// Frames since the last one that gave a delta.
    empty: u32,
    /// Bytes of frames since the finish reason. Some services name one with each piece of content; the last counts.
    after_finish: usize,
    /// True once the caller was warned of an absurd figure.
    doubted: bool,
}

impl Intake {
    /// Passes a frame to the wire.
    pub(crate) fn frame(&mut self, frame: Frame<'_>, reply: &mut impl Reading) {
        if self.is_over() {
            return;
        }
        self.taken = self.taken.saturating_add(frame.data.len());
        self.empty = self.empty.saturating_add(1);
        if self.is_over() {
            let text = "the model's reply does not come to an end; lower its output limit, or check that this address is a model service";
            self.pass(reply, |reply| {
                reply.broken(Error::new(ErrorKind::TooLarge, text).during("model.stream"));
            });
            return;
        }
        let data = self.halves.mend(frame.data);
        let new = reply.out().len();
        if self.pass(reply, |reply| reply.frame(Frame { data: &data, ..frame })) {
            self.empty = 0;
        }
        let goes_on = reply.takes_named_finish() && reply.out().iter().skip(new).any(has_content);
        if goes_on || !reply.has_finish() {
            self.after_finish = 0;
        } else {
            self.after_finish = self.after_finish.saturating_add(frame.data.len());
            if self.after_finish > MAX_AFTER_FINISH {
                self.end(reply);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.taken > MAX_REPLY || self.empty > MAX_EMPTY
    }

    /// Ends the reply with the error of the framing.
    pub(crate) fn broken(&mut self, error: Error, reply: &mut impl Reading) {
        self.pass(reply, |reply| reply.broken(error));
    }

    /// Ends the reply after its last byte.
    pub(crate) fn end(&mut self, reply: &mut impl Reading) {
        self.pass(reply, Reading::end);
        self.halves.end(reply.out());
    }

    /// Runs `act` and checks its new deltas. Returns true if there are any.
    fn pass<R: Reading>(&mut self, reply: &mut R, act: impl FnOnce(&mut R)) -> bool {
        let new = reply.out().len();
        act(reply);
        let any = reply.out().len() > new;
        self.halves.join(reply.out(), new);
        self.figures(reply.out(), new);
        any
    }

    /// Makes absurd figures unknown, and warns the caller once.
    fn figures(&mut self, out: &mut VecDeque<Result<Delta>>, new: usize) {
        let mut absurd = false;
        for item in out.iter_mut().skip(new) {
            if let Ok(Delta::Usage(usage)) = item {
                absurd |= doubt(usage);
            }
        }
        if !absurd {
            return;
        }
        let mut last = out.split_off(new.min(out.len()));
        last.retain(|item| !matches!(item, Ok(Delta::Usage(usage)) if usage.is_unknown()));
        if !std::mem::replace(&mut self.doubted, true) {
            let text = "the service reported more tokens or a higher cost than a call can have; these figures count as unknown";
            let warning = Warning::new(WarningKind::Reply, "usage", text);
            out.push_back(Ok(Delta::Warning(Box::new(warning))));
        }
        out.append(&mut last);
    }
}

fn has_content(item: &Result<Delta>) -> bool {
    let nothing = |delta: &Delta| matches!(delta, Delta::Response(_) | Delta::Usage(_) | Delta::Warning(_));
    item.as_ref().is_ok_and(|delta| !nothing(delta))
}

/// Removes figures that no call can have. Returns true if there was one.
fn doubt(usage: &mut Usage) -> bool {
    let plausible = usage.plausible();
    std::mem::replace(usage, plausible) != plausible
}
