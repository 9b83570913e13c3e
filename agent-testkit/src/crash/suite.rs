//! The suite itself: one undisturbed run to count the points, then one run for each point, killed there.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_core::{Error, ErrorKind, Result, SessionId};

use super::{
    DriveStep, Expected, Faults, Life, Medium, Note, Scenario, Tree, Witness, judge,
    life::LifeClock,
    medium::{Opened, Place},
};

/// Most processes for one run of a scenario. A run that needs more makes no progress.
const MOST_LIVES: u32 = 100;
/// Attempts to reach a point again: on a real medium the order of events may vary.
const TRIES: usize = 3;
/// One in this many points may be missed.
const MAY_MISS: usize = 20;
/// Time between the starts of two processes: the leases of dead ones have expired.
const BETWEEN_LIVES: Duration = Duration::from_secs(60);
/// One in this many runs has its second life killed too.
const KILLED_TWICE: usize = 3;

/// The outcome of `scenario` on `medium` when no process dies: the reference for [`judge`].
///
/// # Errors
/// The faults of that undisturbed run.
pub fn expected(scenario: &Scenario, medium: &Medium) -> Result<Expected, Faults> {
    undisturbed(scenario, medium).map(|(expected, _)| expected)
}

/// Runs `scenario` on `medium` once undisturbed, which counts its points: wherever it enters, waits in or leaves its
/// store, its models or its tools. Then once per point: the process is killed there, with everything in it dropped
/// unpolled, and others continue until the work is over. The result is compared with the undisturbed run, see
/// [`judge`]. Every third such run is killed again, at a random point of its second life.
///
/// The suite makes its own tokio runtimes: call it from a plain test, not from within a runtime.
pub fn run(scenario: &Scenario, medium: &Medium) -> CrashReport {
    sample(scenario, medium, 1)
}

/// Like [`run`], with a kill at each `every`-th point only: for a large scenario on a slow medium.
pub fn sample(scenario: &Scenario, medium: &Medium, every: usize) -> CrashReport {
    let every = every.max(1);
    let mut report = CrashReport::new(scenario.name(), medium.name());
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

/// Seed of the random choices, fixed so that a failure can be repeated.
const SEED: u64 = 0x5eed;

fn undisturbed(scenario: &Scenario, medium: &Medium) -> Result<(Expected, usize), Faults> {
    let sailed = sail(scenario, medium, &[]).map_err(|error| Faults::one(format!("{error:?}")))?;
    let expected = Expected::of(&sailed.tree);
    let faults = sailed.judge(&expected);
    if faults.is_empty() { Ok((expected, sailed.points)) } else { Err(faults) }
}

/// The result of one run of a scenario.
struct Sailed {
    points: usize,
    deaths: usize,
    notes: Vec<Note>,
    tree: Tree,
    /// Sessions whose opened state differs from the fold over all their events, and runs that do not replay.
    faults: Vec<String>,
}

impl Sailed {
    fn judge(&self, expected: &Expected) -> Faults {
        let mut faults = judge(expected, &self.notes, &self.tree);
        faults.other.extend(self.faults.iter().cloned());
        faults
    }
}

/// Runs the scenario to its end, through one process after another. The first dies at its point number `kills[0]`, the
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
            Some(DriveStep::More) => {}
            Some(DriveStep::Over) => {
                let (tree, faults) = look(scenario, medium, &place, &root)?;
                let points = log.points.load(Ordering::SeqCst);
                return Ok(Sailed { points, deaths, notes: log.lock().clone(), tree, faults });
            }
        }
    }
    let text = format!("the scenario has not ended after {MOST_LIVES} processes");
    Err(Error::new(ErrorKind::Internal, text))
}

/// Runs one process and returns its step; `None` if it died.
fn live(
    scenario: &Scenario,
    medium: &Medium,
    place: &Place,
    log: &Arc<Notes>,
    root: &SessionId,
    later: Duration,
) -> Result<Option<DriveStep>> {
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

/// Reads the final content of the store, and the faults found in it: sessions that do not open as the fold of their
/// events, and runs that do not replay.
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

/// The notes of all processes, and the point of the next death.
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

/// The results of the suite. `Display` is one line; `{:#}` adds the faults.
#[derive(Debug, Clone)]
#[must_use = "a report does nothing until `assert`"]
pub struct CrashReport {
    scenario: String,
    store: String,
    points: usize,
    /// Points that should have a kill.
    planned: usize,
    kills: usize,
    repeats: usize,
    lost: usize,
    /// Points that were counted and not reached again, since the number of a store's waits is random.
    missed: usize,
    faults: Vec<(String, Faults)>,
}

impl CrashReport {
    /// An empty report about `scenario` on `store`, for suites that kill in another way.
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

    /// Adds points that allow a kill, and kills.
    pub fn count(&mut self, points: usize, kills: usize) {
        self.points += points;
        self.planned += points;
        self.kills += kills;
    }

    /// Adds the faults of one run, which `label` names.
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

    /// Number of processes that were killed.
    #[must_use]
    pub fn kills(&self) -> usize {
        self.kills
    }

    /// Faults with the label of their run.
    #[must_use]
    pub fn faults(&self) -> &[(String, Faults)] {
        &self.faults
    }

    /// Fails the test if there is a fault, if points lack a kill, or if more than a twentieth of the points were
    /// missed.
    ///
    /// # Panics
    /// In these cases, with the first ten faulty runs.
    #[track_caller]
    pub fn assert(&self) {
        assert!(self.faults.is_empty(), "{self:#}");
        let reached = self.planned.saturating_sub(self.missed);
        assert!(self.planned > 0 && self.kills >= reached, "fewer kills than points: {self}");
        assert!(
            self.missed <= self.points / MAY_MISS,
            "{} points were not reached again: {self}",
            self.missed
        );
    }
}

impl fmt::Display for CrashReport {
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

/// Pseudo-random numbers that depend on the seed alone (SplitMix64), for choosing kill points.
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
