//! The abilities of a provider's wire, and its limits with reasons.

use std::collections::BTreeMap;

/// An ability that not every wire has. Everything else is required of every provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Reasoning that is shown.
    Reasoning,
    /// Signatures or encrypted forms of reasoning.
    Signatures,
    /// A separate channel for refusals.
    RefusalText,
    /// A finish reason for a model that declined.
    RefusalFinish,
    /// A finish reason for a rest that the service withheld.
    ContentFilter,
    /// The wire's own word for the finish reason.
    FinishWord,
    /// Ids of tool calls.
    CallIds,
    /// Arguments as text, which passes byte for byte and may be invalid JSON.
    RawArguments,
    /// Arguments that are streamed as they come.
    StreamedArguments,
    /// Blocks that only the service understands.
    Blocks,
    /// Token counts.
    Usage,
    /// Replies without a usage report.
    UnreportedUsage,
    /// Prompt tokens read from a cache.
    CacheReads,
    /// Prompt tokens written to a cache.
    CacheWrites,
    /// Tokens spent on reasoning.
    ReasoningUsage,
    /// The service's own figure for the cost of a call.
    Cost,
    /// Ids of responses.
    ResponseId,
    /// The name of the model that answered.
    ResponseModel,
    /// Errors inside a stream.
    StreamErrors,
    /// A kind of error for requests refused by a content filter.
    FilteredRequests,
    /// A time to wait before the next attempt.
    RetryAfter,
    /// Refusals as errors of [`Provider::stream`](entourage_core::provider::Provider::stream) itself. Only a layer that
    /// retries may lack it.
    RefusesAtOnce,
    /// A [`super::Watch`] in the stage, which shows that a call is abandoned.
    Watched,
}

/// A provider's declaration of its abilities.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Manifest {
    /// The provider's name, for the report.
    pub name: String,
    absent: BTreeMap<Capability, String>,
    skips: BTreeMap<String, String>,
}

impl Manifest {
    /// A provider whose wire can spell everything.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), absent: BTreeMap::new(), skips: BTreeMap::new() }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Declares that the wire lacks `capability`, because of `reason`.
    #[must_use]
    pub fn without(mut self, capability: Capability, reason: impl Into<String>) -> Self {
        self.absent.insert(capability, reason.into());
        self
    }

    /// Declares that one case cannot pass, because of `reason`. For limits that no [`Capability`] covers.
    #[must_use]
    pub fn skipping(mut self, case: impl Into<String>, reason: impl Into<String>) -> Self {
        self.skips.insert(case.into(), reason.into());
        self
    }

    /// True if the wire has this ability.
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        !self.absent.contains_key(&capability)
    }

    /// The reason why `case`, which needs all of `needs`, may fail; `None` if it must pass.
    pub(super) fn excuse(&self, case: &str, needs: &[Capability]) -> Option<&str> {
        let absent = needs.iter().find_map(|need| self.absent.get(need));
        self.skips.get(case).or(absent).map(String::as_str)
    }

    /// The cases that are skipped by name.
    pub(super) fn skips(&self) -> impl Iterator<Item = &str> {
        self.skips.keys().map(String::as_str)
    }
}
