//! Deletion of sessions that may be in both stores. A crash at any point leaves each session whole or gone.

use entourage_core::{Result, SessionId, session::SessionFilter};

use super::{HybridStore, Known};
use crate::tiers::{ActiveStore, ArchiveStore};

/// The sealed sessions of a tree, deepest first, and the roots of the trees below them that are not sealed.
#[derive(Debug, Default)]
struct Sealed {
    sessions: Vec<SessionId>,
    open_below: Vec<SessionId>,
}

impl Sealed {
    fn of(known: &Known, root: &SessionId) -> Self {
        let mut sealed = Self::default();
        let is_sealed = |id: &SessionId| known.sessions.get(id).is_some_and(|held| held.sealed);
        let tree = known.tree(root);
        for held in known.members(&tree) {
            let record = &held.info.record;
            if held.sealed {
                sealed.sessions.push(record.id.clone());
            } else if record.id != *root && record.parent.as_ref().is_some_and(is_sealed) {
                sealed.open_below.push(record.id.clone());
            }
        }
        sealed.sessions.reverse();
        sealed.open_below.reverse();
        sealed
    }
}

impl<A: ActiveStore + 'static, B: ArchiveStore + 'static> HybridStore<A, B> {
    pub(super) async fn delete_both(&self, session: &SessionId) -> Result<u64> {
        let _moving = self.moving.lock().await;
        let _leave = self.active.leave().await?;
        let known = Known::new(self.active.held().await?);
        let copies = self.archive.query(&SessionFilter::tree(session.clone())).await?;
        let twice = copies.iter().filter(|copy| known.hides(&copy.record.id)).count() as u64;
        let sealed = Sealed::of(&known, session);
        let mut deleted = 0;
        for root in &sealed.open_below {
            deleted += self.delete_tree(root).await?;
        }
        // For sealed sessions the archive alone counts, so their files go first: if the process dies then, the sessions
        // are whole in the archive. The other way round, files would be left whose move nothing can finish.
        self.active.remove(&sealed.sessions).await?;
        deleted += self.delete_tree(session).await?;
        let lost = |id: &&SessionId| known.copies.contains(*id) && !known.sessions.contains_key(*id);
        for id in copies.iter().map(|copy| &copy.record.id).filter(lost) {
            // Its file is gone or damaged, so the tree did not lead to it.
            self.active.delete(id).await?;
        }
        Ok(deleted.saturating_sub(twice))
    }

    /// Deletes a tree in which nothing is sealed.
    async fn delete_tree(&self, root: &SessionId) -> Result<u64> {
        // The files last: as long as one is there, its copy in the archive does not count.
        let archived = self.archive.delete(root).await?;
        Ok(archived + self.active.delete(root).await?)
    }
}
