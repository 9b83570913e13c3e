//! Facts about models, known without asking a service: windows, abilities and prices, as data.
//!
//! The built-in table is generated from public data by `catalog/generate.py`, with sources and date in its head. It is
//! as old as that date and promises nothing: a program's own figures take precedence. Unlisted models are unknown: no
//! name is guessed at, and no price is ever zero for want of one. Nothing is fetched, and nothing global can be
//! changed.

mod alias;
mod json;
mod size;
mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock},
};

use entourage_core::{Result, provider::Profile};

pub(crate) use size::size_in;

static BUILTIN: LazyLock<Catalog> =
    LazyLock::new(|| table::read(include_str!("../../catalog/models.tsv")).catalog);

/// Profiles of models by service and name. A clone costs a reference count.
///
/// A service is named as in `vendor:model`, a model as the service names it; both are case-sensitive.
///
/// ```
/// use entourage_core::provider::Profile;
/// use entourage_providers::catalog::Catalog;
///
/// let mut local = Profile::default();
/// local.context_window = Some(32_768);
/// let catalog = Catalog::builtin().with("llamacpp", "my-7b", local);
///
/// assert_eq!(catalog.profile("llamacpp", "my-7b").unwrap().context_window, Some(32_768));
/// assert!(catalog.profile("openai", "gpt-4o").unwrap().prices.is_some());
/// assert_eq!(catalog.profile("openai", "gpt-4o-mega"), None);
/// ```
#[derive(Clone, Default)]
pub struct Catalog {
    models: Arc<BTreeMap<String, BTreeMap<String, Profile>>>,
    date: Option<&'static str>,
}

impl Catalog {
    /// The built-in table of this crate; see [`Self::date`]. It is parsed at the first call.
    #[must_use]
    pub fn builtin() -> Self {
        BUILTIN.clone()
    }

    /// A catalogue without any model.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// A catalogue of a program's own file alone, without the built-in table; [`Self::merge_json`] has the form.
    ///
    /// # Errors
    /// Those of [`Self::merge_json`].
    pub fn from_json(text: &str) -> Result<Self> {
        Self::empty().merge_json(text)
    }

    /// Adds the models of a program's own file, each as in [`Self::with`]. Services map to models, and those to facts.
    /// All facts are optional, and unknown ones are errors; `prices` are whole micro-dollars per million tokens (3 USD
    /// are `3000000`), as in [`Prices`](entourage_core::Prices):
    ///
    /// ```
    /// use entourage_providers::catalog::Catalog;
    ///
    /// let catalog = Catalog::builtin().merge_json(r#"{
    ///     "my-gateway": {
    ///         "house-70b": {
    ///             "context_window": 131072, "max_output": 8192,
    ///             "tools": true, "vision": false, "documents": false,
    ///             "structured_output": true, "reasoning": false, "sampling": true,
    ///             "size": "XL",
    ///             "prices": {
    ///                 "input": 250000, "output": 1000000, "cache_read": 25000, "cache_write": 300000,
    ///                 "tiers": [{"above": 65536, "input": 500000, "output": 2000000}]
    ///             }
    ///         }
    ///     }
    /// }"#)?;
    /// assert!(catalog.profile("my-gateway", "house-70b").is_some());
    ///
    /// let refused = Catalog::from_json(r#"{"my-gateway": {"house-70b": {"prices": {"input": 0.25}}}}"#).unwrap_err();
    /// assert!(refused.to_string().contains("my-gateway / house-70b / prices / input"));
    /// # Ok::<(), entourage_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`](entourage_core::ErrorKind::Config), naming the line or the field; then nothing is added.
    pub fn merge_json(self, text: &str) -> Result<Self> {
        let entries = json::read(text)?;
        Ok(entries.into_iter().fold(self, |catalog, (vendor, model, own)| catalog.with(vendor, model, own)))
    }

    /// Adds facts about a model. They take precedence over those known under exactly this name; facts that `own`
    /// leaves open stay unchanged. Prices count as one fact. For a model that costs nothing per call, use
    /// [`Prices::flat_rate`](entourage_core::Prices::flat_rate).
    #[must_use]
    pub fn with(mut self, vendor: impl Into<String>, model: impl Into<String>, own: Profile) -> Self {
        let (vendor, model) = (vendor.into(), model.into());
        let mut profile = match self.profile(&vendor, &model) {
            Some(known) => own.or(&known),
            None => own,
        };
        profile.size = profile.size.or_else(|| size_in(&model));
        Arc::make_mut(&mut self.models).entry(vendor).or_default().insert(model, profile);
        self
    }

    /// The profile of a model; `None` if it is not listed.
    ///
    /// Names are tried in this order, and no others:
    /// 1. the name as it stands;
    /// 2. without `models/` or the service's own name and a slash before it;
    /// 3. either of them without a snapshot's date at its end (`-20250929`, `@20250929` or `-2025-09-29`) that is not
    ///    later than [`Self::date`], or without `-latest`. Snapshots of other figures are listed by themselves.
    ///
    /// A suffix that changes what is bought (`:free`, `-fast`) is a name of its own.
    #[must_use]
    pub fn profile(&self, vendor: &str, model: &str) -> Option<Profile> {
        let models = self.models.get(vendor)?;
        alias::candidates(vendor, model, self.date).find_map(|name| models.get(name)).cloned()
    }

    /// All models: service, name and profile, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Profile)> {
        self.models.iter().flat_map(|(vendor, models)| {
            models.iter().map(move |(model, profile)| (vendor.as_str(), model.as_str(), profile))
        })
    }

    /// Number of models.
    #[must_use]
    pub fn len(&self) -> usize {
        self.models.values().map(BTreeMap::len).sum()
    }

    /// True if there is no model.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// The date of the built-in table, as `2026-11-22`; `None` for a catalogue that is not based on it. Prices may
    /// have changed since.
    #[must_use]
    pub fn date(&self) -> Option<&str> {
        self.date
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("models", &self.len()).field("date", &self.date).finish()
    }
}
