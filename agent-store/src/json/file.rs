//! One session's file: finds the end of its whole lines and the line of an event, and adds lines.
//!
//! A line is written in one go and counts once its line feed is there; bytes after the last line feed are a write that
//! was cut short or is in flight. Nothing here knows of other sessions.

use std::{
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use entourage_core::session::SessionRecord;

use super::{
    error::Failure,
    line::{self, Line, NUMBERS, State},
    name::TORN,
};
use crate::Durability;

/// Number of bytes read at once in search of the end of a line.
const CHUNK: usize = 8 << 10;
/// Longest first line in bytes: a record has no long parts.
const LONGEST_FIRST: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct SessionFile {
    file: File,
    path: PathBuf,
}

/// The end of a file's whole lines, and the state after the last of them.
#[derive(Debug)]
pub(super) struct End {
    /// Length of the whole lines in bytes.
    pub(super) whole: u64,
    /// Length of the torn bytes after them.
    pub(super) torn: u64,
    pub(super) state: State,
}

impl SessionFile {
    /// Opens the file for reading. Refuses all but regular files, and links to them too.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        Self::open_with(path, OpenOptions::new().read(true))
    }

    fn open_with(path: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        // Checked before it is opened: opening a pipe would wait for its other end.
        regular(path)?;
        let file = options.open(path)?;
        let opened = Self { file, path: path.to_owned() };
        // Detects that the path was replaced in between by a link or another file.
        if opened.is_in_place()? { Ok(opened) } else { Err(Failure::Missing) }
    }

    /// Opens the file for writing and takes its lock, waiting for `patience` at most.
    pub(super) fn lock(path: &Path, patience: Duration) -> Result<Self, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            let opened = match Self::open_with(path, OpenOptions::new().read(true).write(true)) {
                // Replaced while it was opened: look again, unless it is really gone.
                Err(Failure::Missing) if path.symlink_metadata().is_ok() => {
                    if Instant::now() >= deadline {
                        return Err(Failure::Locked);
                    }
                    continue;
                }
                opened => opened?,
            };
            wait_for_lock(|| opened.file.try_lock(), deadline)?;
            // The previous holder of the lock may have deleted the file; a new one of its name may be there.
            if opened.is_in_place()? {
                return Ok(opened);
            }
        }
    }

    /// Runs `look`, and if it finds damage runs it again under a shared lock, while nobody writes.
    pub(super) fn steadily<T>(
        &self,
        patience: Duration,
        look: impl Fn() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match look() {
            Err(Failure::Damaged(_)) => {
                wait_for_lock(|| self.file.try_lock_shared(), Instant::now() + patience)?;
                let looked = look();
                self.file.unlock()?;
                looked
            }
            looked => looked,
        }
    }

    /// Returns true if the path still leads to the open file.
    fn is_in_place(&self) -> Result<bool, Failure> {
        match self.path.symlink_metadata() {
            Ok(there) => Ok(there.is_file() && same_file(&self.file.metadata()?, &there)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn len(&self) -> Result<u64, Failure> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn record(&self) -> Result<SessionRecord, Failure> {
        line::parse_first(&self.first_line()?)
    }

    fn first_line(&self) -> Result<Vec<u8>, Failure> {
        let mut line = Vec::new();
        (&self.file).seek(SeekFrom::Start(0))?;
        BufReader::new((&self.file).take(LONGEST_FIRST)).read_until(b'\n', &mut line)?;
        match line.last() {
            Some(b'\n') => Ok(line),
            Some(_) => Err(Failure::damaged("its first line does not end")),
            None => Err(Failure::damaged("it is empty")),
        }
    }

    /// Finds the newest whole line.
    pub(super) fn end(&self) -> Result<End, Failure> {
        let len = self.len()?;
        let mut whole = self.line_end_before(len)?.unwrap_or(0);
        loop {
            let Some(before) = whole.checked_sub(1) else {
                return Err(Failure::damaged(if len == 0 {
                    "it is empty"
                } else {
                    "no line of it is whole"
                }));
            };
            let start = self.line_end_before(before)?.unwrap_or(0);
            let line = self.bytes(start, whole)?;
            if start == 0 {
                line::parse_first(&line)?;
                return Err(Failure::damaged("it was cut short before its first event"));
            }
            // Zeros are what a power cut leaves of a write that reached the disk in part.
            if line.contains(&0) {
                whole = start;
                continue;
            }
            let state = Line::skim(&line)?.into_state();
            return Ok(End { whole, torn: len - whole, state });
        }
    }

    /// Returns the end of the last line that ends at or before `end`; `None` if there is none.
    fn line_end_before(&self, mut end: u64) -> Result<Option<u64>, Failure> {
        while end > 0 {
            let start = end.saturating_sub(CHUNK as u64);
            let chunk = self.bytes(start, end)?;
            if let Some(at) = chunk.iter().rposition(|byte| *byte == b'\n') {
                return Ok(Some(start + at as u64 + 1));
            }
            end = start;
        }
        Ok(None)
    }

    fn bytes(&self, start: u64, end: u64) -> Result<Vec<u8>, Failure> {
        let length = end.saturating_sub(start);
        if length > line::LONGEST {
            return Err(too_long());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        (&self.file).seek(SeekFrom::Start(start))?;
        (&self.file).take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the whole lines from one at or before the first event after `after`.
    pub(super) fn lines_after(&self, after: u64) -> Result<Lines<'_>, Failure> {
        let len = self.len()?;
        let start = self.find(self.first_line()?.len() as u64, len, after)?;
        (&self.file).seek(SeekFrom::Start(start))?;
        Ok(Lines { reader: BufReader::new((&self.file).take(len - start)), line: Vec::new() })
    }

    /// Returns the start of the first line that ends at an event greater than `after`, or of some line before it. Lines
    /// are in order, so a binary search finds it in a few reads, however long the file is.
    fn find(&self, first: u64, len: u64, after: u64) -> Result<u64, Failure> {
        let (mut low, mut high) = (first, len);
        while after > 0 && high - low > CHUNK as u64 {
            let middle = low + (high - low) / 2;
            match self.numbers_behind(middle, high)? {
                Some((start, seq)) if seq <= after => low = start,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Returns the start and the newest event of the first well-formed line that begins between `from` and `until`.
    fn numbers_behind(&self, from: u64, until: u64) -> Result<Option<(u64, u64)>, Failure> {
        (&self.file).seek(SeekFrom::Start(from))?;
        let mut reader = BufReader::with_capacity(CHUNK, (&self.file).take(until - from));
        let (mut at, mut start) = (from + reader.skip_until(b'\n')? as u64, Vec::with_capacity(NUMBERS));
        loop {
            start.clear();
            (&mut reader).take(NUMBERS as u64).read_until(b'\n', &mut start)?;
            if start.is_empty() {
                return Ok(None);
            }
            if let Some((_, seq)) = line::numbers(&start) {
                return Ok(Some((at, seq)));
            }
            // Damaged: any later line will do.
            at += start.len() as u64;
            if start.last() != Some(&b'\n') {
                at += reader.skip_until(b'\n')? as u64;
            }
        }
    }

    /// Writes one line at `end`, after the whole ones. Needs the lock, and that no torn bytes are left.
    pub(super) fn add(&self, end: u64, line: &[u8], durability: Durability) -> Result<(), Failure> {
        let written = (&self.file)
            .seek(SeekFrom::Start(end))
            .and_then(|_| (&self.file).write_all(line))
            .and_then(|()| flush(&self.file, durability));
        if let Err(error) = written {
            // A partial line must not stay. If even this fails, the next writer finds a torn line.
            self.file.set_len(end).ok();
            return Err(Failure::Io(error));
        }
        Ok(())
    }

    /// Moves the torn bytes to a file of their own and returns its path. Needs the lock.
    pub(super) fn set_torn_aside(&self, end: &End, durability: Durability) -> Result<PathBuf, Failure> {
        let (path, mut aside) = create_beside(&self.path, &format!("{TORN}{}", end.whole))?;
        (&self.file).seek(SeekFrom::Start(end.whole))?;
        io::copy(&mut (&self.file).take(end.torn), &mut aside)?;
        flush(&aside, durability)?;
        self.file.set_len(end.whole)?;
        flush(&self.file, durability)?;
        Ok(path)
    }

    /// Deletes the file. Needs the lock.
    pub(super) fn remove(self) -> Result<(), Failure> {
        Ok(fs::remove_file(&self.path)?)
    }

    /// Moves the file to another name beside it. Needs the lock.
    pub(super) fn rename_beside(self, ending: &str) -> Result<PathBuf, Failure> {
        let (aside, file) = create_beside(&self.path, ending)?;
        drop(file);
        fs::rename(&self.path, &aside)?;
        Ok(aside)
    }
}

/// Reader of whole lines, one after the other.
pub(super) struct Lines<'a> {
    reader: BufReader<io::Take<&'a File>>,
    line: Vec<u8>,
}

impl Lines<'_> {
    /// Returns the next line without its line feed; `None` after the last whole one.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        self.line.clear();
        let mut bounded = (&mut self.reader).take(line::LONGEST);
        bounded.read_until(b'\n', &mut self.line)?;
        match self.line.split_last() {
            Some((b'\n', line)) => Ok(Some(line)),
            _ if self.line.len() as u64 >= line::LONGEST => Err(too_long()),
            _ => Ok(None),
        }
    }
}

/// Writes a file under the name `new` and then renames it to `path`, which must be free. Needs the directory's lock.
pub(super) fn create(path: &Path, new: &Path, bytes: &[u8], durability: Durability) -> Result<(), Failure> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut file = private().open(new)?;
    let written = file.write_all(bytes).and_then(|()| flush(&file, durability));
    written.and_then(|()| fs::rename(new, path)).map_err(|error| {
        fs::remove_file(new).ok();
        Failure::Io(error)
    })
}

/// Writes a small file that must not exist yet. If the process dies meanwhile, an empty one may stay.
pub(super) fn create_new(path: &Path, bytes: &[u8], durability: Durability) -> Result<(), Failure> {
    let mut file = private().open(path).map_err(Failure::Io)?;
    file.write_all(bytes).and_then(|()| flush(&file, durability)).map_err(|error| {
        fs::remove_file(path).ok();
        Failure::Io(error)
    })
}

/// Takes the exclusive lock of `path`, a file that is created if there is none. Waits for `patience` at most.
pub(super) fn lock_file(path: &Path, patience: Duration) -> Result<File, Failure> {
    let file = open_lock(path)?;
    wait_for_lock(|| file.try_lock(), Instant::now() + patience)?;
    Ok(file)
}

/// Takes a shared lock of `path`, a file that is created if there is none. Waits for `patience` at most.
pub(super) fn lock_file_shared(path: &Path, patience: Duration) -> Result<File, Failure> {
    let file = open_lock(path)?;
    wait_for_lock(|| file.try_lock_shared(), Instant::now() + patience)?;
    Ok(file)
}

fn open_lock(path: &Path) -> Result<File, Failure> {
    match private().open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            regular(path)?;
            Ok(OpenOptions::new().read(true).write(true).open(path)?)
        }
        opened => Ok(opened?),
    }
}

/// Creates an empty file beside `path`, with a number appended if the name is taken.
fn create_beside(path: &Path, ending: &str) -> Result<(PathBuf, File), Failure> {
    let mut number = 0_u32;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        if number > 0 {
            name.push(format!("-{number}"));
        }
        let beside = PathBuf::from(name);
        match private().open(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1_000 => number += 1,
            opened => return Ok((beside, opened?)),
        }
    }
}

/// Returns options that create a file which only its owner may read, and never open an existing one.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn wait_for_lock(attempt: impl Fn() -> Result<(), TryLockError>, deadline: Instant) -> Result<(), Failure> {
    let mut pause = Duration::from_micros(200);
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(Failure::Io(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Err(Failure::Locked),
            Err(TryLockError::WouldBlock) => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

fn flush(file: &File, durability: Durability) -> io::Result<()> {
    match durability {
        Durability::PowerLoss => file.sync_all(),
        Durability::ProcessDeath => Ok(()),
    }
}

/// Refuses links, directories, pipes and all else that is no regular file.
pub(super) fn regular(path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata()?.is_file() {
        return Ok(());
    }
    Err(Failure::damaged("it is a link, a directory or another thing that is no regular file"))
}

fn too_long() -> Failure {
    Failure::damaged(format!("a line is longer than {} MiB", line::LONGEST >> 20))
}

#[cfg(unix)]
fn same_file(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn same_file(a: &Metadata, b: &Metadata) -> bool {
    a.len() == b.len() && a.created().ok() == b.created().ok()
}
