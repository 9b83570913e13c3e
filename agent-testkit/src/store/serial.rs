//! Two writers on one session: concurrent operations must look as if they had taken turns.
//!
//! [`interleaved`] runs a schedule step by step and compares each answer with a model. [`raced`] runs both at once and
//! looks for an order of turns in which the model gives the same answers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    session::{Batch, Lease, ReadRange, SessionFilter, SessionRecord, SharedStore},
};

use super::{
    Failure,
    sample::{head, micros, root, row},
};

/// One operation of a writer. It uses the newest number and the lease that the writer saw last.
///
/// ```
/// use std::sync::Arc;
/// use entourage_core::session::SharedStore;
/// use entourage_runtime::MemoryStore;
/// use entourage_testkit::store::{StoreStep, interleaved, raced};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let store: SharedStore = Arc::new(MemoryStore::new());
/// let handles = [Arc::clone(&store), store];
/// let schedule = [
///     (false, StoreStep::AppendLeased(2)),
///     (true, StoreStep::Look),
///     (true, StoreStep::TakeOver),
///     (false, StoreStep::Renew),
/// ];
/// interleaved(handles.clone(), &schedule).await.unwrap();
/// let steps = [
///     vec![StoreStep::Append(1), StoreStep::Delete],
///     vec![StoreStep::Append(1), StoreStep::Read],
/// ];
/// raced(handles, steps).await.unwrap();
/// # });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreStep {
    /// Appends this many events (1 to 3) after the number that it saw last; creates the session if that is 0.
    Append(u8),
    /// Like `Append` with a lease: renewed, or taken over from another owner.
    AppendLeased(u8),
    /// Appends one event after the number before the one that it saw last.
    AppendLate,
    /// Sends its newest batch again, unchanged.
    Echo,
    /// Renews the lease of the generation that it held last, even if another owner has taken it.
    Renew,
    /// Takes the lease in the generation after the one that it saw last.
    TakeOver,
    /// Creates a child session.
    AddChild,
    /// Reads all events.
    Read,
    /// Looks at the session's list entry.
    Look,
    /// Deletes the session and its descendants.
    Delete,
}

impl StoreStep {
    /// Every step, for tests that choose among them.
    pub const ALL: [Self; 12] = [
        Self::Append(1),
        Self::Append(3),
        Self::AppendLeased(1),
        Self::AppendLeased(2),
        Self::AppendLate,
        Self::Echo,
        Self::Renew,
        Self::TakeOver,
        Self::AddChild,
        Self::Read,
        Self::Look,
        Self::Delete,
    ];
}

/// Runs `schedule` one step at a time, `false` for the first writer and `true` for the second, each on its own handle
/// of one place. The two handles may be the same; the session `shared` of the place is deleted before and after.
///
/// # Errors
/// Text for people, if an answer differs from the contract's.
pub async fn interleaved(
    handles: [SharedStore; 2],
    schedule: &[(bool, StoreStep)],
) -> std::result::Result<(), String> {
    let [first, second] = handles;
    clear(&first).await?;
    let mut writers = [Writer::new(0, first), Writer::new(1, second)];
    let mut model = Model::default();
    let ends = [(false, StoreStep::Look), (true, StoreStep::Read), (false, StoreStep::Delete)];
    for (place, (second, step)) in schedule.iter().chain(&ends).enumerate() {
        let [first, other] = &mut writers;
        let writer = if *second { other } else { first };
        let request = writer.request(*step);
        let answer = writer.send(&request).await.map_err(|Failure(text)| text)?;
        let expected = model.answer(&request);
        if answer != expected {
            return Err(format!(
                "step {place}, {request:?}: got {answer:?}, expected {expected:?}; {schedule:?}"
            ));
        }
        writer.learn(&request, &answer);
    }
    Ok(())
}

/// Runs both lists concurrently, each in order and on its own handle of one place. Use at most about ten steps in
/// each: every order of turns is a candidate. The session `shared` of the place is deleted before and after.
///
/// # Errors
/// Text for people, if no order of turns explains the answers.
pub async fn raced(handles: [SharedStore; 2], steps: [Vec<StoreStep>; 2]) -> std::result::Result<(), String> {
    let clock = Arc::new(AtomicU64::new(0));
    let start = Arc::new(tokio::sync::Barrier::new(2));
    let [first, second] = handles;
    let ([a, b], store) = (steps, Arc::clone(&first));
    clear(&store).await?;
    let tasks = [(0, first, a), (1, second, b)].map(|(number, store, steps)| {
        let (clock, start) = (Arc::clone(&clock), Arc::clone(&start));
        tokio::spawn(async move {
            let mut writer = Writer::new(number, store);
            let mut turns = Vec::new();
            start.wait().await;
            for step in steps {
                let request = writer.request(step);
                let began = clock.fetch_add(1, Ordering::SeqCst);
                let answer = writer.send(&request).await?;
                let ended = clock.fetch_add(1, Ordering::SeqCst);
                writer.learn(&request, &answer);
                turns.push(Turn { request, answer, began, ended });
            }
            Ok(turns)
        })
    });
    let mut turns = Vec::new();
    for task in tasks {
        let ended = task.await.map_err(|error| error.to_string())?;
        turns.push(ended.map_err(|Failure(text)| text)?);
    }
    // The final content must be what the turns made.
    let mut last = Writer::new(2, Arc::clone(&store));
    for step in [StoreStep::Look, StoreStep::Read] {
        let request = last.request(step);
        let answer = last.send(&request).await.map_err(|Failure(text)| text)?;
        let began = clock.fetch_add(1, Ordering::SeqCst);
        turns.push(vec![Turn { request, answer, began, ended: began }]);
    }
    clear(&store).await?;
    let lists: Vec<&[Turn]> = turns.iter().map(Vec::as_slice).collect();
    if explained(&Model::default(), &lists) {
        return Ok(());
    }
    let lines = |turns: &Vec<Turn>| turns.iter().map(|turn| format!("\n  {turn:?}")).collect::<String>();
    let [first, second] = [turns.first(), turns.get(1)].map(|turns| turns.map(lines).unwrap_or_default());
    let last: String = turns.iter().skip(2).map(lines).collect();
    Err(format!(
        "no order of turns explains\nthe first writer's{first}\nthe second one's{second}\nthe end{last}"
    ))
}

async fn clear(store: &SharedStore) -> std::result::Result<(), String> {
    let session = SessionId::new(SESSION).map_err(|error| error.to_string())?;
    store.delete(&session).await.map(drop).map_err(|error| format!("{error:?}"))
}

/// One step with its answer, and the times at which it began and ended.
#[derive(Debug)]
struct Turn {
    request: Request,
    answer: Answer,
    began: u64,
    ended: u64,
}

/// True if the model gives the same answers in some order that respects the times.
fn explained(model: &Model, lists: &[&[Turn]]) -> bool {
    let first_end = lists.iter().filter_map(|turns| turns.first()).map(|turn| turn.ended).min();
    let Some(first_end) = first_end else { return true };
    lists.iter().enumerate().any(|(place, turns)| {
        let Some((turn, rest)) = turns.split_first() else { return false };
        // A turn that began after another had ended comes after it.
        if turn.began > first_end {
            return false;
        }
        let mut model = model.clone();
        if model.answer(&turn.request) != turn.answer {
            return false;
        }
        let mut lists = lists.to_vec();
        if let Some(list) = lists.get_mut(place) {
            *list = rest;
        }
        explained(&model, &lists)
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Request {
    Append { writer: u64, expected: u64, count: u64, lease: Option<Lease> },
    Lease(Lease),
    AddChild { writer: u64 },
    Read,
    Look,
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    At(u64),
    Done,
    /// Writer of each event, in order.
    Rows(Vec<u64>),
    /// Newest number, lease, and true if a child exists.
    Seen(Option<(u64, Option<Lease>, bool)>),
    Deleted(u64),
    Conflict,
    NotFound,
}

/// One of the two writers, with its last observations.
#[derive(Debug)]
struct Writer {
    number: u64,
    store: SharedStore,
    seq: u64,
    seen: Option<Lease>,
    held: Option<Lease>,
    last: Option<Request>,
    leased: i64,
}

const SESSION: &str = "shared";
const CHILD: &str = "shared.1$$0";

impl Writer {
    fn new(number: u64, store: SharedStore) -> Self {
        Self { number, store, seq: 0, seen: None, held: None, last: None, leased: 0 }
    }

    fn request(&mut self, step: StoreStep) -> Request {
        let writer = self.number;
        let append = |expected, count: u8, lease| Request::Append {
            writer,
            expected,
            count: u64::from(count.clamp(1, 3)),
            lease,
        };
        let request = match step {
            StoreStep::Append(count) => append(self.seq, count, None),
            StoreStep::AppendLeased(count) => {
                let lease = self.next_lease(self.seen.is_none_or(|lease| lease.owner != writer));
                append(self.seq, count, Some(lease))
            }
            StoreStep::AppendLate => append(self.seq.saturating_sub(1), 1, None),
            StoreStep::Echo => self.last.clone().unwrap_or(Request::Read),
            StoreStep::Renew => Request::Lease(self.next_lease(false)),
            StoreStep::TakeOver => Request::Lease(self.next_lease(true)),
            StoreStep::AddChild => Request::AddChild { writer },
            StoreStep::Read => Request::Read,
            StoreStep::Look => Request::Look,
            StoreStep::Delete => Request::Delete,
        };
        if matches!(request, Request::Append { .. }) {
            self.last = Some(request.clone());
        }
        request
    }

    fn next_lease(&mut self, over: bool) -> Lease {
        self.leased += 1;
        let generation = match (over, self.held) {
            (false, Some(held)) => held.generation,
            _ => self.seen.map_or(0, |lease| lease.generation) + 1,
        };
        let lease = Lease::new(self.number, generation, micros(self.leased));
        self.held = Some(lease);
        lease
    }

    async fn send(&self, request: &Request) -> std::result::Result<Answer, Failure> {
        let session = SessionId::new(SESSION)?;
        let result = match request {
            Request::Append { writer, expected, count, lease } => {
                let mut batch = append_of(*writer, *expected, *count);
                batch.lease = *lease;
                if *expected == 0 {
                    batch = batch.creating(root(&session));
                }
                self.store.append(&session, *expected, batch).await.map(Answer::At)
            }
            Request::Lease(lease) => self.store.lease(&session, *lease).await.map(|()| Answer::Done),
            Request::AddChild { writer } => {
                let child = SessionId::new(CHILD)?;
                let record = SessionRecord::child(child.clone(), session, "child", micros(1));
                let batch = append_of(*writer, 0, 1).creating(record);
                self.store.append(&child, 0, batch).await.map(Answer::At)
            }
            Request::Read => self.read(&session).await,
            Request::Look => self.look(&session).await,
            Request::Delete => self.store.delete(&session).await.map(Answer::Deleted),
        };
        match result {
            Ok(answer) => Ok(answer),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(Answer::Conflict),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Answer::NotFound),
            Err(error) => Err(Failure(format!("{request:?}: {error:?}"))),
        }
    }

    async fn read(&self, session: &SessionId) -> Result<Answer> {
        let rows = self.store.read(session, ReadRange::all()).await?;
        let mut writers = Vec::new();
        for (seq, row) in (1..).zip(&rows) {
            let body = row.body()?;
            let writer = (0..2).find(|writer| body.contains(&format!("\"by {writer}\"")));
            let writer = writer.filter(|_| row.seq() == seq && body.contains(&format!("\"n\":{seq}")));
            let odd = || Error::new(ErrorKind::Internal, format!("event {seq} is {body}"));
            writers.push(writer.ok_or_else(odd)?);
        }
        Ok(Answer::Rows(writers))
    }

    /// Looks at the session and its child in one query, so the answer is consistent.
    async fn look(&self, session: &SessionId) -> Result<Answer> {
        let listed = self.store.query(&SessionFilter::tree(session.clone())).await?;
        let below = listed.iter().any(|info| info.record.id.as_str() == CHILD);
        let found = listed.iter().find(|info| info.record.id == *session);
        let odd = || Error::new(ErrorKind::Internal, format!("a tree of {listed:?}"));
        match found {
            None if below => Err(odd()),
            found => Ok(Answer::Seen(found.map(|info| (info.head.seq, info.lease, below)))),
        }
    }

    fn learn(&mut self, request: &Request, answer: &Answer) {
        match (request, answer) {
            (Request::Append { lease, .. }, Answer::At(seq)) => {
                self.seq = *seq;
                self.seen = lease.or(self.seen);
            }
            (Request::Lease(lease), Answer::Done) => self.seen = Some(*lease),
            (Request::Read, Answer::Rows(rows)) => self.seq = rows.len() as u64,
            (_, Answer::Seen(Some((seq, lease, _)))) => (self.seq, self.seen) = (*seq, *lease),
            (Request::AddChild { .. }, Answer::At(_)) | (_, Answer::Conflict) => {}
            _ => (self.seq, self.seen) = (0, None),
        }
    }
}

fn append_of(writer: u64, expected: u64, count: u64) -> Batch {
    let mark = format!("by {writer}");
    let last = expected + count;
    let rows = (expected + 1..=last).map(|seq| row(seq, &mark)).collect();
    Batch::new(writer, rows, head(last, 1_000))
}

/// The contract as a model, for one session and one child.
#[derive(Debug, Clone, Default)]
struct Model {
    session: Option<(Vec<u64>, Option<Lease>)>,
    /// Writer that created the child.
    child: Option<u64>,
}

impl Model {
    fn answer(&mut self, request: &Request) -> Answer {
        match request {
            Request::Append { writer, expected, count, lease } => {
                self.append(*writer, *expected, *count, *lease)
            }
            Request::Lease(lease) => match &mut self.session {
                None => Answer::NotFound,
                Some((_, held)) if lease.replaces(held.as_ref()) => {
                    *held = Some(*lease);
                    Answer::Done
                }
                Some(_) => Answer::Conflict,
            },
            Request::AddChild { writer } => match (&self.session, self.child) {
                (None, _) => Answer::NotFound,
                (Some(_), Some(other)) if other != *writer => Answer::Conflict,
                (Some(_), _) => {
                    self.child = Some(*writer);
                    Answer::At(1)
                }
            },
            Request::Read => match &self.session {
                Some((rows, _)) => Answer::Rows(rows.clone()),
                None => Answer::NotFound,
            },
            Request::Look => Answer::Seen(
                self.session.as_ref().map(|(rows, lease)| (rows.len() as u64, *lease, self.child.is_some())),
            ),
            Request::Delete => {
                let children = u64::from(self.child.take().is_some());
                Answer::Deleted(u64::from(self.session.take().is_some()) + children)
            }
        }
    }

    fn append(&mut self, writer: u64, expected: u64, count: u64, lease: Option<Lease>) -> Answer {
        let Some((rows, held)) = &mut self.session else {
            if expected > 0 {
                return Answer::NotFound;
            }
            self.session = Some(((0..count).map(|_| writer).collect(), lease));
            return Answer::At(count);
        };
        let at = rows.len() as u64;
        if at == expected {
            if lease.is_some_and(|lease| !lease.replaces(held.as_ref())) {
                return Answer::Conflict;
            }
            *held = lease.or(*held);
            rows.extend((0..count).map(|_| writer));
            return Answer::At(at + count);
        }
        let window = expected..expected + count;
        let same =
            window.end <= at && rows.iter().zip(0..).all(|(by, seq)| !window.contains(&seq) || *by == writer);
        if same { Answer::At(at) } else { Answer::Conflict }
    }
}
