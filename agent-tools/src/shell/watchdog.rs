//! Ends commands when this program is killed: a small shell holds the other end of a pipe, and kills their groups when
//! the pipe ends.
//!
//! No process can do that for its own death. Each command waits for a line before it begins, so that none runs which
//! the watchdog does not know.

#[cfg(unix)]
pub(super) use unix::{Care, Watchdog, gate, held_back};
#[cfg(not(unix))]
pub(super) use without::{Care, Watchdog, gate, held_back};

#[cfg(unix)]
mod unix {
    use std::{
        collections::BTreeSet,
        fs::File,
        io::{self, Write},
        process::Stdio,
        sync::{Arc, Mutex, PoisonError},
    };

    use tokio::process::{Child, Command};

    use crate::process::spawn::Program;

    /// Keeps the numbers of groups, of which one line adds or removes one, and kills what is left of them at the end. A
    /// leader is killed by its own number too: it may not have made its group yet.
    const WATCH: &str = r#"trap '' HUP INT QUIT TERM
groups=' '
while read -r sign group; do
    case $sign in
    +) groups="$groups$group " ;;
    -) groups="${groups%% $group *} ${groups#* $group }" ;;
    esac
done
for group in $groups; do
    kill -s KILL -- "-$group"
    kill -s KILL -- "$group"
done"#;

    /// Waits for a line, and then becomes the command that its arguments are, without input.
    const GATE: &str = r#"read -r _ && exec "$@" </dev/null"#;

    /// A process that outlives this program for a moment. It is started with the first command.
    #[derive(Debug, Default)]
    pub(crate) struct Watchdog(Mutex<Watched>);

    #[derive(Debug, Default)]
    struct Watched {
        pipe: Option<File>,
        groups: BTreeSet<u32>,
    }

    impl Watchdog {
        /// Takes the group that `child` leads into its care, and lets the command behind the gate begin.
        ///
        /// # Errors
        /// Those of starting the watchdog: then the command has not begun.
        pub(crate) fn release(self: &Arc<Self>, shell: &Program, child: &mut Child) -> io::Result<Care> {
            let group = child.id();
            let care = Care { group, watchdog: Arc::clone(self) };
            group.map_or(Ok(()), |group| self.add(shell, group))?;
            if let Some(mut gate) =
                child.stdin.take().and_then(|pipe| pipe.into_owned_fd().ok()).map(File::from)
            {
                // If there is nobody to read it, the command ended before, and its status tells why.
                let _ = gate.write_all(b"\n");
            }
            Ok(care)
        }

        fn add(&self, shell: &Program, group: u32) -> io::Result<()> {
            let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            watched.groups.insert(group);
            if let Some(pipe) = &mut watched.pipe
                && pipe.write_all(format!("+ {group}\n").as_bytes()).is_ok()
            {
                return Ok(());
            }
            // The first one, or somebody killed it.
            let mut pipe = start(shell)?;
            let all: String = watched.groups.iter().map(|group| format!("+ {group}\n")).collect();
            pipe.write_all(all.as_bytes())?;
            watched.pipe = Some(pipe);
            Ok(())
        }

        fn remove(&self, group: u32) {
            let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if watched.groups.remove(&group)
                && let Some(pipe) = &mut watched.pipe
            {
                // The next one is told what is left.
                let _ = pipe.write_all(format!("- {group}\n").as_bytes());
            }
        }
    }

    /// The watchdog's care for one group, until this is dropped.
    #[derive(Debug)]
    pub(crate) struct Care {
        group: Option<u32>,
        watchdog: Arc<Watchdog>,
    }

    impl Drop for Care {
        fn drop(&mut self) {
            if let Some(group) = self.group {
                self.watchdog.remove(group);
            }
        }
    }

    /// Starts a watchdog in a group of its own, which no signal for this program's group reaches.
    fn start(shell: &Program) -> io::Result<File> {
        let mut command = Command::new(&shell.path);
        command.args(["-c", WATCH]).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Dropped, it goes on, and tokio collects it when it has ended.
        let pipe = command.spawn()?.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.into_owned_fd().map(File::from)
    }

    /// Puts the gate in front of what is added to `command`, whose program is this shell.
    pub(crate) fn gate(command: &mut Command, shell: &Program) {
        // Privileged means: it reads nothing from the environment that could change what the gate is.
        command.args(shell.is_bash.then_some("-p")).args(["-c", GATE, "gate"]).arg(&shell.path);
    }

    /// The input of a command that waits for its line.
    pub(crate) fn held_back() -> Stdio {
        Stdio::piped()
    }

    #[cfg(test)]
    mod tests {
        use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

        use super::*;

        fn shell() -> Program {
            Program::find(None).unwrap()
        }

        fn waiting(text: &str) -> Child {
            let shell = shell();
            let mut command = shell.command();
            gate(&mut command, &shell);
            command.args(["-c", text]).kill_on_drop(true).stdin(held_back()).spawn().unwrap()
        }

        fn broken_pipe() -> File {
            let (_, writer) = io::pipe().unwrap();
            File::from(std::os::fd::OwnedFd::from(writer))
        }

        #[tokio::test]
        async fn issue_14_the_end_of_the_pipe_kills_what_is_in_its_care() {
            let (watchdog, shell) = (Arc::new(Watchdog::default()), shell());
            // Somebody killed the one before.
            watchdog.0.lock().unwrap().pipe = Some(broken_pipe());
            let [mut one, mut two, mut three] = [(); 3].map(|()| waiting("sleep 1000"));
            let cares =
                [&mut one, &mut two, &mut three].map(|child| watchdog.release(&shell, child).unwrap());
            let [_one, two_left, _three] = cares;
            drop(two_left);
            watchdog.0.lock().unwrap().pipe = None;
            let killed = |status: io::Result<ExitStatus>| status.unwrap().signal() == Some(9);
            assert!(killed(one.wait().await) && killed(three.wait().await));
            assert!(two.try_wait().unwrap().is_none(), "it was given out of its care");
        }

        #[tokio::test]
        async fn issue_14_no_command_begins_without_its_watchdog() {
            let watchdog = Arc::new(Watchdog::default());
            let mut child = waiting("exit 7");
            let mut missing = shell();
            missing.path = "/no/shell".into();
            watchdog.release(&missing, &mut child).unwrap_err();
            // As when the program dies before.
            drop(child.stdin.take());
            assert_eq!(child.wait().await.unwrap().code(), Some(1));
        }
    }
}

/// Nothing watches here: a program that is killed leaves its commands.
#[cfg(not(unix))]
mod without {
    use std::{io, process::Stdio, sync::Arc};

    use tokio::process::{Child, Command};

    use crate::process::spawn::Program;

    #[derive(Debug, Default)]
    pub(crate) struct Watchdog;

    #[derive(Debug)]
    pub(crate) struct Care;

    impl Watchdog {
        #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as where something watches")]
        pub(crate) fn release(self: &Arc<Self>, _: &Program, _: &mut Child) -> io::Result<Care> {
            Ok(Care)
        }
    }

    pub(crate) fn gate(_: &mut Command, _: &Program) {}

    pub(crate) fn held_back() -> Stdio {
        Stdio::null()
    }
}
