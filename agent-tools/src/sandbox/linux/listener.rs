//! The listener for a command that reaches hosts through the proxy. It lies in the command's own network, where this
//! program cannot open one: an interpreter opens it there, this program takes a copy of its descriptor, and only then
//! the interpreter becomes the command.

use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use entourage_core::{Error, ErrorKind};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::process::Child;

use super::keeper::children;

/// The port of the proxy in the command's network.
pub(super) const PORT: u16 = 3_128;

/// Time in which the interpreter has to open the listener, and between two looks.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// Descriptors among which the listener is looked for.
const DESCRIPTORS: std::ops::Range<i32> = 3..64;

/// An interpreter that opens the listener, connects to it, waits for one byte, and becomes the command that follows.
/// It ends after 20 s if this program is killed meanwhile.
#[derive(Debug)]
pub(super) struct Opener {
    /// The interpreter with its options, and what comes before it.
    pub(super) program: &'static [&'static str],
    pub(super) script: &'static str,
    /// A script that tells by its exit code if the interpreter has what it needs.
    pub(super) trial: &'static str,
}

/// Keeps from perl the variables that it reads, under other names. The script gives them back to the command.
const WITHOUT_PERLS_VARIABLES: &str = "for v in PERL5OPT PERL5LIB PERLLIB PERL5DB PERL_UNICODE PERL_BADLANG PERLIO \
    PERLIO_DEBUG PERL_HASH_SEED PERL_PERTURB_KEYS PERL_INTERNAL_RAND_SEED PERL_SIGNALS;do \
    eval \"[ \\\"\\${$v+x}\\\" ]&&export SANDBOX_$v=\\\"\\$$v\\\"\";unset $v;done;PERL_BADLANG=0 exec \"$0\" \"$@\"";

pub(super) const OPENERS: [Opener; 2] = [
    Opener {
        program: &["/bin/sh", "-c", WITHOUT_PERLS_VARIABLES, "/usr/bin/perl", "-MSocket", "-e"],
        script: "alarm 20;socket(L,AF_INET,SOCK_STREAM,0)&&setsockopt(L,SOL_SOCKET,SO_REUSEADDR,1)\
            &&bind(L,$a=pack_sockaddr_in(3128,INADDR_LOOPBACK))&&listen(L,128)\
            &&socket(C,AF_INET,SOCK_STREAM,0)&&connect(C,$a)&&sysread(C,$b,1)\
            or print(STDERR \"sandbox: no listener for the proxy: $!\\n\"),exit 1;\
            alarm 0;delete$ENV{PERL_BADLANG};/^SANDBOX_(PERL.+)/&&($ENV{$1}=delete$ENV{$_})for keys%ENV;\
            exec{$ARGV[0]}@ARGV;print STDERR \"sandbox: $ARGV[0] cannot be started: $!\\n\";exit 127",
        trial: "1",
    },
    Opener {
        program: &["/usr/bin/python3", "-I", "-S", "-c"],
        script: "import os,signal,socket,sys\n\
            a=('127.0.0.1',3128);signal.alarm(20)\n\
            l=socket.socket();l.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1);l.bind(a);l.listen(128)\n\
            c=socket.socket();c.connect(a);c.recv(1) or sys.exit('sandbox: no listener for the proxy')\n\
            [signal.signal(s,signal.SIG_DFL) for s in (signal.SIGPIPE,signal.SIGXFSZ)]\n\
            signal.alarm(0)\n\
            try:os.execvp(sys.argv[1],sys.argv[1:])\n\
            except OSError as e:os.write(2,f'sandbox: {sys.argv[1]} cannot be started: {e}\\n'.encode());os._exit(127)",
        trial: "import os,signal,socket",
    },
];

/// A listener, and the interpreter that waits to become the command.
#[derive(Debug)]
pub(super) struct Taken {
    listener: TcpListener,
    interpreter: TcpStream,
}

impl Taken {
    /// Lets the command begin.
    pub(super) fn begin(mut self) -> Result<TcpListener, Error> {
        self.interpreter.write_all(b"x")?;
        Ok(self.listener)
    }
}

/// Takes the listener that the interpreter below `child` opened. Blocks.
pub(super) fn take(child: &mut Child) -> Result<Taken, Error> {
    let began = Instant::now();
    let root = child.id();
    let mut refused = None;
    while began.elapsed() < PATIENCE {
        for id in root.into_iter().flat_map(descendants) {
            match listener_of(id) {
                Ok(Some(taken)) => return Ok(taken),
                Ok(None) => {}
                Err(error) => refused = Some(error),
            }
        }
        if child.try_wait().map_or(true, |ended| ended.is_some()) {
            return Err(failed("the command ended before its proxy was ready; its errors say why", refused));
        }
        thread::sleep(PAUSE);
    }
    Err(failed(
        "the proxy of the sandbox could not be set up; allow this program `pidfd_getfd` on its children, or leave out \
         `hosts`",
        refused,
    ))
}

fn failed(message: &'static str, refused: Option<rustix::io::Errno>) -> Error {
    let error = Error::new(ErrorKind::Unsupported, message).during("sandbox.spawn");
    match refused {
        Some(refused) => error.caused_by(std::io::Error::from(refused)),
        None => error,
    }
}

/// The processes below `id`, as far as they can be seen.
fn descendants(id: u32) -> Vec<u32> {
    let mut found = vec![id];
    let mut next = 0;
    while let Some(id) = found.get(next) {
        found.extend(children(*id));
        next += 1;
    }
    found.split_off(1)
}

/// A copy of the listener that a process opened, once the process has connected to it.
fn listener_of(id: u32) -> rustix::io::Result<Option<Taken>> {
    let Some(id) = super::pid(id) else { return Ok(None) };
    let process = pidfd_open(id, PidfdFlags::empty())?;
    for descriptor in DESCRIPTORS {
        let copy = match pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()) {
            Ok(copy) => TcpListener::from(copy),
            Err(rustix::io::Errno::BADF) => continue,
            Err(error) => return Err(error),
        };
        let ours = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        if copy.local_addr().is_ok_and(|address| address == ours)
            && copy.set_nonblocking(true).is_ok()
            && let Ok((interpreter, _)) = copy.accept()
        {
            return Ok(Some(Taken { listener: copy, interpreter }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Stdio};

    use super::*;

    const SHOW: &str = "echo \"$0 $1 $PERL5OPT $PERL_UNICODE $PERLIO ${PERL_BADLANG-none}$(env | grep SANDBOX_)\"; kill -PIPE $$";

    #[tokio::test]
    async fn each_interpreter_opens_a_listener_and_becomes_the_command() {
        for opener in OPENERS {
            let there = |program: &str| Path::new(program).exists();
            let Some(bubblewrap) =
                ["/usr/bin/bwrap", "/usr/local/bin/bwrap"].into_iter().find(|it| there(it))
            else {
                println!("SKIPPED: no bwrap");
                return;
            };
            if !opener.program.iter().filter(|word| word.starts_with('/')).all(|program| there(program)) {
                println!("SKIPPED: no {:?}", opener.program);
                continue;
            }
            let start = |command: &[&str]| {
                let mut bare = tokio::process::Command::new(bubblewrap);
                bare.args(["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc"]);
                bare.args(["--dev", "/dev", "--"]).args(opener.program).args(command);
                bare.env("PERL5OPT", "-MNo::Such").env("PERL_UNICODE", "SDA").env("LC_ALL", "xx_YY.UTF-8");
                bare.env("PERLIO", ":utf8").env("PERL_HASH_SEED", "no number");
                bare.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            };
            assert!(start(&[opener.trial]).wait().await.unwrap().success(), "{opener:?}");
            let mut child = start(&[opener.script, "/bin/sh", "-c", SHOW, "a  b", "-c"]);
            let (listener, child) =
                tokio::task::spawn_blocking(move || (take(&mut child), child)).await.unwrap();
            assert_eq!(listener.unwrap().begin().unwrap().local_addr().unwrap().port(), PORT);
            let output = child.wait_with_output().await.unwrap();
            assert_eq!(
                (output.stdout.as_slice(), output.status.code()),
                (&b"a  b -c -MNo::Such SDA :utf8 none\n"[..], Some(141)),
                "{output:?}"
            );
            assert!(!String::from_utf8_lossy(&output.stderr).contains("PERL_HASH_SEED"), "{output:?}");
            let mut child = start(&[opener.script, "/no/such/program"]);
            let child =
                tokio::task::spawn_blocking(move || take(&mut child).and_then(Taken::begin).map(|_| child))
                    .await
                    .unwrap()
                    .unwrap();
            let output = child.wait_with_output().await.unwrap();
            assert_eq!(output.status.code(), Some(127), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be started"), "{output:?}");
        }
    }
}
