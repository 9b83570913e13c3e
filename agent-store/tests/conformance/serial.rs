//! Two writers are serializable: each step of an interleaving agrees with a model, and a race of both has the result of
//! some serial order.

use entourage_core::session::SharedStore;
use entourage_testkit::store::{StoreStep, interleaved, raced};
use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};

use crate::places::Place;

fn any_step() -> impl Strategy<Value = StoreStep> {
    // Appends collide, and frequent deletes would hide that.
    prop_oneof![
        4 => prop::sample::select(vec![StoreStep::Append(1), StoreStep::AppendLeased(1), StoreStep::AppendLeased(2)]),
        4 => prop::sample::select(StoreStep::ALL.to_vec()).prop_filter("rare", |step| *step != StoreStep::Delete),
        1 => Just(StoreStep::Delete),
    ]
}

/// Runs both properties on one place; each case leaves it empty.
fn two_writers_are_serial(name: &str, schedules: u32, races: u32, open: impl AsyncFn() -> Place) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (place, handles) = runtime.block_on(async {
        let place = open().await;
        let handles = place.two_handles().await;
        (place, handles)
    });
    let of = |cases| ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let failed = |result: Result<(), String>| result.map_err(TestCaseError::fail);

    let schedule = prop::collection::vec((any::<bool>(), any_step()), 1..24);
    let ended = TestRunner::new(of(schedules))
        .run(&schedule, |schedule| failed(runtime.block_on(interleaved(handles.clone(), &schedule))));
    ended.unwrap_or_else(|error| panic!("{name}: {error}"));

    let lists = [1..7, 1..7].map(|length| prop::collection::vec(any_step(), length));
    let ended = TestRunner::new(of(races))
        .run(&lists, |lists| failed(runtime.block_on(raced(handles.clone(), lists))));
    ended.unwrap_or_else(|error| panic!("{name}: {error}"));
    println!("two writers on {name}: {schedules} schedules and {races} races are serial");
    drop::<[SharedStore; 2]>(handles);
    drop(place);
}

#[test]
fn two_writers_on_memory_are_serial() {
    two_writers_are_serial("memory", 1_000, 1_000, Place::memory);
}

#[cfg(feature = "sqlite")]
#[test]
fn two_writers_on_sqlite_are_serial() {
    two_writers_are_serial("sqlite", 40, 60, Place::sqlite);
}

#[cfg(feature = "json")]
#[test]
fn two_writers_on_json_are_serial() {
    two_writers_are_serial("json", 40, 60, Place::json);
}

#[cfg(feature = "hybrid")]
#[test]
fn two_writers_on_hybrid_are_serial() {
    two_writers_are_serial("hybrid", 30, 40, Place::hybrid);
}

#[cfg(feature = "postgres")]
#[test]
fn two_writers_on_postgres_are_serial() {
    let Some(url) = crate::places::database_url("two writers on postgres") else { return };
    two_writers_are_serial("postgres", 40, 60, async || Place::postgres(&url).await);
}
