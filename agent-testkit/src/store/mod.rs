//! The suite that every store passes, yours included.
//!
//! Each case gets an empty store and checks one promise of [`SessionStore`]'s contract. The suite knows nothing about
//! the inside of a store, and skips only cases that the store declares impossible.
//!
//! ```
//! use std::sync::Arc;
//! use entourage_runtime::MemoryStore;
//! use entourage_testkit::store::{Capabilities, conformance};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let capabilities = Capabilities::all().without_reopen();
//! let report = conformance("memory", capabilities, async || Arc::new(MemoryStore::new())).await;
//! println!("{report}");
//! report.assert();
//! # });
//! ```

mod append;
mod cut;
mod inert;
mod lease;
mod list;
mod read;
mod sample;
mod serial;
mod tree;

pub use serial::{StoreStep, interleaved, raced};

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use entourage_core::{
    Error, Result,
    session::{SessionStore, SharedStore},
};

use super::ConformanceReport;

/// Longest time for one case. A store that hangs fails; it does not stop the suite.
const CASE_TIMEOUT: Duration = Duration::from_secs(120);

/// Abilities beyond the core of the contract. Everything else is required of every store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Data outlives the handle: a second handle on the same place sees all of it.
    pub reopen: bool,
}

impl Capabilities {
    /// A store with all abilities.
    #[must_use]
    pub const fn all() -> Self {
        Self { reopen: true }
    }

    /// Declares that data is lost with the handle.
    #[must_use]
    pub const fn without_reopen(mut self) -> Self {
        self.reopen = false;
        self
    }
}

type Reopen = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<SharedStore>> + Send>> + Send + Sync>;

/// An empty store for one case, with the guards that keep it alive.
pub struct Fixture {
    store: SharedStore,
    reopen: Option<Reopen>,
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl Fixture {
    /// An empty store.
    #[must_use]
    pub fn new(store: SharedStore) -> Self {
        Self { store, reopen: None, guards: Vec::new() }
    }

    /// Sets the function that opens another handle on the same data while the first one lives.
    #[must_use]
    pub fn reopening<R, F>(mut self, reopen: R) -> Self
    where
        R: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<SharedStore>> + Send + 'static,
    {
        self.reopen = Some(Box::new(move || Box::pin(reopen())));
        self
    }

    /// Keeps `guard` until the case is over: a temporary directory, a server.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guards.push(Box::new(guard));
        self
    }

    async fn reopened(&self) -> Result<SharedStore, Failure> {
        match &self.reopen {
            Some(reopen) => Ok(reopen().await?),
            None => Err(Failure("the fixture does not say how to reopen the store".to_owned())),
        }
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture")
            .field("store", &self.store)
            .field("reopens", &self.reopen.is_some())
            .finish()
    }
}

impl From<SharedStore> for Fixture {
    fn from(store: SharedStore) -> Self {
        Self::new(store)
    }
}

impl<S: SessionStore + 'static> From<Arc<S>> for Fixture {
    fn from(store: Arc<S>) -> Self {
        Self::new(store)
    }
}

/// Runs every case, each on a fresh store from `make`, and reports the results.
///
/// A case that the store declares impossible runs all the same: if it passes, the declaration is stale and the case
/// counts as failed. Needs a tokio runtime with time; cases that race want the multi-threaded one.
pub async fn conformance<M, F>(
    name: impl Into<String>,
    capabilities: Capabilities,
    make: M,
) -> ConformanceReport
where
    M: Fn() -> F,
    F: Future<Output: Into<Fixture>>,
{
    conformance_of(name.into(), capabilities, make, |_| true).await
}

/// The report of the cases that `chosen` takes by their names.
async fn conformance_of<M, F>(
    name: String,
    capabilities: Capabilities,
    make: M,
    chosen: impl Fn(&str) -> bool,
) -> ConformanceReport
where
    M: Fn() -> F,
    F: Future<Output: Into<Fixture>>,
{
    let mut report = ConformanceReport::new("conformance", name);
    for case in cases().into_iter().filter(|case| chosen(case.name)) {
        let outcome = run(case.run, make().await.into()).await;
        let declared = (case.needs)(&capabilities);
        match outcome {
            Ok(()) if declared => report.pass(case.name),
            Err(failure) if declared => report.fail(case.name, failure.0),
            Ok(()) => report.fail(case.name, "it passes, so it must not be declared as unsupported"),
            Err(failure) => report.skip(case.name, failure.0),
        }
    }
    report
}

async fn run(case: Run, fixture: Fixture) -> Checked {
    // Its own task: a store that panics fails this case only.
    let mut task = tokio::spawn(case(fixture));
    match tokio::time::timeout(CASE_TIMEOUT, &mut task).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Failure(panic.to_string())),
        Err(_) => {
            task.abort();
            Err(Failure(format!("it did not end within {} seconds", CASE_TIMEOUT.as_secs())))
        }
    }
}

/// The failure of a case, as text for people.
#[derive(Debug)]
struct Failure(String);

type Checked<T = ()> = Result<T, Failure>;
type Run = fn(Fixture) -> Pin<Box<dyn Future<Output = Checked> + Send>>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(format!("the store failed: {error:?}"))
    }
}

struct Case {
    name: &'static str,
    needs: fn(&Capabilities) -> bool,
    run: Run,
}

macro_rules! cases {
    ($($module:ident::$case:ident $(needs $needs:expr)?,)*) => {
        [$(Case {
            name: stringify!($case),
            needs: cases!(@needs $($needs)?),
            run: |fixture| Box::pin($module::$case(fixture)),
        }),*]
    };
    (@needs) => { |_| true };
    (@needs $needs:expr) => { $needs };
}

fn cases() -> impl IntoIterator<Item = Case> {
    cases![
        append::the_first_batch_creates_the_session,
        append::batches_follow_each_other,
        append::a_wrong_expected_number_is_a_conflict,
        append::of_fifty_racing_writers_one_wins,
        append::of_fifty_racing_creators_one_wins,
        append::attack_12_the_same_batch_twice_is_stored_once,
        append::another_batch_at_the_same_numbers_conflicts,
        append::a_malformed_batch_is_refused,
        append::an_unknown_session_is_not_found,
        append::a_child_needs_its_parent,
        append::a_hundred_sessions_at_once_lose_nothing,
        append::a_dropped_append_is_all_or_nothing,
        cut::an_append_that_is_cut_holds_up_nobody,
        cut::a_creation_that_is_cut_holds_up_nobody,
        cut::a_lease_that_is_cut_holds_up_nobody,
        cut::a_delete_that_is_cut_holds_up_nobody,
        cut::a_list_that_is_cut_holds_up_nobody,
        cut::a_window_that_is_cut_holds_up_nobody,
        cut::a_crowd_that_is_cut_holds_up_nobody,
        read::every_event_and_every_part_comes_back,
        read::every_kind_of_event_comes_back_with_any_value,
        read::bodies_come_back_byte_for_byte,
        read::a_body_of_a_mebibyte_comes_back,
        read::a_thousand_events_in_one_batch_come_back,
        read::columns_come_back_at_their_limits,
        read::heads_come_back,
        read::attack_05_text_that_looks_like_a_query_is_text,
        read::attack_07_ids_that_look_alike_stay_apart,
        read::windows_are_exact,
        read::a_second_handle_sees_everything needs |can| can.reopen,
        list::newest_first_and_ties_by_id,
        list::pages_have_no_gaps_and_no_repeats,
        list::filters_select,
        list::attack_13_delete_takes_the_tree_and_no_neighbour,
        list::deleting_what_is_not_there_is_fine,
        list::a_deleted_session_can_be_made_anew,
        tree::a_prefix_is_bytes_and_no_pattern,
        tree::a_prefix_joins_the_other_filters,
        tree::attack_13_a_tree_is_what_is_below_and_no_neighbour,
        tree::a_tree_joins_the_other_filters,
        tree::a_tree_may_be_deep_and_wide,
        lease::a_lease_comes_with_the_first_batch,
        lease::an_append_takes_and_renews_the_lease,
        lease::a_lease_alone_changes_nothing_else,
        lease::a_lease_of_nothing_is_not_found,
        lease::attack_10_a_stale_owner_is_fenced,
        lease::a_session_made_anew_takes_nothing_that_is_for_the_deleted_one,
        lease::attack_10_a_lease_that_ran_out_or_was_given_back_still_fences,
        lease::attack_12_an_echo_of_a_fenced_owner_stores_nothing,
        lease::leases_come_back_at_their_limits,
        lease::a_lease_outlives_its_handle needs |can| can.reopen,
        lease::attack_09_of_fifty_racing_takeovers_one_wins,
        lease::attack_10_a_takeover_that_races_an_append_fences_it,
        lease::a_delete_that_races_leaves_nothing_behind,
        inert::attack_01_constructor_tags_are_data,
        inert::attack_02_half_a_character_is_kept_and_refused,
        inert::attack_03_a_kind_that_names_a_type_is_only_a_name,
        inert::attack_04_reserved_keys_are_keys,
        inert::attack_08_a_damaged_session_harms_no_other,
    ]
}

#[cfg(test)]
mod tests;
