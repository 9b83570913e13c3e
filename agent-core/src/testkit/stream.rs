//! The suite that every provider passes, yours included: from what a service says to the message that an agent gets.
//!
//! Each case is a [`Scenario`] in neutral terms. A [`Subject`] spells it on its wire, usually as bytes of a loopback
//! listener, and hands over a provider that is about to meet it; the suite calls that provider and compares. A case
//! that needs what the subject's [`Manifest`] declares absent is run all the same: when it passes, the declaration is
//! stale and the case counts as failed.
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
pub use scenario::{Ending, Failure, Reply, Say, Scenario};
pub use spoken::{Layered, Spoken};

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::{Error, ErrorKind, Result, provider::Provider};

/// How long one case may take. A provider that hangs fails; it does not stop the suite.
const CASE_TIMEOUT: Duration = Duration::from_secs(20);

/// A provider under test: somebody who can play the service's part on the provider's wire.
#[async_trait]
pub trait Subject: Send + Sync {
    /// What the wire can spell.
    fn manifest(&self) -> Manifest;

    /// A provider whose next calls are answered with the scenario's replies, in order.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the wire cannot spell it: the manifest must then say so too. Any other error
    /// fails the case.
    async fn play(&self, scenario: &Scenario) -> Result<Stage>;
}

/// A provider that is about to meet a scenario, with what it needs to live.
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

    /// The service tells `watch` when it has read a request and when the caller has gone away.
    #[must_use]
    pub fn watched(mut self, watch: &Watch) -> Self {
        self.watch = Some(watch.clone());
        self
    }

    /// The provider's key. It must not turn up in `Debug` output, errors or deltas.
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

/// What the service sees of a call. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    asked: CancellationToken,
    gone: CancellationToken,
}

impl Watch {
    /// Nothing has been seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// To be called by the service: a request has been read.
    pub fn saw_request(&self) {
        self.asked.cancel();
    }

    /// To be called by the service: the caller has gone away, with the reply unfinished.
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

/// Every scenario of the suite, for those who want to test how they spell them.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    cases::cases().iter().map(cases::Case::scenario).collect()
}

/// Runs every case against `subject` and reports how they ended.
///
/// Needs a tokio runtime with time.
pub async fn conformance(subject: &dyn Subject) -> Report {
    let manifest = subject.manifest();
    let mut report =
        Report { name: manifest.name.clone(), passed: Vec::new(), failed: Vec::new(), skipped: Vec::new() };
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

async fn run(case: &cases::Case, stage: Stage, scenario: Scenario) -> Checked {
    let played = std::panic::AssertUnwindSafe((case.run)(stage, scenario)).catch_unwind();
    match tokio::time::timeout(CASE_TIMEOUT, played).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Flaw(format!("it panicked: {}", panic_text(&*panic)))),
        Err(_) => Err(Flaw(format!("it did not end within {} seconds", CASE_TIMEOUT.as_secs()))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}

/// How the cases ended. `Display` is one line; `{:#}` adds a line for each case that failed or was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a report does nothing until `assert`"]
pub struct Report {
    name: String,
    passed: Vec<String>,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
}

impl Report {
    /// The cases that passed.
    #[must_use]
    pub fn passed(&self) -> &[String] {
        &self.passed
    }

    /// The cases that failed, and how.
    #[must_use]
    pub fn failed(&self) -> &[(String, String)] {
        &self.failed
    }

    /// The cases that the subject declared it cannot pass: why, and how they failed.
    #[must_use]
    pub fn skipped(&self) -> &[(String, String)] {
        &self.skipped
    }

    /// Ends the test when a case failed.
    ///
    /// # Panics
    /// When a case failed, with all failures.
    #[track_caller]
    pub fn assert(&self) {
        assert!(self.failed.is_empty(), "{self:#}");
    }
}

impl fmt::Display for Report {
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

/// Why a case failed, for people.
#[derive(Debug)]
struct Flaw(String);

type Checked<T = ()> = Result<T, Flaw>;
type Run = fn(Stage, Scenario) -> Pin<Box<dyn Future<Output = Checked> + Send>>;

impl From<Error> for Flaw {
    fn from(error: Error) -> Self {
        Self(format!("the provider failed: {error:?}"))
    }
}

#[cfg(test)]
mod tests;
