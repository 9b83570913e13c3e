//! Digests of what servers said of their tools when these were accepted.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{Digest, Error, ErrorKind, Result};

use crate::private_file::PrivateFile;

type Digests = BTreeMap<String, BTreeMap<String, Digest>>;

/// The digest of each tool, by server and name, as it was accepted.
#[derive(Debug, Default)]
pub(super) struct Pins {
    accepted: Mutex<Digests>,
    file: Option<PrivateFile>,
}

impl Pins {
    /// Reads a file of pins, which need not exist.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a file with other contents; [`ErrorKind::TooLarge`]; [`ErrorKind::Io`].
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let file = PrivateFile { path, what: "pins of MCP tools" };
        let accepted = parse(&file, file.read()?)?;
        Ok(Self { accepted: Mutex::new(accepted), file: Some(file) })
    }

    /// True if a tool is what was accepted. One that is new is accepted as it is.
    pub(super) fn holds(&self, server: &str, tool: &str, digest: Digest) -> bool {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let tools = accepted.entry(server.to_owned()).or_default();
        *tools.entry(tool.to_owned()).or_insert(digest) == digest
    }

    /// Accepts a tool as it is now.
    pub(super) fn accept(&self, server: &str, tool: &str, digest: Digest) {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.entry(server.to_owned()).or_default().insert(tool.to_owned(), digest);
    }

    /// Writes what is accepted of a server into the file. What other processes wrote of other servers stays.
    ///
    /// # Errors
    /// Those of [`Pins::open`]; [`ErrorKind::Busy`].
    pub(super) async fn save(self: &Arc<Self>, server: &str) -> Result<()> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let (pins, server) = (Arc::clone(self), server.to_owned());
        let write = move || {
            file.change(
                || true,
                |before| {
                    let mut all = parse(&file, before)?;
                    let accepted = pins.accepted.lock().unwrap_or_else(PoisonError::into_inner);
                    let own = accepted.get(&server).cloned().unwrap_or_default();
                    if all.get(&server) == Some(&own) {
                        return Ok(None);
                    }
                    all.insert(server, own);
                    let text = serde_json::to_string_pretty(&all);
                    text.map(Some).map_err(|error| file.invalid(&error))
                },
            )
        };
        let written = tokio::task::spawn_blocking(write).await;
        written.map_err(|error| Error::new(ErrorKind::Internal, "the pins were not kept").caused_by(error))?
    }
}

fn parse(file: &PrivateFile, text: Option<String>) -> Result<Digests> {
    let Some(text) = text else { return Ok(Digests::new()) };
    serde_json::from_str(&text).map_err(|error| file.invalid(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of([text.as_bytes()])
    }

    #[tokio::test]
    async fn attack_43_pins_outlive_the_program_and_leave_those_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/pins.json");
        let first = Arc::new(Pins::open(path.clone()).unwrap());
        let other = Arc::new(Pins::open(path.clone()).unwrap());
        assert!(first.holds("a", "t", digest("1")) && other.holds("b", "t", digest("2")));
        first.save("a").await.unwrap();
        other.save("b").await.unwrap();
        let later = Pins::open(path.clone()).unwrap();
        assert!(!later.holds("a", "t", digest("x")) && later.holds("a", "t", digest("1")));
        assert!(!later.holds("b", "t", digest("1")) && later.holds("b", "new", digest("1")));
        first.accept("a", "t", digest("x"));
        first.save("a").await.unwrap();
        assert!(Pins::open(path.clone()).unwrap().holds("a", "t", digest("x")));
        std::fs::write(&path, "[]").unwrap();
        let error = Pins::open(path.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(first.save("a").await.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[]");
    }
}
