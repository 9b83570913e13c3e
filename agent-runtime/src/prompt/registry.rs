//! The templates of a program, each version of each name once.

use std::collections::BTreeMap;

use entourage_core::{Error, ErrorKind, Result};

use crate::prompt::template::{PromptTemplate, check_name};

/// Templates by name and version. Different text under a known version is refused.
///
/// A program that keeps the ids of earlier releases, for example in a test, can pin them. Then words that changed
/// without a new version are found before they are recorded.
///
/// ```
/// use entourage_runtime::context::{PromptTemplate, Templates};
///
/// let mut templates = Templates::new();
/// templates.register(PromptTemplate::new("coder", 1, "You write code.").unwrap()).unwrap();
/// let changed = PromptTemplate::new("coder", 1, "You write good code.").unwrap();
/// assert!(templates.register(changed.clone()).unwrap_err().message().contains("version 2"));
/// templates.register(PromptTemplate::new("coder", 2, changed.source()).unwrap()).unwrap();
/// assert_eq!(templates.get("coder").unwrap().version(), 2);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Templates(BTreeMap<String, BTreeMap<u32, Known>>);

#[derive(Debug, Clone)]
struct Known {
    id: String,
    /// `None` for a pinned id whose text was not registered.
    template: Option<PromptTemplate>,
}

impl Templates {
    /// No templates.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a template. The same text again changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when this version of this name is known with other text.
    pub fn register(&mut self, template: PromptTemplate) -> Result<()> {
        self.agree(template.name(), template.version(), template.id())?;
        let (id, version) = (template.id().to_owned(), template.version());
        let versions = self.0.entry(template.name().to_owned()).or_default();
        versions.insert(version, Known { id, template: Some(template) });
        Ok(())
    }

    /// Fixes the text of a version by an id that was recorded earlier.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if `id` is not of the form `name@version#hash`, [`ErrorKind::Conflict`] if this
    /// version is known with other text.
    pub fn pin(&mut self, id: &str) -> Result<()> {
        let (name, version) = read_id(id)?;
        self.agree(name, version, id)?;
        let versions = self.0.entry(name.to_owned()).or_default();
        versions.entry(version).or_insert_with(|| Known { id: id.to_owned(), template: None });
        Ok(())
    }

    /// The template of this id, or the newest version of this name. A pinned id yields `None` until its text is
    /// registered.
    #[must_use]
    pub fn get(&self, name_or_id: &str) -> Option<&PromptTemplate> {
        if let Some(versions) = self.0.get(name_or_id) {
            return versions.values().rev().find_map(|known| known.template.as_ref());
        }
        let (name, version) = read_id(name_or_id).ok()?;
        self.0.get(name)?.get(&version).filter(|known| known.id == name_or_id)?.template.as_ref()
    }

    /// All templates, by name and then version.
    pub fn iter(&self) -> impl Iterator<Item = &PromptTemplate> {
        self.0.values().flat_map(BTreeMap::values).filter_map(|known| known.template.as_ref())
    }

    fn agree(&self, name: &str, version: u32, id: &str) -> Result<()> {
        let Some(versions) = self.0.get(name) else { return Ok(()) };
        let Some(known) = versions.get(&version).filter(|known| known.id != id) else { return Ok(()) };
        let next = versions.last_key_value().map_or(version, |(newest, _)| *newest).saturating_add(1);
        let text = format!(
            "version {version} of the template `{name}` has other text; raise the version of the changed one, version {next} is free"
        );
        Err(Error::new(ErrorKind::Conflict, text).with("known", known.id.clone()).with("given", id))
    }
}

fn read_id(id: &str) -> Result<(&str, u32)> {
    let parts = id.split_once('@').and_then(|(name, rest)| Some((name, rest.split_once('#')?)));
    let hex = |hash: &str| hash.len() == 12 && hash.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let read = parts.and_then(|(name, (version, hash))| {
        let number = version.parse().ok().filter(|number: &u32| number.to_string() == version)?;
        (hex(hash) && check_name(name).is_ok()).then_some((name, number))
    });
    read.ok_or_else(|| {
        let shown: String = id.chars().take(120).collect();
        Error::new(ErrorKind::InvalidInput, "a template's id is `name@version#hash`; take it from a record")
            .with("id", format!("{shown:?}"))
    })
}
