//! The suite itself: once to the end to count the points, then once for each point, killed there.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{
    Expected, Faults, Life, Medium, Note, Scenario, Step, Tree, Witness, judge,
    life::LifeClock,
    medium::{Opened, Place},
};
use crate::{Error, ErrorKind, Result, SessionId};

/// Processes that one run of a scenario may take. One that takes more does not get anywhere.
const MOST_LIVES: u32 = 100;
/// How often a point that was not reached is tried for again: on a real medium the order of things may vary.
const TRIES: usize = 3;
/// Of so many points one may not be reached again.
const MAY_MISS: usize = 20;
/// Each process begins so much later than the one before it: leases of the dead are over.
const BETWEEN_LIVES: Duration = Duration::from_secs(60);
/// Of so many runs one has its second life killed too.
const KILLED_TWICE: usize = 3;

/// What `scenario` comes to on `medium` when nobody dies: the measure for [`judge`].
///
/// # Errors
/// What is wrong when not even that goes well.
pub fn expected(scenario: &Scenario, medium: &Medium) -> Result<Expected, Faults> {
    undisturbed(scenario, medium).map(|(expected, _)| expected)
}

/// Runs `scenario` on `medium` once undisturbed, which counts its points: wherever it enters, waits in or leaves its
/// store, its models or its tools. Then once per point: the process is killed there, with everything in it dropped
/// unpolled, and others go on until the work is over. What came of it is compared with the undisturbed run, see
/// [`judge`]. Of each three such runs one is killed again, at a point of its second life.
///
/// It makes its own tokio runtimes: call it from a plain test, not from within one.
pub fn run(scenario: &Scenario, medium: &Medium) -> Report {
    sample(scenario, medium, 1)
}

/// As [`run`], with a kill at each `every`-th point only: for a large scenario on a slow medium.
pub fn sample(scenario: &Scenario, medium: &Medium, every: usize) -> Report {
    let every = every.max(1);
    let mut report = Report::new(scenario.name(), medium.name());
    let (expected, points) = match undisturbed(scenario, medium) {
        Ok(found) => found,
        Err(faults) => {
            report.take("undisturbed", faults);
            return report;
        }
    };
    report.points = points;
    let mut random = Random(SEED);
    for (number, point) in (1..).zip((1..=points).step_by(every)) {
        report.planned += 1;
        let mut kills = vec![point];
        if number % KILLED_TWICE == 0 {
            kills.push(random.below(points) + 1);
        }
        report.killed_at(scenario, medium, &expected, &kills);
    }
    report
}

/// The seed of what is left to chance; printed with what fails.
const SEED: u64 = 0x5eed;

fn undisturbed(scenario: &Scenario, medium: &Medium) -> Result<(Expected, usize), Faults> {
    let sailed = sail(scenario, medium, &[]).map_err(|error| Faults::one(format!("{error:?}")))?;
    let expected = Expected::of(&sailed.tree);
    let faults = sailed.judge(&expected);
    if faults.is_empty() { Ok((expected, sailed.points)) } else { Err(faults) }
}

/// What one run of a scenario came to.
struct Sailed {
    points: usize,
    deaths: usize,
    notes: Vec<Note>,
    tree: Tree,
    /// Sessions that look otherwise when they are opened than when all their events are added up, and runs that do not
    /// replay.
    faults: Vec<String>,
}

impl Sailed {
    fn judge(&self, expected: &Expected) -> Faults {
        let mut faults = judge(expected, &self.notes, &self.tree);
        faults.other.extend(self.faults.iter().cloned());
        faults
    }
}

/// Takes the scenario to its end, through one process after another. The first dies at its point number `kills[0]`, the
/// next lives together at point `kills[1]`, and so on.
fn sail(scenario: &Scenario, medium: &Medium, kills: &[usize]) -> Result<Sailed> {
    let root = SessionId::new("work")?;
    let place = medium.place();
    let log = Arc::new(Notes::default());
    let mut deaths = 0;
    log.arm(kills.first());
    for number in 0..MOST_LIVES {
        match live(scenario, medium, &place, &log, &root, BETWEEN_LIVES * number)? {
            None => {
                deaths += 1;
                log.arm(kills.get(deaths));
            }
            Some(Step::More) => {}
            Some(Step::Over) => {
                let (tree, faults) = look(scenario, medium, &place, &root)?;
                let points = log.points.load(Ordering::SeqCst);
                return Ok(Sailed { points, deaths, notes: log.lock().clone(), tree, faults });
            }
        }
    }
    let text = format!("it is not over after {MOST_LIVES} processes");
    Err(Error::new(ErrorKind::Internal, text))
}

/// One process, and what it came to; `None` when it died.
fn live(
    scenario: &Scenario,
    medium: &Medium,
    place: &Place,
    log: &Arc<Notes>,
    root: &SessionId,
    later: Duration,
) -> Result<Option<Step>> {
    let (lived, close) = medium.process(async {
        let Opened { store, close } = place.open().await?;
        let life = Life::at(store, Arc::clone(log) as _, Arc::new(LifeClock::later(later)));
        let lived = tokio::select! {
            biased;
            () = life.died() => None,
            step = scenario.step(&life, root) => Some(step),
        };
        Ok::<_, Error>((lived.transpose()?, close))
    })??;
    medium.process(close)?;
    Ok(lived)
}

/// What the store holds in the end, whether each session opens as what its events add up to, and whether each run replays.
fn look(
    scenario: &Scenario,
    medium: &Medium,
    place: &Place,
    root: &SessionId,
) -> Result<(Tree, Vec<String>)> {
    medium.process(async {
        let Opened { store, close } = place.open().await?;
        let tree = Tree::load(&store, root).await?;
        let mut faults = tree.reopened(&store).await?;
        faults.extend(scenario.replays(&store, root).await?);
        close.await;
        Ok((tree, faults))
    })?
}

/// The notes of all processes, and where the next one dies.
#[derive(Debug, Default)]
struct Notes {
    notes: Mutex<Vec<Note>>,
    points: AtomicUsize,
    /// Points left until the next death; 0 for never.
    left: AtomicUsize,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Vec<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arm(&self, points: Option<&usize>) {
        self.left.store(points.copied().unwrap_or(0), Ordering::SeqCst);
    }
}

impl Witness for Notes {
    fn note(&self, note: Note) {
        self.lock().push(note);
    }

    fn point(&self) -> bool {
        self.points.fetch_add(1, Ordering::SeqCst);
        let left = self.left.load(Ordering::SeqCst);
        self.left.store(left.saturating_sub(1), Ordering::SeqCst);
        left == 1
    }
}

/// What the suite found. `Display` is one line; `{:#}` adds what is wrong.
#[derive(Debug, Clone)]
#[must_use = "a report does nothing until `assert`"]
pub struct Report {
    scenario: String,
    store: String,
    points: usize,
    /// Points that were to have a kill.
    planned: usize,
    kills: usize,
    repeats: usize,
    lost: usize,
    /// Points that were counted and not reached again: how often a store waits is chance.
    missed: usize,
    faults: Vec<(String, Faults)>,
}

impl Report {
    /// A report about work of the name `scenario` on `store`, of which nothing is known yet: for suites that kill in
    /// another way.
    pub fn new(scenario: impl Into<String>, store: impl Into<String>) -> Self {
        let (scenario, store) = (scenario.into(), store.into());
        Self {
            scenario,
            store,
            points: 0,
            planned: 0,
            kills: 0,
            repeats: 0,
            lost: 0,
            missed: 0,
            faults: Vec::new(),
        }
    }

    /// Counts points at which could be killed, and kills.
    pub fn count(&mut self, points: usize, kills: usize) {
        self.points += points;
        self.planned += points;
        self.kills += kills;
    }

    /// Takes in what was found about one run, which `label` names.
    pub fn take(&mut self, label: impl Into<String>, faults: Faults) {
        self.repeats += faults.repeats.len();
        self.lost += faults.lost.len();
        if !faults.is_empty() {
            self.faults.push((label.into(), faults));
        }
    }

    fn killed_at(&mut self, scenario: &Scenario, medium: &Medium, expected: &Expected, kills: &[usize]) {
        let label = format!("killed at point {kills:?} of {} (seed {SEED:#x})", self.points);
        for _ in 0..TRIES {
            match sail(scenario, medium, kills) {
                Ok(sailed) if sailed.deaths == 0 => {}
                Ok(sailed) => {
                    self.kills += sailed.deaths;
                    return self.take(label, sailed.judge(expected));
                }
                Err(error) => return self.take(label, Faults::one(format!("it did not go on: {error:?}"))),
            }
        }
        self.missed += 1;
    }

    /// The points that were counted.
    #[must_use]
    pub fn points(&self) -> usize {
        self.points
    }

    /// How many processes were killed.
    #[must_use]
    pub fn kills(&self) -> usize {
        self.kills
    }

    /// What is wrong, by the run that it was found in.
    #[must_use]
    pub fn faults(&self) -> &[(String, Faults)] {
        &self.faults
    }

    /// Ends the test when anything is wrong, or more than a twentieth of the points had no kill.
    ///
    /// # Panics
    /// Then, with the first ten runs that went wrong.
    #[track_caller]
    pub fn assert(&self) {
        assert!(self.faults.is_empty(), "{self:#}");
        let reached = self.planned.saturating_sub(self.missed);
        assert!(self.planned > 0 && self.kills >= reached, "too few were killed: {self}");
        assert!(
            self.missed <= self.points / MAY_MISS,
            "{} points were not reached again: {self}",
            self.missed
        );
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, store, points, kills, repeats, lost, faults, .. } = self;
        write!(f, "crash {scenario} {store} points {points} kills {kills} repeats {repeats} lost {lost}")?;
        if f.alternate() {
            write!(f, "; {} runs went wrong", faults.len())?;
            for (label, faults) in faults.iter().take(10) {
                write!(f, "\n{label}{faults}")?;
            }
        }
        Ok(())
    }
}

/// Numbers that look random and are the same for the same seed (SplitMix64): for moments to kill at.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "an endless sequence")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.next().checked_rem(bound).unwrap_or(0)).unwrap_or(0)
    }
}
