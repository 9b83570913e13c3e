//! The killed half of the crash tests: a process that completes one scenario after another, and continues where the
//! process before it died.
//!
//! Effects outside it are written to side logs, one for each run of a scenario; a file holds the number of completed
//! runs.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use entourage::{
    ErrorKind, SessionId,
    testkit::{
        crash::{DriveStep, Life, Note, Scenario, Witness},
        scenarios,
    },
};

use super::{hands, media};

pub(crate) const DIRECTORY: &str = "ENTOURAGE_CRASH_DIRECTORY";
pub(crate) const STORE: &str = "ENTOURAGE_CRASH_STORE";
/// The point at which the worker stands still; unset for never.
pub(crate) const STAND_STILL_AT: &str = "ENTOURAGE_CRASH_STAND_STILL_AT";
/// Makes the worker end with the scenario that is in progress.
pub(crate) const FINISH: &str = "ENTOURAGE_CRASH_FINISH";

/// The name of the work that the worker does.
pub(crate) const WORK: &str = "ENTOURAGE_CRASH_WORK";

/// The scenarios of the work of this name, which take turns.
pub(crate) fn scenarios_of(work: &str, directory: &Path) -> Vec<Scenario> {
    match work {
        "hands" => vec![hands::scenario(&hands::place(directory))],
        _ => scenarios::all(),
    }
}

pub(crate) fn root(number: usize) -> SessionId {
    SessionId::new(format!("work-{number}")).unwrap()
}

pub(crate) fn side_log(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("notes-{number}"))
}

/// Number of completed runs.
pub(crate) fn over(directory: &Path) -> usize {
    fs::read(directory.join("over")).map_or(0, |lines| lines.len())
}

/// The notes in the side log of a run. A line that a kill cut off does not count.
pub(crate) fn notes(directory: &Path, number: usize) -> Vec<Note> {
    let text = fs::read_to_string(side_log(directory, number)).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Works until it is killed, or until all work is done.
pub(crate) fn work(directory: &Path) {
    std::thread::spawn(|| {
        // The parent writes nothing: the end of the pipe is the parent's end.
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(0);
    });
    let log = Arc::new(SideLog::new(directory));
    // The test harness may have begun a line.
    println!("\nREADY");
    // One thread: a worker that stands still stops everything else in it.
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let store = media::open(&env::var(STORE).unwrap(), directory).await.unwrap();
        let work = env::var(WORK).unwrap();
        loop {
            let number = over(directory);
            log.turn_to(&side_log(directory, number));
            let mut all = scenarios_of(&work, directory);
            let scenario = all.swap_remove(number % all.len());
            if work == "hands" {
                hands::begin(directory, &store, &root(number)).await;
            }
            let life = Life::new(Arc::clone(&store), Arc::clone(&log) as _);
            match scenario.step(&life, &root(number)).await {
                Ok(DriveStep::More) => {}
                Ok(DriveStep::Over) => {
                    if work == "hands" {
                        hands::end(directory, &store, &root(number)).await;
                    }
                    append(&directory.join("over"), b".");
                    if env::var_os(FINISH).is_some() {
                        return println!("FINISHED");
                    }
                }
                // A server may have executed the last request of a dead process: look again.
                Err(error) if error.kind() == ErrorKind::Conflict => println!("AGAIN"),
                Err(error) => panic!("run {number} of {}: {error:?}", scenario.name()),
            }
        }
    });
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

#[derive(Debug)]
struct SideLog {
    path: Mutex<PathBuf>,
    points: AtomicUsize,
    stand_still_at: Option<usize>,
}

impl SideLog {
    fn new(directory: &Path) -> Self {
        let stand_still_at = env::var(STAND_STILL_AT).ok().map(|point| point.parse().unwrap());
        Self { path: Mutex::new(directory.to_owned()), points: AtomicUsize::new(0), stand_still_at }
    }

    fn turn_to(&self, path: &Path) {
        path.clone_into(&mut self.path.lock().unwrap());
    }
}

impl Witness for SideLog {
    fn note(&self, note: Note) {
        let line = serde_json::to_string(&note).unwrap() + "\n";
        append(&self.path.lock().unwrap(), line.as_bytes());
    }

    fn point(&self) -> bool {
        let point = self.points.fetch_add(1, Ordering::Relaxed) + 1;
        if self.stand_still_at == Some(point) {
            println!("STANDING");
            loop {
                std::thread::park();
            }
        }
        false
    }
}
