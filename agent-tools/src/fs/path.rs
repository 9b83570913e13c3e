//! Parses a model's path into a place below the root, without looking at the disk.
//!
//! This is only the first half of confinement: links are refused where the place is opened, see `workspace`.

use std::path::{Component, Path, PathBuf};

use entourage_core::tool::normal_path;

use super::text;

/// Longest path that is accepted, in bytes.
const LONGEST: usize = 4_096;

/// A place below the root, as plain names only; empty for the root itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inside(PathBuf);

impl Inside {
    /// Parses `path` as relative to the root, or as absolute below one of `roots`, the names of the root.
    ///
    /// `.` and `..` are resolved by name, without following links. The error is for the model.
    pub(super) fn parse(path: &str, roots: &[PathBuf]) -> Result<Self, String> {
        if path.is_empty() {
            return Err(
                "the path is empty and names nothing in the workspace; give one relative to its root"
                    .to_owned(),
            );
        }
        if path.contains('\0') {
            return Err(format!(
                "the path `{}` holds a NUL character, so it names nothing in the workspace",
                text::echo(path)
            ));
        }
        if path.len() > LONGEST {
            return Err(format!(
                "the path `{}` is longer than 4,096 bytes, so it names nothing in the workspace",
                text::echo(path)
            ));
        }
        let given = Path::new(path);
        let inside = if given.has_root() || given.is_absolute() {
            normal(given).and_then(|full| {
                roots.iter().find_map(|root| full.strip_prefix(root).ok().map(Path::to_owned))
            })
        } else {
            normal(given)
        };
        inside.map(Self).ok_or_else(|| outside(path))
    }

    /// A place reached from the root by `path`, which holds plain names only.
    pub(super) fn reached(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The path to pass to the root's handle.
    pub(super) fn as_path(&self) -> &Path {
        if self.0.as_os_str().is_empty() { Path::new(".") } else { &self.0 }
    }

    /// The plain names alone; empty for the root.
    pub(super) fn names(&self) -> &Path {
        &self.0
    }
}

/// The error for a path that leads out.
pub(super) fn outside(path: &str) -> String {
    format!(
        "the path `{}` is outside the workspace; only files below the workspace's root can be read: give a path \
         relative to it, without a way out through `..` or a link",
        text::echo(path)
    )
}

/// `path` without `.` and `..`; `None` when a relative one climbs above its start or names another drive.
pub(super) fn normal(path: &Path) -> Option<PathBuf> {
    let normal = normal_path(path);
    let is_place =
        normal.is_absolute() || normal.components().all(|part| matches!(part, Component::Normal(_)));
    is_place.then_some(normal)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn parse(path: &str) -> Result<String, String> {
        Inside::parse(path, &["/w/root".into(), "/link".into()]).map(|inside| text::show(inside.as_path()))
    }

    #[test]
    fn attack_24_only_places_below_the_root_are_paths() {
        for (path, place) in [
            ("a.rs", "a.rs"),
            ("./src//a.rs", "src/a.rs"),
            ("src/../a.rs", "a.rs"),
            (".", "."),
            ("src/..", "."),
            ("/w/root", "."),
            ("/w/root/", "."),
            ("/w/root/src/a.rs", "src/a.rs"),
            ("//w//root/./a.rs", "a.rs"),
            ("/link/a.rs", "a.rs"),
            ("/w/other/../root/a.rs", "a.rs"),
            ("/../w/root/a.rs", "a.rs"),
            ("%2e%2e/a.rs", "%2e%2e/a.rs"),
            ("..a", "..a"),
        ] {
            assert_eq!(parse(path).as_deref(), Ok(place), "{path}");
        }
        for path in [
            "..",
            "../a.rs",
            "src/../../a.rs",
            "../root/a.rs",
            "/",
            "/w",
            "/etc/passwd",
            "//etc/passwd",
            "/w/root-evil/a.rs",
            "/w/root/../root-evil/a.rs",
            "/w/root/..",
            "/linker/a.rs",
        ] {
            let error = parse(path).unwrap_err();
            assert!(error.contains("outside the workspace"), "{path}: {error}");
        }
        for path in ["", "a\0b", &"x/".repeat(5_000)] {
            let error = parse(path).unwrap_err();
            assert!(error.contains("names nothing in the workspace") && error.len() < 1_500, "{error}");
        }
    }
}
