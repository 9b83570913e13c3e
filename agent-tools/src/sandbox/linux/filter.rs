//! The seccomp filter: which system calls a command is refused.

use std::collections::BTreeMap;

use entourage_core::{Error, ErrorKind};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

/// Ways to other processes that the filter lets through.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) network: bool,
    pub(super) unix: bool,
    /// Memory, semaphores and queues that are known by a number, or by a name without a file.
    pub(super) memory: bool,
}

/// Calls that reach into other processes, the kernel or its name spaces, refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Calls by which processes share memory, semaphores and queues that no file stands for.
const MEMORY: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Flags of `clone` that make a name space.
const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Requests of `ioctl` that type into the terminal of whoever started this program.
const TYPING: &[u64] = &[0x5412, 0x541C];

/// Families that a command with network may open.
const INTERNET: &[libc::c_int] = &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// The bits of a socket's type that are not flags.
const SOCKET_TYPE: u64 = 0xF;

/// The filter for one architecture. Calls of another one end the process.
pub(super) fn program(open: Open) -> Result<BpfProgram, Error> {
    let memory = MEMORY.iter().filter(|_| !open.memory);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().chain(memory).map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_socket, opened(open)?);
    rules.insert(libc::SYS_socketpair, vec![all([is_not(0, libc::AF_UNIX)?])?]);
    let flags = NAMESPACES.iter().map(|flag| all([has(0, bits(*flag), bits(*flag))?]));
    rules.insert(libc::SYS_clone, flags.collect::<Result<_, Error>>()?);
    let typing = TYPING.iter().map(|request| all([is(1, *request)?]));
    rules.insert(libc::SYS_ioctl, typing.collect::<Result<_, Error>>()?);
    // A process may set its own limits; those of others of its user, the host among them, are none of its business.
    let others = [long(0, SeccompCmpOp::Ne, 0)?, long(2, SeccompCmpOp::Ne, 0)?];
    rules.insert(libc::SYS_prlimit64, vec![all(others)?]);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(failed)?;
    let compiled = BpfProgram::try_from(filter).map_err(failed)?;
    Ok(prelude().into_iter().chain(compiled).collect())
}

/// The rules by which a socket is refused; none refuses all.
fn opened(open: Open) -> Result<Vec<SeccompRule>, Error> {
    let unix = open.unix.then_some(libc::AF_UNIX);
    let allowed: Vec<_> = INTERNET.iter().copied().filter(|_| open.network).chain(unix).collect();
    if allowed.is_empty() {
        return Ok(Vec::new());
    }
    let unknown = allowed.iter().map(|family| is_not(0, *family)).collect::<Result<Vec<_>, Error>>()?;
    let mut rules = vec![all(unknown)?];
    if open.network {
        for family in [libc::AF_INET, libc::AF_INET6] {
            rules.push(all([is(0, bits(family))?, has(1, SOCKET_TYPE, bits(libc::SOCK_RAW))?])?);
        }
        rules.push(all([is(0, bits(libc::AF_NETLINK))?, is_not(2, libc::NETLINK_ROUTE)?])?);
    }
    Ok(rules)
}

/// Instructions before the filter, for what it has no words for: calls of x32, whose numbers have a bit of their own,
/// are refused, and `clone3` does not exist, since its flags lie in memory. The C library then uses `clone`.
fn prelude() -> Vec<sock_filter> {
    const LOAD: u16 = 0x20;
    const AT_LEAST: u16 = 0x35;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ERRNO: u32 = 0x0005_0000;
    const X32: u32 = 0x4000_0000;
    let one = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    vec![
        one(LOAD, 0, 0, 0),
        one(AT_LEAST, 0, 1, X32),
        one(RETURN, 0, 0, ERRNO | libc::EPERM.unsigned_abs()),
        one(EQUAL, 0, 1, clone3),
        one(RETURN, 0, 0, ERRNO | libc::ENOSYS.unsigned_abs()),
    ]
}

/// The filter as the kernel reads it from a file.
pub(super) fn bytes(program: &[sock_filter]) -> Vec<u8> {
    let one = |line: &sock_filter| {
        let [a, b] = line.code.to_ne_bytes();
        let [c, d, e, f] = line.k.to_ne_bytes();
        [a, b, line.jt, line.jf, c, d, e, f]
    };
    program.iter().flat_map(one).collect()
}

fn bits(flag: libc::c_int) -> u64 {
    u64::from(flag.cast_unsigned())
}

fn condition(
    argument: u8,
    len: SeccompCmpArgLen,
    op: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, Error> {
    SeccompCondition::new(argument, len, op, value).map_err(failed)
}

fn is(argument: u8, value: u64) -> Result<SeccompCondition, Error> {
    condition(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn is_not(argument: u8, value: libc::c_int) -> Result<SeccompCondition, Error> {
    condition(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, bits(value))
}

fn has(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, Error> {
    condition(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value)
}

fn long(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Error> {
    condition(argument, SeccompCmpArgLen::Qword, op, value)
}

fn all(conditions: impl Into<Vec<SeccompCondition>>) -> Result<SeccompRule, Error> {
    SeccompRule::new(conditions.into()).map_err(failed)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, "the filter of system calls could not be made; report this")
        .caused_by(error)
}
