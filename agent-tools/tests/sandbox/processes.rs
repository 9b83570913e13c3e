//! Other processes, system calls and limits.

use super::{Backend, Place, Sandbox, backends, has, is_root};

#[tokio::test]
async fn sandbox_the_parent_is_neither_signalled_nor_traced() {
    let host = std::process::id();
    for backend in backends().await {
        let place = Place::new();
        for sandbox in [place.write(backend), Sandbox::full().backend(backend)] {
            let attempts = [
                format!("kill -0 {host}"),
                format!("kill -CONT {host}"),
                "kill -CONT $PPID && [ $PPID -gt 2 ]".to_owned(),
                format!("prlimit --pid {host} --nofile=1000:1000"),
                "unshare -r true".to_owned(),
                "unshare -m true".to_owned(),
                "mount -t tmpfs none /mnt".to_owned(),
                "chroot / true".to_owned(),
                "nsenter -t 1 -m true".to_owned(),
                "dmesg".to_owned(),
                "hostname other".to_owned(),
            ];
            let none: [String; 0] = [];
            assert_eq!(place.escapes(&sandbox, &attempts).await, none, "{backend:?}");
        }
    }
}

/// Makes system calls by number and prints the names of those that were not refused with `EPERM`, or not missing.
const CALLS: &str = r#"/usr/bin/python3 - <<'PY'
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
calls = {
    "ptrace": (101 if x86 else 117, 16, 1, 0, 0), "process_vm_readv": (310 if x86 else 270, 1, 0, 0, 0, 0, 0),
    "io_uring_setup": (425, 1, 0), "mount": (165 if x86 else 40, 0, 0, 0, 0, 0), "unshare": (272 if x86 else 97, 0x10000000),
    "keyctl": (250 if x86 else 219, 0, -1, 0), "bpf": (321 if x86 else 280, 0, 0, 0), "setns": (308 if x86 else 268, 0, 0),
    "perf_event_open": (298 if x86 else 241, 0, 0, 0, 0, 0), "kexec_load": (246 if x86 else 104, 0, 0, 0, 0),
    "init_module": (175 if x86 else 105, 0, 0, 0), "pidfd_getfd": (438, 0, 0, 0), "userfaultfd": (323 if x86 else 282, 0),
    "clone": (56 if x86 else 220, 0x10000000, 0, 0, 0, 0), "open_by_handle_at": (304 if x86 else 265, 0, 0, 0),
    "tiocsti": (16 if x86 else 29, 0, 0x5412, 0), "prlimit of another": (302 if x86 else 261, 1, 7, ctypes.c_char_p(b"\0" * 16), 0),
}
if x86:
    calls["x32 getpid"] = (0x40000000 + 39,)
for name, call in calls.items():
    ctypes.set_errno(0)
    if libc.syscall(*call) != -1 or ctypes.get_errno() != 1:
        print(name, ctypes.get_errno())
ctypes.set_errno(0)
libc.syscall(435, 0, 0)
print("clone3", ctypes.get_errno())
PY"#;

#[tokio::test]
async fn attack_32_calls_into_the_kernel_are_refused_whoever_makes_them() {
    if !has("/usr/bin/python3") {
        return;
    }
    for backend in backends().await {
        let place = Place::new();
        let ran = place.run(&place.write(backend), CALLS).await;
        assert_eq!(ran.out, "clone3 38", "{backend:?} {ran:?}");
        // Of root's rights, those over the system: modules, raw memory, tracing, administration, resources, devices.
        let ran = place.run(&place.write(backend), "grep CapEff /proc/self/status | cut -f 2").await;
        let held = u64::from_str_radix(&ran.out, 16).unwrap();
        let system = [2, 13, 16, 17, 19, 21, 23, 24, 25, 27, 38, 39].map(|bit| 1 << bit);
        assert!(system.iter().all(|bit: &u64| held & bit == 0), "{backend:?} {ran:?}");
    }
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn attack_32_calls_of_another_architecture_end_the_process() {
    if !has("/usr/bin/python3") {
        return;
    }
    // `getpid` by the gate of 32 bit programs.
    let script = r#"/usr/bin/python3 - <<'PY'
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\xb8\x14\0\0\0\xcd\x80\xc3")
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print("before", flush=True)
print(call())
PY"#;
    for backend in backends().await {
        let place = Place::new();
        let ran = place.run(&place.write(backend), script).await;
        assert_eq!(ran.out, "before", "{backend:?} {ran:?}");
    }
}

#[tokio::test]
async fn sandbox_a_grandchild_in_its_own_session_is_confined_too() {
    for backend in backends().await {
        let place = Place::new();
        let script = "setsid sh -c 'cat $OUT/secret; echo x > $OUT/new; echo ran > inner'; \
            (setsid sh -c 'echo x > $OUT/late; echo ran > late' &) ; for i in $(seq 500); do [ -s late ] && break; sleep 0.01; done";
        let ran = place.run(&place.write(backend), script).await;
        assert_eq!(ran.out, "", "{backend:?} {ran:?}");
        assert!(
            place.root().join("inner").exists() && place.root().join("late").exists(),
            "{backend:?} {ran:?}"
        );
        assert_eq!(std::fs::read_dir(place.outside.path()).unwrap().count(), 1, "{backend:?} {ran:?}");
    }
}

#[tokio::test]
async fn sandbox_memory_and_file_size_are_limited_from_the_start() {
    if !has("/usr/bin/python3") {
        return;
    }
    for backend in backends().await {
        let place = Place::new();
        let sandbox = place.write(backend).memory(256 << 20).file_size(64 << 10);
        let ran = place.run(&sandbox, "/usr/bin/python3 -c 'bytearray(512 << 20)'").await;
        assert!(ran.err.contains("MemoryError"), "{backend:?} {ran:?}");
        let ran = place.run(&sandbox, "head -c 1000000 /dev/zero > big; wc -c < big").await;
        assert_eq!(ran.out, "65536", "{backend:?} {ran:?}");
        let ran = place.run(&sandbox, "ulimit -Hv; ulimit -Hf; ulimit -v unlimited || echo held").await;
        assert_eq!(ran.out, "262144\n64\nheld", "{backend:?} {ran:?}");
        assert_eq!((ran.enforced.memory, ran.enforced.file_size), (Some(256 << 20), Some(64 << 10)));
    }
}

#[tokio::test]
async fn sandbox_a_fork_bomb_of_an_unprivileged_user_is_held() {
    if !is_root() || !has("/usr/bin/setpriv") || !has("/usr/bin/python3") {
        println!("SKIPPED: only root can count the processes of a user of its own");
        return;
    }
    // Bubblewrap maps one user alone, so this becomes another one with Landlock.
    let place = Place::new();
    let sandbox = place.write(Backend::Landlock).processes(20);
    // Bounded by itself, and ended by it.
    let bomb = "import os, signal\nchildren = []\ntry:\n    while len(children) < 100:\n        child = os.fork()\n        \
        if child == 0:\n            signal.pause()\n        children.append(child)\nexcept BlockingIOError:\n    \
        print('held')\nfor child in children:\n    os.kill(child, 9)\n";
    std::fs::write(place.root().join("bomb.py"), bomb).unwrap();
    let ran = place
        .run(&sandbox, "setpriv --reuid 64999 --regid 64999 --clear-groups /usr/bin/python3 - < bomb.py")
        .await;
    assert_eq!(ran.out, "held", "{ran:?}");
    assert!(!ran.enforced.processes_confined, "{ran:?}");
}

#[tokio::test]
async fn sandbox_limits_are_not_evaded_by_variables_of_the_loader_or_the_shell() {
    let place = Place::new();
    for name in ["LD_PRELOAD", "BASH_FUNC_exec%%", "ENV"] {
        let limited = place.write(Backend::Landlock).memory(1 << 30);
        let error = limited.spawn("true", |command| command.env(name, "x")).await.unwrap_err();
        assert_eq!(error.kind(), entourage_core::ErrorKind::InvalidInput, "{error}");
        assert!(error.message().contains(name), "{error}");
    }
}

#[tokio::test]
async fn attack_32_memory_without_a_file_is_not_shared_with_the_machine() {
    if !has("/usr/bin/ipcmk") {
        return;
    }
    for backend in backends().await {
        let place = Place::new();
        let script = "ipcmk -M 16 >/dev/null 2>&1; echo $?; grep -c . /proc/sysvipc/shm";
        let ran = place.run(&place.write(backend), script).await;
        // With bubblewrap it is the command's own, one line below the heading.
        match backend {
            Backend::Bubblewrap => assert_eq!(ran.out, "0\n2", "{ran:?}"),
            _ => assert!(ran.out.starts_with("1\n"), "{ran:?}"),
        }
    }
}

#[tokio::test]
async fn sandbox_full_has_no_terminal_of_this_program() {
    if !has("/usr/bin/setsid") {
        return;
    }
    let place = Place::new();
    let script = "read -r id _ _ _ group session _ < /proc/self/stat; [ $group = $session ] && [ $session = $$ ] && echo own; \
        { : > /dev/tty; } 2>/dev/null || echo none";
    for sandbox in [Sandbox::full(), Sandbox::full().memory(1 << 30)] {
        let ran = place.run(&sandbox.backend(Backend::Landlock), script).await;
        assert_eq!(ran.out, "own\nnone", "{ran:?}");
    }
}
