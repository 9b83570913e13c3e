//! One hook of one call, as a child of this process.

use std::{future::Future, path::Path, process::Stdio, time::Duration};

use tokio::{io::AsyncWriteExt, process::ChildStdin, sync::Notify, time::timeout};

use super::{answer::Answer, config::Hook};
use crate::process::{
    drive::{Bounds, Ended, drive, pump},
    environment::scrubbed,
    group::Group,
    spawn::Program,
};

/// Most bytes of an output.
const OUTPUT: usize = 64 << 10;
/// Time that a hook has to end by itself when its time is over.
const GRACE: Duration = Duration::from_secs(1);
/// Time after that for the system to end a hook that was killed.
const SLACK: Duration = Duration::from_secs(2);

/// An output, up to a bound.
#[derive(Debug, Default)]
struct Output {
    text: Vec<u8>,
    is_longer: bool,
}

impl Output {
    fn feed(&mut self, bytes: &[u8]) {
        let room = OUTPUT.saturating_sub(self.text.len());
        self.is_longer |= bytes.len() > room;
        self.text.extend(bytes.iter().take(room));
    }

    fn whole(&self) -> Option<&[u8]> {
        (!self.is_longer).then_some(&*self.text)
    }
}

/// Kills a group when its hook is no longer waited for.
struct KillOnDrop(Group);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Asks a hook about the call that `input` describes. Dropped, it kills the hook.
///
/// # Errors
/// The reason that it is ignored.
pub(super) async fn ask(hook: &Hook, program: &Program, dir: &Path, input: &[u8]) -> Result<Answer, String> {
    let vars = scrubbed(std::env::vars_os(), &[], None);
    let mut command = program.command();
    let child = program.set(&mut command, &hook.command, dir, vars).stdin(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("it could not be started: {error}"))?;
    let guard = KillOnDrop(Group::of(&child));
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut out, mut err) = (Output::default(), Output::default());
    let io = async {
        tokio::join!(
            write(stdin, input),
            pump(stdout, |bytes| out.feed(bytes)),
            pump(stderr, |bytes| err.feed(bytes)),
        );
    };
    let stop = Notify::new();
    let bounds = Bounds { time: hook.timeout + GRACE + SLACK, grace: GRACE, disk: None };
    match in_time(hook.timeout, &stop, drive(child, &guard.0, &stop, bounds, io)).await {
        Some(ended) if ended.aborted.is_none() => {
            let code = ended.status.and_then(|status| status.code());
            Answer::read(code, out.whole(), &err.text)
        }
        _ => Err(format!("it took longer than {} s", hook.timeout.as_secs())),
    }
}

/// Asks a hook to end when its time is over, and waits no longer than it takes to kill it; `None` if it goes on.
async fn in_time(time: Duration, stop: &Notify, ended: impl Future<Output = Ended>) -> Option<Ended> {
    tokio::pin!(ended);
    if let Ok(ended) = timeout(time, &mut ended).await {
        return Some(ended);
    }
    stop.notify_one();
    timeout(GRACE + SLACK, ended).await.ok()
}

/// Gives a hook its input. One that does not read it all has had enough.
async fn write(stdin: Option<ChildStdin>, input: &[u8]) {
    let Some(mut stdin) = stdin else { return };
    let _ = stdin.write_all(input).await;
    let _ = stdin.shutdown().await;
}
