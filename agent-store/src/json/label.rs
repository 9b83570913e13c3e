//! The label of a directory, by which a store knows the directory that it opened. A directory that is gone, or an empty
//! one in its place (its disk is not mounted), must not look like one without sessions.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use entourage_core::{Error, ErrorKind, SessionId};

use super::{directory::Stamp, error::Failure, file, name};
use crate::Durability;

/// Longest label in bytes.
const LONGEST: u64 = 256;

/// The file that tells a directory from all others, whatever its path.
#[derive(Debug)]
pub(super) struct Label {
    path: PathBuf,
    text: String,
    /// Stamp of the file when it was last read; the file is read again only if its stamp differs.
    seen: Mutex<Option<Stamp>>,
}

impl Label {
    /// Reads the label of a directory, or creates one. Needs the directory's lock.
    pub(super) fn open(directory: &Path, durability: Durability) -> Result<Self, Failure> {
        let path = directory.join(name::LABEL);
        let text = match read(&path) {
            Ok(text) if !text.is_empty() => text,
            // A crash may leave an empty one, which nobody knows.
            Ok(_) | Err(Failure::Missing) => {
                let text = SessionId::generate().to_string();
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                    _ => file::create_new(&path, text.as_bytes(), durability)?,
                }
                text
            }
            Err(failure) => return Err(failure.at(&path)),
        };
        Ok(Self { path, text, seen: Mutex::default() })
    }

    /// Fails while the directory is not at its path.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let stamp = match Stamp::of(&self.path) {
            Err(Failure::Missing) => return Err(self.gone()),
            stamp => stamp?,
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.as_ref() == Some(&stamp) {
            return Ok(());
        }
        match read(&self.path) {
            Ok(text) if text == self.text => {
                *seen = Some(stamp);
                Ok(())
            }
            Ok(_) | Err(Failure::Missing | Failure::Damaged(_)) => Err(self.gone()),
            Err(failure) => Err(failure.at(&self.path)),
        }
    }

    fn gone(&self) -> Failure {
        let text = "the store's directory is gone, or another one is in its place, without the label `.store` that it had \
                    when it was opened; put it back (mount its disk), or open the store again if the one that is there now is \
                    right";
        let directory = self.path.parent().unwrap_or(&self.path).to_owned();
        Failure::At(directory, Box::new(Failure::Refused(Error::new(ErrorKind::Store, text))))
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    file::regular(path)?;
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
