//! The results of a conformance suite.

use std::fmt;

/// Results of a suite's cases. `Display` is one line with the names of the cases that failed; `{:#}` adds a line for
/// each case that failed or was skipped, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a report does nothing until `assert`"]
pub struct ConformanceReport {
    suite: &'static str,
    subject: String,
    passed: Vec<String>,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
}

impl ConformanceReport {
    pub(super) fn new(suite: &'static str, subject: String) -> Self {
        Self { suite, subject, passed: Vec::new(), failed: Vec::new(), skipped: Vec::new() }
    }

    pub(super) fn pass(&mut self, case: &str) {
        self.passed.push(case.to_owned());
    }

    pub(super) fn fail(&mut self, case: &str, text: impl Into<String>) {
        self.failed.push((case.to_owned(), text.into()));
    }

    pub(super) fn skip(&mut self, case: &str, text: impl Into<String>) {
        self.skipped.push((case.to_owned(), text.into()));
    }

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

    /// The cases that the subject declared impossible, with the failure, and the reason where there is one.
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

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { suite, subject, passed, failed, skipped } = self;
        write!(f, "{suite} {subject}: {} passed, {} failed", passed.len(), failed.len())?;
        if !failed.is_empty() {
            let names = failed.iter().map(|(case, _)| case.as_str()).collect::<Vec<_>>().join(", ");
            write!(f, " ({names})")?;
        }
        write!(f, ", {} skipped", skipped.len())?;
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
