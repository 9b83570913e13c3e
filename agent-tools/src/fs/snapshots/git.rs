//! Snapshots as hidden references of the workspace's git repository, written and read by the `git` program.
//!
//! It is used for its objects alone: `fast-import` and `cat-file` run no hook, filter or monitor, see neither index nor
//! working tree, and no branch, tag or log of references changes. References below `refs/entourage/` are not pushed or
//! fetched unless somebody asks for them.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use entourage_core::Digest;

use super::{
    store::Of,
    tree::{Content, Tree},
};
use crate::fs::{seen::digest_of, workspace::Workspace};

/// Time for git to tell if there is a snapshot.
const PATIENCE: Duration = Duration::from_secs(30);

/// The repository at the root of a workspace.
pub(super) struct Git {
    dir: PathBuf,
}

impl Git {
    /// Finds the repository: a directory `.git` in the root. One that lies elsewhere is not used.
    pub(super) fn of(workspace: &Workspace) -> Option<Self> {
        let dir = workspace.root().join(".git");
        let is_dir = fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_dir());
        let whole = ["HEAD", "objects", "refs"].iter().all(|name| dir.join(name).exists());
        (is_dir && whole && is_ours(&dir)).then_some(Self { dir })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(&self.dir);
        let none = if cfg!(windows) { "NUL" } else { "/dev/null" };
        for setting in [
            &format!("core.hooksPath={none}"),
            "core.fsmonitor=false",
            "core.logAllRefUpdates=false",
            "gc.auto=0",
            "maintenance.auto=false",
        ] {
            command.args(["-c", setting]);
        }
        let own = std::env::vars_os().map(|(name, _)| name);
        for name in own.filter(|name| name.to_string_lossy().starts_with("GIT_")) {
            command.env_remove(name);
        }
        command.env("GIT_NO_LAZY_FETCH", "1").env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn name(of: &Of) -> String {
        format!("refs/entourage/snapshots/{}/{}", of.session, of.run)
    }

    /// True if there is a snapshot.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if git does not answer, and would not to any other question either: a pipe in the
    /// place of one of its files has it wait for ever.
    pub(super) fn has(&self, of: &Of) -> io::Result<bool> {
        let mut command = self.command();
        command.args(["rev-parse", "--verify", "--quiet", "--end-of-options"]).arg(Self::name(of));
        match ends_well(command, PATIENCE) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let text =
                    format!("git gives no answer about `{}`; look at what it holds", self.dir.display());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            // Without a git there is nothing in the repository.
            ended => Ok(ended.unwrap_or(false)),
        }
    }

    /// Begins a snapshot, with the objects that are known to hold contents.
    pub(super) fn import(&self, objects: HashMap<Content, String>) -> Import<'_> {
        Import { git: self, running: None, objects, marks: HashMap::new() }
    }

    /// Loads a snapshot's tree, and the objects of its contents. `noted` is the digest that its tree has to have.
    pub(super) fn load(
        &self,
        of: &Of,
        noted: Digest,
    ) -> io::Result<Option<(Tree, HashMap<Content, String>)>> {
        if !self.has(of)? {
            return Ok(None);
        }
        let names = self.objects(of)?;
        let json = self.reader()?.read(names.get(TREE).ok_or_else(missing)?)?;
        if digest_of(&json) != noted {
            return Err(missing());
        }
        let tree = Tree::from_json(&json)?;
        let objects = of_contents(&tree, names)?;
        Ok(Some((tree, objects)))
    }

    /// Lists the objects of a snapshot by their names.
    fn objects(&self, of: &Of) -> io::Result<HashMap<String, String>> {
        let mut command = self.command();
        let output =
            command.args(["ls-tree", "-r", "-z", &Self::name(of)]).stdout(Stdio::piped()).output()?;
        if !output.status.success() {
            return Err(io::Error::other("git does not list a snapshot"));
        }
        // A line of it: mode, type and object, then a tab and the name.
        let named = |line: &str| {
            let (about, name) = line.split_once('\t')?;
            Some((name.to_owned(), about.rsplit(' ').next()?.to_owned()))
        };
        let listing = String::from_utf8_lossy(&output.stdout);
        Ok(listing.split_terminator('\0').filter_map(named).collect())
    }

    /// Begins to read objects.
    pub(super) fn reader(&self) -> io::Result<Reader> {
        let mut command = self.command();
        let mut child =
            command.args(["cat-file", "--batch"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("git has no streams"));
        };
        Ok(Reader { stdin, stdout: BufReader::new(stdout), _process: Process(child) })
    }
}

/// Name of the tree's description in a snapshot.
const TREE: &str = "tree.json";

/// The objects of a tree's contents, among all `names` of its snapshot.
fn of_contents(tree: &Tree, mut names: HashMap<String, String>) -> io::Result<HashMap<Content, String>> {
    let contents: BTreeSet<_> = tree.contents().collect();
    let object = |content: Content| Some((content, names.remove(&content.0.to_string())?));
    contents.into_iter().map(object).collect::<Option<_>>().ok_or_else(missing)
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a snapshot in the repository is damaged")
}

/// True if the repository belongs to this program's user, whom it may have to write for.
#[cfg(unix)]
fn is_ours(dir: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    fs::metadata(dir).is_ok_and(|meta| meta.uid() == own)
}

#[cfg(not(unix))]
fn is_ours(_: &std::path::Path) -> bool {
    true
}

/// A snapshot that is being written.
pub(super) struct Import<'g> {
    git: &'g Git,
    /// Git, from the first content on: one that is killed leaves a file in the repository.
    running: Option<(Process, BufWriter<ChildStdin>)>,
    objects: HashMap<Content, String>,
    /// Marks of the contents that were written.
    marks: HashMap<Content, usize>,
}

impl Import<'_> {
    pub(super) fn has(&self, content: Content) -> bool {
        self.objects.contains_key(&content) || self.marks.contains_key(&content)
    }

    pub(super) fn add(&mut self, content: Content, bytes: &[u8]) -> io::Result<()> {
        let mark = self.marks.len() + 1;
        self.marks.insert(content, mark);
        let out = self.input().map_err(broken)?;
        write!(out, "blob\nmark :{mark}\ndata {}\n", bytes.len()).map_err(broken)?;
        out.write_all(bytes).and_then(|()| out.write_all(b"\n")).map_err(broken)
    }

    fn input(&mut self) -> io::Result<&mut BufWriter<ChildStdin>> {
        match &mut self.running {
            Some((_, stdin)) => Ok(stdin),
            none => {
                let mut command = self.git.command();
                command.args(["fast-import", "--quiet", "--done", "--date-format=raw"]);
                let mut child = command.stdin(Stdio::piped()).spawn()?;
                let stdin = child.stdin.take().ok_or_else(|| io::Error::other("git has no input"))?;
                Ok(&mut none.insert((Process(child), BufWriter::new(stdin))).1)
            }
        }
    }

    /// Ends it, and returns the objects of its contents. `note` is given the digest of its tree before the snapshot is
    /// there.
    pub(super) fn finish(
        mut self,
        tree: &Tree,
        of: &Of,
        note: impl FnOnce(Digest) -> io::Result<()>,
    ) -> io::Result<HashMap<Content, String>> {
        let json = tree.to_json()?;
        note(digest_of(&json))?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.input()?;
        let (mut process, mut out) = self.running.take().ok_or_else(missing)?;
        let about = "A snapshot of the workspace before a prompt.";
        write!(out, "commit {}\ncommitter entourage <> {} +0000\n", Git::name(of), now.as_secs())?;
        write!(out, "data {}\n{about}\nM 100644 inline {TREE}\ndata {}\n", about.len(), json.len())?;
        out.write_all(&json)?;
        out.write_all(b"\n")?;
        let contents: BTreeSet<_> = tree.contents().collect();
        for content in contents {
            match (self.objects.get(&content), self.marks.get(&content)) {
                (_, Some(mark)) => writeln!(out, "M 100644 :{mark} {}", content.0)?,
                (Some(object), None) => writeln!(out, "M 100644 {object} {}", content.0)?,
                (None, None) => return Err(io::Error::other("a content was not kept")),
            }
        }
        out.write_all(b"\ndone\n")?;
        out.flush()?;
        drop(out);
        if !process.0.wait()?.success() {
            return Err(io::Error::other("git did not take a snapshot"));
        }
        of_contents(tree, self.git.objects(of)?)
    }
}

/// The error for a git that has ended.
fn broken(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, error)
}

/// Reads objects, one after another.
pub(super) struct Reader {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _process: Process,
}

impl Reader {
    pub(super) fn read(&mut self, object: &str) -> io::Result<Vec<u8>> {
        let damaged =
            || io::Error::new(io::ErrorKind::InvalidData, "git does not have an object of a snapshot");
        writeln!(self.stdin, "{object}")?;
        self.stdin.flush()?;
        let mut header = String::new();
        self.stdout.read_line(&mut header)?;
        let size = header.trim_end().rsplit_once(" blob ").and_then(|(_, size)| size.parse::<u64>().ok());
        let size = size.ok_or_else(damaged)?;
        let mut bytes = Vec::new();
        (&mut self.stdout).take(size).read_to_end(&mut bytes)?;
        self.stdout.read_exact(&mut [0])?;
        if bytes.len() as u64 == size { Ok(bytes) } else { Err(damaged()) }
    }
}

/// Waits for a program to end, and returns true if it succeeded. One that takes longer is killed.
fn ends_well(mut command: Command, patience: Duration) -> io::Result<bool> {
    let mut process = Process(command.stdout(Stdio::piped()).spawn()?);
    let (ended, on_end) = mpsc::channel();
    let output = process.0.stdout.take();
    // Its output ends with it.
    thread::Builder::new().spawn(move || {
        drop(output.map(|mut output| io::copy(&mut output, &mut io::sink())));
        let _ = ended.send(());
    })?;
    match on_end.recv_timeout(patience) {
        Ok(()) => Ok(process.0.wait()?.success()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let patience = Duration::from_secs(30);
        assert!(ends_well(shell("exit 0"), patience).unwrap());
        assert!(!ends_well(shell("exit 1"), patience).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let waits = shell(&format!("read -r line < '{}'", pipe.display()));
        assert_eq!(ends_well(waits, Duration::ZERO).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
