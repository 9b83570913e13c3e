//! A server that is a child of this program.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    sync::watch,
    time::timeout,
};

use super::{environment, group::Group};
use crate::invisible::line;

/// Bytes of a server's last words that reasons have.
const LAST_WORDS: usize = 800;
/// Time in which a server that failed may end, for its last words, and in which these come after its end.
const END: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_millis(100);
/// Time that a server has to end once its input has, and once it was asked to.
const GRACE: Duration = Duration::from_secs(2);

/// The child that leads a group. Dropped, as with its runtime, it leaves no process of the group.
struct Leader {
    group: Group,
    child: Child,
}

impl Drop for Leader {
    fn drop(&mut self) {
        // Before the child is dropped, which frees the number of its group.
        self.group.close();
    }
}

/// A running server. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    group: Group,
    ended: watch::Receiver<bool>,
    exit: Arc<OnceLock<ExitStatus>>,
    last_words: Arc<Mutex<Vec<u8>>>,
}

impl ServerProcess {
    /// Starts a command as the leader of a process group. Returns its output and input. `held` is dropped once the
    /// process has ended.
    ///
    /// # Errors
    /// Those of the start.
    pub(crate) fn start(
        (program, args): (&OsStr, &[OsString]),
        env: &[(OsString, OsString)],
        dir: Option<&Path>,
        held: impl Send + 'static,
    ) -> std::io::Result<(Self, ChildStdout, ChildStdin)> {
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(environment::scrubbed(std::env::vars_os(), env, None));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let group = Group::of(&child);
        let (Some(output), Some(input)) = (child.stdout.take(), child.stdin.take()) else {
            group.kill();
            return Err(std::io::Error::other("the server has no pipes"));
        };
        let last_words = Arc::new(Mutex::new(Vec::new()));
        let errors = child.stderr.take();
        let (tell, ended) = watch::channel(false);
        let words = Arc::clone(&last_words);
        let mut leader = Leader { group: group.clone(), child };
        let exit = Arc::<OnceLock<ExitStatus>>::default();
        let noted = Arc::clone(&exit);
        // Ends with the child, whose group is killed when this value is dropped.
        tokio::spawn(async move {
            let mut listening = std::pin::pin!(listen(errors, words));
            let status = tokio::select! {
                status = leader.child.wait() => {
                    // Its own children may hold the pipe open.
                    let _ = timeout(REST, listening).await;
                    status
                }
                () = &mut listening => leader.child.wait().await,
            };
            // An error means that it cannot be waited for: it is nobody's child any more.
            if let Ok(status) = status {
                let _ = noted.set(status);
            }
            leader.group.close();
            tell.send_replace(true);
            drop(held);
        });
        Ok((Self { group, ended, exit, last_words }, output, input))
    }

    /// Adds how the server ended, and the last that it wrote to its standard error, to the reason that it is of no use.
    pub(crate) fn with_words(&self, mut reason: String) -> String {
        let exit = self.exit.get();
        if let Some(exit) = exit {
            reason = format!("{reason} ({exit})");
        }
        let words = {
            let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
            line(&String::from_utf8_lossy(&words))
        };
        match (words.is_empty(), exit) {
            (false, _) => format!("{reason}; it said: {words}"),
            (true, Some(_)) => format!("{reason}; it said nothing, so run its command in a terminal"),
            (true, None) => reason,
        }
    }

    /// The same for a server that may be about to end: its last words come with its end.
    pub(crate) async fn with_last_words(&self, reason: String) -> String {
        // One that does not end has said what it has to say.
        let _ = timeout(END, self.ended()).await;
        self.with_words(reason)
    }

    /// Tells when it has ended.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }

    /// Kills its process group.
    #[cfg(feature = "mcp")]
    pub(crate) fn kill(&self) {
        self.group.kill();
    }

    /// Returns its process group, for one who sees that the server is of no use any more.
    #[cfg(feature = "lsp")]
    pub(crate) fn group(&self) -> Group {
        self.group.clone()
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        // An error means that nobody is left to tell, which is the same.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Waits until it ends, whose input has ended; asks it to, and kills it, where it does not.
    pub(crate) async fn end(&self) {
        if timeout(GRACE, self.ended()).await.is_ok() {
            return;
        }
        self.group.ask_to_end();
        if timeout(GRACE, self.ended()).await.is_err() {
            self.group.kill();
            self.ended().await;
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.group.kill();
    }
}

async fn listen(errors: Option<ChildStderr>, words: Arc<Mutex<Vec<u8>>>) {
    let Some(mut errors) = errors else { return };
    let mut buffer = vec![0; 4_096];
    while let Ok(read) = errors.read(&mut buffer).await
        && read > 0
    {
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let over = words.len().saturating_sub(LAST_WORDS);
        words.drain(..over);
    }
}
