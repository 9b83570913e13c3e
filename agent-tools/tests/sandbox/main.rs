//! The sandbox against real commands that try to leave it, with each backend that this machine has.
//!
//! A backend or a program that is missing is named in a line that starts with `SKIPPED:`.
#![cfg(all(feature = "sandbox", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may panic, in its helpers too, and says what it skips"
)]

mod files;
mod hosts;
mod mounts;
mod network;
mod processes;
mod protected;
#[cfg(feature = "shell")]
mod scopes;
mod starting;
mod taken_back;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use entourage_tools::sandbox::{Backend, Enforced, Sandbox};
use tempfile::TempDir;

/// What a command printed and how it ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
    enforced: Enforced,
    changed: Vec<PathBuf>,
}

/// A workspace, and a place beside it that commands must not touch.
struct Place {
    root: TempDir,
    outside: TempDir,
}

impl Place {
    fn new() -> Self {
        let (root, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        std::fs::write(outside.path().join("secret"), "hidden").unwrap();
        std::fs::write(root.path().join("inside"), "text").unwrap();
        Self { root, outside }
    }

    fn root(&self) -> &Path {
        self.root.path()
    }

    fn write(&self, backend: Backend) -> Sandbox {
        Sandbox::workspace_write(self.root()).unwrap().backend(backend)
    }

    fn read(&self, backend: Backend) -> Sandbox {
        Sandbox::read_only(self.root()).unwrap().backend(backend)
    }

    /// Runs a script of the shell with `$OUT` as the place outside.
    async fn run(&self, sandbox: &Sandbox, script: &str) -> Ran {
        let outside = self.outside.path().to_owned();
        let (child, enforced) = sandbox
            .spawn("/bin/bash", |command| {
                command.arg("-c").arg(script).env("OUT", outside);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
            })
            .await
            .unwrap();
        let output = child.wait_with_output().await.unwrap();
        let changed = enforced.restore().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        Ran {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
            enforced,
            changed,
        }
    }

    /// Tries each script, all in one command, and returns those that succeeded or printed something.
    async fn escapes<S: AsRef<str>>(&self, sandbox: &Sandbox, scripts: &[S]) -> Vec<String> {
        let one = |(i, script): (usize, &S)| {
            let script = script.as_ref();
            format!("if r=$({{ {script}; }} 2>/dev/null </dev/null) || [ -n \"$r\" ]; then echo {i}; fi\n")
        };
        let all: String = scripts.iter().enumerate().map(one).collect();
        let ran = self.run(sandbox, &format!("{all}echo end")).await;
        let mut lines: Vec<_> = ran.out.lines().collect();
        assert_eq!(lines.pop(), Some("end"), "{ran:?}");
        lines
            .iter()
            .map(|line| {
                let number = line.split(' ').next().unwrap();
                scripts[number.parse::<usize>().unwrap()].as_ref().to_owned()
            })
            .collect()
    }
}

/// The backends of this machine; Landlock has to be here.
async fn backends() -> Vec<Backend> {
    let root = TempDir::new().unwrap();
    let tried = Sandbox::read_only(root.path()).unwrap().backend(Backend::Bubblewrap);
    match tried.spawn("/bin/true", |command| command).await {
        Ok((mut child, _)) => {
            child.wait().await.unwrap();
            vec![Backend::Landlock, Backend::Bubblewrap]
        }
        Err(error) => {
            println!("SKIPPED: bubblewrap: {error}");
            vec![Backend::Landlock]
        }
    }
}

/// Whether a program is there; without, says what is left out.
fn has(program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        println!("SKIPPED: no {program}");
    }
    there
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}
