//! Digests of what servers said of their tools when these were accepted.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::{Digest, Error, ErrorKind, Result};

use crate::private_file::PrivateFile;

type Digests = BTreeMap<String, BTreeMap<String, Digest>>;

/// The digest of each tool, by server and the name under which it is offered, as it was accepted.
#[derive(Debug, Default)]
pub(super) struct Pins {
    accepted: Mutex<Digests>,
    file: Option<PrivateFile>,
}

impl Pins {
    /// Opens a file of pins, which is made if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a file with other contents; [`ErrorKind::TooLarge`]; [`ErrorKind::Io`], also for
    /// one that cannot be written.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let file = PrivateFile { path, what: "pins of MCP tools" };
        let mut accepted = Digests::new();
        file.change(
            || true,
            |before| {
                let text = before.clone().unwrap_or_else(|| "{}".to_owned());
                accepted = parse(&file, before)?;
                Ok(Some(text))
            },
        )?;
        Ok(Self { accepted: Mutex::new(accepted), file: Some(file) })
    }

    /// Returns the names of those tools that are not what was accepted, here or by another process. What is new is
    /// accepted as it is.
    ///
    /// # Errors
    /// Those of [`Pins::open`]; [`ErrorKind::Busy`].
    pub(super) async fn changed(
        self: &Arc<Self>,
        server: &str,
        tools: BTreeMap<String, Digest>,
    ) -> Result<BTreeSet<String>> {
        self.merge(server, move |known| {
            let mut changed = BTreeSet::new();
            for (name, digest) in tools {
                if *known.entry(name.clone()).or_insert(digest) != digest {
                    changed.insert(name);
                }
            }
            changed
        })
        .await
    }

    /// Accepts a tool as it is now.
    ///
    /// # Errors
    /// Those of [`Pins::changed`]; it is accepted in this process nevertheless.
    pub(super) async fn accept(self: &Arc<Self>, server: &str, tool: &str, digest: Digest) -> Result<()> {
        let tool = tool.to_owned();
        self.merge(server, move |known| {
            known.insert(tool, digest);
        })
        .await
    }

    /// Changes what is accepted of a server, in the file as it is by now and here.
    async fn merge<T: Send + 'static>(
        self: &Arc<Self>,
        server: &str,
        change: impl FnOnce(&mut BTreeMap<String, Digest>) -> T + Send + 'static,
    ) -> Result<T> {
        let (pins, server) = (Arc::clone(self), server.to_owned());
        let Some(file) = self.file.clone() else {
            let mut accepted = pins.accepted.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(change(accepted.entry(server).or_default()));
        };
        let write = move || {
            let mut made = None;
            file.change(
                || true,
                |before| {
                    let mut all = parse(&file, before.clone())?;
                    made = Some(change(all.entry(server).or_default()));
                    let text = serde_json::to_string_pretty(&all).map_err(|error| file.invalid(&error))?;
                    *pins.accepted.lock().unwrap_or_else(PoisonError::into_inner) = all;
                    Ok(Some(text).filter(|text| before.as_ref() != Some(text)))
                },
            )?;
            made.ok_or_else(|| Error::new(ErrorKind::Internal, "the pins were not looked at"))
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

    async fn changed(pins: &Arc<Pins>, server: &str, tool: &str, text: &str) -> bool {
        let tools = BTreeMap::from([(tool.to_owned(), digest(text))]);
        !pins.changed(server, tools).await.unwrap().is_empty()
    }

    #[tokio::test]
    async fn attack_43_pins_outlive_the_program_and_are_shared_with_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/pins.json");
        let open = || Arc::new(Pins::open(path.clone()).unwrap());
        // Both are opened before anything is accepted.
        let (first, other) = (open(), open());
        assert!(!changed(&first, "a", "t", "1").await && !changed(&other, "b", "t", "2").await);
        // What the first accepted holds for the other, and neither takes the other's tools away.
        assert!(changed(&other, "a", "t", "evil").await && !changed(&other, "a", "u", "3").await);
        let later = open();
        for (server, tool, text, expected) in
            [("a", "t", "x", true), ("a", "t", "1", false), ("a", "u", "3", false), ("b", "t", "1", true)]
        {
            assert_eq!(changed(&later, server, tool, text).await, expected, "{server} {tool} {text}");
        }
        first.accept("a", "t", digest("x")).await.unwrap();
        assert!(!changed(&open(), "a", "t", "x").await && changed(&later, "a", "t", "1").await);
        std::fs::write(&path, "[]").unwrap();
        assert_eq!(Pins::open(path.clone()).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(first.accept("a", "t", digest("y")).await.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[]");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn attack_43_a_file_of_pins_that_cannot_be_kept_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins.json");
        assert!(Pins::open("/proc/entourage-pins.json".into()).is_err());
        assert!(
            std::process::Command::new("mkfifo")
                .arg(dir.path().join("pins.json.lock"))
                .status()
                .unwrap()
                .success()
        );
        assert!(Pins::open(path).is_err());
        assert!(Pins::open(dir.path().to_owned()).is_err());
    }
}
