//! Commands that try to keep what they changed at protected paths.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use entourage_core::ErrorKind;
use entourage_tools::sandbox::{Enforced, Sandbox};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Child,
};

use super::{Backend, Place, backends};

/// A content or a link's target with the mode of what is below a directory.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut tree = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        let Ok(found) = at.symlink_metadata() else { continue };
        let content = if found.is_symlink() {
            fs::read_link(&at).unwrap().into_os_string().into_encoded_bytes()
        } else if found.is_dir() {
            left.extend(fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&at).unwrap()
        };
        tree.insert(at, (found.mode(), content));
    }
    tree
}

/// A repository with all that makes Git run something.
fn repository(git: &Path) {
    let files = [
        ("config", "[core]\n"),
        ("hooks/pre-push", "true\n"),
        ("hooks/post-merge", "true\n"),
        ("info/attributes", "*.c diff\n"),
        ("info/deep/er/file", "text\n"),
        ("modules/logs/HEAD", "ref: refs/heads/main\n"),
        ("modules/logs/config", "[core]\n"),
        ("modules/logs/objects/info/packs", "\n"),
        ("rebase-merge/git-rebase-todo", "pick 1\n"),
        ("worktrees/objects/HEAD", "ref: refs/heads/other\n"),
        ("worktrees/objects/commondir", "../..\n"),
        ("worktrees/objects/config.worktree", "[core]\n"),
    ];
    for (name, content) in files {
        let path = git.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    for name in ["objects", "refs/heads"] {
        fs::create_dir_all(git.join(name)).unwrap();
    }
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::set_permissions(git.join("hooks/pre-push"), PermissionsExt::from_mode(0o755)).unwrap();
}

/// False for what Git changes as it works.
fn runs_something(path: &Path) -> bool {
    !path.ends_with("HEAD") && !path.to_string_lossy().contains("/logs/objects")
}

#[tokio::test]
async fn attack_22_no_size_number_depth_name_or_permission_keeps_a_change() {
    let scripts = [
        "truncate -s 40M .git/info/big",
        "head -c 40M /dev/zero > .git/config",
        "for i in {1..9000}; do : > .git/hooks/$i; done",
        "d=.git/info; for i in {1..40}; do d=$d/$(printf 'x%.0s' {1..200}); mkdir \"${d:0-0}\" && cd \"$d\"; d=.; done",
        "for i in {1..60}; do mkdir .git/info/deep/er/d; mv .git/info/deep/er/d x; mkdir x/y; mv x .git/info/deep/er/d$i; done",
        "mkdir .git/info/closed; : > .git/info/closed/a; chmod 0 .git/info/closed",
        "echo evil > .git/hooks/pre-push; chmod 0 .git/hooks .git/info/deep .git/config",
        "chmod 0 .git/hooks/pre-push; echo evil > .git/hooks/new; chmod 0555 .git/hooks .git .",
        ": > .git/hooks/$(printf 'n%.0s' {1..255}); mkdir .git/info/$(printf 'm%.0s' {1..255})",
        "for i in {1..200}; do : > removed-by-sandbox-$i-hooks; mkdir removed-by-sandbox-$i-config; done; mv .git/hooks h; \
            rm .git/config; mkdir .git/config",
        "mv .git/info i; ln -s $OUT .git/info; mv .git/modules/logs/config m; ln -s ../../../m .git/modules/logs/config",
        "rm -rf .git/hooks; mkfifo .git/hooks; rm .git/config; mkfifo .git/config; mkfifo .git/info/pipe",
        "echo 'exec evil' > .git/rebase-merge/git-rebase-todo; echo evil > .git/modules/logs/config; \
            mkdir -p .git/modules/logs/hooks; echo evil > .git/modules/logs/hooks/x",
        "echo evil > .git/worktrees/objects/config.worktree; mkdir .git/worktrees/refs; echo x > .git/worktrees/refs/x; \
            mkdir -p .git/sequencer .git/rebase-apply; echo evil > .git/sequencer/todo",
        "touch .git/modules/HEAD; mkdir .git/modules/objects; mkdir .git/modules/hooks; echo x > .git/modules/hooks/x",
        "mv .git g; mkdir .git; cp -r g/hooks .git; echo evil > .git/hooks/x; cp -r g/objects g/refs g/HEAD .git",
        "ln .git/hooks/pre-push p; ln .git/config c",
        "ln .git/hooks/pre-push p; echo evil >> p; printf 'a\\033[2Jb' > $'.git/hooks/\\033[2J'",
    ];
    for backend in backends().await {
        for script in scripts {
            let place = Place::new();
            let git = place.root().join(".git");
            repository(&git);
            let before = tree(&git);
            let root = fs::metadata(place.root()).unwrap().mode();
            let names = |name: &str| fs::metadata(git.join(name)).unwrap().nlink();
            let ran = place.run(&place.write(backend), &format!("( {script} ) 2>/dev/null; echo end")).await;
            assert_eq!(ran.out, "end", "{backend:?} {script}");
            fs::set_permissions(place.root(), PermissionsExt::from_mode(root)).unwrap();
            // A read-only mount has the directories above it changed alone.
            fs::set_permissions(&git, PermissionsExt::from_mode(before[&git].0)).unwrap();
            let after = tree(&git);
            let differ: Vec<_> = before
                .keys()
                .chain(after.keys())
                .filter(|path| before.get(*path) != after.get(*path))
                .filter(|path| !path.ends_with(".git") && runs_something(path))
                .take(5)
                .collect();
            assert!(differ.is_empty(), "{backend:?} {script}: {differ:?} {:?}", ran.changed);
            assert_eq!((names("config"), names("hooks/pre-push")), (1, 1), "{backend:?} {script}");
            assert!(ran.changed.len() < 40, "{backend:?} {script}: {:?}", ran.changed);
            assert_eq!(fs::read_dir(place.outside.path()).unwrap().count(), 1);
        }
    }
}

/// A command that says a line, and goes on when it is told to.
struct Held {
    child: Child,
    enforced: Enforced,
}

impl Held {
    async fn start(sandbox: &Sandbox, script: &str) -> Self {
        let script = format!("{script}\necho ready; read -r _");
        let (mut child, enforced) = sandbox
            .spawn("/bin/bash", |command| {
                command
                    .arg("-c")
                    .arg(script)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
            })
            .await
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
        Self { child, enforced }
    }

    async fn end(mut self) -> Vec<PathBuf> {
        self.child.stdin.take().unwrap().write_all(b"\n").await.unwrap();
        assert!(self.child.wait().await.unwrap().success());
        self.enforced.restore().await.unwrap()
    }
}

#[tokio::test]
async fn attack_22_a_second_command_does_not_take_the_first_ones_change_for_its_beginning() {
    for backend in backends().await {
        for first_ends_first in [true, false] {
            let place = Place::new();
            let git = place.root().join(".git");
            repository(&git);
            let before = tree(&git);
            let sandbox = place.write(backend);
            let evil =
                "echo evil > .git/hooks/pre-push; echo evil > .git/hooks/new; echo evil > .envrc; true";
            let first = Held::start(&sandbox, evil).await;
            let second = Held::start(&sandbox.clone(), "echo evil > .git/config; true").await;
            let (one, two) = if first_ends_first { (first, second) } else { (second, first) };
            one.end().await;
            two.end().await;
            assert_eq!(tree(&git), before, "{backend:?}");
            assert!(!place.root().join(".envrc").exists(), "{backend:?}");
            // The next one has a beginning of its own.
            fs::write(git.join("hooks/of-a-person"), "true").unwrap();
            Held::start(&sandbox, "true").await.end().await;
            assert!(git.join("hooks/of-a-person").exists(), "{backend:?}");
        }
    }
}

#[tokio::test]
async fn attack_22_commands_of_another_sandbox_wait_for_the_root() {
    let place = Place::new();
    repository(&place.root().join(".git"));
    let (one, other) = (place.write(Backend::Landlock), place.write(Backend::Landlock));
    let first = Held::start(&one, "echo evil > .git/hooks/new").await;
    let second = Held::start(&other, "true");
    tokio::pin!(second);
    // However long it is: it waits as long as the first one runs.
    let early = tokio::time::timeout(Duration::from_millis(300), &mut second).await;
    assert!(early.is_err(), "it started beside a command of another sandbox");
    first.end().await;
    second.await.end().await;
    assert!(!place.root().join(".git/hooks/new").exists());
}

/// True where bubblewrap works.
async fn has_bubblewrap() -> bool {
    backends().await.contains(&Backend::Bubblewrap)
}

#[tokio::test]
async fn attack_22_two_sandboxes_in_one_root_keep_each_others_protection() {
    if !has_bubblewrap().await {
        return;
    }
    for (first_ends_first, differ) in [(true, false), (false, false), (true, true), (false, true)] {
        let place = Place::new();
        let one = place.write(Backend::Bubblewrap);
        let other = place.write(Backend::Bubblewrap);
        let other = if differ { other.protecting("sub/settings").unprotected(".envrc") } else { other };
        let first = Held::start(&one, "true").await;
        let second = Held::start(&other, "true").await;
        let (ends, mut goes_on) = if first_ends_first { (first, second) } else { (second, first) };
        assert_eq!(ends.end().await, [] as [PathBuf; 0]);
        let script = "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > .mcp.json; mkdir -p .vscode/x";
        let (mut child, enforced) =
            one.spawn("/bin/bash", |command| command.arg("-c").arg(script)).await.unwrap();
        child.wait().await.unwrap();
        for path in [".git/hooks", ".vscode/x"] {
            assert!(!place.root().join(path).exists(), "{path} while others run {first_ends_first} {differ}");
        }
        assert!(!place.root().join(".mcp.json").is_file(), "{first_ends_first} {differ}");
        assert_eq!(enforced.restore().await.unwrap(), [] as [PathBuf; 0]);
        let stdin = goes_on.child.stdin.take().unwrap();
        drop(stdin);
        goes_on.child.wait().await.unwrap();
        assert_eq!(goes_on.enforced.restore().await.unwrap(), [] as [PathBuf; 0]);
        let names: Vec<_> =
            fs::read_dir(place.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["inside"], "{first_ends_first} {differ}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_22_commands_of_two_sandboxes_in_one_root_all_start() {
    if !has_bubblewrap().await {
        return;
    }
    let place = Arc::new(Place::new());
    let many = |place: Arc<Place>| async move {
        let sandbox = place.write(Backend::Bubblewrap);
        for _ in 0..30 {
            // Both begin anew again and again, at the same time too.
            let ran = place.run(&sandbox, "echo on").await;
            assert_eq!((ran.out.as_str(), ran.changed.as_slice()), ("on", &[] as &[PathBuf]), "{ran:?}");
        }
    };
    let (one, other) = (tokio::spawn(many(Arc::clone(&place))), tokio::spawn(many(Arc::clone(&place))));
    one.await.unwrap();
    other.await.unwrap();
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 1);
}

#[tokio::test]
async fn attack_22_a_command_of_landlock_waits_for_those_of_bubblewrap() {
    if !has_bubblewrap().await {
        return;
    }
    let place = Place::new();
    let first = Held::start(&place.write(Backend::Bubblewrap), "true").await;
    let other = place.write(Backend::Landlock);
    let second = Held::start(&other, "echo evil > .envrc");
    tokio::pin!(second);
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut second).await.is_err());
    assert_eq!(first.end().await, [] as [PathBuf; 0]);
    assert_eq!(second.await.end().await, [PathBuf::from(".envrc")]);
}

#[tokio::test]
async fn places_of_mounts_that_a_killed_program_left_are_removed_if_they_are_empty() {
    for backend in backends().await {
        let place = Place::new();
        for name in [".git", ".vscode", ".idea"] {
            fs::create_dir(place.root().join(name)).unwrap();
        }
        for name in [".git", ".vscode"] {
            fs::set_permissions(place.root().join(name), PermissionsExt::from_mode(0o1700)).unwrap();
        }
        fs::write(place.root().join(".vscode/settings.json"), "a person's").unwrap();
        let ran = place.run(&place.write(backend), "true").await;
        assert!(ran.changed.is_empty(), "{backend:?} {ran:?}");
        let left = [".git", ".vscode/settings.json", ".idea"].map(|name| place.root().join(name).exists());
        assert_eq!(left, [false, true, true], "{backend:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn attack_22_a_root_that_stays_occupied_is_a_typed_error() {
    let place = Place::new();
    let (one, other) = (place.write(Backend::Landlock), place.write(Backend::Landlock));
    let first = Held::start(&one, "true").await;
    let error = other.spawn("true", |command| command).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    // Reading needs no root of its own.
    let (mut child, _) = place.read(Backend::Landlock).spawn("true", |command| command).await.unwrap();
    assert!(child.wait().await.unwrap().success());
    first.end().await;
}

#[tokio::test]
async fn attack_22_no_process_that_left_its_group_goes_on() {
    for backend in backends().await {
        let place = Place::new();
        let git = place.root().join(".git");
        repository(&git);
        let before = tree(&git);
        // One of the same user outside of the sandbox.
        let mut outside =
            tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
        let daemon =
            "trap '' TERM HUP INT; echo $$ > pid.$1; while :; do echo evil > .git/hooks/new; : & done";
        let script = "for i in {1..8}; do setsid -f /bin/bash -c \"$DAEMON\" daemon $i </dev/null >/dev/null 2>&1; done
            for i in {1..8}; do until [ -s pid.$i ]; do :; done; done";
        for sandbox in [place.write(backend), place.write(backend).processes(10_000)] {
            let (mut child, enforced) = sandbox
                .spawn("/bin/bash", |command| command.arg("-c").arg(script).env("DAEMON", daemon))
                .await
                .unwrap();
            child.wait().await.unwrap();
            enforced.restore().await.unwrap();
            assert_eq!(tree(&git), before, "{backend:?}");
            if backend == Backend::Landlock {
                assert!(enforced.signals_confined);
                for number in 1..=8 {
                    let id = fs::read_to_string(place.root().join(format!("pid.{number}"))).unwrap();
                    let command = fs::read(format!("/proc/{}/cmdline", id.trim())).unwrap_or_default();
                    let command = String::from_utf8_lossy(&command);
                    assert!(!command.contains("evil"), "{number} lives: {command:?}");
                }
            }
            assert!(outside.try_wait().unwrap().is_none(), "it was outside of the sandbox");
        }
        outside.kill().await.unwrap();
    }
}

/// Makes a workspace whose repository lies elsewhere in it.
type Make = fn(&Path);

#[tokio::test]
async fn attack_22_a_directory_of_git_elsewhere_is_protected_too() {
    let evil = "for d in $STORE; do mkdir -p $d/hooks; echo evil > $d/hooks/pre-commit; echo evil > $d/config; \
        echo blob > $d/objects/blob; done; true";
    for backend in backends().await {
        let make: [(&str, Make); 4] = [
            ("store/repo", |root| {
                repository(&root.join("store/repo"));
                fs::write(root.join(".git"), "gitdir: ./store/../store/repo\n").unwrap();
            }),
            ("real", |root| {
                repository(&root.join("real"));
                symlink("real", root.join(".git")).unwrap();
            }),
            ("store/tree common", |root| {
                repository(&root.join("common"));
                fs::create_dir_all(root.join("store/tree")).unwrap();
                fs::write(root.join("store/tree/HEAD"), "ref: refs/heads/x\n").unwrap();
                fs::write(root.join("store/tree/commondir"), "../../common\n").unwrap();
                fs::write(root.join(".git"), format!("gitdir: {}\n", root.join("store/tree").display()))
                    .unwrap();
            }),
            ("missing/repo", |root| fs::write(root.join(".git"), "gitdir: missing/repo\n").unwrap()),
        ];
        for (store, make) in make {
            let place = Place::new();
            make(&fs::canonicalize(place.root()).unwrap());
            let before = tree(place.root());
            place.run(&place.write(backend), &evil.replace("$STORE", store)).await;
            let after = tree(place.root());
            for (path, content) in &before {
                assert_eq!(after.get(path).map(|it| &it.1), Some(&content.1), "{backend:?} {path:?}");
            }
            let evil = |(path, content): (&PathBuf, &(u32, Vec<u8>))| {
                let moved = path.iter().any(|part| part.to_string_lossy().starts_with("removed-by-sandbox"));
                (content.1 == b"evil\n" && !moved).then(|| path.clone())
            };
            let left: Vec<_> = after.iter().filter_map(evil).collect();
            assert!(left.is_empty(), "{backend:?} {store}: {left:?}");
        }
    }
}

#[tokio::test]
async fn attack_22_links_on_the_way_to_a_directory_of_git_are_protected_too() {
    for backend in backends().await {
        for (git, links) in [
            ("link l/x", vec![("l", "sub")]),
            ("link m", vec![("m", "sub/x")]),
            ("link m", vec![("m", "n/../sub/x"), ("n", "sub")]),
            ("file l/x", vec![("l", "sub")]),
            ("common ../l/x", vec![("l", "sub")]),
        ] {
            let place = Place::new();
            let at = |name: &str| place.root().join(name);
            fs::create_dir_all(at("sub")).unwrap();
            repository(&at("sub/x"));
            links.iter().for_each(|(name, target)| symlink(target, at(name)).unwrap());
            match git.split_once(' ').unwrap() {
                ("link", target) => symlink(target, at(".git")).unwrap(),
                ("file", target) => fs::write(at(".git"), format!("gitdir: {target}\n")).unwrap(),
                (_, target) => {
                    fs::create_dir(at(".git")).unwrap();
                    fs::write(at(".git/commondir"), target).unwrap();
                }
            }
            let turned: String = links
                .iter()
                .map(|(name, _)| format!("rm {name}; ln -s evil {name} 2>/dev/null; mv -T moved {name};"))
                .collect();
            let script = format!(
                "mkdir -p evil/x/hooks moved/x/hooks; echo evil > evil/x/hooks/pre-push; {turned} echo end"
            );
            let ran = place.run(&place.write(backend), &script).await;
            assert!(ran.out.ends_with("end"), "{backend:?} {git} {ran:?}");
            for (name, target) in &links {
                assert_eq!(fs::read_link(at(name)).unwrap(), Path::new(target), "{backend:?} {git} {ran:?}");
            }
            assert_eq!(
                fs::read_to_string(at("sub/x/hooks/pre-push")).unwrap(),
                "true\n",
                "{backend:?} {git}"
            );
        }
    }
}

#[tokio::test]
async fn attack_22_a_pipe_in_the_place_of_gits_files_stops_nothing() {
    for backend in backends().await {
        let place = Place::new();
        fs::create_dir(place.root().join(".git")).unwrap();
        for name in [".git/commondir", ".envrc", "pipe"] {
            let made = std::process::Command::new("mkfifo").arg(place.root().join(name)).status();
            assert!(made.unwrap().success());
        }
        symlink("pipe", place.root().join(".mcp.json")).unwrap();
        assert_eq!(place.run(&place.write(backend), "echo on").await.out, "on", "{backend:?}");
    }
}

#[tokio::test]
async fn attack_22_restore_ends_a_command_that_still_runs() {
    if !has_bubblewrap().await {
        return;
    }
    let place = Place::new();
    let script = "setsid sh -c 'while :; do mkdir -p .git/hooks .vscode/x; done 2>/dev/null' &
        chrt -i -p 0 1; for i in 1 2 3 4; do (while :; do :; done) & done";
    let Held { mut child, enforced } = Held::start(&place.write(Backend::Bubblewrap), script).await;
    enforced.restore().await.unwrap();
    let mut out = Vec::new();
    // Nobody is left who could hold it open.
    tokio::io::AsyncReadExt::read_to_end(&mut child.stderr.take().unwrap(), &mut out).await.unwrap();
    assert!(!child.wait().await.unwrap().success());
    let names: Vec<_> = fs::read_dir(place.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["inside"]);
}

#[tokio::test]
async fn attack_22_what_a_command_makes_where_a_mount_was_taken_away_is_taken_back() {
    if !has_bubblewrap().await {
        return;
    }
    let place = Place::new();
    fs::write(place.root().join(".envrc"), "good").unwrap();
    fs::hard_link(place.root().join(".envrc"), place.root().join("second")).unwrap();
    let script =
        "echo evil > second; echo ready; read -r _; mkdir .vscode && echo evil > .vscode/tasks.json; true";
    let first = Held::start(&place.write(Backend::Bubblewrap), script).await;
    // As `git clean` does.
    fs::remove_dir(place.root().join(".vscode")).unwrap();
    fs::remove_dir(place.root().join(".idea")).unwrap();
    let Held { mut child, enforced } = first;
    child.stdin.take().unwrap().write_all(b"\n\n").await.unwrap();
    child.wait().await.unwrap();
    let changed = enforced.restore().await.unwrap();
    assert_eq!(changed, [PathBuf::from(".envrc"), PathBuf::from(".vscode")]);
    assert!(!place.root().join(".vscode").exists() && !place.root().join(".git").exists());
    assert_eq!(fs::read_to_string(place.root().join(".envrc")).unwrap(), "good");
}

#[tokio::test]
async fn attack_22_processes_that_outlive_their_command_change_nothing() {
    // The first process of a name space may have to wait long for its own end.
    let script = "for i in 1 2 3 4; do (while :; do
            mkdir -p p$i/hooks; echo evil > p$i/hooks/pre-commit; mv -T p$i .git; mkdir .vscode; echo evil > .vscode/x
        done) 2>/dev/null & done; chrt -i -p 0 1; sleep 0.1";
    for backend in backends().await {
        for kills in [false, true, false, true] {
            let place = Place::new();
            let script = if kills { format!("{script}; sleep 60") } else { script.to_owned() };
            let (mut child, enforced) = place
                .write(backend)
                .spawn("/bin/bash", |command| command.arg("-c").arg(script).stderr(Stdio::null()))
                .await
                .unwrap();
            if kills {
                tokio::time::sleep(Duration::from_millis(150)).await;
                Sandbox::kill_tree(&child);
            }
            child.wait().await.unwrap();
            enforced.restore().await.unwrap();
            for name in [".git", ".vscode"] {
                assert!(!place.root().join(name).exists(), "{backend:?} {kills} {name}");
            }
        }
    }
}
