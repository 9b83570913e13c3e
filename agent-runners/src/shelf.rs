//! Values that agents keep in a session of its own, from which other sessions read them by tools.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    agent::Agent,
    event::{Envelope, Record},
    run::{Outcome, RunContext, Status, Task},
};
use entourage_runtime::Session;

/// The likeness of two texts: greater is more alike, and 0 is not at all.
pub(crate) type Likeness = Arc<dyn Fn(&str, &str) -> f64 + Send + Sync>;

/// Longest wait for others that keep values. It outlasts the lease of a process that died while it kept one.
const PATIENCE: Duration = Duration::from_secs(45);

/// A session in which no agent works, and which holds values.
#[derive(Clone)]
pub(crate) struct Shelf {
    session: Session,
    /// Most events that are read, newest first.
    window: u64,
}

impl Shelf {
    pub(crate) fn new(session: Session, window: u64) -> Self {
        Self { session, window }
    }

    pub(crate) fn id(&self) -> &SessionId {
        self.session.id()
    }

    /// Checks that a run in `reader` is not within this session, where a value would wait for the run to end.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with `text` if it is.
    pub(crate) fn check(&self, reader: &SessionId, text: &str) -> Result<()> {
        let rest = reader.as_str().strip_prefix(self.session.id().as_str());
        match rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '$'])) {
            true => Err(Error::new(ErrorKind::Config, text.to_owned())),
            false => Ok(()),
        }
    }

    /// Reads the newest events, the oldest of them first. A session that does not exist yet has none.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn events(&self) -> Result<Vec<Envelope>> {
        let newest = self.session.head().await?.seq;
        match self.session.events(newest.saturating_sub(self.window), usize::MAX).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            events => events,
        }
    }

    /// Keeps a value, by a run of the agent `keeper` with this prompt. While others keep one, here or in another
    /// process, it waits, for about 45 seconds at most.
    ///
    /// The prompt is never queued: only this process has the value, so nobody else could perform it.
    ///
    /// # Errors
    /// Those of the run. The value is then not kept, unless the store itself failed.
    pub(crate) async fn keep<T: Record + Clone>(
        &self,
        value: T,
        keeper: &'static str,
        prompt: String,
    ) -> Result<()> {
        // A run that lost the session midway may have kept the value: better twice than not at all.
        let kept = self.session.run_unqueued(Keeper(keeper, value), prompt, PATIENCE).await;
        match kept {
            Ok(outcome) if outcome.status == Status::Completed => Ok(()),
            Ok(_) => {
                Err(Error::new(ErrorKind::Cancelled, "nothing was kept: somebody stopped it; try again"))
            }
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Conflict) => {
                let text = format!("nothing was kept, try again later: {}", error.message());
                Err(Error::new(error.kind(), text).caused_by(error))
            }
            Err(error) => Err(error),
        }
    }
}

/// The agent of a run that records one value.
struct Keeper<T>(&'static str, T);

#[async_trait]
impl<T: Record + Clone> Agent for Keeper<T> {
    fn name(&self) -> &str {
        self.0
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        cx.record(self.1.clone())?;
        Ok(Outcome::completed("kept"))
    }
}

/// Returns the likeness of two texts as the cosine of their sets of words, in small letters.
pub(crate) fn by_words(a: &str, b: &str) -> f64 {
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let (a, b) = (words(a), words(b));
    // Texts have far fewer words than a float can count.
    let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let both = count(a.len()) * count(b.len());
    if both > 0.0 { count(a.intersection(&b).count()) / both.sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::by_words;

    #[test]
    fn ai10_the_likeness_of_questions_is_that_of_their_sets_of_words() {
        let four_of_five = 4.0 / 20_f64.sqrt();
        for (a, b, expected) in [
            ("How do leases work?", "how do LEASES work", 1.0),
            ("work leases how do", "How do leases work, do they?", four_of_five),
            ("a b", "c d", 0.0),
            ("", "a", 0.0),
            ("", "", 0.0),
            ("?!", "…", 0.0),
            ("Größe", "GRÖSSE größe", 1.0 / 2_f64.sqrt()),
        ] {
            let (there, back) = (by_words(a, b), by_words(b, a));
            assert!(
                (there - expected).abs() < 1e-12 && there.to_bits() == back.to_bits(),
                "{a} {b}: {there}"
            );
        }
    }
}
