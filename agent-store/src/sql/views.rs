//! Views of others beside those of the store: the check of a set, and the label by which an installed one is known.
//! Pure: each engine reads the labels, and makes and drops the views.

use entourage_core::{Digest, Error, ErrorKind, Result};

use super::Failure;

/// Most bytes of a name: more are cut by PostgreSQL.
const LONGEST_NAME: usize = 63;
const MOST_VIEWS: usize = 100;
/// Most bytes of all texts of a set.
const LONGEST: usize = 1 << 20;

/// Begins the label of an installed view.
const LABEL: &str = "entourage views:";

/// Views by name, each with its `SELECT`.
pub(crate) type Texts = &'static [(&'static str, &'static str)];

/// A set of views that can be installed.
#[derive(Debug)]
pub(crate) struct ViewSet {
    name: &'static str,
    version: u32,
    views: Texts,
    digest: Digest,
}

/// The label of an installed view: its set, with the version and the digest of all its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    set: String,
    version: u32,
    digest: String,
}

/// Something in the database that has a name.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// `None` for all but installed views.
    pub(crate) label: Option<Label>,
}

/// What is to be done to have a set installed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Nothing: this version is there.
    Keep(u32),
    /// Drop these views, and make those of the set.
    Replace(Vec<&'a str>),
}

impl ViewSet {
    /// Checks the names and texts of a set.
    pub(crate) fn new(name: &'static str, version: u32, views: Texts) -> Result<Self> {
        if !is_name(name) {
            return Err(refused(
                "the name of a set of views has lower-case letters, digits and underscores",
                name,
            ));
        }
        if views.is_empty() || views.len() > MOST_VIEWS {
            return Err(refused("a set has 1 to 100 views", name));
        }
        let mut names: Vec<_> = views.iter().map(|(view, _)| *view).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() < views.len() {
            return Err(refused("each view of a set has a name of its own", name));
        }
        if views.iter().map(|(_, text)| text.len()).sum::<usize>() > LONGEST {
            return Err(refused("the texts of a set have at most 1 MiB", name));
        }
        for (view, text) in views {
            check_view(name, view, text)?;
        }
        let pieces = views.iter().flat_map(|(view, text)| [view.as_bytes(), text.as_bytes()]);
        Ok(Self { name, version, views, digest: Digest::of(pieces) })
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn views(&self) -> impl DoubleEndedIterator<Item = (&'static str, &'static str)> {
        self.views.iter().map(|(name, text)| (*name, text.trim().trim_end_matches(';')))
    }

    /// Returns the label of the set's views.
    pub(crate) fn label(&self) -> String {
        format!("{LABEL} {} {} {}", self.name, self.version, self.digest)
    }

    /// Decides what is to be done, by what there is.
    pub(crate) fn step<'a>(&self, found: &'a [Found]) -> Result<Step<'a>> {
        let own = |found: &Found| found.label.as_ref().is_some_and(|label| label.set == self.name);
        let installed: Vec<_> = found.iter().filter(|found| own(found)).collect();
        let labels = || installed.iter().filter_map(|found| found.label.as_ref());
        if let Some(newest) =
            labels().map(|label| label.version).max().filter(|newest| *newest > self.version)
        {
            return Ok(Step::Keep(newest));
        }
        let digest = self.digest.to_string();
        let is_whole = installed.len() == self.views.len()
            && labels().all(|label| label.version == self.version && label.digest == digest)
            && installed.iter().all(|found| self.views.iter().any(|(name, _)| *name == found.name));
        if is_whole {
            return Ok(Step::Keep(self.version));
        }
        let taken = |found: &&Found| -> bool {
            !own(found) && self.views.iter().any(|(name, _)| found.name.eq_ignore_ascii_case(name))
        };
        if let Some(found) = found.iter().find(taken) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "the name of a view is in use by something else; rename that, then install the views again",
            )
            .with("name", found.name.as_str()));
        }
        Ok(Step::Replace(installed.iter().map(|found| found.name.as_str()).collect()))
    }
}

impl Label {
    /// Reads the label in a text, such as the definition of a view that begins with it.
    pub(crate) fn within(text: &str) -> Option<Self> {
        let (_, label) = text.split_once(LABEL)?;
        let mut words = label.split_whitespace();
        let (set, version, digest) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Self { set: set.to_owned(), version, digest: digest.to_owned() })
    }
}

/// Returns a name as an identifier, whatever is in it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the failure of a statement that makes or tries a view: most often its text is the cause.
pub(crate) fn unmade(view: &'static str, error: sqlx::Error, is_its_text: bool) -> Failure {
    if !is_its_text {
        return error.into();
    }
    let text = "the database does not take the text of a view; give the texts for this engine, of a version that fits \
                this version of the store";
    Error::new(ErrorKind::InvalidInput, text).with("view", view).caused_by(error).into()
}

fn check_view(set: &str, view: &'static str, text: &str) -> Result<()> {
    let rest = view.strip_prefix(set).and_then(|rest| rest.strip_prefix('_'));
    if !is_name(view) || rest.is_none_or(str::is_empty) {
        let text = "the name of a view begins with that of its set and an underscore, and has lower-case letters, \
                    digits and underscores, at most 63";
        return Err(refused(text, view));
    }
    let select = text.trim().trim_end_matches(';');
    if select.is_empty() || select.contains([';', '\0']) {
        return Err(refused("the text of a view is one SELECT, without `;` in it", view));
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn refused(text: &'static str, name: &'static str) -> Error {
    Error::new(ErrorKind::InvalidInput, text)
        .with("name", name.chars().take(LONGEST_NAME).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: Texts = &[("a_x", "SELECT 1 AS one"), ("a_y", "SELECT one FROM a_x;\n")];

    fn set(version: u32) -> ViewSet {
        ViewSet::new("a", version, TEXTS).unwrap()
    }

    fn found(name: &str, label: Option<&str>) -> Found {
        Found { name: name.to_owned(), label: label.and_then(Label::within) }
    }

    #[test]
    fn bo09_only_plain_names_and_single_texts_are_a_set() {
        const LONG: &str = "a_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        let refused: [(&'static str, Texts); 13] = [
            ("", &[("_x", "SELECT 1")]),
            ("A", &[("A_x", "SELECT 1")]),
            ("1", &[("1_x", "SELECT 1")]),
            ("a", &[]),
            ("a", &[("a", "SELECT 1")]),
            ("a", &[("a_", "SELECT 1")]),
            ("a", &[("b_x", "SELECT 1")]),
            ("a", &[("a_\"x", "SELECT 1")]),
            ("a", &[(LONG, "SELECT 1")]),
            ("a", &[("a_x", " ; ")]),
            ("a", &[("a_x", "SELECT 1; DROP TABLE events")]),
            ("a", &[("a_x", "SELECT '\0'")]),
            ("a", &[("a_x", "SELECT 1"), ("a_x", "SELECT 2")]),
        ];
        for (name, views) in refused {
            let error = ViewSet::new(name, 1, views).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name} {views:?}");
        }
        assert_eq!(set(1).views().last(), Some(("a_y", "SELECT one FROM a_x")));
    }

    #[test]
    fn bo09_a_label_is_read_back() {
        let label = Label::within(&format!("CREATE VIEW x AS /* {} */ SELECT 1", set(7).label())).unwrap();
        assert_eq!((label.set.as_str(), label.version, label.digest), ("a", 7, set(1).digest.to_string()));
        for text in [
            "",
            "entourage views:",
            "entourage views: a",
            "entourage views: a b c",
            "entourage views: a 99999999999 c",
        ] {
            assert_eq!(Label::within(text), None, "{text}");
        }
    }

    #[test]
    fn bo09_a_set_is_made_once_and_never_by_an_older_version() {
        let (old, new) = (set(1).label(), set(2).label());
        let both =
            |label: &str| [found("a_x", Some(label)), found("a_y", Some(label)), found("events", None)];
        assert_eq!(set(1).step(&[]).unwrap(), Step::Replace(vec![]));
        assert_eq!(set(1).step(&both(&old)).unwrap(), Step::Keep(1));
        assert_eq!(set(1).step(&both(&new)).unwrap(), Step::Keep(2));
        assert_eq!(set(2).step(&both(&old)).unwrap(), Step::Replace(vec!["a_x", "a_y"]));
        assert_eq!(set(1).step(&both(&old)[..1]).unwrap(), Step::Replace(vec!["a_x"]), "one was dropped");
        let other = found("a_z", Some(&old));
        assert_eq!(set(1).step(&[other]).unwrap(), Step::Replace(vec!["a_z"]), "one has another name");
        let same = old.replace(&set(1).digest.to_string(), "0");
        assert_eq!(set(1).step(&both(&same)).unwrap(), Step::Replace(vec!["a_x", "a_y"]), "other texts");
        for label in [None, Some("entourage views: b 1 0")] {
            let error = set(1).step(&[found("A_x", label)]).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }
    }
}
