//! Moves trees of sessions to the archive. A crash at any point loses nothing, and the next call continues.
//!
//! One mover or deleter at a time has leave, so no other one changes what it has judged. The mover holds nothing that a
//! run needs. It copies, and at the turning point compares: a session that changed since it was judged is not sealed.

use std::collections::HashSet;

use entourage_core::{
    Error, ErrorKind, Result, SessionId, Timestamp,
    session::{Batch, SessionFilter, SessionInfo, SessionStatus},
};

use super::{HybridStore, Known, check::another};
use crate::{
    owned::owned,
    tiers::{ActiveStore, ArchiveStore, Held},
};

const OPERATION: &str = "store.archive";
/// Number of events after which a page to copy may end.
const EVENTS: usize = 500;

/// Progress of a tree after a step.
enum Step {
    /// All of its sessions that were known are sealed.
    Sealed,
    /// All of it is in the archive.
    Done,
}

impl<A: ActiveStore + 'static, B: ArchiveStore + 'static> HybridStore<A, B> {
    /// Moves the root `session` and its descendants to the archive and returns the number of moved sessions; 0 if they
    /// were there already. May be repeated at any time, and finishes what an earlier call began.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a run is in flight or paused in the tree, somebody holds a lease of it or another
    /// process moves or deletes, [`ErrorKind::Conflict`] if something happens in it meanwhile (both are over later), or
    /// if the archive has another session of this id; [`ErrorKind::InvalidInput`] for a session below an active one,
    /// [`ErrorKind::NotFound`] if there is no such session, [`ErrorKind::Store`] or [`ErrorKind::Corrupt`] if a copy
    /// cannot be read back. A session that is not moved stays active and as usable as before.
    ///
    /// # Cancel safety
    /// Once polled, a move completes by itself; [`HybridStore::archive_idle`] stops after the tree at hand.
    pub async fn archive(&self, session: &SessionId) -> Result<u64> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move { store.move_tree(&id).await }).await
    }

    async fn move_tree(&self, session: &SessionId) -> Result<u64> {
        let _moving = self.moving.lock().await;
        let _leave = self.active.leave().await?;
        let mut moved = HashSet::new();
        // Children may be created until their parent is sealed; another round finds them, and then there are no more.
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

    /// Moves every tree without a run in flight or paused and without an event since `before`, and returns the roots.
    /// The cost is proportional to the number of moved sessions and to that of active ones.
    ///
    /// # Errors
    /// The first error of either store, after all other trees were moved; a tree that gets busy meanwhile is left out.
    pub async fn archive_idle(&self, before: Timestamp) -> Result<Vec<SessionId>> {
        let is_over =
            |held: &Held| held.info.head.status == SessionStatus::Idle && held.info.head.updated < before;
        self.move_trees(|members| members.iter().all(is_over)).await
    }

    /// Finishes the moves that a crash cut short after their first seal, and returns their number. A tree in use is
    /// left for later.
    ///
    /// # Errors
    /// The first error of either store, after all other moves were finished.
    pub async fn recover(&self) -> Result<u64> {
        let moved = self.move_trees(|members| members.iter().any(|held| held.sealed)).await?;
        Ok(moved.len() as u64)
    }

    /// Takes all picked trees one step further, round by round, until no child was created meanwhile. One inventory
    /// serves all trees of a round: one for each tree would cost as much as there are sessions.
    async fn move_trees(&self, pick: impl Fn(&[Held]) -> bool) -> Result<Vec<SessionId>> {
        let (mut done, mut under_way) = (Vec::new(), None::<HashSet<SessionId>>);
        // A tree that cannot be moved must not stop the others.
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

    /// Takes a tree one step further; `None` if it is in use.
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

    /// Copies and seals the open sessions of a tree; removes the tree if none is open. Parents come first in `members`:
    /// the archive needs a child's parent, and no child may be created below a sealed session.
    async fn step(&self, members: &[&Held]) -> Result<Step> {
        let open: Vec<&SessionInfo> = members.iter().filter(|it| !it.sealed).map(|it| &it.info).collect();
        if open.is_empty() {
            self.check_copies(&members.iter().map(|it| &it.info).collect::<Vec<_>>()).await?;
            // The deepest first: if this is cut short, the rest is still connected.
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

    /// Brings the archive's copy of a session up to date. A copy of an earlier move that is not a prefix of the session
    /// is replaced; a session that somebody stored there is not.
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

    /// Fails if the archive's `there` events are not a prefix of the session: the last one is appended once more, which
    /// is a conflict unless it is the same one.
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

    /// Deletes a copy that does not count, and those below it; a session that counts is never deleted here. None can
    /// begin to count in between: only the holder of the leave seals.
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
        // The lease moves along: its owner continues in the archive, and a stale owner is refused there as well.
        match info.lease {
            Some(lease) => self.archive.lease(session, lease).await,
            None => Ok(()),
        }
    }
}

/// Returns the batch with its head at the event `seq`.
fn headed(mut batch: Batch, seq: u64) -> Batch {
    batch.head.seq = seq;
    batch
}

/// Refuses sessions with a run in flight or paused, or with a lease that is live by this machine's clock. A wrong clock
/// costs a move, or a run its first append to the old place, and never an event: the seal compares.
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

/// Joins consecutive batches of one writer, because each batch costs the archive a transaction. Writers and numbers
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
