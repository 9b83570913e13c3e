//! Research with a cache, killed at every point. The suite looks at one tree of sessions and at tools that it watches;
//! the cache is another session, and its tools are the research's own.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use entourage_core::{
    Result, SessionId,
    run::Outcome,
    session::{SessionFilter, SessionStatus, SharedStore},
};
use entourage_runners::research::Research;
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    MemoryStore, ScriptedProvider,
    crash::{Life, Note, Witness},
};

/// Ends a life when so many points have passed.
#[derive(Debug)]
struct After(AtomicUsize);

impl Witness for After {
    fn note(&self, _: Note) {}

    fn point(&self) -> bool {
        let passed = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        passed.is_err()
    }
}

/// Asks in one process, which goes on with what another left, and ends after so many points. Gives the outcome, if it
/// lived to see it, and the number of model calls.
fn lives(store: &SharedStore, points: usize, session: &str) -> (Option<Result<Outcome>>, usize) {
    let looks = ScriptedProvider::by_history().text("On the tree.");
    let life = Life::new(Arc::clone(store), Arc::new(After(AtomicUsize::new(points))));
    let tokio =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let outcome = tokio.block_on(async {
        let runtime = life.runtime().policy(Policy::allow_all()).checkpoint_every(3).build();
        let cache = runtime.session_with_id(SessionId::new("reports").unwrap());
        let research = Research::builder("research", life.model(&looks.model()));
        let research = research.without_planner().cache(&cache).build().unwrap();
        let session = SessionId::new(session).unwrap();
        let found = store.query(&SessionFilter::tree(session.clone())).await.unwrap();
        let status = found.iter().find(|info| info.record.id == session).map(|info| info.head.status);
        let session = runtime.session_with_id(session);
        let run = match status {
            Some(SessionStatus::Running) => session.resume(&research),
            _ => session.start(&research, "Where are the pears?"),
        };
        tokio::select! {
            biased;
            () = life.died() => None,
            outcome = run.outcome() => Some(outcome),
        }
    });
    (outcome, looks.count())
}

#[test]
fn ai10_research_with_a_cache_killed_at_every_point_answers_the_same() {
    let (mut kills, mut hits) = (0, 0);
    for points in 0.. {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let (killed, before) = lives(&store, points, "asks");
        let outcome = killed.unwrap_or_else(|| {
            kills += 1;
            let (outcome, after) = lives(&store, usize::MAX, "asks");
            assert!(before + after <= 2, "{points}: only a call in flight is made again");
            outcome.expect("nobody kills it")
        });
        assert!(outcome.unwrap().text.starts_with("On the tree."), "{points}");
        // Another session finds the report, or looks anew.
        let (again, asked) = lives(&store, usize::MAX, "asks-again");
        let again = again.expect("nobody kills it").unwrap();
        assert!(again.text.starts_with("On the tree."), "{points}: {again:?}");
        assert_eq!(asked == 0, again.text.contains("(This was found "), "{points}: {again:?}");
        hits += usize::from(asked == 0);
        if kills == points {
            assert!(kills > 20 && hits > 0, "{kills} {hits}");
            println!("{kills} kills; {hits} reports were kept");
            return;
        }
    }
}
