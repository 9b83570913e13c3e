//! The digest and the extent of what an approver allows for more than one call.

use entourage_core::{
    Digest,
    tool::{Footprint, ToolSpec},
};

use super::LEAKS;

/// A lasting grant of a call.
pub(crate) struct Grant {
    /// The digest that it is bound to.
    pub(crate) key: Digest,
    /// Its extent beside the tool, for people.
    pub(crate) covers: Vec<String>,
}

impl Grant {
    pub(crate) fn of(spec: &ToolSpec, footprint: &Footprint) -> Self {
        let covered = covered(spec, footprint);
        let declared = [
            spec.names_subjects(),
            spec.changes_files(),
            spec.is_confining(),
            spec.has_access_by_call(),
            spec.is_alone(),
        ];
        let mut declared = format!("{declared:?} {:?}", spec.repeat());
        spec.reached().iter().for_each(|path| declared.extend([" ", path.as_str()]));
        let parts = [spec.digest().to_string(), declared, covered.digest().to_string()];
        let key = Digest::of(std::iter::once(b"grant".as_slice()).chain(parts.iter().map(String::as_bytes)));
        Self { key, covers: covered.subjects().map(str::to_owned).collect() }
    }

    /// The grant of such calls, where the rule on leaks applies if `applies`: what was granted without it is none then.
    pub(crate) fn of_leaks(self, applies: bool) -> Self {
        if !applies {
            return self;
        }
        Self { key: Digest::of([LEAKS.as_bytes(), self.key.to_string().as_bytes()]), ..self }
    }
}

/// The footprint that a grant of this call stands for: each file that it changes becomes the files in its directory.
fn covered(spec: &ToolSpec, footprint: &Footprint) -> Footprint {
    let mut covered = footprint.clone();
    if spec.changes_files() {
        for path in &mut covered.writes {
            // The final `/` tells the files of a directory from a path of that name.
            *path = match path.rsplit_once('/') {
                Some((directory, _)) => format!("{directory}/"),
                None => "./".to_owned(),
            };
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use entourage_core::tool::Access;
    use serde_json::json;

    use super::*;

    #[test]
    fn cp02_a_grant_covers_the_directory_of_a_file_and_nothing_above_beside_or_below_it() {
        let edit = ToolSpec::new("edit", "", json!({})).with_access(Access::WRITE).naming_subjects();
        let files = edit.clone().changing_files();
        let grant =
            |spec: &ToolSpec, path: &str| Grant::of(spec, &Footprint::new(Access::WRITE).writing(path)).key;
        let granted = grant(&files, "src/a.rs");
        for (path, covered) in [
            ("src/a.rs", true),
            ("src/b.rs", true),
            ("src/fs/a.rs", false),
            ("a.rs", false),
            ("src", false),
            ("src2/a.rs", false),
            ("/src/a.rs", false),
            ("../src/a.rs", false),
        ] {
            assert_eq!(grant(&files, path) == granted, covered, "{path}");
        }
        assert_ne!(grant(&files, "a.rs"), grant(&files, "/a.rs"));
        assert_ne!(grant(&edit, "src/a.rs"), grant(&edit, "src/b.rs"), "a path may be a directory");
        assert_ne!(grant(&files.clone().with_name("write"), "src/a.rs"), granted, "another tool");
        assert_ne!(
            grant(&files.with_description("x"), "src/a.rs"),
            granted,
            "attack 43: another declaration"
        );
        let both = Footprint::new(Access::WRITE).writing("src/a.rs").writing("secrets/key");
        assert_ne!(Grant::of(&edit.changing_files(), &both).key, granted);
    }
}
