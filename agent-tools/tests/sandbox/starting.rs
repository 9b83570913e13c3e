//! Starting and stopping: missing backends, threads of the host, dropped futures, records.

use std::{
    future::Future,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use entourage_core::ErrorKind;
use entourage_tools::sandbox::Enforced;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::{Backend, Place, Sandbox, backends};

#[tokio::test]
async fn attack_31_a_backend_that_is_missing_is_an_error_and_nothing_starts() {
    let place = Place::new();
    for program in ["/no/such/bwrap", "bwrap", "/bin/false"] {
        let sandbox = place.write(Backend::Bubblewrap).bubblewrap(program);
        let error =
            sandbox.spawn("/bin/sh", |command| command.args(["-c", "echo x > new"])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(!place.root().join("new").exists());
        // What is not demanded may be another one, and the record says which.
        let sandbox = place.write(Backend::Any).bubblewrap(program);
        let ran = place.run(&sandbox, "echo x > new").await;
        assert_eq!((ran.enforced.backend, ran.code), (Backend::Landlock, Some(0)));
        std::fs::remove_file(place.root().join("new")).unwrap();
    }
}

#[test]
fn attack_31_a_kernel_without_landlock_is_an_error_and_nothing_starts() {
    let without = || {
        // This thread, and all that it starts, run on a kernel that does not know the call.
        let rules = [(libc::SYS_landlock_create_ruleset, Vec::new())].into_iter().collect();
        let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, missing, arch).unwrap();
        seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async {
            let place = Place::new();
            for sandbox in [
                place.write(Backend::Landlock),
                place.write(Backend::Landlock).best_effort(),
                place.write(Backend::Any).bubblewrap("/no/such/bwrap"),
                place.read(Backend::Any).bubblewrap("/no/such/bwrap").best_effort(),
                Sandbox::full().backend(Backend::Landlock).best_effort(),
            ] {
                let started = sandbox.spawn("/bin/sh", |command| command.args(["-c", "echo x > new"])).await;
                assert_eq!(started.unwrap_err().kind(), ErrorKind::Unsupported, "{sandbox:?}");
                assert!(!place.root().join("new").exists());
            }
        });
    };
    std::thread::spawn(without).join().unwrap();
}

#[tokio::test]
async fn sandbox_programs_that_cannot_be_read_are_not_found_in_path() {
    for backend in backends().await {
        let place = Place::new();
        let ran = place.run(&place.read(backend), "echo $PATH").await;
        assert!(ran.out.split(':').any(|one| one == "/usr/bin"), "{ran:?}");
        assert!(
            ran.out.split(':').all(|one| !one.starts_with("/root") && !one.starts_with("/tmp")),
            "{ran:?}"
        );
    }
}

#[tokio::test]
async fn sandbox_threads_of_the_host_stay_free() {
    let place = Place::new();
    let before = std::fs::read_to_string("/proc/self/status").unwrap();
    let line =
        |status: &str, name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    for backend in backends().await {
        place.run(&place.read(backend), "true").await;
        std::fs::write(place.outside.path().join("mine"), "x").unwrap();
        assert_eq!(std::fs::read_to_string(place.outside.path().join("secret")).unwrap(), "hidden");
        std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        std::thread::spawn(|| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).join().unwrap();
        let after = std::fs::read_to_string("/proc/self/status").unwrap();
        for name in ["NoNewPrivs", "Seccomp:", "CapEff", "CapBnd"] {
            assert_eq!(line(&before, name), line(&after, name), "{backend:?}");
        }
    }
}

#[tokio::test]
async fn sandbox_two_at_once_do_not_share_rights() {
    for backend in backends().await {
        let (one, two) = (Place::new(), Place::new());
        let script = format!(
            "echo x > own; echo x > {}/stolen; echo x > {}/stolen; true",
            one.root().display(),
            two.root().display()
        );
        let (a, b) = (one.write(backend), two.write(backend));
        tokio::join!(one.run(&a, &script), two.run(&b, &script));
        for place in [&one, &two] {
            assert!(place.root().join("own").exists(), "{backend:?}");
            // Each may write its own root by its full name.
            assert!(place.root().join("stolen").exists(), "{backend:?}");
        }
        std::fs::remove_file(two.root().join("stolen")).unwrap();
        one.run(&a, &script).await;
        assert!(!two.root().join("stolen").exists(), "{backend:?}");
    }
}

/// The ids of processes with `mark` among their arguments.
fn marked(mark: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let ids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    ids.filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|id| {
            std::fs::read(format!("/proc/{id}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
        })
        .collect()
}

/// Notes that a future was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandbox_a_dropped_spawn_leaves_no_process() {
    // The future waits three times: for the settings, for the protected paths, and for the child. It is dropped at each
    // wait: after some turns of the scheduler, or once it was woken and before it looks.
    for backend in backends().await {
        let mut ends = 0;
        for (polls, turns) in
            (0..=4).flat_map(|polls| [0, 100, 2_000, usize::MAX].map(|turns| (polls, turns)))
        {
            let place = Place::new();
            let mark = format!("marked-{}-{backend:?}-{polls}-{turns}-end", std::process::id());
            let sandbox = place.write(backend);
            let mut spawn = Box::pin(sandbox.spawn("/bin/sh", |command| {
                command.args(["-c", "while :; do sleep 0.05; done", &mark]).stdin(Stdio::null())
            }));
            let woken = Arc::new(Woken(AtomicBool::new(false)));
            let waker = Waker::from(Arc::clone(&woken));
            for poll in 1..=polls {
                woken.0.store(false, Ordering::SeqCst);
                if let Poll::Ready(result) = spawn.as_mut().poll(&mut Context::from_waker(&waker)) {
                    let (mut child, enforced) = result.unwrap();
                    // The child is found by its mark, except while it becomes another program.
                    while marked(&mark).is_empty() {
                        tokio::task::yield_now().await;
                    }
                    Sandbox::kill_tree(&child);
                    child.wait().await.unwrap();
                    enforced.restore().await.unwrap();
                    ends += 1;
                    break;
                }
                let mut turn = 0;
                while !woken.0.load(Ordering::SeqCst) && (poll < polls || turn < turns) {
                    tokio::task::yield_now().await;
                    turn += 1;
                }
            }
            drop(spawn);
            let mut turns = 0;
            while !marked(&mark).is_empty() || place.root().join(".git").exists() {
                tokio::task::yield_now().await;
                turns += 1;
                assert!(turns < 100_000, "{backend:?}: {polls} polls: {:?} is left", marked(&mark));
            }
        }
        assert!(ends >= 4, "the rounds of four polls reach the child: {backend:?}");
    }
}

#[tokio::test]
async fn sandbox_kill_tree_ends_what_the_command_started() {
    for backend in backends().await {
        let place = Place::new();
        let mark = format!("killed-{}-{backend:?}-end", std::process::id());
        let (mut child, _) = place
            .write(backend)
            .spawn("/bin/sh", |command| {
                let script = "sh -c 'while :; do sleep 0.05; done' $0 & echo ready > ready; wait";
                command.args(["-c", script, &mark]).stdin(Stdio::null())
            })
            .await
            .unwrap();
        while !place.root().join("ready").exists() {
            tokio::task::yield_now().await;
        }
        Sandbox::kill_tree(&child);
        assert!(!child.wait().await.unwrap().success());
        while !marked(&mark).is_empty() {
            tokio::task::yield_now().await;
        }
        // Does nothing, since the process was waited for.
        Sandbox::kill_tree(&child);
    }
}

#[tokio::test]
async fn sandbox_exit_codes_and_missing_programs_are_told() {
    for backend in backends().await {
        let place = Place::new();
        for limited in [place.read(backend), place.read(backend).memory(1 << 30)] {
            assert_eq!(place.run(&limited, "exit 7").await.code, Some(7), "{backend:?}");
        }
        match place.read(backend).spawn("/no/such/program", |command| command).await {
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
            Ok((mut child, _)) => assert_eq!(child.wait().await.unwrap().code(), Some(127), "{backend:?}"),
        }
        let (mut child, _) =
            place.read(backend).memory(1 << 30).spawn("/no/such/program", |command| command).await.unwrap();
        let code = child.wait().await.unwrap().code();
        assert_eq!(code, Some(127), "{backend:?}");
    }
}

#[tokio::test]
async fn sandbox_the_private_directory_lasts_as_long_as_its_command() {
    for backend in backends().await {
        let place = Place::new();
        let spawn = |sandbox: Sandbox| async move {
            let script = "until [ -e go ]; do sleep 0.01; done; echo x > $TMPDIR/t && cat $TMPDIR/t > seen";
            sandbox.spawn("/bin/sh", |command| command.args(["-c", script])).await.unwrap()
        };
        let (mut child, enforced) = spawn(place.write(backend)).await;
        std::fs::write(place.root().join("go"), "").unwrap();
        assert!(child.wait().await.unwrap().success(), "{backend:?}");
        assert_eq!(std::fs::read_to_string(place.root().join("seen")).unwrap(), "x\n", "{backend:?}");
        enforced.restore().await.unwrap();
        let temp = enforced.temp.clone();
        assert!(temp.exists());
        drop(enforced);
        // With bubblewrap a thread sees the end of the child, and then lets go.
        while temp.exists() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn sandbox_what_is_enforced_is_a_value_for_records() {
    for backend in backends().await {
        let place = Place::new();
        let ran = place.run(&place.write(backend).memory(1 << 30), "true").await;
        assert_eq!(ran.enforced.backend, backend);
        assert_eq!(ran.enforced.landlock_abi.is_some(), backend == Backend::Landlock);
        assert!(ran.enforced.signals_confined && ran.enforced.gaps.is_empty(), "{ran:?}");
        let json = serde_json::to_value(&ran.enforced).unwrap();
        let name = if backend == Backend::Landlock { "landlock" } else { "bubblewrap" };
        assert_eq!((&json["backend"], &json["level"]), (&name.into(), &"workspace_write".into()));
        let read: Enforced = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
        assert!(read.restore().await.unwrap().is_empty());
    }
}
