//! The operations on one session, as plain blocking functions over its file.

use std::time::Duration;

use entourage_core::{
    Error, SessionId, Timestamp,
    session::{Batch, Lease, ReadRange, Row},
};

use super::{
    directory::Directory,
    error::{Failure, FileProblem},
    file::{End, SessionFile},
    line::{self, Line, State, Stored},
};

/// Locks a session's file and returns it with its end. A sealed session is a failure.
pub(super) fn locked(
    directory: &Directory,
    session: &SessionId,
    patience: Duration,
) -> Result<(SessionFile, End), Failure> {
    let path = directory.path_of(session);
    let file = SessionFile::lock(&path, patience)?;
    check_record(&file, session)?;
    let end = directory.whole_end(&file, &path, session)?;
    if end.state.sealed { Err(Failure::Sealed) } else { Ok((file, end)) }
}

fn check_record(file: &SessionFile, session: &SessionId) -> Result<(), Failure> {
    let record = file.record()?;
    if record.id == *session { Ok(()) } else { Err(Failure::misplaced(&record)) }
}

pub(super) fn append(
    directory: &Directory,
    session: &SessionId,
    expected: u64,
    batch: &Batch,
    patience: Duration,
) -> Result<u64, Failure> {
    let (file, end) = loop {
        if let Some(record) = &batch.create
            && !directory.path_of(session).exists()
        {
            let mut lines = line::first(record)?;
            lines.extend(line::batch(expected, batch, batch.lease)?);
            if directory.create(record, &lines)? {
                return Ok(batch.head.seq);
            }
        }
        match locked(directory, session, patience) {
            // The file existed and was deleted since: try to create it again.
            Err(Failure::Missing) if batch.create.is_some() => {}
            found => break found?,
        }
    };
    check_created(&file, session, batch.created.filter(|_| batch.create.is_none()))?;
    let State { head, lease: held, .. } = &end.state;
    if batch.create.is_some() || head.seq != expected {
        return if stored_before(&file, expected, batch)? {
            Ok(head.seq)
        } else {
            Err(Error::append_conflict(session, expected, head.seq).into())
        };
    }
    if let Some(lease) = &batch.lease {
        admit(session, lease, held.as_ref())?;
    }
    let line = line::batch(expected, batch, batch.lease.or(*held))?;
    file.add(end.whole, &line, directory.durability)?;
    Ok(batch.head.seq)
}

pub(super) fn lease(
    directory: &Directory,
    session: &SessionId,
    lease: Lease,
    patience: Duration,
) -> Result<(), Failure> {
    let (file, end) = locked(directory, session, patience)?;
    check_created(&file, session, lease.created)?;
    admit(session, &lease, end.state.lease.as_ref())?;
    let line = line::change(&State { lease: Some(lease), ..end.state })?;
    file.add(end.whole, &line, directory.durability)
}

/// Refuses a write for a session that was deleted and whose id another one has since.
fn check_created(file: &SessionFile, session: &SessionId, known: Option<Timestamp>) -> Result<(), Failure> {
    match known {
        Some(known) if file.record()?.created != known => Err(Error::made_anew(session).into()),
        _ => Ok(()),
    }
}

fn admit(session: &SessionId, lease: &Lease, held: Option<&Lease>) -> Result<(), Failure> {
    match held {
        Some(held) if !lease.replaces(Some(held)) => Err(Error::fenced(session, held.generation).into()),
        _ => Ok(()),
    }
}

/// Returns true if all events of the batch are stored and are this writer's.
fn stored_before(file: &SessionFile, expected: u64, batch: &Batch) -> Result<bool, Failure> {
    let last = expected.saturating_add(batch.rows.len() as u64);
    let (mut lines, mut reached) = (file.lines_after(expected)?, expected);
    while reached < last {
        let Some(line) = lines.next()? else { return Ok(false) };
        let line = Line::skim(line)?;
        if line.seq > reached && line.seq > line.after {
            if line.after > reached || line.writer != Some(batch.writer) {
                return Ok(false);
            }
            reached = line.seq;
        }
    }
    Ok(true)
}

/// Returns the rows in `range`.
pub(super) fn read(
    directory: &Directory,
    session: &SessionId,
    range: ReadRange,
) -> Result<Vec<Row>, Failure> {
    let limit = range.limit.unwrap_or(usize::MAX);
    looking(directory, session, |file| {
        let mut rows = Vec::new();
        scan(file, range.after, |line| {
            for row in line.rows(range.after) {
                if rows.len() >= limit {
                    return Ok(false);
                }
                rows.push(row?);
            }
            Ok(rows.len() < limit)
        })?;
        rows.truncate(limit);
        Ok(rows)
    })
}

/// Reads from the file of a session that is not sealed. If the file seems damaged, reads again under a shared lock:
/// another process may just be mending it.
pub(super) fn looking<T>(
    directory: &Directory,
    session: &SessionId,
    look: impl Fn(&SessionFile) -> Result<T, Failure>,
) -> Result<T, Failure> {
    looking_also_sealed(directory, session, |file| {
        if file.end()?.state.sealed { Err(Failure::Sealed) } else { look(file) }
    })
}

pub(super) fn looking_also_sealed<T>(
    directory: &Directory,
    session: &SessionId,
    look: impl Fn(&SessionFile) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let path = directory.path_of(session);
    let file = SessionFile::open(&path)?;
    let looked = file.steadily(directory.patience, || {
        check_record(&file, session)?;
        look(&file)
    });
    looked.inspect_err(|failure| {
        if let Failure::Damaged(what) = failure {
            let again = Failure::Damaged(what.clone());
            directory.notice(FileProblem::of_failure(path.clone(), Some(session.clone()), again));
        }
    })
}

/// Passes the lines with events after `after` to `take`, until that returns false.
pub(super) fn scan(
    file: &SessionFile,
    after: u64,
    mut take: impl FnMut(Line<Vec<Stored<'_>>>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    // `odd` is a line that may be damaged: it matters only if a wanted event is missing.
    let (mut lines, mut at, mut odd) = (file.lines_after(after)?, None, None);
    while let Some(text) = lines.next()? {
        if at.is_none() && line::numbers(text).is_some_and(|(_, seq)| seq <= after) {
            continue;
        }
        let line = match Line::<Vec<Stored<'_>>>::parse(text) {
            Ok(line) => line,
            // Zeros that a power cut left of the last write, or a line before the wanted ones.
            Err(failure) if text.contains(&0) || at.is_none() => {
                odd.get_or_insert(failure);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if at.map_or(line.after > after, |at| line.after != at) {
            let gap =
                || Failure::damaged(format!("event {} is missing", at.unwrap_or(after).saturating_add(1)));
            return Err(odd.unwrap_or_else(gap));
        }
        let (seq, empty) = (line.seq, line.seq == line.after);
        at = Some(seq);
        if !empty && !take(line)? {
            return Ok(());
        }
    }
    match odd {
        // The file's end was read before and is whole, so the odd line comes before a good one.
        Some(failure) if at.is_none() && file.end()?.state.head.seq > after => Err(failure),
        _ => Ok(()),
    }
}
