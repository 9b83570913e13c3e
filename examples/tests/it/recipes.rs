//! The five recipes, as programs: each is short, does its work with stand-ins, and goes on after SIGKILL.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use entourage::{SessionId, prelude::*};

/// Lines of a recipe, comments counted.
const LINES: usize = 150;

/// Lines of output after which a recipe is killed.
const KILLS: [usize; 5] = [1, 3, 5, 8, 12];

#[test]
fn issue_17_a_recipe_has_at_most_150_lines() {
    for (name, text) in [
        ("aircher", include_str!("../../recipes/aircher.rs")),
        ("buildos", include_str!("../../recipes/buildos.rs")),
        ("crow", include_str!("../../recipes/crow.rs")),
        ("crush", include_str!("../../recipes/crush.rs")),
        ("loco", include_str!("../../recipes/loco.rs")),
    ] {
        assert!(text.lines().count() <= LINES, "{name} has {} lines", text.lines().count());
    }
}

#[tokio::test]
async fn issue_17_crush_mends_its_crate() {
    let whole = recipe("crush", &["coder/task: grep done", "edit done", "Completed: Run the tests"]).await;
    let Some(place) = whole else { return };
    let source = std::fs::read_to_string(place.path().join("db.crate/src/lib.rs")).unwrap();
    assert!(source.contains("numbers.iter().sum()"), "{source}");
}

#[tokio::test]
async fn issue_17_loco_works_as_a_team() {
    let ends = [
        "stepped in: give tests analyst",
        "[-] changelog: Sum up the changelog. (scout)",
        "[x] checks: Say what the documents tell of checks. (analyst), attempt 2",
        "completed; failed: []",
    ];
    recipe("loco", &ends).await;
}

#[tokio::test]
async fn issue_17_crow_is_checked() {
    recipe(
        "crow",
        &["(Ctrl-C)", "round 1: accepted", "Completed: Count the lines", "crow/discriminator step"],
    )
    .await;
}

#[tokio::test]
async fn issue_17_buildos_plans_anew() {
    let ends = [
        "question: Of which hall?",
        "plan 1 failed",
        "plan 2 completed",
        "It is in the small hall now",
        "conversation of step 2: failed, 2 messages",
    ];
    let Some(place) = recipe("buildos", &ends).await else { return };
    let program = program("buildos").unwrap();
    // Two at once on one file, beside the session that ended: none takes the sample of another.
    let play = || play(&program, place.path(), &[], None);
    let both = thread::scope(|scope| [scope.spawn(play), scope.spawn(play)].map(|it| it.join().unwrap()));
    for played in both {
        assert!(
            played.succeeded && played.text().contains("It is in the small hall now"),
            "{}",
            played.text()
        );
    }
    let files = std::fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().file_name());
    let samples =
        files.filter(|name| name.to_str().is_some_and(|name| name != "db.db" && name.ends_with(".db")));
    assert_eq!(samples.count(), 3);
}

#[tokio::test]
async fn issue_17_aircher_researches_side_by_side() {
    let ends = ["[5 of 5 done, 0 at work]", "carry this out?", "(This was found", "below it: 7 sessions"];
    let Some(place) = recipe("aircher", &ends).await else { return };
    let left = std::fs::read_dir(place.path().join("db.places")).unwrap().count();
    assert_eq!(left, 0, "places of research agents are left");
}

/// Runs a recipe whole: it must print all of `expected`. Then it is killed again and again, in other places, and goes
/// on. Returns the directory of the whole run; `None`, and says so, where the recipe was not built.
async fn recipe(name: &str, expected: &[&str]) -> Option<tempfile::TempDir> {
    let program = program(name)?;
    let place = tempfile::tempdir().unwrap();
    let whole = play(&program, place.path(), &[], None);
    assert!(whole.succeeded, "{name} failed:\n{}", whole.text());
    for part in expected {
        assert!(whole.text().contains(part), "{name} did not print `{part}`:\n{}", whole.text());
    }
    let mut unfinished = 0;
    for lines in KILLS {
        let place = tempfile::tempdir().unwrap();
        let first = play(&program, place.path(), &[], Some(lines));
        let Some(id) = first.session() else { continue };
        if !is_unfinished(name, place.path(), &id).await {
            continue;
        }
        unfinished += 1;
        let second = play(&program, place.path(), &["--resume", id.as_str()], None);
        let both = format!("{}\n== killed after {lines} lines, and resumed\n{}", first.text(), second.text());
        assert!(second.succeeded, "{name} did not go on:\n{both}");
        assert!(second.text().contains("completed"), "{name} did not end:\n{both}");
        // No step that had ended ran again: of the results that were shown, none is shown more often than before.
        let (at_most, mut shown) = (whole.results(), first.results());
        second.results().into_iter().for_each(|(line, times)| *shown.entry(line).or_default() += times);
        for (line, times) in shown {
            let most = at_most.get(&line).copied().unwrap_or(times);
            assert!(times <= most, "{name} shows `{line}` {times} times, not {most}:\n{both}");
        }
    }
    println!("{name}: {unfinished} of {} kills met an unfinished run", KILLS.len());
    Some(place)
}

/// The output of a program.
struct Played {
    lines: Vec<String>,
    succeeded: bool,
}

impl Played {
    fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// The session that the program told of first.
    fn session(&self) -> Option<SessionId> {
        let told = self.lines.iter().find_map(|line| line.split_once("session ").map(|(_, id)| id.trim()));
        told.and_then(|id| SessionId::new(id).ok())
    }

    /// How often each result of a tool was shown.
    fn results(&self) -> BTreeMap<String, usize> {
        let mut results = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.contains(" done: ")) {
            *results.entry(line.clone()).or_default() += 1;
        }
        results
    }
}

/// Runs a program until its end, or kills it after some lines of output.
fn play(program: &Path, place: &Path, args: &[&str], kill_after: Option<usize>) -> Played {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut child = Command::new(program)
        .args(["--db", place.join("db.db").to_str().unwrap()])
        .args(args)
        .current_dir(root)
        .env_remove("ENTOURAGE_MODEL")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        lines.push(line.unwrap());
        if kill_after == Some(lines.len()) {
            child.kill().unwrap();
        }
    }
    Played { lines, succeeded: child.wait().unwrap().success() }
}

async fn is_unfinished(name: &str, place: &Path, id: &SessionId) -> bool {
    let db = place.join("db.db");
    let runtime = Runtime::builder();
    let runtime = match name {
        "loco" => runtime.store(HybridStore::open(db.join("active"), db.join("archive.db")).await.unwrap()),
        _ => runtime.store(SqliteStore::open(db).await.unwrap()),
    };
    match runtime.build().open(id).await {
        Ok(session) => session.unfinished().await.unwrap().is_some(),
        // It was killed before its prompt was stored.
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("{error}"),
    }
}

/// The example beside this test.
fn program(name: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    let found = program.exists();
    if !found {
        println!(
            "SKIPPED: the recipe {name} is not built; run `cargo build -p entourage-examples --examples`"
        );
    }
    found.then_some(program)
}
