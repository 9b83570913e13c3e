//! The suite that every provider passes, yours included: from the bytes of a service to the message that an agent
//! gets.
//!
//! Each case is a [`StreamScenario`] in neutral terms. A [`Subject`] spells it on its wire, usually as bytes of a
//! loopback listener, and returns a provider connected to it; the suite calls that provider and compares. A case that
//! needs an ability which the subject's [`Manifest`] declares absent runs all the same: if it passes, the declaration
//! is stale and the case counts as failed.
//!
//! ```
//! use entourage_testkit::stream::{Layered, Spoken, conformance};
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

use std::{any::Any, fmt, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{Error, ErrorKind, Result, provider::Provider};
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::ConformanceReport;

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
pub async fn conformance(subject: &dyn Subject) -> ConformanceReport {
    let manifest = subject.manifest();
    let mut report = ConformanceReport::new("stream conformance", manifest.name.clone());
    let cases = cases::cases();
    for name in manifest.skips().filter(|name| cases.iter().all(|case| case.name != *name)) {
        report.fail(name, "there is no such case to skip");
    }
    for case in &cases {
        let scenario = case.scenario();
        let outcome = match subject.play(&scenario).await {
            Ok(stage) => run(case, stage, scenario).await,
            Err(error) if error.kind() == ErrorKind::Unsupported => Err(Flaw(error.to_string())),
            Err(error) => {
                report.fail(case.name, format!("the scenario could not be played: {error:?}"));
                continue;
            }
        };
        match (outcome, manifest.excuse(case.name, case.needs)) {
            (Ok(()), None) => report.pass(case.name),
            (Err(flaw), None) => report.fail(case.name, flaw.0),
            (Err(flaw), Some(reason)) => report.skip(case.name, format!("{reason} ({})", flaw.0)),
            (Ok(()), Some(reason)) => report
                .fail(case.name, format!("it passes, so it must not be declared as unsupported ({reason})")),
        }
    }
    report
}

async fn run(case: &cases::Case, stage: Stage, scenario: StreamScenario) -> Checked {
    let played = AssertUnwindSafe(async { (case.run)(stage, scenario).await }).catch_unwind();
    match tokio::time::timeout(CASE_TIMEOUT, played).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            Err(Flaw(format!("it panicked: {}", text.unwrap_or("no message"))))
        }
        Err(_) => Err(Flaw(format!("it did not end within {} seconds", CASE_TIMEOUT.as_secs()))),
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
