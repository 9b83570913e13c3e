//! The mounts of bubblewrap on protected paths, while others change what lies below them.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::Stdio,
};

use entourage_core::ErrorKind;
use entourage_tools::sandbox::{Enforced, Sandbox};
use tokio::{io::AsyncReadExt, process::Child};

use super::{Backend, Place, backends};

/// True where bubblewrap works.
async fn works() -> bool {
    backends().await.contains(&Backend::Bubblewrap)
}

fn bwrap() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join("bwrap")).find(|at| at.is_file()).unwrap()
}

/// A program in place of bubblewrap, which does something else first.
fn before_bwrap(at: &Path, script: &str) -> PathBuf {
    let program = at.join("wrapped");
    fs::write(&program, format!("#!/bin/sh\n{script}\nexec {} \"$@\"\n", bwrap().display())).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program
}

/// Starts a command that says when it runs, and then does not end by itself.
async fn endless(sandbox: &Sandbox) -> (Child, Enforced) {
    let (mut child, enforced) = sandbox
        .spawn("/bin/sh", |command| {
            command.args(["-c", "echo; exec sleep 1000"]).stdout(Stdio::piped()).stdin(Stdio::null())
        })
        .await
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0]).await.unwrap();
    (child, enforced)
}

/// Puts a new file in the place of another one, as an editor does.
fn save(at: &Path, text: &str) {
    let new = at.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, at).unwrap();
}

#[tokio::test]
async fn attack_22_a_link_that_appears_on_the_way_to_a_mount_starts_nothing() {
    if !works().await {
        return;
    }
    for links in ["sub", "sub/deep", "sub/deep/settings", ".git", "sub/deep/new"] {
        let (place, other) = (Place::new(), tempfile::tempdir().unwrap());
        let root = fs::canonicalize(place.root()).unwrap();
        let settings = root.join("sub/deep/settings");
        fs::create_dir_all(settings.parent().unwrap()).unwrap();
        fs::write(&settings, "good").unwrap();
        let outside = fs::canonicalize(place.outside.path()).unwrap();
        fs::create_dir_all(outside.join("deep")).unwrap();
        fs::write(outside.join("deep/settings"), "of others").unwrap();
        // While bubblewrap works, the files of the machine are there.
        let target = match links {
            "sub" | ".git" => format!("/oldroot{}", outside.display()),
            "sub/deep" | "sub/deep/new" => format!("/oldroot{}/deep", outside.display()),
            _ => format!("/oldroot{}/deep/settings", outside.display()),
        };
        // The first start finds out if it works.
        let script = format!(
            "case \" $* \" in *sub/deep/settings*) mv {0} {1} && ln -s {target} {0};; esac",
            root.join(links).display(),
            other.path().join("moved").display(),
        );
        let sandbox = place
            .write(Backend::Bubblewrap)
            .protecting("sub/deep/settings")
            .protecting("sub/deep/new")
            .bubblewrap(before_bwrap(other.path(), &script));
        let started = sandbox
            .spawn("/bin/sh", |command| command.args(["-c", "echo ran > ran; echo evil > sub/deep/settings"]))
            .await;
        match started {
            // What is mounted by its descriptor, bubblewrap looks at as well.
            Ok((mut child, enforced)) => {
                assert!(links.starts_with("sub") && links != "sub/deep/new", "{links}");
                assert!(!child.wait().await.unwrap().success(), "{links}");
                enforced.restore().await.unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{links}: {error}");
                assert!(error.message().contains(&format!("`{links}`")), "{links}: {error}");
            }
        }
        assert!(!root.join("ran").exists(), "{links}: the command began");
        assert_eq!(fs::read_to_string(outside.join("deep/settings")).unwrap(), "of others");
        let names = |at: &Path| fs::read_dir(at).unwrap().count();
        assert_eq!((names(&outside), names(&outside.join("deep"))), (2, 1), "{links}");
        assert!(!outside.join("deep/new").exists(), "{links}");
    }
}

#[tokio::test]
async fn attack_22_a_command_ends_when_a_protected_file_is_replaced() {
    if !works().await {
        return;
    }
    type Change = fn(&Path);
    let changes: [(&str, Change); 6] = [
        (".envrc", |root| save(&root.join(".envrc"), "theirs")),
        (".envrc", |root| fs::remove_file(root.join(".envrc")).unwrap()),
        (".envrc", |root| {
            fs::rename(root.join(".envrc"), root.join(".envrc~")).unwrap();
            fs::write(root.join(".envrc"), "theirs").unwrap();
        }),
        (".git", |root| {
            fs::rename(root.join(".git"), root.join("old")).unwrap();
            fs::create_dir(root.join(".git")).unwrap();
        }),
        ("sub", |root| {
            fs::rename(root.join("sub"), root.join("old")).unwrap();
            symlink("old", root.join("sub")).unwrap();
        }),
        ("sub/settings", |root| save(&root.join("sub/settings"), "theirs")),
    ];
    for (name, change) in changes {
        let place = Place::new();
        fs::create_dir_all(place.root().join(".git/hooks")).unwrap();
        fs::create_dir(place.root().join("sub")).unwrap();
        for file in [".envrc", ".git/config", "sub/settings"] {
            fs::write(place.root().join(file), "good").unwrap();
        }
        let sandbox = place.write(Backend::Bubblewrap).protecting("sub/settings");
        let (mut child, enforced) = endless(&sandbox).await;
        change(place.root());
        let status = child.wait().await.unwrap();
        // Bubblewrap passes the end of the first process on as a code.
        assert!(status.signal().is_some() || status.code() == Some(128 + 9), "{name}: {status}");
        let changed = enforced.restore().await.unwrap();
        // Behind a link, what lies below is out of reach too.
        assert_eq!(enforced.replaced().first().map(PathBuf::as_path), Some(Path::new(name)), "{changed:?}");
        assert!(changed.is_empty(), "the change of a person stays: {changed:?}");
    }
}

#[tokio::test]
async fn attack_22_what_is_replaced_within_a_protected_directory_stays_protected() {
    if !works().await {
        return;
    }
    let place = Place::new();
    let git = place.root().join(".git");
    fs::create_dir_all(git.join("hooks")).unwrap();
    fs::create_dir(place.root().join(".entourage")).unwrap();
    for file in [".git/config", ".git/hooks/pre-commit", ".entourage/permissions.toml", ".envrc"] {
        fs::write(place.root().join(file), "good").unwrap();
    }
    let script = "until [ -e go ]; do sleep 0.01; done; for at in .git/config .git/hooks/pre-commit .envrc \
        .git/hooks/new .entourage/permissions.toml; do echo evil > $at; mv inside $at; rm -f $at; done; echo end > end";
    let sandbox = place.write(Backend::Bubblewrap);
    let (mut child, enforced) = sandbox
        .spawn("/bin/bash", |command| command.args(["-c", script]).stderr(Stdio::null()))
        .await
        .unwrap();
    for file in [".git/config", ".git/hooks/pre-commit", ".entourage/permissions.toml"] {
        save(&place.root().join(file), "theirs");
    }
    // The same file with other times and another mode is no other file.
    let envrc = place.root().join(".envrc");
    fs::set_permissions(&envrc, PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(place.root().join("go"), "").unwrap();
    child.wait().await.unwrap();
    assert!(enforced.restore().await.unwrap().is_empty() && enforced.replaced().is_empty());
    assert!(place.root().join("end").exists(), "the command went on");
    for file in [".git/config", ".git/hooks/pre-commit", ".entourage/permissions.toml"] {
        assert_eq!(fs::read_to_string(place.root().join(file)).unwrap(), "theirs", "{file}");
    }
    assert_eq!(fs::read_to_string(&envrc).unwrap(), "good");
    assert!(!git.join("hooks/new").exists());
    assert_eq!(fs::metadata(&envrc).unwrap().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn sandbox_bubblewrap_is_tried_by_one_start() {
    if !works().await {
        return;
    }
    let (place, other) = (Place::new(), tempfile::tempdir().unwrap());
    let starts = other.path().join("starts");
    let program = before_bwrap(other.path(), &format!("echo >> {}", starts.display()));
    let count = || fs::read_to_string(&starts).unwrap().lines().count();
    let plain = place.write(Backend::Bubblewrap).bubblewrap(&program);
    assert_eq!(place.run(&plain, "echo fine").await.out, "fine");
    assert_eq!(count(), 2, "a try and the command");
    assert_eq!(place.run(&plain, "echo fine").await.out, "fine");
    assert_eq!(count(), 3, "a sandbox is tried once");
    if super::has("/usr/bin/perl") {
        let hosts = place.write(Backend::Bubblewrap).bubblewrap(&program).hosts(["a.example"]);
        assert_eq!(place.run(&hosts, "echo fine").await.out, "fine");
        assert_eq!(count(), 5, "with hosts as well");
    }
}

/// A file system of its own at a directory, until the value is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn at(dir: PathBuf) -> Option<Self> {
        fs::create_dir_all(&dir).unwrap();
        let mount = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&dir).status();
        mount.is_ok_and(|status| status.success()).then_some(Self(dir))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(done.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[tokio::test]
async fn attack_22_what_changes_on_a_mount_below_the_root_is_taken_back() {
    for backend in backends().await {
        let place = Place::new();
        let (hooks, sub) = (place.root().join(".git/hooks"), place.root().join("sub"));
        let [Some(_hooks), Some(_sub)] = [&hooks, &sub].map(|at| Mounted::at(at.clone())) else {
            println!("SKIPPED: no file system can be mounted below the root");
            return;
        };
        let files =
            [hooks.join("pre-push"), hooks.join("post-merge"), sub.join("d/key"), sub.join("e/f/deep")];
        for file in &files {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "mine").unwrap();
        }
        let sandbox = ["sub/d/key", "sub/e", "sub/new/er"].map(PathBuf::from);
        let sandbox = sandbox.into_iter().fold(place.write(backend), Sandbox::protecting);
        let ran = place
            .run(
                &sandbox,
                "exec 2>/dev/null; cd .git/hooks; rm pre-push; echo evil > post-merge; echo evil > new.sh; cd ../../sub; \
                 echo evil > d/key; mv e/f e/g; mkdir -p new/er; echo evil > new/er/file; ln -s /etc e/link; echo evil > free; \
                 true",
            )
            .await;
        for file in &files {
            assert_eq!(fs::read_to_string(file).unwrap(), "mine", "{backend:?} {file:?} {ran:?}");
        }
        let absent = [hooks.join("new.sh"), sub.join("e/g"), sub.join("e/link"), sub.join("new/er/file")];
        let left: Vec<_> = absent.iter().filter(|at| at.symlink_metadata().is_ok()).collect();
        assert!(left.is_empty(), "{backend:?} {left:?} {ran:?}");
        assert_eq!(fs::read_to_string(sub.join("free")).unwrap(), "evil\n");
        if backend == Backend::Landlock {
            // What a command made is moved and not lost, to the top of its file system.
            assert_eq!(fs::read_to_string(hooks.join("removed-by-sandbox-1-new-sh")).unwrap(), "evil\n");
            let names: Vec<_> = fs::read_dir(&sub).unwrap().map(|it| it.unwrap().file_name()).collect();
            let moved = |name: &str| names.iter().any(|it| *it == *format!("removed-by-sandbox-1-{name}"));
            assert!(["key", "g", "link", "new"].iter().all(|name| moved(name)), "{names:?}");
        }
    }
}
