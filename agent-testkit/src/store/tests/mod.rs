//! The suite itself: the reference store passes, and a store that breaks one promise fails the case for it.

mod careless;
mod leaning;

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, SessionId,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo},
};
use entourage_runtime::MemoryStore;

use self::{
    careless::{Careless, LAPSES, Lapse},
    leaning::{LEANS, Leaning},
};
use super::*;

const MEMORY: Capabilities = Capabilities::all().without_reopen();

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_store_passes() {
    let report = conformance("memory", MEMORY, async || Arc::new(MemoryStore::new())).await;
    report.assert();
    assert_eq!(report.passed().len(), 57);
    assert_eq!(report.to_string(), "conformance memory: 57 passed, 0 failed, 2 skipped");
}

#[tokio::test]
async fn a_stale_skip_and_a_missing_ability_fail() {
    let shared = || {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let again = Arc::clone(&store);
        Fixture::new(store).reopening(move || {
            let store = Arc::clone(&again);
            async move { Ok(store) }
        })
    };
    let stale = conformance("stale", MEMORY, async || shared()).await;
    assert_eq!(names(&stale), ["a_second_handle_sees_everything", "a_lease_outlives_its_handle"]);

    let missing = conformance("missing", Capabilities::all(), async || Arc::new(MemoryStore::new())).await;
    assert_eq!(names(&missing), names(&stale));
    assert!(format!("{missing:#}").contains("a_second_handle_sees_everything failed: the fixture"));
}

fn names(report: &ConformanceReport) -> Vec<&str> {
    report.failed().iter().map(|(case, _)| case.as_str()).collect()
}

/// One broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    StoresInPieces,
    ForgetsTheWriter,
    CallsConflictsBroken,
    WritesJsonAnew,
    FoldsCase,
    IgnoresTheLimit,
    ReadsFromTheNumberOn,
    ReadsUnknownAsEmpty,
    ListsOldestFirst,
    SkipsNothing,
    ListsChildrenAsRoots,
    DeletesByPrefix,
    DeletesOneLevel,
    CallsUnknownCostZero,
    Panics,
}

#[derive(Debug)]
struct Faulty {
    inner: MemoryStore,
    fault: Fault,
    writers: AtomicU64,
}

impl Faulty {
    fn session(&self, session: &SessionId) -> Result<SessionId> {
        match self.fault {
            Fault::FoldsCase => SessionId::new(session.as_str().to_lowercase()),
            _ => Ok(session.clone()),
        }
    }

    /// Appends as if each event had its own transaction.
    async fn append_in_pieces(&self, session: &SessionId, expected: u64, mut batch: Batch) -> Result<u64> {
        batch.check(session, expected)?;
        let mut seq = expected;
        for row in batch.rows {
            let mut head = batch.head.clone();
            head.seq = seq + 1;
            let mut piece = Batch::new(batch.writer, vec![row], head);
            piece.create = batch.create.take();
            self.inner.append(session, seq, piece).await?;
            seq += 1;
            tokio::task::yield_now().await;
        }
        Ok(seq)
    }
}

#[async_trait]
impl SessionStore for Faulty {
    async fn append(&self, session: &SessionId, expected: u64, mut batch: Batch) -> Result<u64> {
        let session = self.session(session)?;
        match self.fault {
            Fault::StoresInPieces => return self.append_in_pieces(&session, expected, batch).await,
            Fault::ForgetsTheWriter => batch.writer = self.writers.fetch_add(1, Ordering::Relaxed),
            Fault::FoldsCase => {
                if let Some(record) = &mut batch.create {
                    record.id = self.session(&record.id)?;
                }
            }
            Fault::WritesJsonAnew => {
                for row in &mut batch.rows {
                    let body: serde_json::Value = serde_json::from_str(&row.body()?).unwrap_or_default();
                    *row = Row::stored(row.columns(), body.to_string());
                }
            }
            Fault::CallsUnknownCostZero => batch.head.cost = Some(batch.head.cost.unwrap_or_default()),
            Fault::Panics => panic!("the store is out of order"),
            _ => {}
        }
        let result = self.inner.append(&session, expected, batch).await;
        match result {
            Err(error)
                if self.fault == Fault::CallsConflictsBroken && error.kind() == ErrorKind::Conflict =>
            {
                Err(Error::new(ErrorKind::Store, "broken"))
            }
            result => result,
        }
    }

    async fn read(&self, session: &SessionId, mut range: ReadRange) -> Result<Vec<Row>> {
        match self.fault {
            Fault::IgnoresTheLimit => range.limit = None,
            Fault::ReadsFromTheNumberOn => range.after = range.after.saturating_sub(1),
            _ => {}
        }
        match self.inner.read(&self.session(session)?, range).await {
            Err(_) if self.fault == Fault::ReadsUnknownAsEmpty => Ok(Vec::new()),
            result => result,
        }
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        let mut filter = filter.clone();
        match self.fault {
            Fault::SkipsNothing => filter.offset = 0,
            Fault::ListsChildrenAsRoots if filter.parent == Some(None) => filter.parent = None,
            Fault::FoldsCase => filter.id = filter.id.map(|id| self.session(&id)).transpose()?,
            _ => {}
        }
        let mut found = self.inner.query(&filter).await?;
        if self.fault == Fault::ListsOldestFirst {
            found.reverse();
        }
        Ok(found)
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.inner.lease(&self.session(session)?, lease).await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        let session = self.session(session)?;
        let all = self.inner.query(&SessionFilter::all()).await?;
        match self.fault {
            Fault::DeletesByPrefix => {
                let mut deleted = self.inner.delete(&session).await?;
                for info in all.iter().filter(|info| info.record.id.as_str().starts_with(session.as_str())) {
                    deleted += self.inner.delete(&info.record.id).await?;
                }
                Ok(deleted)
            }
            Fault::DeletesOneLevel
                if all.iter().any(|info| info.record.parent.as_ref() == Some(&session)) =>
            {
                Ok(0)
            }
            _ => self.inner.delete(&session).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_broken_promise_fails_its_case() {
    let faults = [
        (Fault::StoresInPieces, "a_dropped_append_is_all_or_nothing"),
        (Fault::ForgetsTheWriter, "attack_12_the_same_batch_twice_is_stored_once"),
        (Fault::CallsConflictsBroken, "a_wrong_expected_number_is_a_conflict"),
        (Fault::CallsConflictsBroken, "of_fifty_racing_writers_one_wins"),
        (Fault::CallsConflictsBroken, "another_batch_at_the_same_numbers_conflicts"),
        (Fault::WritesJsonAnew, "bodies_come_back_byte_for_byte"),
        (Fault::WritesJsonAnew, "every_event_and_every_part_comes_back"),
        (Fault::FoldsCase, "attack_07_ids_that_look_alike_stay_apart"),
        (Fault::IgnoresTheLimit, "windows_are_exact"),
        (Fault::ReadsFromTheNumberOn, "windows_are_exact"),
        (Fault::ReadsUnknownAsEmpty, "an_unknown_session_is_not_found"),
        (Fault::ListsOldestFirst, "newest_first_and_ties_by_id"),
        (Fault::SkipsNothing, "pages_have_no_gaps_and_no_repeats"),
        (Fault::ListsChildrenAsRoots, "filters_select"),
        (Fault::DeletesByPrefix, "attack_13_delete_takes_the_tree_and_no_neighbour"),
        (Fault::DeletesOneLevel, "attack_13_delete_takes_the_tree_and_no_neighbour"),
        (Fault::CallsUnknownCostZero, "heads_come_back"),
        (Fault::Panics, "the_first_batch_creates_the_session"),
    ];
    for (fault, case) in faults {
        let make =
            async || Arc::new(Faulty { inner: MemoryStore::new(), fault, writers: AtomicU64::new(1_000) });
        let report = conformance_of(format!("{fault:?}"), MEMORY, make, |name| name == case).await;
        assert!(names(&report).contains(&case), "{fault:?} is not noticed by {case}: {report:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_schedule_of_three_steps_is_as_the_model_says() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let handles = [Arc::clone(&store), store];
    for (a, b, c) in StoreStep::ALL
        .iter()
        .flat_map(|a| StoreStep::ALL.iter().flat_map(move |b| StoreStep::ALL.iter().map(move |c| (a, b, c))))
    {
        let schedule = [
            (false, StoreStep::AppendLeased(1)),
            (true, StoreStep::Look),
            (true, *a),
            (false, *b),
            (true, *c),
        ];
        interleaved(handles.clone(), &schedule).await.unwrap();
    }
}

#[tokio::test]
async fn a_schedule_shows_what_a_careless_store_does_wrong() {
    use StoreStep::{AppendLeased, Delete, Echo, Look, Renew, TakeOver};
    let first = (false, AppendLeased(2));
    for (lapse, schedule) in [
        (Lapse::NeverFences, vec![first, (true, Look), (true, TakeOver), (false, Renew)]),
        (Lapse::FencesEchoes, vec![first, (true, Look), (true, TakeOver), (false, Echo)]),
        (Lapse::ClearsTheLease, vec![first, (false, StoreStep::Append(1)), (true, Look)]),
        (Lapse::ForgetsLeasesOfBatches, vec![(true, StoreStep::Append(1)), (true, AppendLeased(1))]),
        (Lapse::KeepsTheLeaseOfTheDeleted, vec![first, (false, Delete), (true, StoreStep::Append(1))]),
        (Lapse::LeavesTheRootOut, vec![first]),
    ] {
        let run = async |lapse| {
            let store: SharedStore = Arc::new(Careless::new(lapse));
            interleaved([Arc::clone(&store), store], &schedule).await
        };
        assert!(run(lapse).await.is_err(), "{lapse:?}");
    }
}

// On one thread every reader reads before any of them writes, whatever else the machine does.
#[tokio::test]
async fn a_race_shows_who_looks_and_then_writes() {
    let steps = vec![StoreStep::Append(1), StoreStep::Look, StoreStep::TakeOver, StoreStep::Look];
    let mut noticed = false;
    for _ in 0..200 {
        let store: SharedStore = Arc::new(Careless::new(Lapse::LooksThenLeases));
        noticed |= raced([Arc::clone(&store), store], [steps.clone(), steps.clone()]).await.is_err();
    }
    assert!(noticed);
}

// On one thread every reader reads before any of them writes, whatever else the machine does.
#[tokio::test]
async fn each_lapse_fails_its_case() {
    for (lapse, case) in LAPSES {
        let make = async || Arc::new(Careless::new(lapse));
        let report = conformance_of(format!("{lapse:?}"), MEMORY, make, |name| name == case).await;
        assert!(names(&report).contains(&case), "{lapse:?} is not noticed by {case}: {report:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_leans_on_its_callers_fails_the_case_for_it() {
    for (leans, case) in LEANS {
        let make = async || Arc::new(Leaning::new(leans));
        let report = conformance_of(format!("leans on {leans:?}"), MEMORY, make, |name| name == case).await;
        assert!(names(&report).contains(&case), "{leans:?} is not noticed by {case}: {report:#}");
        let waited = |(_, text): &&(String, String)| text.contains("was blocked by the cut operation");
        assert!(report.failed().iter().any(|it| waited(&it)), "{leans:?}: {report:#}");
    }
}
