//! Grants in a TOML file.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use async_trait::async_trait;
use entourage_core::{
    Digest, Error, ErrorKind, Result, bound,
    permission::{ApprovalRequest, Grants},
};
use serde::{Deserialize, Serialize};

use crate::private_file::PrivateFile;

/// Most subjects that an entry names.
const COVERS: usize = 64;
const HEADING: &str = "# Calls that were allowed always. Whoever deletes an entry is asked again; to change one has no effect.\n";

/// Grants in a TOML file of the user. Several processes may share it.
///
/// Each entry names its tool and what it covers, for people to read; `key` is what counts. Whoever deletes an entry is
/// asked again, also by processes that are running. A file that cannot be read, or that holds anything else, grants
/// nothing.
///
/// ```
/// use entourage_runtime::Runtime;
/// use entourage_tools::GrantFile;
///
/// # fn main() -> entourage_core::Result<()> {
/// # let directory = std::env::temp_dir();
/// let runtime = Runtime::builder().grants(GrantFile::open(directory.join("grants.toml"))?).build();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GrantFile {
    file: PrivateFile,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// When the file was changed, and its length; `None` if it did not exist.
    seen: Option<(SystemTime, u64)>,
    keys: Vec<Digest>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    #[serde(default)]
    grant: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    tool: String,
    #[serde(default)]
    covers: Vec<String>,
    key: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

impl GrantFile {
    /// Opens the file of grants at `path`, which need not exist: the first grant creates it. Keep it where no agent can
    /// write, and one for each project.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a file that holds anything else; [`ErrorKind::TooLarge`] for one of more than
    /// 4 MiB; [`ErrorKind::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let file = PrivateFile { path: path.as_ref().to_owned(), what: "grants" };
        let held = Held::read(&file)?;
        Ok(Self { file, held: Mutex::new(held) })
    }
}

impl Held {
    fn read(file: &PrivateFile) -> Result<Self> {
        let seen = seen(&file.path);
        let entries: Entries = file.read(|text| match text {
            Some(text) => toml::from_str(&text).map_err(|error| file.invalid(&error)),
            None => Ok(Entries::default()),
        })?;
        Ok(Self { seen, keys: entries.grant.into_iter().map(|entry| entry.key).collect() })
    }
}

#[async_trait]
impl Grants for GrantFile {
    fn holds(&self, grant: Digest) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.seen != seen(&self.file.path) {
            *held = Held::read(&self.file).unwrap_or_default();
        }
        held.keys.contains(&grant)
    }

    async fn keep(&self, question: &ApprovalRequest, by: Option<&str>) -> Result<()> {
        let Some(key) = question.grant else {
            return Err(Error::new(ErrorKind::Unsupported, "a question of an older version has no grant"));
        };
        let covers = match question.covers.len() {
            0 => vec!["all calls of the tool".to_owned()],
            _ => question
                .covers
                .iter()
                .take(COVERS)
                .map(|it| bound::shortened(it, bound::WORD).into())
                .collect(),
        };
        let entry = Entry { tool: question.tool.clone(), covers, key, by: by.map(str::to_owned) };
        let file = self.file.clone();
        let dropped = Arc::new(AtomicBool::new(false));
        let _guard = SetOnDrop(Arc::clone(&dropped));
        let work = move || add(&file, entry, &dropped);
        let kept = tokio::task::spawn_blocking(work).await;
        kept.map_err(|error| Error::new(ErrorKind::Internal, "the grant was not kept").caused_by(error))?
    }
}

/// Tells the work of a future that it was dropped.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Adds an entry to the file, unless nobody waits for it any more.
fn add(file: &PrivateFile, entry: Entry, dropped: &AtomicBool) -> Result<()> {
    file.change(
        || !dropped.load(Ordering::Relaxed),
        |before| {
            let before = before.unwrap_or_else(|| HEADING.to_owned());
            let entries: Entries = toml::from_str(&before).map_err(|error| file.invalid(&error))?;
            if entries.grant.iter().any(|it| it.key == entry.key) {
                return Ok(None);
            }
            let added = toml::to_string(&Entries { grant: vec![entry] }).map_err(|error| {
                Error::new(ErrorKind::Internal, "the grant has no form in TOML").caused_by(error)
            })?;
            let text = format!("{before}\n{added}");
            // What cannot be read back would take all grants with it.
            let _: Entries = toml::from_str(&text).map_err(|error| file.invalid(&error))?;
            Ok(Some(text))
        },
    )
}

fn seen(path: &Path) -> Option<(SystemTime, u64)> {
    let about = fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}
