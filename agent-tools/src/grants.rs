//! Grants in a TOML file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use async_trait::async_trait;
use entourage_core::{
    Digest, Error, ErrorKind, Result,
    permission::{ApprovalRequest, Grants},
};
use serde::{Deserialize, Serialize};

/// Most bytes of a file of grants.
const LARGEST: u64 = 4 << 20;

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
        let covers = question.footprint.subjects().map(str::to_owned).collect();
        let entry = Entry { tool: question.tool.clone(), covers, key, by: by.map(str::to_owned) };
        let path = self.path.clone();
        let kept =
            tokio::task::spawn_blocking(move || add(&path, entry).map_err(|error| at(error, &path))).await;
        kept.map_err(|error| Error::new(ErrorKind::Internal, "the grant was not kept").caused_by(error))?
    }
}

/// Adds an entry to the file at `path`, which is replaced as a whole.
fn add(path: &Path, entry: Entry) -> Result<()> {
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(unwritten)?;
    }
    let lock = File::create(beside(".lock")).map_err(unwritten)?;
    lock.lock().map_err(unwritten)?;
    let before = read(path)?.unwrap_or_else(|| {
        "# Calls that were allowed always. Whoever deletes an entry is asked again; to change one has no effect.\n".into()
    });
    let entries: Entries = toml::from_str(&before).map_err(|error| invalid(&error))?;
    if entries.grant.iter().any(|it| it.key == entry.key) {
        return Ok(());
    }
    let added = toml::to_string(&Entries { grant: vec![entry] })
        .map_err(|error| Error::new(ErrorKind::Internal, "the grant has no form in TOML").caused_by(error))?;
    let new = beside(".new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new).map_err(unwritten)?;
    file.write_all(format!("{before}\n{added}").as_bytes()).map_err(unwritten)?;
    file.sync_all().map_err(unwritten)?;
    fs::rename(&new, path).map_err(unwritten)
}

fn seen(path: &Path) -> Option<(SystemTime, u64)> {
    let about = fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}

/// The text of a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>> {
    match fs::metadata(path) {
        Ok(about) if about.len() > LARGEST => {
            return Err(Error::new(ErrorKind::TooLarge, "the file of grants has more than 4 MiB"));
        }
        _ => {}
    }
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::new(ErrorKind::Io, "the file of grants cannot be read").caused_by(error)),
    }
}

fn unwritten(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, "the file of grants cannot be written").caused_by(error)
}

fn invalid(error: &toml::de::Error) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("these are no grants: {error}"))
}

fn at(error: Error, path: &Path) -> Error {
    error.with("path", path.display().to_string())
}
