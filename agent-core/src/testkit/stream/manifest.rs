//! What a provider's wire can spell, and what it cannot, with reasons.

use std::collections::BTreeMap;

/// Something that not every wire can spell. Everything else is required of every provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Reasoning that is shown.
    Reasoning,
    /// Signatures or encrypted forms of reasoning.
    Signatures,
    /// A channel of its own for refusals.
    RefusalText,
    /// A finish that says that the model declined.
    RefusalFinish,
    /// A finish that says that the service withheld the rest.
    ContentFilter,
    /// A word of the wire's own for why a reply ended.
    FinishWord,
    /// Ids of tool calls.
    CallIds,
    /// Arguments as text, which comes through byte for byte and may be broken.
    RawArguments,
    /// Arguments that are shown while they come.
    StreamedArguments,
    /// Blocks that only the service understands.
    Blocks,
    /// Tokens.
    Usage,
    /// Replies that do not say what they used.
    UnreportedUsage,
    /// Prompt tokens read from a cache.
    CacheReads,
    /// Prompt tokens written to a cache.
    CacheWrites,
    /// Tokens spent on reasoning.
    ReasoningUsage,
    /// The service's own figure of what a call cost.
    Cost,
    /// Ids of responses.
    ResponseId,
    /// The name of the model that answered.
    ResponseModel,
    /// Errors inside a stream.
    StreamErrors,
    /// A kind of refusal for content.
    FilteredRequests,
    /// A time to wait before the next try.
    RetryAfter,
    /// A refusal is the error of [`crate::provider::Provider::stream`] itself. Only a layer that tries again may do without.
    RefusesAtOnce,
    /// The stage has a [`super::Watch`], so that it is seen when a call is given up.
    Watched,
}

/// What a provider declares about itself.
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

    /// Its wire cannot spell this, because of `reason`.
    #[must_use]
    pub fn without(mut self, capability: Capability, reason: impl Into<String>) -> Self {
        self.absent.insert(capability, reason.into());
        self
    }

    /// It cannot pass one case, because of `reason`. For what no [`Capability`] says.
    #[must_use]
    pub fn skipping(mut self, case: impl Into<String>, reason: impl Into<String>) -> Self {
        self.skips.insert(case.into(), reason.into());
        self
    }

    /// Whether its wire can spell this.
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        !self.absent.contains_key(&capability)
    }

    /// Why `case`, which needs all of `needs`, is not expected to pass; `None` when it is.
    pub(super) fn excuse(&self, case: &str, needs: &[Capability]) -> Option<&str> {
        let absent = needs.iter().find_map(|need| self.absent.get(need));
        self.skips.get(case).or(absent).map(String::as_str)
    }

    /// The cases that are skipped by name.
    pub(super) fn skips(&self) -> impl Iterator<Item = &str> {
        self.skips.keys().map(String::as_str)
    }
}
