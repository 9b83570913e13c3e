//! A store with one chosen lapse: about leases, trees, or the data that it must keep.

use std::{collections::HashMap, sync::Mutex};

use entourage_core::Timestamp;

use super::*;

/// One broken promise about leases, trees or data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lapse {
    ForgetsTheFirstLease,
    ForgetsLeasesOfBatches,
    IgnoresLeases,
    ClearsTheLease,
    NeverFences,
    FencesByTime,
    FencesEchoes,
    LeasesWhatIsNotThere,
    TouchesTheHead,
    KeepsTheLeaseOfTheDeleted,
    AppendsToTheMadeAnew,
    LeasesTheMadeAnew,
    CutsTheOwner,
    LooksThenLeases,
    LooksThenAppends,
    BringsBackTheDeleted,
    TakesPrefixesForPatterns,
    FoldsPrefixes,
    TakesTreesForPrefixes,
    SeesOneLevel,
    LeavesTheRootOut,
    TakesAnUnknownTreeForAll,
    IgnoresOtherFilters,
    StopsAtAHundredLevels,
    ForgetsTheCheckpoint,
    RevivesTags,
    MendsText,
    KnowsItsKinds,
    DropsReservedKeys,
    ReadsWhatItIsGiven,
}

/// The reference store, with leases of its own and one lapse.
#[derive(Debug)]
pub(super) struct Careless {
    inner: MemoryStore,
    leases: Mutex<HashMap<SessionId, Lease>>,
    lapse: Lapse,
}

/// Lets every other task read before this one writes, on however few threads.
async fn dawdle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

impl Careless {
    pub(super) fn new(lapse: Lapse) -> Self {
        Self { inner: MemoryStore::new(), leases: Mutex::default(), lapse }
    }

    fn held(&self, session: &SessionId) -> Option<Lease> {
        self.leases.lock().unwrap().get(session).copied()
    }

    fn keep(&self, session: &SessionId, mut lease: Lease) {
        if self.lapse == Lapse::CutsTheOwner {
            lease.owner = lease.owner.min(i64::MAX.unsigned_abs());
        }
        self.leases.lock().unwrap().insert(session.clone(), lease);
    }

    fn check(&self, session: &SessionId, lease: Lease) -> Result<()> {
        let Some(held) = self.held(session) else { return Ok(()) };
        let over = self.lapse == Lapse::FencesByTime && held.until <= Timestamp::default();
        if lease.replaces(Some(&held)) || over || self.lapse == Lapse::NeverFences {
            return Ok(());
        }
        Err(Error::fenced(session, held.generation))
    }

    async fn exists(&self, session: &SessionId) -> Result<bool> {
        Ok(!self.inner.query(&SessionFilter::id(session.clone())).await?.is_empty())
    }

    fn spoil(&self, row: &Row) -> Result<Row> {
        let (mut columns, mut body) = (row.columns(), row.body()?.into_owned());
        match self.lapse {
            Lapse::RevivesTags => body = body.replace("\"constructor\"", "\"revived\""),
            Lapse::MendsText => body = body.replace("\\ud800", "\\ufffd"),
            Lapse::KnowsItsKinds if !columns.kind.chars().all(|it| it.is_ascii_lowercase() || it == '_') => {
                columns.kind = "unknown".into();
            }
            Lapse::DropsReservedKeys => body = body.replace("\"lc\":1,", ""),
            Lapse::ReadsWhatItIsGiven => {
                let session = SessionId::generate();
                row.clone().into_envelope(&session)?;
            }
            _ => {}
        }
        Ok(Row::stored(columns, body))
    }

    async fn tree(&self, root: &SessionId) -> Result<Vec<SessionInfo>> {
        let all = self.inner.query(&SessionFilter::all()).await?;
        let parents: HashMap<_, _> =
            all.iter().map(|it| (&it.record.id, it.record.parent.as_ref())).collect();
        let below = |info: &SessionInfo| {
            let (mut at, mut levels) = (&info.record.id, 0);
            while at != root {
                (at, levels) = (parents.get(at).copied().flatten()?, levels + 1);
            }
            Some(levels)
        };
        let found: Vec<SessionInfo> = all
            .iter()
            .filter(|info| match (self.lapse, below(info)) {
                (Lapse::TakesTreesForPrefixes, _) => info.record.id.as_str().starts_with(root.as_str()),
                (Lapse::SeesOneLevel, levels) => levels.is_some_and(|levels| levels < 2),
                (Lapse::LeavesTheRootOut, levels) => levels.is_some_and(|levels| levels > 0),
                (Lapse::StopsAtAHundredLevels, levels) => levels.is_some_and(|levels| levels < 100),
                (_, levels) => levels.is_some(),
            })
            .cloned()
            .collect();
        let all = if found.is_empty() && self.lapse == Lapse::TakesAnUnknownTreeForAll { all } else { found };
        Ok(all)
    }

    /// Results of the inner store, with the filters applied here so that a lapse can break them.
    async fn find(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        let mut found = match &filter.tree {
            Some(root) => self.tree(root).await?,
            None => self.inner.query(&SessionFilter::all()).await?,
        };
        let mut rest = filter.clone();
        let prefix = rest.prefix.take();
        if filter.tree.is_none() || self.lapse != Lapse::IgnoresOtherFilters {
            found.retain(|info| rest.admits(info));
        }
        found.retain(|info| {
            let (id, prefix) = (info.record.id.as_str(), prefix.as_deref().unwrap_or_default());
            match self.lapse {
                Lapse::FoldsPrefixes => id.to_lowercase().starts_with(&prefix.to_lowercase()),
                Lapse::TakesPrefixesForPatterns => {
                    let fits = |(have, want): (char, char)| have == want || want == '_';
                    id.len() >= prefix.len() && id.chars().zip(prefix.chars()).all(fits)
                }
                _ => id.starts_with(prefix),
            }
        });
        Ok(found.into_iter().skip(filter.offset).take(filter.limit.unwrap_or(usize::MAX)).collect())
    }

    fn dress(&self, mut info: SessionInfo) -> SessionInfo {
        info.lease = self.held(&info.record.id);
        if self.lapse == Lapse::TouchesTheHead && info.lease.is_some() {
            info.head.updated = Timestamp::from_micros(7);
        }
        info
    }
}

#[async_trait]
impl SessionStore for Careless {
    async fn append(&self, session: &SessionId, expected: u64, mut batch: Batch) -> Result<u64> {
        let lease = batch.lease.take();
        let first = batch.create.is_some();
        if let Some(lease) = lease.filter(|_| self.lapse == Lapse::FencesEchoes) {
            self.check(session, lease)?;
        }
        let head = self.inner.query(&SessionFilter::id(session.clone())).await?.pop().map(|it| it.head.seq);
        let echo = head.is_some_and(|seq| seq != expected);
        if let Some(lease) = lease.filter(|_| !echo) {
            self.check(session, lease)?;
        }
        let looks_first = matches!(
            self.lapse,
            Lapse::LooksThenLeases | Lapse::LooksThenAppends | Lapse::BringsBackTheDeleted
        );
        if looks_first {
            dawdle().await;
        }
        if self.lapse == Lapse::AppendsToTheMadeAnew {
            batch.created = None;
        }
        if self.lapse == Lapse::ForgetsTheCheckpoint {
            batch.head.checkpoint = 0;
        }
        batch.rows = batch.rows.iter().map(|row| self.spoil(row)).collect::<Result<_>>()?;
        let seq = match self.inner.append(session, expected, batch.clone()).await {
            Err(_) if head.is_some() && !self.exists(session).await? && !first => {
                if self.lapse != Lapse::BringsBackTheDeleted {
                    return Err(Error::no_session(session));
                }
                let mut again = Batch::new(batch.writer, Vec::new(), batch.head.clone());
                again.create =
                    Some(entourage_core::session::SessionRecord::root(session.clone(), batch.head.updated));
                for (seq, row) in (1..).zip(&batch.rows) {
                    let mut columns = row.columns();
                    columns.seq = seq;
                    again.rows.push(Row::stored(columns, "{}".to_owned()));
                }
                again.head.seq = again.rows.len() as u64;
                self.inner.append(session, 0, again).await?
            }
            result => result?,
        };
        match lease {
            _ if echo => {}
            Some(_) if self.lapse == Lapse::ForgetsLeasesOfBatches && !first => {}
            Some(_) if self.lapse == Lapse::ForgetsTheFirstLease && first => {}
            Some(lease) => self.keep(session, lease),
            None if self.lapse == Lapse::ClearsTheLease => {
                self.leases.lock().unwrap().remove(session);
            }
            None => {}
        }
        Ok(seq)
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.inner.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        Ok(self.find(filter).await?.into_iter().map(|info| self.dress(info)).collect())
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        if !self.exists(session).await? && self.lapse != Lapse::LeasesWhatIsNotThere {
            return Err(Error::no_session(session));
        }
        let info = self.inner.query(&SessionFilter::id(session.clone())).await?.pop();
        let created = info.map(|info| info.record.created);
        if lease.created.is_some() && lease.created != created && self.lapse != Lapse::LeasesTheMadeAnew {
            return Err(Error::made_anew(session));
        }
        self.check(session, lease)?;
        match self.lapse {
            Lapse::IgnoresLeases => return Ok(()),
            Lapse::LooksThenLeases => dawdle().await,
            _ => {}
        }
        self.keep(session, lease);
        Ok(())
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        if self.lapse != Lapse::KeepsTheLeaseOfTheDeleted {
            self.leases.lock().unwrap().remove(session);
        }
        self.inner.delete(session).await
    }
}

pub(super) const LAPSES: [(Lapse, &str); 34] = [
    (Lapse::AppendsToTheMadeAnew, "a_session_made_anew_takes_nothing_that_is_for_the_deleted_one"),
    (Lapse::LeasesTheMadeAnew, "a_session_made_anew_takes_nothing_that_is_for_the_deleted_one"),
    (Lapse::ForgetsTheFirstLease, "a_lease_comes_with_the_first_batch"),
    (Lapse::ForgetsLeasesOfBatches, "an_append_takes_and_renews_the_lease"),
    (Lapse::IgnoresLeases, "a_lease_alone_changes_nothing_else"),
    (Lapse::ClearsTheLease, "an_append_takes_and_renews_the_lease"),
    (Lapse::NeverFences, "attack_10_a_stale_owner_is_fenced"),
    (Lapse::NeverFences, "attack_09_of_fifty_racing_takeovers_one_wins"),
    (Lapse::FencesByTime, "attack_10_a_lease_that_ran_out_or_was_given_back_still_fences"),
    (Lapse::FencesEchoes, "attack_12_an_echo_of_a_fenced_owner_stores_nothing"),
    (Lapse::LeasesWhatIsNotThere, "a_lease_of_nothing_is_not_found"),
    (Lapse::TouchesTheHead, "a_lease_alone_changes_nothing_else"),
    (Lapse::KeepsTheLeaseOfTheDeleted, "a_lease_of_nothing_is_not_found"),
    (Lapse::CutsTheOwner, "leases_come_back_at_their_limits"),
    (Lapse::LooksThenLeases, "attack_09_of_fifty_racing_takeovers_one_wins"),
    (Lapse::LooksThenAppends, "attack_10_a_takeover_that_races_an_append_fences_it"),
    (Lapse::BringsBackTheDeleted, "a_delete_that_races_leaves_nothing_behind"),
    (Lapse::TakesPrefixesForPatterns, "a_prefix_is_bytes_and_no_pattern"),
    (Lapse::FoldsPrefixes, "a_prefix_is_bytes_and_no_pattern"),
    (Lapse::FoldsPrefixes, "a_prefix_joins_the_other_filters"),
    (Lapse::TakesTreesForPrefixes, "attack_13_a_tree_is_what_is_below_and_no_neighbour"),
    (Lapse::SeesOneLevel, "attack_13_a_tree_is_what_is_below_and_no_neighbour"),
    (Lapse::LeavesTheRootOut, "attack_13_a_tree_is_what_is_below_and_no_neighbour"),
    (Lapse::TakesAnUnknownTreeForAll, "attack_13_a_tree_is_what_is_below_and_no_neighbour"),
    (Lapse::IgnoresOtherFilters, "a_tree_joins_the_other_filters"),
    (Lapse::StopsAtAHundredLevels, "a_tree_may_be_deep_and_wide"),
    (Lapse::ForgetsTheCheckpoint, "heads_come_back"),
    (Lapse::RevivesTags, "attack_01_constructor_tags_are_data"),
    (Lapse::MendsText, "attack_02_half_a_character_is_kept_and_refused"),
    (Lapse::KnowsItsKinds, "attack_03_a_kind_that_names_a_type_is_only_a_name"),
    (Lapse::DropsReservedKeys, "attack_04_reserved_keys_are_keys"),
    (Lapse::ReadsWhatItIsGiven, "attack_08_a_damaged_session_harms_no_other"),
    (Lapse::ReadsWhatItIsGiven, "attack_02_half_a_character_is_kept_and_refused"),
    (Lapse::LeavesTheRootOut, "a_tree_may_be_deep_and_wide"),
];
