//! Moving trees of sessions to the archive, so that a crash at any point loses nothing and the next call goes on.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result, SessionId, Timestamp,
    session::{Batch, Lease, SessionFilter, SessionInfo, SessionStatus, SessionStore},
};

use super::{ActiveStore, Held, HybridStore, by_id};
use crate::{listing::below, owned::owned};

const OPERATION: &str = "store.archive";
/// How long a mover keeps others away without a sign of life.
const LEASE: Duration = Duration::from_secs(30);
/// Events that are copied in one go.
const EVENTS: usize = 500;

impl<A: ActiveStore + 'static, B: SessionStore + 'static> HybridStore<A, B> {
    /// Moves the root `session` and everything below it to the archive and returns how many sessions that were; 0 when
    /// they were there already. May be repeated at any time, and finishes what an earlier call began.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a run is under way or paused in the tree or another process works on it,
    /// [`ErrorKind::Conflict`] when somebody appends meanwhile (both are over later), [`ErrorKind::InvalidInput`] for a
    /// session below an active one, [`ErrorKind::NotFound`] when there is no such session. What is not moved then is
    /// still active.
    ///
    /// # Cancel safety
    /// A move that was polled once goes on by itself; [`HybridStore::archive_idle`] stops after the tree under way.
    pub async fn archive(&self, session: &SessionId) -> Result<u64> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move { store.move_tree(&id).await }).await
    }

    async fn move_tree(&self, session: &SessionId) -> Result<u64> {
        let _moving = self.moving.lock().await;
        let mut moved = HashSet::new();
        // A child may be born until its parent is sealed; a round more finds it, and then there is no more.
        loop {
            let held = by_id(self.active.held().await?);
            let tree = tree(&held, session);
            let members: Vec<&Held> = tree.iter().filter_map(|id| held.get(id)).collect();
            let Some(root) = held.get(session) else {
                return self.without_root(session).await;
            };
            if let Some(parent) = root.info.record.parent.as_ref().filter(|parent| held.contains_key(*parent))
            {
                return Err(below_another(session, parent));
            }
            let open: Vec<&SessionInfo> = members.iter().filter(|it| !it.sealed).map(|it| &it.info).collect();
            if open.is_empty() {
                self.check_copies(&members).await?;
                self.active.delete(session).await?;
                return Ok(moved.len() as u64);
            }
            self.check_idle(&open)?;
            self.move_open(&open).await?;
            moved.extend(open.into_iter().map(|info| info.record.id.clone()));
        }
    }

    /// Moves every tree in which nothing is under way or paused and nothing happened since `before`, and returns the
    /// roots.
    ///
    /// # Errors
    /// As either store's; a tree that gets busy meanwhile is left out. What was moved before stays moved.
    pub async fn archive_idle(&self, before: Timestamp) -> Result<Vec<SessionId>> {
        let held = by_id(self.active.held().await?);
        let mut moved = Vec::new();
        for root in roots(&held, |_| true) {
            let mut members =
                tree(&held, &root).into_iter().filter_map(|id| held.get(&id)).map(|it| &it.info);
            let is_over =
                |info: &SessionInfo| info.head.status == SessionStatus::Idle && info.head.updated < before;
            if members.all(is_over) && self.archived_if_free(&root).await? {
                moved.push(root);
            }
        }
        Ok(moved)
    }

    /// Finishes the moves that a crash cut short after their turning point, and returns how many. One whose tree is in
    /// use is left for later.
    ///
    /// # Errors
    /// As either store's.
    pub async fn recover(&self) -> Result<u64> {
        let held = by_id(self.active.held().await?);
        let mut finished = 0;
        for root in roots(&held, |held| held.sealed) {
            finished += u64::from(self.archived_if_free(&root).await?);
        }
        Ok(finished)
    }

    async fn archived_if_free(&self, root: &SessionId) -> Result<bool> {
        match self.archive(root).await {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Conflict | ErrorKind::NotFound) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn without_root(&self, session: &SessionId) -> Result<u64> {
        if self.is_archived(session).await? {
            Ok(0)
        } else {
            Err(Error::no_session(session).during(OPERATION))
        }
    }

    fn check_idle(&self, open: &[&SessionInfo]) -> Result<()> {
        let now = Timestamp::now();
        let is_held = |lease: &Lease| lease.is_live(now) && lease.owner != self.owner;
        for info in open {
            if info.head.status != SessionStatus::Idle || info.lease.as_ref().is_some_and(is_held) {
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

    /// Copies and seals. Parents come first in `open`: the archive wants a child's parent, and no child may be created
    /// below what is sealed.
    async fn move_open(&self, open: &[&SessionInfo]) -> Result<()> {
        let leases: Vec<Lease> = open.iter().map(|info| self.next_lease(info)).collect();
        let moved = self.copy_and_seal(open, &leases).await;
        if moved.is_err() {
            for (info, lease) in open.iter().zip(&leases) {
                // Whoever fails here only makes others wait until the lease is over.
                self.active.lease(&info.record.id, given_back(lease)).await.ok();
            }
        }
        moved
    }

    async fn copy_and_seal(&self, open: &[&SessionInfo], leases: &[Lease]) -> Result<()> {
        for (info, lease) in open.iter().zip(leases) {
            self.active.lease(&info.record.id, *lease).await?;
        }
        for (info, lease) in open.iter().zip(leases) {
            self.copy(info, lease).await?;
        }
        for info in open {
            self.active.seal(&info.record.id, info.head.seq).await?;
        }
        Ok(())
    }

    fn next_lease(&self, info: &SessionInfo) -> Lease {
        let generation = info.lease.map_or(0, |lease| lease.generation).saturating_add(1);
        Lease::new(self.owner, generation, Timestamp::now().after(LEASE))
    }

    /// Brings the archive's copy of a session up to date.
    async fn copy(&self, info: &SessionInfo, lease: &Lease) -> Result<()> {
        let session = &info.record.id;
        let there = self.archive.query(&SessionFilter::id(session.clone())).await?;
        let copied = there.first().map_or(0, |info| info.head.seq);
        let mut at = 0;
        if copied > 0 {
            // The event where both meet is appended once more: if it is not the same, this is a conflict.
            at = copied.min(info.head.seq).saturating_sub(1);
            for batch in self.active.batches(session, at, 1).await? {
                let last = batch.head.seq;
                self.archive.append(session, at, batch).await?;
                at = last;
            }
        }
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
            let renewed = Lease::new(lease.owner, lease.generation, Timestamp::now().after(LEASE));
            self.active.lease(session, renewed).await?;
        }
        // Who held the session before goes on in the archive, and who lost it to that one is refused there as well.
        match info.lease {
            Some(before) => self.archive.lease(session, before).await,
            None => Ok(()),
        }
    }

    /// Nothing is deleted unless the archive has all of it.
    async fn check_copies(&self, sealed: &[&Held]) -> Result<()> {
        for Held { info, .. } in sealed {
            let there = self.archive.query(&SessionFilter::id(info.record.id.clone())).await?;
            if there.first().is_none_or(|copy| copy.head.seq < info.head.seq) {
                return Err(Error::new(
                    ErrorKind::Store,
                    "the archive lacks events of a session that was moved to it; its file is kept: use the archive that \
                     it was moved to, or delete the session",
                )
                .during(OPERATION)
                .with("session", info.record.id.as_str()));
            }
        }
        Ok(())
    }
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

fn given_back(lease: &Lease) -> Lease {
    Lease::new(lease.owner, lease.generation, Timestamp::from_micros(0))
}

fn below_another(session: &SessionId, parent: &SessionId) -> Error {
    Error::new(ErrorKind::InvalidInput, "a session below another moves with it; archive the root of the tree")
        .during(OPERATION)
        .with("session", session.as_str())
        .with("parent", parent.as_str())
}

/// The sessions of the tree below `root` that are held, parents before children; `root` itself also when it is not.
pub(super) fn tree(held: &HashMap<SessionId, Held>, root: &SessionId) -> Vec<SessionId> {
    below(held.values().map(|held| &held.info.record), root)
}

/// The topmost held sessions above those that `pick` takes, in a stable order.
fn roots(held: &HashMap<SessionId, Held>, pick: impl Fn(&Held) -> bool) -> BTreeSet<SessionId> {
    let picked = held.values().filter(|held| pick(held));
    let top = |start: &Held| {
        let mut top = &start.info.record;
        // Bounded: parents that go round in a circle exist only in files that somebody edited.
        for _ in 0..held.len() {
            match top.parent.as_ref().and_then(|parent| held.get(parent)) {
                Some(parent) => top = &parent.info.record,
                None => break,
            }
        }
        top.id.clone()
    };
    picked.map(top).collect()
}
