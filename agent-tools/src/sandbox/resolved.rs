//! The places of a sandbox's settings, once links are resolved, and what the sandboxes of one shell have in common.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use entourage_core::{Error, ErrorKind};

use super::{
    linux,
    settings::{Level, Settings},
};

/// A place of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Its absolute name, by which commands know it.
    pub(super) name: PathBuf,
    /// Its name without links. No command can lead this one to a place that it could not reach already.
    pub(super) at: PathBuf,
}

impl Place {
    fn resolve(path: &Path) -> Result<Self, Error> {
        let name = std::path::absolute(path).map_err(|error| missing(path, error))?;
        let at = std::fs::canonicalize(path).map_err(|error| missing(path, error))?;
        Ok(Self { name, at })
    }
}

/// The error for a place of the settings that cannot be opened.
pub(super) fn missing(path: &Path, error: std::io::Error) -> Error {
    let message = format!(
        "`{}` of the sandbox's settings cannot be opened; create it, or leave it out",
        path.display()
    );
    Error::new(ErrorKind::NotFound, message).caused_by(error)
}

/// All places of the settings but those of the system.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) root: Option<Place>,
    pub(super) reading: Vec<Place>,
    pub(super) writing: Vec<Place>,
}

impl Places {
    fn resolve(settings: &Settings) -> Result<Self, Error> {
        let all = |paths: &[PathBuf]| paths.iter().map(|path| Place::resolve(path)).collect::<Result<_, _>>();
        // The root was resolved when the sandbox was made.
        let root = settings.level.root().map(|root| Place { name: root.to_owned(), at: root.to_owned() });
        let mut places = Self { root, reading: all(&settings.reading)?, writing: all(&settings.writing)? };
        places.check_root()?;
        places.leave_out_what_may_be_written(&settings.level)?;
        Ok(places)
    }

    /// Refuses a place by which the root could be written under another name: its protected paths have one name each.
    fn check_root(&self) -> Result<(), Error> {
        let Some(root) = &self.root else { return Ok(()) };
        let other = self.writing.iter().find(|place| {
            let is_below = place.at.starts_with(&root.at) && !place.name.starts_with(&root.name);
            root.at.starts_with(&place.at) || is_below
        });
        let Some(place) = other.filter(|place| place.name != root.name) else { return Ok(()) };
        let message = format!(
            "`{}` of the sandbox's settings may be written and holds the root, or a part of it under another name; name a \
             place beside the root, or below it by the name of the root",
            place.name.display()
        );
        Err(Error::new(ErrorKind::InvalidInput, message))
    }

    /// Leaves out places below others that commands may write to: they add nothing, and commands could move them.
    fn leave_out_what_may_be_written(&mut self, level: &Level) -> Result<(), Error> {
        let root = self.root.iter().filter(|_| matches!(level, Level::WorkspaceWrite(_)));
        let writable: Vec<Place> = root.chain(&self.writing).cloned().collect();
        for places in [&mut self.reading, &mut self.writing] {
            let mut kept: Vec<Place> = Vec::new();
            for place in std::mem::take(places) {
                let above =
                    writable.iter().find(|it| place.name.starts_with(&it.name) && it.name != place.name);
                match above {
                    Some(above) if !place.at.starts_with(&above.at) => return Err(leads_out(&place, above)),
                    Some(_) => {}
                    None if kept.contains(&place) => {}
                    None => kept.push(place),
                }
            }
            *places = kept;
        }
        Ok(())
    }

    /// The places of everything that commands reach, those of the system left out.
    #[cfg(feature = "shell")]
    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        self.root.iter().chain(&self.reading).chain(&self.writing).map(|place| place.at.as_path())
    }
}

fn leads_out(place: &Place, above: &Place) -> Error {
    let message = format!(
        "`{}` of the sandbox's settings is reached through a link in `{}`, which commands can change; name the place to \
         which it leads, `{}`",
        place.name.display(),
        above.name.display(),
        place.at.display()
    );
    Error::new(ErrorKind::InvalidInput, message)
}

/// The part of a sandbox that does not change where its hosts are narrowed.
#[derive(Debug, Default)]
pub(super) struct Base {
    places: OnceLock<Places>,
    /// The state of its commands while they run.
    pub(super) shared: Arc<linux::Shared>,
}

impl Base {
    /// The places of the settings, resolved at the first call that succeeds.
    pub(super) fn places(&self, settings: &Settings) -> Result<&Places, Error> {
        if let Some(places) = self.places.get() {
            return Ok(places);
        }
        let places = Places::resolve(settings)?;
        Ok(self.places.get_or_init(|| places))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{super::Sandbox, *};

    #[test]
    fn places_that_commands_could_move_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["root/sub/cache", "else/a/b", "elsewhere"] {
            std::fs::create_dir_all(base.join(name)).unwrap();
        }
        symlink(base.join("elsewhere"), base.join("root/out")).unwrap();
        symlink(base.join("root/sub"), base.join("in")).unwrap();
        symlink(base.join("root"), base.join("link")).unwrap();
        let at = |name: &str| base.join(name);
        let resolved = |sandbox: Sandbox| Places::resolve(&sandbox.settings);
        let write = || Sandbox::workspace_write(at("root")).unwrap();
        let places = resolved(
            write()
                .reading(at("root/sub"))
                .reading(at("else/a/b"))
                .reading(at("elsewhere"))
                .reading(at("in"))
                .writing(at("root/sub/cache"))
                .writing(at("else/a"))
                .writing(at("else/a"))
                .writing(at("else/a/b"))
                .writing(at("else")),
        );
        let places = places.unwrap();
        let names = |places: &[Place]| places.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&places.reading), [at("elsewhere"), at("in")]);
        assert_eq!(places.reading.last().unwrap().at, at("root/sub"));
        assert_eq!(names(&places.writing), [at("else")]);
        let read = Sandbox::read_only(at("root")).unwrap().writing(at("root/sub"));
        assert_eq!(names(&resolved(read).unwrap().writing), [at("root/sub")]);
        for (sandbox, kind) in [
            (write().writing(at("root/out")), ErrorKind::InvalidInput),
            (write().writing(at("in")), ErrorKind::InvalidInput),
            (write().writing(at("link")), ErrorKind::InvalidInput),
            (write().writing(&base), ErrorKind::InvalidInput),
            (Sandbox::read_only(at("root")).unwrap().writing(&base), ErrorKind::InvalidInput),
            (write().reading(at("nothing")), ErrorKind::NotFound),
        ] {
            assert_eq!(resolved(sandbox).unwrap_err().kind(), kind);
        }
    }
}
