//! Snapshots of a workspace, and the way back to them.

#![cfg(all(feature = "fs", unix))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking too, and a test says what it skips"
)]

mod common;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    process::Command,
};

use common::git;
use entourage_core::{ErrorKind, RunId, SessionId, session::Snapshots};
#[cfg(feature = "shell")]
use entourage_runtime::{Runtime, permission::Policy};
#[cfg(feature = "shell")]
use entourage_testkit::ScriptedProvider;
use entourage_tools::fs::{FileSnapshots, Workspace};
use proptest::prelude::*;
#[cfg(feature = "shell")]
use serde_json::json;
use tempfile::TempDir;

/// A workspace, and the folder of its snapshots.
struct Place {
    root: TempDir,
    state: TempDir,
    session: SessionId,
    git: bool,
}

impl Place {
    fn new(with_git: bool) -> Self {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        if with_git {
            git(root.path(), &["init", "-q"]);
        }
        Self { root, state, session: SessionId::generate(), git: with_git }
    }

    /// One in a repository and one without.
    fn both() -> [Self; 2] {
        [Self::new(true), Self::new(false)]
    }

    /// As another process would open them.
    fn snapshots(&self) -> FileSnapshots {
        FileSnapshots::open(&Workspace::open(self.root.path()).unwrap(), self.state.path()).unwrap()
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.at(&path).parent().unwrap()).unwrap();
        fs::write(self.at(path), content).unwrap();
    }

    async fn take(&self) -> RunId {
        let run = RunId::generate();
        self.snapshots().take(&self.session, run).await.unwrap();
        run
    }

    async fn restore(&self, run: RunId) -> (Vec<String>, Vec<String>) {
        let restored = self.snapshots().restore(&self.session, &[run]).await.unwrap();
        assert_eq!(restored.run, Some(run));
        (restored.written, restored.removed)
    }

    fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut tree = BTreeMap::new();
        list(self.root.path(), Path::new(""), &mut tree);
        tree
    }

    /// True if the folder holds a snapshot.
    fn in_folder(&self) -> bool {
        fs::read_dir(self.state.path().join("snapshots")).unwrap().count() > 0
    }
}

/// All that is below a directory, but for the repository: kind, mode and content of each.
fn list(root: &Path, at: &Path, into: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(root.join(at)).unwrap() {
        let entry = entry.unwrap();
        let path = at.join(entry.file_name());
        if entry.file_name() == ".git" {
            continue;
        }
        let meta = entry.metadata().unwrap();
        let mode = meta.permissions().mode() & 0o7777;
        let what = if meta.is_symlink() {
            format!("link {:?}", fs::read_link(entry.path()).unwrap())
        } else if meta.is_dir() {
            list(root, &path, into);
            format!("dir {mode:o}")
        } else if meta.is_file() {
            format!("file {mode:o} {:?}", fs::read(entry.path()).unwrap())
        } else {
            "other".to_owned()
        };
        into.insert(path, what);
    }
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn cw18_a_workspace_goes_back_byte_for_byte() {
    for place in Place::both() {
        place.write("a.txt", "one\r\ntwo");
        place.write("bin/run.sh", "#!/bin/sh\n");
        set_mode(place.at("bin/run.sh"), 0o755);
        place.write(".hidden/b", [0, 255, 10]);
        place.write("odd name\n\"x\"", "odd");
        place.write(OsStr::from_bytes(b"not-\xff-utf8"), "bytes");
        place.write("file-then-dir", "x");
        place.write("dir-then-file/x", "x");
        place.write("secret", "s");
        set_mode(place.at("secret"), 0o600);
        fs::create_dir(place.at("empty")).unwrap();
        symlink("a.txt", place.at("link")).unwrap();
        symlink("/nowhere", place.at("dangling")).unwrap();
        let before = place.tree();
        let run = place.take().await;
        assert_eq!(place.in_folder(), !place.git);

        fs::write(place.at("a.txt"), "three").unwrap();
        set_mode(place.at("bin/run.sh"), 0o644);
        fs::remove_dir_all(place.at(".hidden")).unwrap();
        fs::remove_file(place.at("odd name\n\"x\"")).unwrap();
        fs::rename(place.at(OsStr::from_bytes(b"not-\xff-utf8")), place.at("utf8")).unwrap();
        fs::remove_file(place.at("file-then-dir")).unwrap();
        place.write("file-then-dir/deep/y", "y");
        fs::remove_dir_all(place.at("dir-then-file")).unwrap();
        place.write("dir-then-file", "y");
        set_mode(place.at("secret"), 0o644);
        fs::remove_dir(place.at("empty")).unwrap();
        fs::remove_file(place.at("link")).unwrap();
        symlink("/etc/passwd", place.at("link")).unwrap();
        fs::remove_file(place.at("dangling")).unwrap();
        place.write("dangling", "a file now");
        place.write("new/er/file", "x");
        assert_ne!(place.tree(), before);

        let (written, removed) = place.restore(run).await;
        assert_eq!(place.tree(), before);
        assert!(
            written.contains(&"a.txt".to_owned()) && written.contains(&"bin/run.sh".to_owned()),
            "{written:?}"
        );
        assert_eq!(
            removed,
            ["file-then-dir/deep", "file-then-dir/deep/y", "new", "new/er", "new/er/file", "utf8"]
        );
        assert_eq!(place.restore(run).await, (Vec::new(), Vec::new()), "nothing is left to do");
    }
}

#[tokio::test]
async fn cw18_what_is_ignored_is_neither_kept_nor_removed() {
    for place in Place::both() {
        place.write(".gitignore", "target/\n*.log\n");
        place.write("sub/.ignore", "private\n");
        place.write("sub/private", "kept by nobody");
        place.write("target/debug/big", "built");
        place.write("a", "1");
        let run = place.take().await;
        place.write("target/debug/big", "built again");
        place.write("sub/private", "changed");
        place.write("x.log", "log");
        place.write("new/target/y", "built");
        place.write("new/z", "new");
        // What hides the changes is itself a change.
        place.write(".gitignore", "*\n");
        place.write("evil/.gitignore", "*\n");
        place.write("evil/x", "evil");
        place.restore(run).await;
        assert_eq!(fs::read_to_string(place.at(".gitignore")).unwrap(), "target/\n*.log\n");
        for (path, content) in [
            ("target/debug/big", "built again"),
            ("sub/private", "changed"),
            ("x.log", "log"),
            ("new/target/y", "built"),
        ] {
            assert_eq!(fs::read_to_string(place.at(path)).unwrap(), content, "{path}");
        }
        assert!(!place.at("new/z").exists() && !place.at("evil").exists());
    }
}

#[tokio::test]
async fn cw18_what_ignore_files_hid_stays_whatever_hides_these_or_ends_their_rules() {
    for place in Place::both() {
        // As tools make them, for themselves.
        place.write(".venv/.gitignore", "*\n");
        place.write(".venv/bin/python", "built");
        place.write(".gitignore", ".gitignore\n.ignore\n*.key\n");
        place.write("sub/.ignore", "private\n");
        place.write("sub/private", "kept by nobody");
        place.write("sub/a.key", "secret");
        // Of an ignore file 1 MiB counts, which ends within this name.
        place.write("long/.gitignore", "#".repeat((1 << 20) - 3) + "\nbuilt\n");
        place.write("long/bu", "built");
        place.write("repository/.git/HEAD", "ref: refs/heads/main\n");
        place.write("repository/b.key", "no secret: its rules are its own");
        let before = place.tree();
        let run = place.take().await;
        fs::create_dir(place.at("sub/.git")).unwrap();
        fs::remove_file(place.at("repository/b.key")).unwrap();
        place.write("repository/c.key", "new");
        place.write("sub/b.key", "new, and named");
        fs::remove_file(place.at(".venv/.gitignore")).unwrap();
        let (written, removed) = place.restore(run).await;
        assert_eq!(written, [".venv/.gitignore", "repository/b.key"]);
        assert_eq!(removed, ["repository/c.key"]);
        fs::remove_file(place.at("sub/b.key")).unwrap();
        assert_eq!(place.tree(), before);
    }
}

#[tokio::test]
async fn cw18_the_first_snapshot_of_a_run_holds_and_the_first_run_that_has_one() {
    for place in Place::both() {
        place.write("a", "1");
        let snapshots = place.snapshots();
        let runs = [RunId::generate(), RunId::generate(), RunId::generate()];
        snapshots.take(&place.session, runs[1]).await.unwrap();
        place.write("a", "2");
        snapshots.take(&place.session, runs[1]).await.unwrap();
        snapshots.take(&place.session, runs[2]).await.unwrap();
        place.write("a", "3");
        let other = SessionId::generate();
        assert_eq!(snapshots.restore(&other, &runs).await.unwrap().run, None);
        assert_eq!(snapshots.restore(&place.session, &runs[..1]).await.unwrap().run, None);
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "3");
        assert_eq!(snapshots.restore(&place.session, &runs).await.unwrap().run, Some(runs[1]));
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "1");
        assert_eq!(snapshots.restore(&place.session, &runs[2..]).await.unwrap().run, Some(runs[2]));
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "2");
    }
}

#[tokio::test]
async fn cw18_a_file_that_changes_at_once_after_a_snapshot_is_seen() {
    for place in Place::both() {
        place.write("a", "1");
        let snapshots = place.snapshots();
        let mut runs = Vec::new();
        for content in ["1", "2", "3", "4", "5"] {
            fs::write(place.at("a"), content).unwrap();
            runs.push(RunId::generate());
            snapshots.take(&place.session, runs[runs.len() - 1]).await.unwrap();
        }
        for (run, content) in runs.iter().zip(["1", "2", "3", "4", "5"]) {
            snapshots.restore(&place.session, &[*run]).await.unwrap();
            assert_eq!(fs::read_to_string(place.at("a")).unwrap(), content);
        }
    }
}

#[tokio::test]
async fn cw18_a_workspace_above_the_bound_is_a_typed_error() {
    for place in Place::both() {
        place.write("a", "12345");
        place.write("b", "12345");
        let run = RunId::generate();
        for small in [place.snapshots().with_most(1, 100), place.snapshots().with_most(9, 9)] {
            let error = small.take(&place.session, run).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(
                error.message().contains("with_most") && error.message().contains(".gitignore"),
                "{error}"
            );
        }
        assert_eq!(place.snapshots().restore(&place.session, &[run]).await.unwrap().run, None);
        if place.git {
            let left = fs::read_dir(place.at(".git/objects/pack")).unwrap().count();
            assert_eq!(left, 0, "each attempt would leave what it read");
        }
        place.write(".ignore", "b\n");
        place.snapshots().with_most(9, 9).take(&place.session, run).await.unwrap();
    }
}

#[tokio::test]
async fn cw18_a_repository_is_as_it_was_but_for_hidden_references() {
    let place = Place::new(true);
    git(place.root.path(), &["config", "core.logAllRefUpdates", "always"]);
    place.write("a", "1");
    git(place.root.path(), &["add", "."]);
    git(place.root.path(), &["commit", "-q", "-m", "x"]);
    place.write("a", "2");
    place.write("staged", "s");
    git(place.root.path(), &["add", "staged"]);
    let state = || {
        let asked: [&[&str]; 5] =
            [&["status", "--porcelain"], &["branch", "-a"], &["log", "--oneline"], &["tag"], &["reflog"]];
        let answers: Vec<_> = asked.iter().map(|asked| git(place.root.path(), asked)).collect();
        (answers, fs::read(place.at(".git/index")).unwrap())
    };
    let before = state();
    let run = place.take().await;
    assert_eq!(state(), before);
    let refs = git(place.root.path(), &["for-each-ref", "--format=%(refname)"]);
    assert!(refs.contains("refs/entourage/snapshots/") && !place.in_folder(), "{refs}");
    assert!(!place.at(".git/logs/refs/entourage").exists());
    // What collects garbage keeps it.
    git(place.root.path(), &["gc", "-q", "--prune=now"]);
    place.write("a", "3");
    place.restore(run).await;
    assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "2");
    assert_eq!(state().0, before.0);
}

#[tokio::test]
async fn attack_29_a_snapshot_runs_no_program_of_the_repository() {
    let place = Place::new(true);
    let mark = place.state.path().join("ran");
    let touch = format!("touch {}", mark.display());
    place.write("a.txt", "1");
    place.write(".gitattributes", "* filter=x diff=x\n");
    let config = format!(
        "[core]\n\tfsmonitor = {touch}\n\tpager = {touch}\n[filter \"x\"]\n\tclean = {touch}; cat\n\tsmudge = {touch}; cat\n\
         \trequired = true\n[diff \"x\"]\n\ttextconv = {touch}\n\tcommand = {touch}\n[alias]\n\tfast-import = !{touch}\n\
         \tcat-file = !{touch}\n[gc]\n\tauto = 1\n"
    );
    let kept = fs::read_to_string(place.at(".git/config")).unwrap();
    fs::write(place.at(".git/config"), kept + &config).unwrap();
    fs::create_dir_all(place.at(".git/hooks")).unwrap();
    for hook in
        ["reference-transaction", "post-index-change", "pre-auto-gc", "pre-commit", "post-commit", "update"]
    {
        fs::write(place.at(".git/hooks").join(hook), format!("#!/bin/sh\n{touch}\n")).unwrap();
        set_mode(place.at(".git/hooks").join(hook), 0o755);
    }
    let run = place.take().await;
    assert!(!place.in_folder());
    place.write("a.txt", "2");
    place.restore(run).await;
    assert_eq!(fs::read_to_string(place.at("a.txt")).unwrap(), "1");
    assert!(!mark.exists());
}

#[tokio::test]
async fn attack_29_a_link_that_was_put_in_leads_no_restoration_outside() {
    for place in Place::both() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("x"), "theirs").unwrap();
        fs::write(outside.path().join("y"), "theirs").unwrap();
        place.write("dir/x", "ours");
        place.write("file", "ours");
        let run = place.take().await;
        fs::remove_dir_all(place.at("dir")).unwrap();
        symlink(outside.path(), place.at("dir")).unwrap();
        fs::remove_file(place.at("file")).unwrap();
        symlink(outside.path().join("y"), place.at("file")).unwrap();
        symlink(outside.path(), place.at("new")).unwrap();
        place.restore(run).await;
        for (path, content) in [("x", "theirs"), ("y", "theirs")] {
            assert_eq!(fs::read_to_string(outside.path().join(path)).unwrap(), content);
        }
        assert_eq!(fs::read_to_string(place.at("dir/x")).unwrap(), "ours");
        assert!(place.at("dir").symlink_metadata().unwrap().is_dir() && !place.at("new").exists());
    }
}

#[tokio::test]
async fn cw18_pipes_and_modes_of_directories_are_no_hindrance() {
    for place in Place::both() {
        place.write("open/a", "1");
        place.write("closed/a", "1");
        set_mode(place.at("closed"), 0o555);
        assert!(Command::new("mkfifo").arg(place.at("pipe")).status().unwrap().success());
        let before = place.tree();
        let run = place.take().await;
        set_mode(place.at("closed"), 0o755);
        set_mode(place.at("open"), 0o000);
        place.restore(run).await;
        assert_eq!(place.tree(), before);
        set_mode(place.at("closed"), 0o755);
    }
}

#[tokio::test]
async fn cw18_a_pipe_in_the_place_of_what_was_kept_is_replaced() {
    for place in Place::both() {
        place.write("dir/a", "1");
        place.write("file", "1");
        symlink("file", place.at("link")).unwrap();
        let before = place.tree();
        let run = place.take().await;
        fs::remove_dir_all(place.at("dir")).unwrap();
        for name in ["file", "link"] {
            fs::remove_file(place.at(name)).unwrap();
        }
        for name in ["dir", "file", "link"] {
            assert!(Command::new("mkfifo").arg(place.at(name)).status().unwrap().success());
        }
        place.restore(run).await;
        assert_eq!(place.tree(), before);
    }
}

#[tokio::test]
async fn attack_25_another_name_of_a_file_outside_gets_no_other_mode() {
    for place in Place::both() {
        let outside = tempfile::tempdir().unwrap();
        let theirs = outside.path().join("theirs");
        place.write("a", "same");
        set_mode(place.at("a"), 0o666);
        let run = place.take().await;
        fs::write(&theirs, "same").unwrap();
        set_mode(&theirs, 0o600);
        fs::remove_file(place.at("a")).unwrap();
        fs::hard_link(&theirs, place.at("a")).unwrap();
        place.restore(run).await;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&theirs), mode(&place.at("a"))), (0o600, 0o666));
    }
}

#[tokio::test]
async fn cw18_what_cannot_be_looked_into_is_no_hindrance_and_stays() {
    if rustix::process::geteuid().is_root() {
        println!("SKIPPED: directories that cannot be read: this user is root");
        return;
    }
    for place in Place::both() {
        for mode in [0o000, 0o300, 0o600] {
            let dir = format!("{mode:o}");
            place.write(format!("{dir}/a"), "1");
            place.write(format!("{dir}/b/c"), "1");
            set_mode(place.at(dir), mode);
        }
        let run = place.take().await;
        for dir in ["0", "300", "600"] {
            set_mode(place.at(dir), 0o755);
        }
        place.restore(run).await;
        for dir in ["0", "300", "600"] {
            set_mode(place.at(dir), 0o755);
            assert!(place.at(dir).join("a").exists() && place.at(dir).join("b/c").exists(), "{dir}");
        }
    }
}

#[tokio::test]
async fn cw18_directories_nested_too_deep_are_no_hindrance_and_stay() {
    /// Makes directories within each other, with a file in the last one.
    fn nest(at: &Path, levels: usize) -> PathBuf {
        let deep = at.join(vec!["d"; levels].join("/"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "deep").unwrap();
        deep.join("file")
    }

    for place in Place::both() {
        place.write("a", "one");
        // Of 256 and 257 directories; the second's file is out of reach.
        let (kept, left) = (nest(&place.at("x"), 255), nest(&place.at("y"), 256));
        let run = place.take().await;
        for file in [&kept, &left] {
            fs::write(file, "changed").unwrap();
        }
        place.write("a", "two");
        let (new, stays) = (nest(&place.at("new"), 255), nest(&place.at("stays"), 300));
        place.restore(run).await;
        assert_eq!(
            (fs::read(place.at("a")).unwrap(), fs::read(&kept).unwrap()),
            (b"one".to_vec(), b"deep".to_vec())
        );
        assert_eq!(fs::read(&left).unwrap(), b"changed");
        assert!(!new.exists() && !place.at("new").exists() && stays.exists());
        // It is no hindrance to the next one either.
        place.take().await;
    }
}

#[tokio::test]
async fn cw18_there_may_be_more_directories_than_files_may_be_open() {
    const INSIDE: &str = "ENTOURAGE_TEST_FEW_OPEN_FILES";
    if std::env::var_os(INSIDE).is_none() {
        let test = "cw18_there_may_be_more_directories_than_files_may_be_open";
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 64 && exec \"$0\" --exact \"$1\" --nocapture"]);
        let ended = shell.arg(std::env::current_exe().unwrap()).arg(test).env(INSIDE, "1").output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        return;
    }
    for place in Place::both() {
        for dir in 0..200 {
            place.write(format!("{dir}/a"), "1");
        }
        let before = place.tree();
        let run = place.take().await;
        for dir in 0..150 {
            fs::remove_dir_all(place.at(dir.to_string())).unwrap();
        }
        place.restore(run).await;
        assert_eq!(place.tree(), before);
    }
}

#[tokio::test]
async fn attack_22_a_snapshot_that_was_changed_in_the_repository_restores_nothing() {
    let place = Place::new(true);
    place.write("a", "1");
    place.write(".envrc", "mine");
    let run = place.take().await;
    place.write("a", "2");
    let git = |arguments: &[&str]| git(place.root.path(), arguments).trim().to_owned();
    let reference = git(&["for-each-ref", "--format=%(refname)", "refs/entourage"]);
    let listing = git(&["ls-tree", &reference]);
    // As a command does that may write to `.git/objects` and `.git/refs`: `.envrc` gets the content of `a`.
    let tree = git(&["show", &format!("{reference}:tree.json")]);
    let content = |path: &str| {
        let (_, after) = tree.split_once(&format!(r#""path":"{path}""#)).unwrap();
        after.split_once(r#""content":""#).unwrap().1.split_once('"').unwrap().0.to_owned()
    };
    fs::write(place.at(".git/forged"), tree.replace(&content(".envrc"), &content("a"))).unwrap();
    let blob = git(&["hash-object", "-w", ".git/forged"]);
    let lines = listing.lines().map(|line| match line.ends_with("tree.json") {
        true => format!("100644 blob {blob}\ttree.json\n"),
        false => format!("{line}\n"),
    });
    fs::write(place.at(".git/listing"), lines.collect::<String>()).unwrap();
    let made = Command::new("sh").args(["-c", "git mktree < .git/listing"]).current_dir(&place.root).output();
    let made = String::from_utf8(made.unwrap().stdout).unwrap();
    let commit = git(&["commit-tree", "-m", "x", made.trim()]);
    git(&["update-ref", &reference, &commit]);
    let error = place.snapshots().restore(&place.session, &[run]).await.unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    let text = |path| fs::read_to_string(place.at(path)).unwrap();
    assert_eq!((text("a"), text(".envrc")), ("2".to_owned(), "mine".to_owned()));
    // By the name of a run that had none, it is none, and in nobody's way.
    let earlier = RunId::generate();
    git(&["update-ref", &reference.replace(&run.to_string(), &earlier.to_string()), &commit]);
    assert_eq!(place.snapshots().restore(&place.session, &[earlier]).await.unwrap().run, None);
    place.snapshots().take(&place.session, earlier).await.unwrap();
    place.write("a", "3");
    place.restore(earlier).await;
    assert_eq!((text("a"), text(".envrc")), ("2".to_owned(), "mine".to_owned()));
}

#[tokio::test]
async fn cw18_a_damaged_content_is_an_error_and_replaces_nothing() {
    let place = Place::new(false);
    place.write("a", "1");
    let run = place.take().await;
    place.write("a", "2");
    for entry in fs::read_dir(place.state.path().join("contents")).unwrap() {
        fs::write(entry.unwrap().path(), "other").unwrap();
    }
    let error = place.snapshots().restore(&place.session, &[run]).await.unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn cw18_snapshots_taken_at_once_are_all_whole() {
    for place in Place::both() {
        for file in 0..200 {
            place.write(format!("d{}/f{file}", file % 7), format!("{file}"));
        }
        let before = place.tree();
        let runs: Vec<_> = (0..8).map(|_| RunId::generate()).collect();
        let taken = runs.iter().map(|run| {
            let (snapshots, session, run) = (place.snapshots(), place.session.clone(), *run);
            tokio::spawn(async move { snapshots.take(&session, run).await })
        });
        for taken in taken.collect::<Vec<_>>() {
            taken.await.unwrap().unwrap();
        }
        fs::remove_dir_all(place.at("d1")).unwrap();
        for run in runs {
            place.write("d2/f2", "changed");
            place.restore(run).await;
            assert_eq!(place.tree(), before);
        }
    }
}

#[cfg(feature = "shell")]
#[tokio::test]
async fn cw18_a_session_goes_back_with_what_its_tools_and_commands_changed() {
    for place in Place::both() {
        place.write("a", "one\n");
        let workspace = Workspace::open(place.root.path()).unwrap();
        let shell = entourage_tools::shell::Shell::open(place.root.path()).unwrap();
        let provider = ScriptedProvider::new()
            .text("Hello.")
            .calls([("view", json!({ "path": "a" }))])
            .calls([("edit", json!({ "path": "a", "old": "one", "new": "two" }))])
            .calls([("bash", json!({ "command": "printf x > made" }))])
            .text("Done.");
        let agent = entourage_runners::ReactAgent::builder("coder", provider.model())
            .tools(workspace.read_tools())
            .tools(workspace.write_tools())
            .tools(shell.tools())
            .build()
            .unwrap();
        let runtime = Runtime::builder().policy(Policy::allow_all()).snapshots(place.snapshots()).build();
        let session = runtime.session();
        session.start(&agent, "Hi").outcome().await.unwrap();
        let run = session.start(&agent, "Change it");
        let id = run.id();
        run.outcome().await.unwrap();
        assert_eq!(
            (fs::read_to_string(place.at("a")).unwrap(), place.at("made").exists()),
            ("two\n".into(), true)
        );
        let rewound = session.rewind(id).await.unwrap();
        assert_eq!(
            (fs::read_to_string(place.at("a")).unwrap(), place.at("made").exists()),
            ("one\n".into(), false)
        );
        assert_eq!(
            (rewound.restored.written, rewound.restored.removed),
            (vec!["a".into()], vec!["made".into()])
        );
        let messages = rewound.session.state().await.unwrap().messages_after(0).len();
        assert_eq!(messages, 2, "the first prompt and its answer");
        session.restore(rewound.before).await.unwrap();
        assert_eq!(
            (fs::read_to_string(place.at("a")).unwrap(), place.at("made").exists()),
            ("two\n".into(), true)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 8,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Any changes of any tree, by names that meet each other as files, directories and links.
    #[test]
    fn cw18_any_tree_goes_back(
        first in prop::collection::vec((0..4_usize, 0..4_usize, 0..6_usize, 0..3_u8), 0..12),
        then in prop::collection::vec((0..4_usize, 0..4_usize, 0..6_usize, 0..3_u8), 0..12),
        with_git in any::<bool>(),
    ) {
        let place = Place::new(with_git);
        let change = |changes: &[(usize, usize, usize, u8)]| {
            for (outer, inner, kind, content) in changes {
                let names = ["a", "b", "c", "d"];
                let path = place.at(names[*outer]).join(names[*inner]);
                let top = place.at(names[*outer]);
                let at = if content % 2 == 0 { &path } else { &top };
                let gone = |at: &Path| {
                    if at.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                        fs::remove_dir_all(at).unwrap();
                    } else {
                        drop(fs::remove_file(at));
                    }
                };
                if !top.is_dir() || top.is_symlink() {
                    gone(&top);
                    if *at == path {
                        fs::create_dir(&top).unwrap();
                    }
                }
                gone(at);
                match kind {
                    0 => {}
                    1 => fs::create_dir(at).unwrap(),
                    2 => symlink(names[*inner], at).unwrap(),
                    3 => {
                        fs::write(at, "x").unwrap();
                        set_mode(at, 0o700);
                    }
                    _ => fs::write(at, [*content; 3]).unwrap(),
                }
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        change(&first);
        let before = place.tree();
        let run = runtime.block_on(place.take());
        change(&then);
        runtime.block_on(place.restore(run));
        prop_assert_eq!(place.tree(), before);
    }
}
