//! Grants in a TOML file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use async_trait::async_trait;
use entourage_core::{
    Digest, Error, ErrorKind, Result, bound,
    permission::{ApprovalRequest, Grants},
};
use serde::{Deserialize, Serialize};

/// Most bytes of a file of grants.
const LARGEST: usize = 4 << 20;
/// Most subjects that an entry names.
const COVERS: usize = 64;
/// Longest wait for another process that adds a grant.
const PATIENCE: Duration = Duration::from_secs(5);

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
    path: PathBuf,
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
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let held = Held::read(&path).map_err(|error| at(error, &path))?;
        Ok(Self { path, held: Mutex::new(held) })
    }
}

impl Held {
    fn read(path: &Path) -> Result<Self> {
        let seen = seen(path);
        let entries: Entries = match read(path)? {
            Some(text) => toml::from_str(&text).map_err(|error| invalid(&error))?,
            None => Entries::default(),
        };
        Ok(Self { seen, keys: entries.grant.into_iter().map(|entry| entry.key).collect() })
    }
}

#[async_trait]
impl Grants for GrantFile {
    fn holds(&self, grant: Digest) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.seen != seen(&self.path) {
            *held = Held::read(&self.path).unwrap_or_default();
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
        let path = self.path.clone();
        let dropped = Arc::new(AtomicBool::new(false));
        let _guard = SetOnDrop(Arc::clone(&dropped));
        let work = move || add(&path, entry, &dropped).map_err(|error| at(error, &path));
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

/// Adds an entry to the file at `path`, which is replaced as a whole, unless nobody waits for it any more.
fn add(path: &Path, entry: Entry, dropped: &AtomicBool) -> Result<()> {
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(unwritten)?;
    }
    // Not truncated: whatever a link there leads to stays as it is.
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(beside(".lock"))
        .map_err(unwritten)?;
    let since = Instant::now();
    while lock.try_lock().is_err() {
        if since.elapsed() > PATIENCE {
            let text = "another process holds the file of grants; try again when it is done";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = read(path)?.unwrap_or_else(|| {
        "# Calls that were allowed always. Whoever deletes an entry is asked again; to change one has no effect.\n".into()
    });
    let entries: Entries = toml::from_str(&before).map_err(|error| invalid(&error))?;
    if entries.grant.iter().any(|it| it.key == entry.key) {
        return Ok(());
    }
    let added = toml::to_string(&Entries { grant: vec![entry] })
        .map_err(|error| Error::new(ErrorKind::Internal, "the grant has no form in TOML").caused_by(error))?;
    let text = format!("{before}\n{added}");
    if text.len() > LARGEST {
        return Err(too_large());
    }
    // What cannot be read back would take all grants with it.
    let _: Entries = toml::from_str(&text).map_err(|error| invalid(&error))?;
    let new = beside(".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unwritten(error)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new).map_err(unwritten)?;
    file.write_all(text.as_bytes()).map_err(unwritten)?;
    file.sync_all().map_err(unwritten)?;
    if dropped.load(Ordering::Relaxed) {
        return fs::remove_file(&new).map_err(unwritten);
    }
    fs::rename(&new, path).map_err(unwritten)
}

fn seen(path: &Path) -> Option<(SystemTime, u64)> {
    let about = fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}

/// The text of a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>> {
    let unread = |error| Error::new(ErrorKind::Io, "the file of grants cannot be read").caused_by(error);
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unread(error)),
        // A pipe would never end.
        Ok(about) if !about.is_file() => {
            return Err(Error::new(ErrorKind::InvalidInput, "the grants are not in a plain file"));
        }
        Ok(_) => {}
    }
    let mut text = String::new();
    let most = u64::try_from(LARGEST).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).map_err(unread)?.take(most).read_to_string(&mut text).map_err(|error| {
        match error.kind() {
            io::ErrorKind::InvalidData => invalid(&"the file is no UTF-8 text"),
            _ => unread(error),
        }
    })?;
    if text.len() > LARGEST { Err(too_large()) } else { Ok(Some(text)) }
}

fn too_large() -> Error {
    Error::new(
        ErrorKind::TooLarge,
        "the file of grants would have more than 4 MiB; delete what is not needed",
    )
}

fn unwritten(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, "the file of grants cannot be written").caused_by(error)
}

fn invalid(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("these are no grants: {error}"))
}

fn at(error: Error, path: &Path) -> Error {
    error.with("path", path.display().to_string())
}
