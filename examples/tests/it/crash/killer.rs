//! The killing half of the crash tests: starts workers, ends each with SIGKILL, and judges the result.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use entourage::{
    session::{SessionFilter, SharedStore},
    testkit::crash::{self, CrashReport, Expected, Medium, Random, Tree},
};

use super::{hands, media, worker};

/// The latest moment of a kill by the clock, in microseconds after the worker was ready.
const LATEST: usize = 60_000;
/// The last point at which a worker stands still to be killed. A run of a scenario has about as many points.
const LAST_POINT: usize = 150;

/// The moment at which a worker is killed.
#[derive(Debug, Clone, Copy)]
enum Kill {
    Never,
    /// When it stands still at this point.
    At(usize),
    /// This long after it was ready.
    After(Duration),
}

/// A worker that ends with this value.
struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Worker {
    fn start(work: &str, store: &str, directory: &Path, kill: Kill) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "crash::worker_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(worker::DIRECTORY, directory)
            .env(worker::STORE, store)
            .env(worker::WORK, work)
            // Held open by this process: a worker ends when its parent does.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        match kill {
            Kill::Never => command.env(worker::FINISH, "1"),
            Kill::At(point) => command.env(worker::STAND_STILL_AT, point.to_string()),
            Kill::After(_) => &mut command,
        };
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Reads until the worker prints `what`; false if it ended before.
    fn says(&mut self, what: &str) -> bool {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if line.trim_end() == what {
                return true;
            }
            line.clear();
        }
        false
    }

    /// Kills the worker if `kill` says so. Returns true if it was killed; a worker that fails by itself fails the
    /// test.
    fn end(mut self, kill: Kill) -> bool {
        let ready = match kill {
            Kill::Never => self.says("FINISHED"),
            Kill::At(_) => self.says("STANDING"),
            Kill::After(delay) => {
                let ready = self.says("READY");
                std::thread::sleep(delay);
                ready
            }
        };
        assert!(ready, "the worker failed by itself: {kill:?}");
        if !matches!(kill, Kill::Never) {
            self.child.kill().unwrap();
        }
        self.says("");
        let status = self.child.wait().unwrap();
        let killed = status.signal() == Some(9);
        assert!(killed || status.success(), "the worker failed: {status}");
        killed
    }
}

/// Kills one worker after another, `most` of them, at the work of that name on `store`, each continuing the work of the
/// one before, and judges every completed run of a scenario.
pub(crate) fn chain(work: &str, store: &str, most: usize, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    empty(store, directory);
    let mut random = Random(seed);
    let scenarios = worker::scenarios_of(work, directory);
    let mut reports: Vec<_> = scenarios
        .iter()
        .map(|scenario| CrashReport::new(scenario.name(), format!("{store}-sigkill")))
        .collect();
    // Tokio runtimes do not nest, and hands leave their traces: this comes first.
    if work == "hands" {
        hands::reset(&hands::place(directory));
    }
    let expected = |scenario| crash::expected(scenario, &Medium::memory()).unwrap();
    let expected: Vec<_> = scenarios.iter().map(expected).collect();
    let mut kills = 0;
    loop {
        let place = worker::over(directory) % reports.len();
        let kill = if kills < most {
            at_random(&mut random)
        } else if reports.iter().all(|report| report.kills() > 0) {
            break;
        } else if reports[place].kills() == 0 {
            // On a slow machine a scenario may have been left out by chance.
            Kill::At(1)
        } else {
            Kill::Never
        };
        if Worker::start(work, store, directory, kill).end(kill) {
            kills += 1;
            let place = worker::over(directory) % reports.len();
            reports[place].count(1, 1);
        }
    }
    Worker::start(work, store, directory, Kill::Never).end(Kill::Never);
    let over = worker::over(directory);
    assert!(over >= reports.len(), "the workers did not get through all scenarios: {over}");
    judge(&mut reports, &expected, store, directory, over);
    for report in &reports {
        super::tell(format_args!("{report} seed {seed:#x}"));
    }
    reports.iter().for_each(CrashReport::assert);
}

fn at_random(random: &mut Random) -> Kill {
    if random.below(2) == 0 {
        Kill::At(1 + random.below(LAST_POINT))
    } else {
        Kill::After(Duration::from_micros(random.below(LATEST) as u64))
    }
}

/// Removes sessions of earlier test runs from a server.
fn empty(store: &str, directory: &Path) {
    block_on(async {
        let store = media::open(store, directory).await.unwrap();
        for info in store.query(&SessionFilter::roots()).await.unwrap() {
            store.delete(&info.record.id).await.unwrap();
        }
    });
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn judge(reports: &mut [CrashReport], expected: &[Expected], store: &str, directory: &Path, over: usize) {
    block_on(async {
        let store: SharedStore = media::open(store, directory).await.unwrap();
        for number in 0..over {
            let tree = Tree::load(&store, &worker::root(number)).await.unwrap();
            let notes = worker::notes(directory, number);
            let place = number % expected.len();
            let mut faults = crash::judge(&expected[place], &notes, &tree);
            faults.other.extend(tree.reopened(&store).await.unwrap());
            if !faults.is_empty() {
                println!("{}", fs::read_to_string(worker::side_log(directory, number)).unwrap());
            }
            reports[place].take(format!("run {number}"), faults);
        }
    });
}
