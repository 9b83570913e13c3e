//! One session's file: where its whole lines end, which line holds an event, and adding a line.
//!
//! A line is written in one go and counts once its end is there; what follows the last end is a write that was cut short
//! or is under way. Nothing here knows of other sessions.

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

/// How much is read at once while looking for the end of a line.
const CHUNK: usize = 8 << 10;
/// Longest first line in bytes: a record has no long parts.
const LONGEST_FIRST: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct SessionFile {
    file: File,
    path: PathBuf,
}

/// Where a file's whole lines end, and what the last of them says.
#[derive(Debug)]
pub(super) struct End {
    /// Length of the whole lines.
    pub(super) whole: u64,
    /// Length of what follows them.
    pub(super) torn: u64,
    pub(super) state: State,
}

impl SessionFile {
    /// Opens the file for reading. What is no regular file is refused, and so is a link to one.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        Self::open_with(path, OpenOptions::new().read(true))
    }

    fn open_with(path: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        // Looked at first: opening a pipe would wait for its other end.
        regular(path)?;
        let file = options.open(path)?;
        let opened = Self { file, path: path.to_owned() };
        // Whoever replaced the file in between, by a link or another file, is noticed here.
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
            // Who had the lock before may have deleted the file; a new one of its name may be there.
            if opened.is_in_place()? {
                return Ok(opened);
            }
        }
    }

    /// Looks at the file, and when it seems damaged looks again while nobody writes.
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

    /// Whether the path still leads to the open file.
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

    /// Where the last line ends that ends before `end`.
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

    /// The whole lines from the one that holds the first event after `after` on.
    pub(super) fn lines_after(&self, after: u64) -> Result<Lines<'_>, Failure> {
        let len = self.len()?;
        let start = self.find(self.first_line()?.len() as u64, len, after)?;
        (&self.file).seek(SeekFrom::Start(start))?;
        Ok(Lines { reader: BufReader::new((&self.file).take(len - start)), line: Vec::new() })
    }

    /// Where the first line begins that ends at an event greater than `after`, or some line before it. Lines are in
    /// order, so halving the file finds it in a few reads, however long it is.
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

    /// Where the first line begins that does so in `from..until` and is spelled as lines are, and the number it ends at.
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
            // Damaged: any line behind it will do.
            at += start.len() as u64;
            if start.last() != Some(&b'\n') {
                at += reader.skip_until(b'\n')? as u64;
            }
        }
    }

    /// Adds one line behind the whole ones. Needs the lock, and that nothing torn is left.
    pub(super) fn add(&self, end: u64, line: &[u8], durability: Durability) -> Result<(), Failure> {
        let written = (&self.file)
            .seek(SeekFrom::Start(end))
            .and_then(|_| (&self.file).write_all(line))
            .and_then(|()| flush(&self.file, durability));
        if let Err(error) = written {
            // What could not be written whole must not stay. Where even this fails, the next writer finds a torn line.
            self.file.set_len(end).ok();
            return Err(Failure::Io(error));
        }
        Ok(())
    }

    /// Moves what follows the whole lines to a file of its own. Needs the lock.
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

/// Whole lines, one after the other.
pub(super) struct Lines<'a> {
    reader: BufReader<io::Take<&'a File>>,
    line: Vec<u8>,
}

impl Lines<'_> {
    /// The next line without its end; `None` behind the last whole one.
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

/// Writes a new file under a name of its own and then gives it `path`, which must be free. Needs the directory's lock.
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

/// Writes a small file that must not be there yet. Where the process dies meanwhile an empty one may stay.
pub(super) fn create_new(path: &Path, bytes: &[u8], durability: Durability) -> Result<(), Failure> {
    let mut file = private().open(path).map_err(Failure::Io)?;
    file.write_all(bytes).and_then(|()| flush(&file, durability)).map_err(|error| {
        fs::remove_file(path).ok();
        Failure::Io(error)
    })
}

/// Takes the lock of `path`, a file that is made when there is none.
pub(super) fn lock_file(path: &Path, patience: Duration) -> Result<File, Failure> {
    let file = open_lock(path)?;
    wait_for_lock(|| file.try_lock(), Instant::now() + patience)?;
    Ok(file)
}

/// Shares the lock with others that do so.
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

/// A new empty file beside `path`, with a number at its end when the name is taken.
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

/// Options that make a file which only its owner reads, and never take one that is there.
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

/// Refuses links, directories, pipes and whatever else is no plain file.
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
