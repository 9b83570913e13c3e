//! A file of the user that several processes share and nobody else may read: read within bounds, replaced as a whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use entourage_core::{Error, ErrorKind, Result};

/// Most bytes of such a file.
const LARGEST: usize = 4 << 20;
/// Longest wait for another process that changes it.
const PATIENCE: Duration = Duration::from_secs(5);

/// A file by its path, with the word for its contents that errors use.
#[derive(Debug, Clone)]
pub(crate) struct PrivateFile {
    pub(crate) path: PathBuf,
    pub(crate) what: &'static str,
}

impl PrivateFile {
    /// What `parse` makes of the text of the file, or of `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for anything but a plain file of text that its user alone can write;
    /// [`ErrorKind::TooLarge`]; [`ErrorKind::Io`]; those of `parse`.
    pub(crate) fn read<T>(&self, parse: impl FnOnce(Option<String>) -> Result<T>) -> Result<T> {
        self.text().and_then(parse).map_err(|error| self.at(error))
    }

    fn text(&self) -> Result<Option<String>> {
        let what = self.what;
        let unread =
            |error| Error::new(ErrorKind::Io, format!("the file of {what} cannot be read")).caused_by(error);
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unread(error)),
            // A pipe would never end.
            Ok(about) if !about.is_file() => {
                let text = format!("the {what} are not in a plain file");
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
            Ok(_) => {}
        }
        let file = File::open(&self.path).map_err(unread)?;
        self.check_rights(&file)?;
        let mut text = String::new();
        let most = u64::try_from(LARGEST).unwrap_or(u64::MAX).saturating_add(1);
        let read = file.take(most).read_to_string(&mut text);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => self.invalid(&"the file is no UTF-8 text"),
            _ => unread(error),
        })?;
        if text.len() > LARGEST { Err(self.too_large()) } else { Ok(Some(text)) }
    }

    /// Checks that no other user could have written the file, and closes it to those who could read it.
    #[cfg(unix)]
    fn check_rights(&self, file: &File) -> Result<()> {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let what = self.what;
        let about = file.metadata().map_err(|error| {
            Error::new(ErrorKind::Io, format!("the file of {what} cannot be read")).caused_by(error)
        })?;
        let refused =
            |why: &str| Err(Error::new(ErrorKind::InvalidInput, format!("the file of {what} {why}")));
        let own = rustix::process::geteuid();
        if about.uid() != own.as_raw() {
            return refused("belongs to another user; remove it, or name another file");
        }
        if about.mode() & 0o022 != 0 {
            return refused(
                "is not believed, since others can write it; check it, and take that right away (chmod 600)",
            );
        }
        if about.mode() & 0o044 != 0 {
            // A file system without rights has nothing to close.
            let _ = file.set_permissions(fs::Permissions::from_mode(0o600));
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn check_rights(&self, _: &File) -> Result<()> {
        Ok(())
    }

    /// Replaces the text by what `change` makes of it, if it makes anything. Other processes wait meanwhile. Nothing
    /// happens once `is_wanted` says no.
    ///
    /// # Errors
    /// Those of [`PrivateFile::read`] and of `change`; [`ErrorKind::Busy`] when another process changes it for 5 s.
    pub(crate) fn change(
        &self,
        is_wanted: impl Fn() -> bool,
        change: impl FnOnce(Option<String>) -> Result<Option<String>>,
    ) -> Result<()> {
        self.changed(is_wanted, change).map_err(|error| self.at(error))
    }

    fn changed(
        &self,
        is_wanted: impl Fn() -> bool,
        change: impl FnOnce(Option<String>) -> Result<Option<String>>,
    ) -> Result<()> {
        let what = self.what;
        let unwritten = |error: io::Error| {
            Error::new(ErrorKind::Io, format!("the file of {what} cannot be written")).caused_by(error)
        };
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory).map_err(unwritten)?;
        }
        let lock = self.open_lock(".lock")?;
        let since = Instant::now();
        while lock.try_lock().is_err() {
            if since.elapsed() > PATIENCE {
                let text = format!("another process holds the file of {what}; try again when it is done");
                return Err(Error::new(ErrorKind::Busy, text));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let Some(text) = change(self.text()?)? else { return Ok(()) };
        if text.len() > LARGEST {
            return Err(self.too_large());
        }
        let new = self.beside(".new");
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
        if !is_wanted() {
            return fs::remove_file(&new).map_err(unwritten);
        }
        fs::rename(&new, &self.path).map_err(unwritten)
    }

    /// Opens the file beside it with this ending, whose lock other processes respect. It is not taken.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if something else has its name; [`ErrorKind::Io`].
    pub(crate) fn open_lock(&self, ending: &str) -> Result<File> {
        let (what, beside) = (self.what, self.beside(ending));
        // To open a pipe would wait for ever.
        if fs::metadata(&beside).is_ok_and(|about| !about.is_file()) {
            let text =
                format!("beside the file of {what} something stands in the way of its lock; remove it");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        // Not truncated: whatever a link there leads to stays as it is.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        // Whoever can read it can hold it.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(beside).map_err(|error| {
            Error::new(ErrorKind::Io, format!("the file of {what} cannot be written")).caused_by(error)
        })
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    }

    /// The error for contents that are something else.
    pub(crate) fn invalid(&self, error: &dyn std::fmt::Display) -> Error {
        Error::new(ErrorKind::InvalidInput, format!("these are no {}: {error}", self.what))
    }

    fn too_large(&self) -> Error {
        let what = self.what;
        let text = format!("the file of {what} would have more than 4 MiB; delete what is not needed");
        Error::new(ErrorKind::TooLarge, text)
    }

    fn at(&self, error: Error) -> Error {
        error.with("path", self.path.display().to_string())
    }
}
