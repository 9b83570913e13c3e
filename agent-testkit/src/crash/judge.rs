//! Invariants of work whose processes died, checked on the store and on the notes of outside effects.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use entourage_core::{RequestId, SessionId, event::Event, tool::Repeat};

use super::{
    Note, Tree,
    seams::is_unknown,
    tree::{Claim, Log},
};

/// Violations: repeated, lost or otherwise wrong. If the first two are not empty, the library broke its promise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// Completed effects that were repeated, and non-repeatable calls that ran twice.
    pub repeats: Vec<String>,
    /// Events that were stored or shown, and are now missing or changed.
    pub lost: Vec<String>,
    /// Other violations: another answer, a call without a claim, a checkpoint that is not the fold.
    pub other: Vec<String>,
}

impl Faults {
    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.repeats.is_empty() && self.lost.is_empty() && self.other.is_empty()
    }

    pub(super) fn one(fault: String) -> Self {
        Self { other: vec![fault], ..Self::default() }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, faults) in [("repeated", &self.repeats), ("lost", &self.lost), ("wrong", &self.other)] {
            for fault in faults {
                write!(f, "\n  {what}: {fault}")?;
            }
        }
        Ok(())
    }
}

/// The outcome of a scenario in which no process dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected(BTreeMap<String, usize>);

impl Expected {
    /// Takes an undisturbed run as the reference.
    #[must_use]
    pub fn of(tree: &Tree) -> Self {
        Self(tree.facts())
    }
}

/// Judges completed work. `notes` are those of all its processes, in order; `tree` is the final content of the store.
#[must_use]
pub fn judge(expected: &Expected, notes: &[Note], tree: &Tree) -> Faults {
    let mut judge = Judge { tree, notes, faults: Faults::default(), cut: Vec::new() };
    judge.lost();
    judge.tools();
    judge.models();
    for (_, log) in tree.iter() {
        judge.faults.other.extend(log.faults());
    }
    judge.facts(expected);
    judge.faults
}

/// Tools that runners add themselves, so that no scenario can watch them. They have no effect outside the log.
const BROUGHT: [&str; 4] = ["task_complete", "final_answer", "send_message", "reply"];

struct Judge<'a> {
    tree: &'a Tree,
    notes: &'a [Note],
    faults: Faults,
    /// Non-repeatable tools that were cut: agent and name.
    cut: Vec<String>,
}

/// Newest sequence number of each session that a process had found stored, at a position in the notes.
#[derive(Debug, Default)]
struct Seen<'a>(HashMap<&'a SessionId, u64>);

impl<'a> Seen<'a> {
    fn take(&mut self, note: &'a Note) {
        if let Note::Found { session, seq, .. } = note {
            self.0.insert(session, *seq);
        }
    }

    /// True if a process had found event `seq` stored.
    fn has(&self, session: &SessionId, seq: u64) -> bool {
        self.0.get(session).is_some_and(|seen| seq <= *seen)
    }
}

impl<'a> Judge<'a> {
    fn lost(&mut self) {
        for note in self.notes {
            match note {
                Note::Found { session, seq, digest } if self.tree.digest(session, *seq) != Some(*digest) => {
                    self.faults
                        .lost
                        .push(format!("the first {seq} events of {session} are not what they were"));
                }
                Note::Shown { session, seq, kind } => {
                    let event =
                        self.tree.get(session).and_then(|log| log.events.get(usize::try_from(seq - 1).ok()?));
                    if event.is_none_or(|event| event.event.kind() != kind) {
                        self.faults
                            .lost
                            .push(format!("event {seq} of {session}, a {kind}, was shown and is not stored"));
                    }
                }
                _ => {}
            }
        }
    }

    fn tools(&mut self) {
        let mut claims = HashMap::new();
        for (session, log) in self.tree.iter() {
            claims.extend(log.claims().into_iter().map(|(key, claim)| (key, (session, log, claim))));
        }
        let (mut called, mut returned): (HashMap<&str, usize>, HashSet<&str>) = Default::default();
        let mut seen = Seen::default();
        for note in self.notes {
            seen.take(note);
            match note {
                Note::Called { key, tool, repeat } => {
                    let times = called.entry(key).or_default();
                    *times += 1;
                    if *times > 1 && *repeat == Repeat::Once {
                        self.faults
                            .repeats
                            .push(format!("`{tool}` may not be repeated, and ran {times} times as {key}"));
                    }
                    match claims.get(key) {
                        Some((session, _, Claim { settled: Some(settled), .. }))
                            if seen.has(session, *settled) =>
                        {
                            self.faults.repeats.push(format!("`{tool}` was settled and ran again as {key}"));
                        }
                        Some((_, _, Claim { claimed: 1.., settled: Some(_), .. })) => {}
                        _ => self
                            .faults
                            .other
                            .push(format!("`{tool}` ran as {key}, which the log does not know")),
                    }
                }
                Note::Returned { key } => {
                    returned.insert(key);
                }
                _ => {}
            }
        }
        for (key, (session, log, claim)) in &claims {
            self.settled(
                key,
                session,
                log,
                claim,
                called.get(&**key).copied().unwrap_or(0),
                returned.contains(&**key),
            );
        }
    }

    /// Judges one call by its result.
    fn settled(
        &mut self,
        key: &str,
        session: &SessionId,
        log: &Log,
        claim: &Claim<'_>,
        called: usize,
        returned: bool,
    ) {
        let Some(call) = claim.result else { return };
        let name = &call.result.name;
        let unknown = is_unknown(&call.result);
        let handed_out = claim.repeat == Some(Repeat::External);
        if !call.result.is_error && !returned && !handed_out && !BROUGHT.contains(&&**name) {
            let text = format!("`{name}` has a result as {key} and never ended; is it a `Life::tool`?");
            self.faults.other.push(text);
        }
        let found = |note: &Note| match note {
            Note::Found { session: it, seq, .. } => {
                it == session && claim.claimed <= *seq && claim.settled.is_none_or(|settled| settled > *seq)
            }
            _ => false,
        };
        let cut = claim.claimed > 0 && claim.repeat == Some(Repeat::Once) && self.notes.iter().any(found);
        if cut != unknown {
            let text =
                if cut { "is not told that its outcome is unknown" } else { "is told so without need" };
            self.faults
                .other
                .push(format!("who asked for `{name}` as {key} {text}: {}", call.result.to_text()));
        }
        if claim.repeat == Some(Repeat::Once) && !cut && called != 1 {
            self.faults.other.push(format!("`{name}` was not cut and ran {called} times as {key}"));
        }
        if cut {
            let path = log.events.first().map_or("", |event| &event.origin.agent);
            self.cut.push(format!("{path} tool_finished {name} "));
            self.told(key, log, claim);
        }
    }

    /// Checks that the model called after a cut call is told that its outcome is unknown.
    fn told(&mut self, key: &str, log: &Log, claim: &Claim<'_>) {
        let compacted = log.events.iter().any(|event| matches!(event.event, Event::Compacted(_)));
        let next =
            log.events.iter().filter(|event| Some(event.seq) > claim.settled).find_map(|event| match &event
                .event
            {
                Event::ModelFinished(reply) if reply.key.is_none() => reply.request,
                _ => None,
            });
        let (Some(next), false) = (next, compacted) else { return };
        let told = self
            .notes
            .iter()
            .any(|note| matches!(note, Note::Asked { request, unknown } if *request == next && *unknown > 0));
        if claim.result.is_some_and(|call| call.key.is_none()) && !told {
            self.faults.other.push(format!("the model was not shown that the outcome of {key} is unknown"));
        }
    }

    fn models(&mut self) {
        let mut replies: HashMap<RequestId, (&SessionId, u64, bool)> = HashMap::new();
        for (session, log) in self.tree.iter() {
            for event in &log.events {
                if let Event::ModelFinished(reply) = &event.event
                    && let Some(request) = reply.request
                    && let Some((_, first, _)) =
                        replies.insert(request, (session, event.seq, reply.error.is_some()))
                {
                    self.faults
                        .repeats
                        .push(format!("events {first} and {} of {session} are one reply", event.seq));
                }
            }
        }
        let (mut seen, mut asked) = (Seen::default(), HashSet::new());
        for note in self.notes {
            seen.take(note);
            let Note::Asked { request, .. } = note else { continue };
            asked.insert(*request);
            match replies.get(request) {
                Some((session, seq, _)) if seen.has(session, *seq) => {
                    self.faults
                        .repeats
                        .push(format!("reply {seq} of {session} was stored and asked for again"));
                }
                Some(_) => {}
                None => self.faults.other.push(format!("the reply to {request} is not in the log")),
            }
        }
        for (request, (session, seq, failed)) in replies {
            if !failed && !asked.contains(&request) {
                let text =
                    format!("nobody asked for reply {seq} of {session}; is its model a `Life::model`?");
                self.faults.other.push(text);
            }
        }
    }

    /// Checks that the facts equal those of the undisturbed run. Where a non-repeatable tool was cut, its consequences
    /// may differ.
    fn facts(&mut self, expected: &Expected) {
        let got = self.tree.facts();
        let expected = &expected.0;
        if got == *expected {
            return;
        }
        let less = |a: &BTreeMap<String, usize>, b: &BTreeMap<String, usize>| {
            let missing = a.iter().filter(|(fact, times)| b.get(*fact) < Some(times));
            missing.map(|(fact, _)| fact.clone()).collect::<Vec<_>>()
        };
        let (missing, surplus) = (less(expected, &got), less(&got, expected));
        let may_differ = |fact: &String| {
            let kind = fact.split(' ').nth(1).unwrap_or_default();
            matches!(kind, "run_finished" | "child_finished")
                || self.cut.iter().any(|cut| fact.starts_with(&**cut))
        };
        let differs = missing.iter().chain(&surplus).any(|fact| !may_differ(fact));
        if !self.cut.is_empty() && !differs && counts(&got) == counts(expected) {
            return;
        }
        self.faults
            .other
            .push(format!("it came to something else: missing {missing:#?}, instead {surplus:#?}"));
    }
}

/// Number of facts of each kind per agent.
fn counts(facts: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (fact, times) in facts {
        let kind: Vec<_> = fact.splitn(3, ' ').take(2).collect();
        *counts.entry(kind.join(" ")).or_insert(0) += times;
    }
    counts
}
