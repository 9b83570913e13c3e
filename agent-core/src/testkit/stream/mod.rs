//! The suite that every provider passes, yours included: from the bytes of a service to the message that an agent
//! gets.
//!
//! Each case is a [`StreamScenario`] in neutral terms. A [`Subject`] spells it on its wire, usually as bytes of a loopback
//! listener, and returns a provider connected to it; the suite calls that provider and compares. A case that needs an
//! ability which the subject's [`Manifest`] declares absent runs all the same: if it passes, the declaration is stale
//! and the case counts as failed.
//!
//! ```
//! use entourage_core::testkit::stream::{Layered, Spoken, conformance};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! conformance(&Spoken).await.assert();
//! // The same behind a layer: here one that does nothing.
//! conformance(&Layered::new(Spoken, "nothing", |provider| provider)).await.assert();
//! # });
//! ```

mod cases;
mod judge;
mod manifest;
mod scenario;
mod spoken;

pub use manifest::{Capability, Manifest};
pub use scenario::{Ending, Failure, Reply, Say, StreamScenario};
pub use spoken::{Layered, Spoken};

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::{Error, ErrorKind, Result, provider::Provider, run::Caught};

/// Longest time for one case. A provider that hangs fails; it does not stop the suite.
const CASE_TIMEOUT: Duration = Duration::from_secs(20);

/// A provider under test, with the ability to play its service.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The abilities of the wire.
    fn manifest(&self) -> Manifest;

    /// A provider whose next calls are answered with the scenario's replies, in order.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the wire cannot spell the scenario: the manifest must then say so too. Any other
    /// error fails the case.
    async fn play(&self, scenario: &StreamScenario) -> Result<Stage>;
}

/// A provider that is ready to play a scenario, with the guards that keep it alive.
pub struct Stage {
    provider: Arc<dyn Provider>,
    watch: Option<Watch>,
    secret: Option<String>,
    guards: Vec<Box<dyn Any + Send + Sync>>,
}

impl Stage {
    /// A stage for `provider`.
    #[must_use]
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider, watch: None, secret: None, guards: Vec::new() }
    }

    /// Sets the watch that the service notifies when it has read a request and when the caller has gone away.
    #[must_use]
    pub fn watched(mut self, watch: &Watch) -> Self {
        self.watch = Some(watch.clone());
        self
    }

    /// Sets the provider's key. It must not appear in `Debug` output, errors or deltas.
    #[must_use]
    pub fn with_secret(mut self, secret: impl Into<String>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Keeps `guard` until the case is over: a server's task, for example.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guards.push(Box::new(guard));
        self
    }
}

impl From<Arc<dyn Provider>> for Stage {
    fn from(provider: Arc<dyn Provider>) -> Self {
        Self::new(provider)
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("provider", &self.provider)
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

/// A service's view of a call. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    asked: CancellationToken,
    gone: CancellationToken,
}

impl Watch {
    /// A watch that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a request was read. Called by the service.
    pub fn saw_request(&self) {
        self.asked.cancel();
    }

    /// Records that the caller went away with the reply unfinished. Called by the service.
    pub fn saw_close(&self) {
        self.gone.cancel();
    }

    /// Waits until a request has been read.
    pub async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Waits until the caller has gone away.
    pub async fn gone(&self) {
        self.gone.cancelled().await;
    }
}

/// Every scenario of the suite, for tests of how a subject spells them.
#[must_use]
pub fn scenarios() -> Vec<StreamScenario> {
    cases::cases().iter().map(cases::Case::scenario).collect()
}

/// Runs every case against `subject` and reports the results.
///
/// Needs a tokio runtime with time.
pub async fn conformance(subject: &dyn Subject) -> StreamReport {
    let manifest = subject.manifest();
    let mut report = StreamReport {
        name: manifest.name.clone(),
        passed: Vec::new(),
        failed: Vec::new(),
        skipped: Vec::new(),
    };
    let cases = cases::cases();
    for name in manifest.skips().filter(|name| cases.iter().all(|case| case.name != *name)) {
        report.failed.push((name.to_owned(), "there is no such case to skip".to_owned()));
    }
    for case in &cases {
        let name = case.name.to_owned();
        let scenario = case.scenario();
        let outcome = match subject.play(&scenario).await {
            Ok(stage) => run(case, stage, scenario).await,
            Err(error) if error.kind() == ErrorKind::Unsupported => Err(Flaw(error.to_string())),
            Err(error) => {
                report.failed.push((name, format!("the scenario could not be played: {error:?}")));
                continue;
            }
        };
        match (outcome, manifest.excuse(case.name, case.needs)) {
            (Ok(()), None) => report.passed.push(name),
            (Err(flaw), None) => report.failed.push((name, flaw.0)),
            (Err(flaw), Some(reason)) => report.skipped.push((name, format!("{reason} ({})", flaw.0))),
            (Ok(()), Some(reason)) => report
                .failed
                .push((name, format!("it passes, so it must not be declared as unsupported ({reason})"))),
        }
    }
    report
}

async fn run(case: &cases::Case, stage: Stage, scenario: StreamScenario) -> Checked {
    let played = Caught::new(|| (case.run)(stage, scenario));
    match tokio::time::timeout(CASE_TIMEOUT, played).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Flaw(format!("it panicked: {panic}"))),
        Err(_) => Err(Flaw(format!("it did not end within {} seconds", CASE_TIMEOUT.as_secs()))),
    }
}

/// Results of the cases. `Display` is one line; `{:#}` adds a line for each case that failed or was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a report does nothing until `assert`"]
pub struct StreamReport {
    name: String,
    passed: Vec<String>,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
}

impl StreamReport {
    /// The cases that passed.
    #[must_use]
    pub fn passed(&self) -> &[String] {
        &self.passed
    }

    /// The cases that failed, with the failure.
    #[must_use]
    pub fn failed(&self) -> &[(String, String)] {
        &self.failed
    }

    /// The cases that the subject declared impossible, with the reason and the failure.
    #[must_use]
    pub fn skipped(&self) -> &[(String, String)] {
        &self.skipped
    }

    /// Fails the test if a case failed.
    ///
    /// # Panics
    /// If a case failed, with all failures.
    #[track_caller]
    pub fn assert(&self) {
        assert!(self.failed.is_empty(), "{self:#}");
    }
}

impl fmt::Display for StreamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, passed, failed, skipped } = self;
        write!(
            f,
            "stream conformance {name}: {} passed, {} failed, {} skipped",
            passed.len(),
            failed.len(),
            skipped.len()
        )?;
        if f.alternate() {
            for (verdict, cases) in [("failed", failed), ("skipped", skipped)] {
                for (case, text) in cases {
                    write!(f, "\n  {case} {verdict}: {text}")?;
                }
            }
        }
        Ok(())
    }
}

/// The failure of a case, as text for people.
#[derive(Debug)]
struct Flaw(String);

type Checked<T = ()> = Result<T, Flaw>;
type Run = fn(Stage, StreamScenario) -> Pin<Box<dyn Future<Output = Checked> + Send>>;

impl From<Error> for Flaw {
    fn from(error: Error) -> Self {
        Self(format!("the provider failed: {error:?}"))
    }
}

#[cfg(test)]
mod tests;
