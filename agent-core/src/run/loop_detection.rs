//! Settings of loop detection.

/// Settings of loop detection. Two guards, each on by default.
///
/// The first one refuses a call that is made for the third time in a row: it is not run and gets an error result that
/// says so. Calls are counted in their order, across steps. Equal neighbours in one message count once, since the model
/// has not seen the first one's result. A refusal resets the count, and the run continues.
///
/// The second one ends the run with [`StopReason::LoopDetected`](super::StopReason), when more than 5 of its last 10
/// steps made the same calls and got the same results. It judges once there are 10 steps. Refused calls count with the
/// error result that they got.
///
/// Two calls are the same when they name the same tool and their arguments are the same text, white space between JSON
/// tokens aside. Another order of keys, another spelling of a number or an escape makes another call: models that
/// repeat themselves repeat the exact text, and comparing values would require parsing each of them.
///
/// On resume the windows are rebuilt from the run's events. They begin anew at a checkpoint of the session, so a loop
/// in a resumed run may be found some steps later than in one that was never interrupted.
///
/// ```
/// use entourage_core::run::{Limits, LoopDetection};
///
/// let mut limits = Limits::default();
/// limits.loops = LoopDetection::off().with_repeats(5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct LoopDetection {
    /// Number of times in a row at which a call is refused, at least 2. `None`: never. Default 3.
    pub repeats: Option<u32>,
    /// Number of newest steps that are compared. Default 10.
    pub window: u32,
    /// The run ends when more than this many of them are equal; 0 counts as 1. `None`: never. Default 5.
    pub alike: Option<u32>,
}

impl LoopDetection {
    /// Turns both guards off.
    #[must_use]
    pub fn off() -> Self {
        Self { repeats: None, alike: None, ..Self::default() }
    }

    /// Refuses a call that is made for this many times in a row, at least 2.
    #[must_use]
    pub fn with_repeats(mut self, times: u32) -> Self {
        self.repeats = Some(times);
        self
    }

    /// Ends a run when more than `alike` of its newest `window` steps are equal, at least 1.
    #[must_use]
    pub fn with_steps(mut self, window: u32, alike: u32) -> Self {
        (self.window, self.alike) = (window, Some(alike));
        self
    }

    /// Turns the second guard off: no run ends for a loop.
    #[must_use]
    pub fn without_steps(mut self) -> Self {
        self.alike = None;
        self
    }
}

impl Default for LoopDetection {
    fn default() -> Self {
        Self { repeats: Some(3), window: 10, alike: Some(5) }
    }
}
