//! Paths below the root that commands must not change, and that may not exist yet.

use std::{os::unix::fs::PermissionsExt, path::PathBuf};

use super::{Backend, Place, backends};

#[tokio::test]
async fn attack_22_hooks_and_settings_that_do_not_exist_are_not_created() {
    for backend in backends().await {
        let place = Place::new();
        let script = "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > .envrc; mkdir x; \
            echo evil > x/settings.json; mv -T x .claude; ln -s inside .mcp.json; mkdir sub; echo fine > sub/file";
        let ran = place.run(&place.write(backend), script).await;
        for name in [".git", ".envrc", ".claude", ".mcp.json"] {
            assert!(place.root().join(name).symlink_metadata().is_err(), "{backend:?}: {name}: {ran:?}");
        }
        assert!(place.root().join("sub/file").exists(), "{backend:?} {ran:?}");
        match backend {
            Backend::Bubblewrap => {
                assert!(ran.enforced.read_only.contains(&PathBuf::from(".git")), "{ran:?}");
                assert!(ran.enforced.watched.is_empty() && ran.changed.is_empty(), "{ran:?}");
                assert!(!place.root().join("removed-by-sandbox-1-git").exists());
            }
            _ => {
                let changed: Vec<_> = [".claude", ".envrc", ".git", ".mcp.json"].map(PathBuf::from).into();
                assert_eq!(ran.changed, changed, "{ran:?}");
                assert!(ran.enforced.watched.contains(&PathBuf::from(".git")), "{ran:?}");
                assert!(place.root().join("removed-by-sandbox-1-git/hooks/pre-commit").exists());
            }
        }
    }
}

#[tokio::test]
async fn attack_22_hooks_and_settings_that_exist_are_kept() {
    for backend in backends().await {
        let place = Place::new();
        let git = place.root().join(".git");
        std::fs::create_dir_all(git.join("hooks")).unwrap();
        std::fs::create_dir_all(git.join("objects")).unwrap();
        std::fs::write(git.join("config"), "[core]").unwrap();
        std::fs::write(git.join("hooks/pre-push"), "true").unwrap();
        std::fs::set_permissions(git.join("hooks/pre-push"), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(place.root().join(".envrc"), "good").unwrap();
        let script = "echo evil > .git/hooks/pre-commit; echo evil >> .git/config; rm -f .git/hooks/pre-push; \
            rm -f .envrc; mkdir .envrc; echo blob > .git/objects/one; true";
        let ran = place.run(&place.write(backend), script).await;
        assert_eq!(std::fs::read_to_string(git.join("config")).unwrap(), "[core]", "{backend:?} {ran:?}");
        assert_eq!(
            std::fs::read_to_string(place.root().join(".envrc")).unwrap(),
            "good",
            "{backend:?} {ran:?}"
        );
        assert!(!git.join("hooks/pre-commit").exists(), "{backend:?} {ran:?}");
        let mode = std::fs::metadata(git.join("hooks/pre-push")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{backend:?} {ran:?}");
        if backend == Backend::Landlock {
            let changed = [".envrc", ".git/config", ".git/hooks/pre-commit", ".git/hooks/pre-push"];
            assert_eq!(ran.changed, changed.map(PathBuf::from), "{ran:?}");
        } else {
            assert!(ran.changed.is_empty() && !git.join("objects/one").exists(), "{ran:?}");
        }
    }
}

#[tokio::test]
async fn attack_22_a_link_at_a_protected_path_leads_nothing_out() {
    for backend in backends().await {
        let place = Place::new();
        let secret = place.outside.path().join("secret");
        // Before the command, a link of the user; during it, the command makes others.
        std::os::unix::fs::symlink(place.outside.path(), place.root().join(".vscode")).unwrap();
        std::fs::create_dir(place.root().join(".husky")).unwrap();
        std::fs::write(place.root().join(".husky/hook"), "good").unwrap();
        let script = "rm -f .vscode; mkdir .vscode; echo evil > .vscode/tasks.json; \
            mv .husky gone; ln -s $OUT .husky; true";
        let ran = place.run(&place.write(backend), script).await;
        assert_eq!(
            std::fs::read_link(place.root().join(".vscode")).unwrap(),
            place.outside.path(),
            "{ran:?}"
        );
        assert!(!place.root().join(".husky").is_symlink(), "{ran:?}");
        assert_eq!(std::fs::read_to_string(place.root().join(".husky/hook")).unwrap(), "good", "{ran:?}");
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "hidden");
        assert_eq!(std::fs::read_dir(place.outside.path()).unwrap().count(), 1, "{backend:?} {ran:?}");
        assert!(ran.changed.contains(&PathBuf::from(".vscode")), "{backend:?} {ran:?}");
    }
}

#[tokio::test]
async fn sandbox_a_path_can_be_protected_or_taken_from_the_protected_ones() {
    for backend in backends().await {
        let place = Place::new();
        std::fs::create_dir(place.root().join("deploy")).unwrap();
        std::fs::write(place.root().join("deploy/key"), "key").unwrap();
        let sandbox =
            place.write(backend).unprotected(".git").protecting("deploy/key").protecting("deploy/new/file");
        let script = "mkdir -p .git/hooks && echo mine > .git/hooks/x; echo evil > deploy/key; \
            mkdir -p deploy/new && echo evil > deploy/new/file; mv deploy old; mkdir deploy; echo evil > deploy/key; true";
        let ran = place.run(&sandbox, script).await;
        assert!(place.root().join(".git/hooks/x").exists(), "{backend:?} {ran:?}");
        assert_eq!(std::fs::read_to_string(place.root().join("deploy/key")).unwrap(), "key", "{ran:?}");
        assert!(!place.root().join("deploy/new").exists(), "{backend:?} {ran:?}");
        let error =
            place.write(backend).protecting("../other").spawn("true", |command| command).await.unwrap_err();
        assert_eq!(error.kind(), entourage_core::ErrorKind::InvalidInput, "{error}");
    }
}

#[tokio::test]
async fn sandbox_two_commands_at_once_leave_nothing_behind() {
    for backend in backends().await {
        let place = Place::new();
        let sandbox = place.write(backend);
        // The second one tries after the first one has ended and was restored.
        let (mut waiting, held) = sandbox
            .spawn("/bin/bash", |command| {
                command.args([
                    "-c",
                    "until [ -e go ]; do sleep 0.01; done; mkdir -p .git/hooks; echo evil > .git/hooks/x",
                ])
            })
            .await
            .unwrap();
        let ran = place.run(&sandbox, "echo first > first").await;
        assert!(ran.changed.is_empty(), "{backend:?} {ran:?}");
        std::fs::write(place.root().join("go"), "").unwrap();
        waiting.wait().await.unwrap();
        let changed = held.restore().await.unwrap();
        assert!(!place.root().join(".git").exists(), "{backend:?} {changed:?}");
        assert_eq!(changed.is_empty(), backend == Backend::Bubblewrap, "{changed:?}");
        let mut names: Vec<_> = std::fs::read_dir(place.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("removed-by-sandbox"))
            .collect();
        names.sort();
        assert_eq!(names, ["first", "go", "inside"], "{backend:?}");
    }
}
