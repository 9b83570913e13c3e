//! Files: what may be read, and what may be written.

use super::{Backend, Place, Sandbox, backends, has};

const NONE: [String; 0] = [];

#[tokio::test]
async fn sandbox_a_workspace_is_written_and_nothing_else() {
    for backend in backends().await {
        let place = Place::new();
        std::os::unix::fs::symlink(place.outside.path(), place.root().join("link")).unwrap();
        let sandbox = place.write(backend);
        let ran = place
            .run(&sandbox, "echo one > new && mkdir -p a/b && echo two > a/b/c && mv a/b/c moved && cat new moved inside")
            .await;
        assert_eq!((ran.code, &*ran.out), (Some(0), "one\ntwo\ntext"), "{backend:?} {ran:?}");
        let attempts = [
            "echo x > $OUT/new",
            "echo x >> $OUT/secret",
            "echo x > link/new",
            "echo x > ../$(basename $OUT)/new",
            "echo x > /proc/self/root$OUT/new",
            "echo x > /proc/self/cwd/../$(basename $OUT)/new",
            "mv inside $OUT/inside",
            "mv $OUT/secret taken",
            "ln $OUT/secret taken",
            "cp inside $OUT/copy",
            "truncate -s 0 $OUT/secret",
            "rm $OUT/secret",
            "mkdir $OUT/directory",
            "ln -s inside $OUT/link",
            "mkfifo $OUT/pipe",
            "echo x > /etc/new-file",
            "echo x > /usr/new-file",
            "echo x > /var/tmp/new-file",
            "echo x > /new-file",
            "mkdir /home/other",
            "mkdir /srv /var",
            "echo x > /dev/new-file",
            "echo x > /tmp/../new-file",
            "mknod device b 8 0",
            "cd $OUT && echo x > new",
        ];
        assert_eq!(place.escapes(&sandbox, &attempts).await, NONE, "{backend:?}");
        assert_eq!(std::fs::read_to_string(place.outside.path().join("secret")).unwrap(), "hidden");
        assert_eq!(std::fs::read_dir(place.outside.path()).unwrap().count(), 1, "{backend:?}");
        assert!(place.root().join("inside").exists() && !place.root().join("taken").exists());
    }
}

#[tokio::test]
async fn sandbox_read_only_reads_the_root_and_writes_a_private_directory() {
    for backend in backends().await {
        let place = Place::new();
        let sandbox = place.read(backend);
        let ran = place
            .run(&sandbox, "cat inside && echo x > /dev/null && echo t > $TMPDIR/t && cat $TMPDIR/t")
            .await;
        assert_eq!((ran.code, &*ran.out), (Some(0), "textt"), "{backend:?} {ran:?}");
        let attempts =
            ["echo x > new", "echo x >> inside", "rm inside", "truncate -s 0 inside", "mv inside b"];
        assert_eq!(place.escapes(&sandbox, &attempts).await, NONE, "{backend:?}");
        assert_eq!(std::fs::read_to_string(place.root().join("inside")).unwrap(), "text");
        assert_eq!(std::fs::read_dir(place.root()).unwrap().count(), 1);
    }
}

#[tokio::test]
async fn sandbox_secrets_are_not_read() {
    for backend in backends().await {
        let place = Place::new();
        std::os::unix::fs::symlink(place.outside.path().join("secret"), place.root().join("link")).unwrap();
        let host = std::process::id();
        for sandbox in [place.read(backend), place.write(backend)] {
            let attempts = [
                "cat $OUT/secret",
                "cat link",
                "cat ../$(basename $OUT)/secret",
                "cat /proc/self/root$OUT/secret",
                "cat < $OUT/secret",
                "ls $OUT",
                "ls ~root",
                "ls /root",
                "ls /home",
                "ls -d /root/.ssh/*",
                "cat /etc/shadow",
                "cat /etc/gshadow",
                "cat /etc/sudoers",
                "ls /run",
                "ls /tmp/*",
                "head -c 1 /proc/kcore",
                "head -c 1 /dev/mem",
                "head -c 1 /dev/vda",
                "head -c 1 /dev/sda",
            ];
            assert_eq!(place.escapes(&sandbox, &attempts).await, NONE, "{backend:?}");
            let of_the_host = ["environ", "root$OUT/secret", "cwd/Cargo.toml", "mem", "maps", "fd/0"];
            let attempts = of_the_host.map(|name| format!("head -c 1 /proc/{host}/{name}"));
            assert_eq!(place.escapes(&sandbox, &attempts).await, NONE, "{backend:?}");
            let ran = place
                .run(&sandbox, "cat /etc/passwd /proc/self/status /proc/meminfo > /dev/null && ls /usr/bin")
                .await;
            assert_eq!(ran.code, Some(0), "{backend:?} {ran:?}");
        }
    }
}

#[tokio::test]
async fn sandbox_places_that_the_program_adds_are_read_and_written() {
    for backend in backends().await {
        let place = Place::new();
        let sandbox = place.read(backend).reading(place.outside.path());
        let ran = place.run(&sandbox, "cat $OUT/secret; echo x > $OUT/new").await;
        assert_eq!((&*ran.out, ran.code), ("hidden", Some(1)), "{backend:?} {ran:?}");
        let sandbox = place.read(backend).writing(place.outside.path());
        let ran = place.run(&sandbox, "cat $OUT/secret; echo x > $OUT/new").await;
        assert_eq!((&*ran.out, ran.code), ("hidden", Some(0)), "{backend:?} {ran:?}");
        let sandbox = place.read(backend).reading(place.outside.path().join("none"));
        let error = sandbox.spawn("true", |command| command).await.unwrap_err();
        assert_eq!(error.kind(), entourage_core::ErrorKind::NotFound, "{error}");
    }
}

/// A place within another one, with other rights.
#[tokio::test]
async fn sandbox_a_place_within_another_is_written_if_one_of_both_is() {
    for backend in backends().await {
        let place = Place::new();
        std::fs::create_dir_all(place.root().join("sub/deep")).unwrap();
        let (sub, deep) = (place.root().join("sub"), place.root().join("sub/deep"));
        let script = "echo x > file; echo x > sub/file; echo x > sub/deep/file; find . -name file | sort";
        for (sandbox, written) in [
            (place.read(backend).writing(&sub).reading(&deep), "./sub/deep/file\n./sub/file"),
            (place.read(backend).reading(&sub).writing(&deep), "./sub/deep/file"),
            (place.write(backend).reading(&deep), "./file\n./sub/deep/file\n./sub/file"),
        ] {
            let ran = place.run(&sandbox, script).await;
            assert_eq!(ran.out, written, "{backend:?} {ran:?}");
            place.run(&place.write(backend), "find . -name file -delete").await;
        }
        // A place is closed within a root that is written by protecting it.
        let ran = place.run(&place.write(backend).protecting("sub/deep"), script).await;
        assert!(!deep.join("file").exists() && sub.join("file").exists(), "{backend:?} {ran:?}");
    }
}

#[tokio::test]
async fn attack_26_a_directory_outside_widens_nothing() {
    for backend in backends().await {
        let place = Place::new();
        let (child, _) = place
            .write(backend)
            .spawn("/bin/sh", |command| {
                command.args(["-c", "echo x > new"]).current_dir(place.outside.path())
            })
            .await
            .unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert!(!place.outside.path().join("new").exists(), "{backend:?} {output:?}");
        let (child, _) = place
            .write(backend)
            .spawn("/bin/sh", |command| command.args(["-c", "cat secret"]).current_dir(place.outside.path()))
            .await
            .unwrap();
        assert!(!child.wait_with_output().await.unwrap().status.success());
    }
}

#[tokio::test]
async fn sandbox_full_has_all_files_and_nothing_else() {
    if !has("/usr/bin/python3") {
        return;
    }
    for backend in backends().await {
        let place = Place::new();
        let sandbox = Sandbox::full().backend(backend);
        let ran = place.run(&sandbox, "cat $OUT/secret && echo x > $OUT/new && echo done").await;
        assert_eq!((&*ran.out, ran.code), ("hiddendone", Some(0)), "{backend:?} {ran:?}");
        let ran = place.run(&sandbox, "/usr/bin/python3 -c 'import socket; socket.socket()'").await;
        assert!(ran.err.contains("PermissionError"), "{backend:?} {ran:?}");
        assert_eq!((ran.enforced.level.as_str(), ran.enforced.root), ("full", None));
    }
}

#[tokio::test]
async fn sandbox_metadata_outside_changes_only_where_enforced_says_so() {
    use std::os::unix::fs::PermissionsExt;
    for backend in backends().await {
        let place = Place::new();
        let secret = place.outside.path().join("secret");
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let ran = place.run(&place.write(backend), "chmod 644 $OUT/secret").await;
        let mode = std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777;
        assert_eq!(ran.enforced.metadata_confined, backend == Backend::Bubblewrap);
        assert_eq!(mode == 0o600, ran.enforced.metadata_confined, "{backend:?} {ran:?}");
    }
}

#[tokio::test]
async fn sandbox_a_root_that_holds_the_home_directory_is_refused() {
    use entourage_core::ErrorKind;
    let home = std::env::var("HOME").ok().filter(|home| std::path::Path::new(home).exists());
    for root in home.as_deref().into_iter().chain(["/"]) {
        assert_eq!(Sandbox::workspace_write(root).unwrap_err().kind(), ErrorKind::InvalidInput, "{root}");
    }
    assert_eq!(Sandbox::read_only("/no/such/place").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Sandbox::read_only("/etc/passwd").unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn attack_26_a_place_that_a_command_replaced_by_a_link_leads_nowhere() {
    for backend in backends().await {
        for write in [true, false] {
            let place = Place::new();
            std::fs::create_dir_all(place.root().join("sub/cache")).unwrap();
            let hidden = place.outside.path().join("cache");
            std::fs::create_dir(&hidden).unwrap();
            std::fs::write(hidden.join("secret"), "hidden").unwrap();
            let cache = place.root().join("sub/cache");
            let sandbox = if write {
                place.write(backend).writing(&cache)
            } else {
                // The commands of another sandbox can write to the whole root.
                place.read(backend).writing(&cache)
            };
            let fine = place.run(&sandbox, "echo fine > sub/cache/file && cat sub/cache/file").await;
            assert_eq!(fine.out, "fine", "{backend:?} {fine:?}");
            // A link relative to the root leads out of it as well as an absolute one.
            let name = place.outside.path().file_name().unwrap().to_string_lossy().into_owned();
            let swap = format!("mv sub old && ln -s ../{name} sub && mkdir -p /tmp/{name}/cache; ls -d sub");
            let swapped = place.run(&place.write(backend), &swap).await;
            assert_eq!(swapped.out, "sub", "{backend:?} {swapped:?}");
            let script =
                "cat sub/cache/secret; echo evil > sub/cache/new; cat sub/cache/secret $OUT/cache/secret";
            let started = sandbox
                .spawn("/bin/bash", |command| {
                    command
                        .arg("-c")
                        .arg(script)
                        .env("OUT", place.outside.path())
                        .stdout(std::process::Stdio::piped())
                })
                .await;
            match started {
                Ok((child, enforced)) => {
                    let output = child.wait_with_output().await.unwrap();
                    assert!(output.stdout.is_empty(), "{backend:?} {write} {output:?}");
                    enforced.restore().await.unwrap();
                }
                Err(error) => {
                    assert_eq!(
                        (error.kind(), write),
                        (entourage_core::ErrorKind::Conflict, false),
                        "{error}"
                    );
                }
            }
            let names: Vec<_> =
                std::fs::read_dir(&hidden).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["secret"], "{backend:?} {write}");
        }
    }
}

#[tokio::test]
async fn attack_26_a_root_that_became_a_link_is_no_root_any_more() {
    for backend in backends().await {
        let place = Place::new();
        let inner = place.root().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let sandbox = Sandbox::workspace_write(&inner).unwrap().backend(backend);
        assert_eq!(place.run(&sandbox, "echo fine > file; cat file").await.out, "fine");
        std::fs::rename(&inner, place.root().join("old")).unwrap();
        std::os::unix::fs::symlink(place.outside.path(), &inner).unwrap();
        let error =
            sandbox.spawn("/bin/sh", |command| command.args(["-c", "echo x > new"])).await.unwrap_err();
        assert_eq!(error.kind(), entourage_core::ErrorKind::Conflict, "{error}");
        assert!(!place.outside.path().join("new").exists() && !place.outside.path().join(".git").exists());
    }
}

#[tokio::test]
async fn sandbox_a_place_that_is_made_anew_is_open_to_bubblewrap() {
    for backend in backends().await.into_iter().filter(|backend| *backend == Backend::Bubblewrap) {
        let place = Place::new();
        let settings = place.outside.path().join("settings");
        std::fs::write(&settings, "one").unwrap();
        let sandbox = place.write(backend).reading(&settings);
        // By the descriptor of a directory a command could climb out.
        let script = "cat $OUT/settings; for fd in /proc/[0-9]*/fd/*; do [ ! -d $fd ] || echo $fd; done";
        assert_eq!(place.run(&sandbox, script).await.out, "one");
        std::fs::write(place.outside.path().join("new"), "two").unwrap();
        std::fs::rename(place.outside.path().join("new"), &settings).unwrap();
        assert_eq!(place.run(&sandbox, script).await.out, "two");
    }
}

#[tokio::test]
async fn attack_26_directories_above_a_place_are_not_moved_away() {
    for backend in backends().await.into_iter().filter(|backend| *backend == Backend::Bubblewrap) {
        // Where the private directory is in a command, so that it could move what is above the root.
        let above = tempfile::Builder::new().prefix("above-").tempdir_in("/tmp").unwrap();
        let root = above.path().join("one/two/root");
        std::fs::create_dir_all(root.join("sub/deep/settings")).unwrap();
        let sandbox = Sandbox::workspace_write(&root)
            .unwrap()
            .backend(backend)
            .protecting("sub/deep/settings")
            .protecting("sub/deep/new");
        let place = Place::new();
        let top = above.path().display();
        let script = format!(
            "mv {top} /tmp/x; mv {top}/one {top}/x; rm -rf {top}; mv sub x; mv sub/deep sub/x; echo evil > sub/deep/new;
             echo evil > sub/deep/settings/evil; touch sub/deep/fine sub/fine; ls -A . sub sub/deep sub/deep/settings; pwd"
        );
        for _ in 0..2 {
            let ran = place.run(&sandbox, &script).await;
            assert!(ran.out.ends_with(&format!("\n{}", root.display())), "{ran:?}");
            assert!(ran.changed.is_empty() && ran.enforced.watched.is_empty(), "{ran:?}");
        }
        let names = |at: &str| {
            let entries = std::fs::read_dir(root.join(at)).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names.join(" ")
        };
        let found = ["", "sub", "sub/deep", "sub/deep/settings"].map(names);
        assert_eq!(found, ["sub", "deep fine", "fine settings", ""]);
    }
}
