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
