//! The clock of time limits: it stands still while somebody is asked about what runs under the limit.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use entourage_core::{run::RunContext, tool::CallId};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

/// The time in which questions were open in a part of a tree of runs. A question counts here and in the parts above.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    stood: Mutex<Stood>,
    goes_on: Notify,
    above: Option<Arc<Self>>,
}

#[derive(Debug, Default)]
struct Stood {
    /// Number of open questions, and the time at which the first of them was asked.
    open: Option<(usize, Instant)>,
    /// Time in which at least one was open, without that of now.
    time: Duration,
}

impl Stood {
    fn until(&self, now: Instant) -> Duration {
        let open = self.open.map(|(_, since)| now.saturating_duration_since(since));
        self.time.saturating_add(open.unwrap_or_default())
    }
}

impl Stopwatch {
    /// Creates the clock of a part that is below `above`.
    pub(crate) fn below(above: Option<&Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { stood: Mutex::default(), goes_on: Notify::new(), above: above.cloned() })
    }

    fn lock(&self) -> MutexGuard<'_, Stood> {
        self.stood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the clock, and those above it, until the returned guard is dropped.
    pub(crate) fn stop(self: &Arc<Self>) -> Stopped {
        let now = Instant::now();
        for part in self.upwards() {
            let open = &mut part.lock().open;
            let (questions, since) = open.unwrap_or((0, now));
            *open = Some((questions.saturating_add(1), since));
        }
        Stopped(Arc::clone(self))
    }

    fn upwards(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |part| part.above.as_deref())
    }

    /// Returns for how long the clock has stood still.
    fn stood(&self) -> Duration {
        self.lock().until(Instant::now())
    }

    /// Waits until the clock runs, and returns for how long it has stood still.
    async fn stood_once_it_runs(&self) -> Duration {
        loop {
            // Before the look, so that no question ends between that and the wait.
            let goes_on = self.goes_on.notified();
            {
                let stood = self.lock();
                if stood.open.is_none() {
                    return stood.time;
                }
            }
            goes_on.await;
        }
    }

    /// Waits until the clock has run for `limit` since it `began`, when it had stood still for `before`.
    async fn has_run(&self, limit: Duration, began: Instant, before: Duration) {
        loop {
            let stood = self.stood_once_it_runs().await.saturating_sub(before);
            let left = limit.saturating_add(stood).saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }
}

/// The clocks of a run's calls, each of which only the agent below its call stops. A call has one from the time at
/// which it runs an agent until it ends, so that most calls have none.
#[derive(Debug, Default)]
pub(crate) struct CallClocks(Mutex<BTreeMap<CallId, Arc<Stopwatch>>>);

impl CallClocks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CallId, Arc<Stopwatch>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the clock of `call`, which runs an agent; it is created below `above` unless there is one.
    pub(crate) fn begin(&self, call: CallId, above: Option<&Arc<Stopwatch>>) -> Arc<Stopwatch> {
        Arc::clone(self.lock().entry(call).or_insert_with(|| Stopwatch::below(above)))
    }

    /// Returns the place of the clock of the call that sees its run by `cx`.
    pub(super) fn place<'a>(&'a self, cx: &'a RunContext) -> CallClock<'a> {
        CallClock { clocks: self, cx }
    }
}

/// The place of the clock of one running call, which is empty until the call runs an agent, and once it is dropped. The
/// call's id is made only where any call has a clock.
#[derive(Debug)]
pub(super) struct CallClock<'a> {
    clocks: &'a CallClocks,
    cx: &'a RunContext,
}

impl CallClock<'_> {
    pub(super) fn get(&self) -> Option<Arc<Stopwatch>> {
        let clocks = self.clocks.lock();
        if clocks.is_empty() { None } else { clocks.get(&self.cx.call()?).cloned() }
    }
}

impl Drop for CallClock<'_> {
    fn drop(&mut self) {
        let mut clocks = self.clocks.lock();
        if !clocks.is_empty()
            && let Some(call) = self.cx.call()
        {
            clocks.remove(&call);
        }
    }
}

/// Waits until a time limit has passed by its clock, which may come to be meanwhile.
pub(crate) async fn passed(limit: Duration, clock: impl Fn() -> Option<Arc<Stopwatch>>) {
    let (began, before) = (Instant::now(), clock().map(|clock| clock.stood()));
    sleep(limit).await;
    // Only then: most work ends in time, and most limits have no clock that stands still.
    if let Some(clock) = clock() {
        Box::pin(clock.has_run(limit, began, before.unwrap_or_default())).await;
    }
}

/// Keeps a clock from running.
#[derive(Debug)]
pub(crate) struct Stopped(Arc<Stopwatch>);

impl Drop for Stopped {
    fn drop(&mut self) {
        let now = Instant::now();
        for part in self.0.upwards() {
            let mut stood = part.lock();
            match stood.open {
                Some((questions, since)) if questions > 1 => stood.open = Some((questions - 1, since)),
                _ => {
                    (stood.time, stood.open) = (stood.until(now), None);
                    part.goes_on.notify_waiters();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::timeout;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn limit(clock: &Arc<Stopwatch>, seconds: u32) {
        passed(SECOND * seconds, || Some(Arc::clone(clock))).await;
    }

    #[tokio::test(start_paused = true)]
    async fn time_of_questions_does_not_count_here_and_above() {
        let above = Stopwatch::below(None);
        let (clock, beside) = (Stopwatch::below(Some(&above)), Stopwatch::below(Some(&above)));
        let began = Instant::now();
        let ended = async |clock: &Arc<Stopwatch>| {
            limit(clock, 10).await;
            began.elapsed().as_secs()
        };
        let asked = async {
            sleep(SECOND * 5).await;
            let first = clock.stop();
            sleep(SECOND * 3).await;
            let second = clock.stop();
            sleep(SECOND * 10).await;
            drop(first);
            sleep(SECOND * 10).await;
            drop(second);
            sleep(SECOND).await;
            let third = clock.stop();
            sleep(SECOND * 7).await;
            drop(third);
        };
        let (ended, above, beside, ()) = tokio::join!(ended(&clock), ended(&above), ended(&beside), asked);
        assert_eq!((ended, above, beside), (40, 40, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_question_keeps_a_limit_from_ending() {
        let clock = Stopwatch::below(None);
        let open = clock.stop();
        assert!(timeout(SECOND * 100_000, limit(&clock, 1)).await.is_err());
        drop(open);
        assert!(timeout(SECOND * 2, limit(&clock, 1)).await.is_ok());
    }

    proptest! {
        /// A naive model: second by second, those without an open question are counted.
        #[test]
        fn a_limit_counts_the_seconds_without_a_question(
            questions in prop::collection::vec((0..60_u32, 0..20_u32, any::<bool>()), 0..8),
            seconds in 1..30_u32,
        ) {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
            tokio.block_on(async {
                let above = Stopwatch::below(None);
                let sides = [Stopwatch::below(Some(&above)), Stopwatch::below(Some(&above))];
                let began = Instant::now();
                // Each begins and ends a while before the second is full, when no limit ends.
                for &(from, time, left) in &questions {
                    let side = Arc::clone(if left { &sides[0] } else { &sides[1] });
                    tokio::spawn(async move {
                        sleep(SECOND * from + SECOND / 2).await;
                        let open = side.stop();
                        sleep(SECOND * time).await;
                        drop(open);
                    });
                }
                let counts = |side: Option<bool>| {
                    // Halves of seconds, since questions begin and end at halves.
                    let is_asked = |half: u32| questions.iter().any(|&(from, time, left)| {
                        let (from, to) = (2 * from + 1, 2 * (from + time) + 1);
                        side.is_none_or(|side| side == left) && (from..to).contains(&half)
                    });
                    let mut left = 2 * seconds;
                    (0..).find(|half| {
                        if !is_asked(*half) { left -= 1; }
                        left == 0
                    }).map(|half| half + 1)
                };
                let ended = async |clock: &Arc<Stopwatch>| {
                    limit(clock, seconds).await;
                    u32::try_from(began.elapsed().as_millis().div_ceil(500)).ok()
                };
                let all = tokio::join!(ended(&above), ended(&sides[0]), ended(&sides[1]));
                prop_assert_eq!(all, (counts(None), counts(Some(true)), counts(Some(false))));
                Ok(())
            })?;
        }
    }
}
