//! Moving trees of sessions to the archive, so that a crash at any point loses nothing and the next call goes on.
//!
//! One mover at a time has leave, and so has whoever deletes, so that what it judged stays as it was. The mover holds nothing
//! that a run wants. It copies, and at the turning point compares: a session to which anything
//! happened since it was judged is not sealed.

use std::collections::HashSet;

use entourage_core::{
    Error, ErrorKind, Result, SessionId, Timestamp,
    session::{Batch, SessionFilter, SessionInfo, SessionStatus},
};

use super::{ActiveStore, ArchiveStore, Held, HybridStore, Known, check::another};
use crate::owned::owned;

const OPERATION: &str = "store.archive";
/// Events that are copied in one go.
const EVENTS: usize = 500;

/// How far a step brought a tree.
enum Step {
    /// It is sealed as far as it was known.
    Sealed,
    /// All of it is in the archive.
    Done,
}

impl<A: ActiveStore + 'static, B: ArchiveStore + 'static> HybridStore<A, B> {
    /// Moves the root `session` and everything below it to the archive and returns how many sessions that were; 0 when
    /// they were there already. May be repeated at any time, and finishes what an earlier call began.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a run is under way or paused in the tree, somebody holds a lease of it or another process
    /// moves or deletes, [`ErrorKind::Conflict`] when something happens in it meanwhile (both are over later), or when the
    /// archive has another session of this id; [`ErrorKind::InvalidInput`] for a session below an active one,
    /// [`ErrorKind::NotFound`] when there is no such session, [`ErrorKind::Store`] or [`ErrorKind::Corrupt`] when what
    /// was copied cannot be read back. What is not moved then is still active, and as usable as before.
    ///
    /// # Cancel safety
    /// A move that was polled once goes on by itself; [`HybridStore::archive_idle`] stops after the tree under way.
    pub async fn archive(&self, session: &SessionId) -> Result<u64> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move { store.move_tree(&id).await }).await
    }

    async fn move_tree(&self, session: &SessionId) -> Result<u64> {
        let _moving = self.moving.lock().await;
        let _leave = self.active.leave().await?;
        let mut moved = HashSet::new();
        // A child may be born until its parent is sealed; a round more finds it, and then there is no more.
        loop {
            let known = Known::new(self.active.held().await?);
            let Some(root) = known.sessions.get(session) else {
                return self.without_root(session).await;
            };
            let above = root.info.record.parent.as_ref();
            if let Some(parent) = above.filter(|parent| known.sessions.contains_key(*parent)) {
                return Err(below_another(session, parent));
            }
            let tree = known.tree(session);
            let members: Vec<&Held> = known.members(&tree).collect();
            let open = members.iter().filter(|held| !held.sealed).map(|held| held.info.record.id.clone());
            let open: Vec<SessionId> = open.collect();
            match self.step(&members).await? {
                Step::Done => return Ok(moved.len() as u64),
                Step::Sealed => moved.extend(open),
            }
        }
    }

    /// Moves every tree in which nothing is under way or paused and nothing happened since `before`, and returns the
    /// roots. Costs in proportion to what is moved and to the number of active sessions.
    ///
    /// # Errors
    /// As either store's, the first one, after all other trees were moved; a tree that gets busy meanwhile is left out.
    pub async fn archive_idle(&self, before: Timestamp) -> Result<Vec<SessionId>> {
        let is_over =
            |held: &Held| held.info.head.status == SessionStatus::Idle && held.info.head.updated < before;
        self.move_trees(|members| members.iter().all(is_over)).await
    }

    /// Finishes the moves that a crash cut short after their turning point, and returns how many. One whose tree is in
    /// use is left for later.
    ///
    /// # Errors
    /// As either store's, the first one, after all other moves were finished.
    pub async fn recover(&self) -> Result<u64> {
        let moved = self.move_trees(|members| members.iter().any(|held| held.sealed)).await?;
        Ok(moved.len() as u64)
    }

    /// Takes all trees a step further, then looks for what was born meanwhile, until there is no more. One look is for
    /// all of them: a look at each tree would cost as much as there are sessions.
    async fn move_trees(&self, pick: impl Fn(&[Held]) -> bool) -> Result<Vec<SessionId>> {
        let (mut done, mut under_way) = (Vec::new(), None::<HashSet<SessionId>>);
        // One tree that cannot be moved keeps no other one from it.
        let mut failed = None;
        loop {
            let known = Known::new(self.active.held().await?);
            let mut sealed = HashSet::new();
            for root in known.roots() {
                if under_way.as_ref().is_some_and(|it| !it.contains(&root)) {
                    continue;
                }
                let tree = known.tree(&root);
                let members: Vec<Held> = known.members(&tree).cloned().collect();
                if !pick(&members) {
                    continue;
                }
                match self.step_if_free(members).await {
                    Ok(Some(Step::Done)) => done.push(root),
                    Ok(Some(Step::Sealed)) => drop(sealed.insert(root)),
                    Ok(None) => {}
                    Err(error) => drop(failed.get_or_insert(error)),
                }
            }
            if sealed.is_empty() {
                return failed.map_or(Ok(done), Err);
            }
            under_way = Some(sealed);
        }
    }

    /// `None` when the tree is in use.
    async fn step_if_free(&self, members: Vec<Held>) -> Result<Option<Step>> {
        let store = self.clone();
        let stepped = owned(async move {
            let _moving = store.moving.lock().await;
            let _leave = store.active.leave().await?;
            store.step(&members.iter().collect::<Vec<_>>()).await
        });
        match stepped.await {
            Ok(step) => Ok(Some(step)),
            Err(error)
                if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Conflict | ErrorKind::NotFound) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Copies and seals what is open of a tree; where nothing is, removes it. Parents come first in `members`: the archive
    /// wants a child's parent, and no child may be created below what is sealed.
    async fn step(&self, members: &[&Held]) -> Result<Step> {
        let open: Vec<&SessionInfo> = members.iter().filter(|it| !it.sealed).map(|it| &it.info).collect();
        if open.is_empty() {
            self.check_copies(&members.iter().map(|it| &it.info).collect::<Vec<_>>()).await?;
            // The deepest first: when this is cut short, the rest still hangs together.
            let ids: Vec<_> = members.iter().rev().map(|it| it.info.record.id.clone()).collect();
            self.active.remove(&ids).await?;
            return Ok(Step::Done);
        }
        check_idle(&open)?;
        for info in &open {
            self.copy(info).await?;
        }
        self.check_copies(&open).await?;
        for info in &open {
            self.active.seal(info).await?;
        }
        Ok(Step::Sealed)
    }

    async fn without_root(&self, session: &SessionId) -> Result<u64> {
        if self.is_archived(session).await? {
            Ok(0)
        } else {
            Err(Error::no_session(session).during(OPERATION))
        }
    }

    /// Brings the archive's copy of a session up to date. What an earlier move left and what is no beginning of it is
    /// replaced; what somebody stored there is not.
    async fn copy(&self, info: &SessionInfo) -> Result<()> {
        let session = &info.record.id;
        let is_copy = self.active.is_copy(session).await?;
        let there = self.archived_seq(session).await?;
        if !is_copy {
            if there > 0 {
                self.compare(info, there).await.map_err(|error| match error.kind() {
                    ErrorKind::Conflict => another(session),
                    _ => error,
                })?;
            }
            self.active.note_copy(session).await?;
        } else if there > 0
            && let Err(error) = self.compare(info, there).await
        {
            if error.kind() != ErrorKind::Conflict {
                return Err(error);
            }
            self.drop_copy(session).await?;
            return self.add(info, 0).await;
        }
        self.add(info, there).await
    }

    async fn archived_seq(&self, session: &SessionId) -> Result<u64> {
        let there = self.archive.query(&SessionFilter::id(session.clone())).await?;
        Ok(there.first().map_or(0, |info| info.head.seq))
    }

    /// Fails when the archive's `there` events are not the beginning of the session: the last one is appended once more,
    /// which is a conflict unless it is the same one.
    async fn compare(&self, info: &SessionInfo, there: u64) -> Result<()> {
        let session = &info.record.id;
        if there > info.head.seq {
            return Err(Error::append_conflict(session, info.head.seq, there).during(OPERATION));
        }
        let at = there.saturating_sub(1);
        for batch in self.active.batches(session, at, 1).await?.into_iter().take(1) {
            let one = Batch::new(batch.writer, batch.rows.into_iter().take(1).collect(), batch.head);
            self.archive.append(session, at, headed(one, there)).await?;
        }
        Ok(())
    }

    /// Deletes a copy that does not count, and those below it; what counts is never deleted here. It cannot begin to count
    /// in between: who has leave to move is alone in sealing.
    async fn drop_copy(&self, session: &SessionId) -> Result<()> {
        for copy in self.archive.query(&SessionFilter::tree(session.clone())).await? {
            if !self.active.is_copy(&copy.record.id).await? {
                return Err(Error::append_conflict(&copy.record.id, 0, copy.head.seq).during(OPERATION));
            }
        }
        self.archive.delete(session).await.map(drop)
    }

    async fn add(&self, info: &SessionInfo, mut at: u64) -> Result<()> {
        let session = &info.record.id;
        while at < info.head.seq {
            let page = joined(self.active.batches(session, at, EVENTS).await?);
            if page.is_empty() {
                return Err(Error::append_conflict(session, info.head.seq, at));
            }
            for batch in page {
                let last = batch.head.seq;
                self.archive.append(session, at, batch).await?;
                at = last;
            }
        }
        // Who held the session before goes on in the archive, and who lost it to that one is refused there as well.
        match info.lease {
            Some(lease) => self.archive.lease(session, lease).await,
            None => Ok(()),
        }
    }
}

/// The same batch, whose head is of the event `seq`.
fn headed(mut batch: Batch, seq: u64) -> Batch {
    batch.head.seq = seq;
    batch
}

/// Whether somebody holds a lease is asked of this machine's clock. A wrong one costs a move, or a run its first append
/// to the old place, and never an event: the seal compares.
fn check_idle(open: &[&SessionInfo]) -> Result<()> {
    let now = Timestamp::now();
    for info in open {
        if info.head.status != SessionStatus::Idle || info.lease.is_some_and(|lease| lease.is_live(now)) {
            return Err(Error::new(
                ErrorKind::Busy,
                "the session is in use or waits for somebody; archive it when it is over",
            )
            .during(OPERATION)
            .with("session", info.record.id.as_str()));
        }
    }
    Ok(())
}

/// Batches of one writer that follow each other become one: each costs the archive a transaction. Writers and numbers
/// tell events apart, so nothing is lost.
fn joined(batches: Vec<Batch>) -> Vec<Batch> {
    let mut joined: Vec<Batch> = Vec::with_capacity(batches.len());
    for batch in batches {
        match joined.last_mut() {
            Some(last) if last.writer == batch.writer => {
                last.rows.extend(batch.rows);
                last.head = batch.head;
            }
            _ => joined.push(batch),
        }
    }
    joined
}

fn below_another(session: &SessionId, parent: &SessionId) -> Error {
    Error::new(ErrorKind::InvalidInput, "a session below another moves with it; archive the root of the tree")
        .during(OPERATION)
        .with("session", session.as_str())
        .with("parent", parent.as_str())
}
