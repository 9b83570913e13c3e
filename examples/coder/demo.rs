//! The demonstration: a crate whose test fails, and a model whose words are canned. Its calls are made for real.

use std::{
    fs, io,
    path::Path,
    process::{Command, Stdio},
};

use entourage::{prelude::*, testkit::ScriptedProvider};
use serde_json::json;

pub(crate) const TASK: &str = "The test of this crate fails. Find out why, and mend it.";

const MANIFEST: &str = "[package]\nname = \"sum\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";
const SOURCE: &str = "\
/// Adds the numbers.
pub fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().skip(1).sum()
}

#[test]
fn all_numbers_count() {
    assert_eq!(sum(&[1, 2, 3]), 6);
}
";

/// A crate in a directory of its own. All of it is removed in the end.
#[derive(Debug)]
pub(crate) struct Crate {
    dir: tempfile::TempDir,
    state: tempfile::TempDir,
}

impl Crate {
    pub(crate) fn new() -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("sum-").tempdir()?;
        fs::create_dir(dir.path().join("src"))?;
        fs::write(dir.path().join("Cargo.toml"), MANIFEST)?;
        fs::write(dir.path().join("src/lib.rs"), SOURCE)?;
        Ok(Self { dir, state: tempfile::tempdir()? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A directory of its own for the state, outside of the crate.
    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    /// True if the crate's tests pass, whatever the model says.
    pub(crate) fn is_green(&self) -> bool {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--quiet", "--offline", "--target-dir", "target"]).current_dir(self.path());
        cargo.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

pub(crate) fn model(plans: bool) -> Model {
    let test = || ("bash", json!({ "command": "cargo test --quiet --offline --target-dir target" }));
    let look = ("view", json!({ "path": "src/lib.rs" }));
    let (again, same) = test();
    let model = ScriptedProvider::by_history();
    let looked = if plans {
        let steps = ["Let the sum begin with the first number", "Run the tests"];
        let plan = "`sum` in src/lib.rs skips the first number. I would take `skip(1)` out of it.";
        model.calls([look]).call("present_plan", json!({ "plan": plan, "steps": steps }))
    } else {
        model.calls([test(), look])
    };
    looked
        .call("edit", json!({ "path": "src/lib.rs", "old": ".iter().skip(1).sum()", "new": ".iter().sum()" }))
        .call(again, same)
        .text("The sum left the first number out. It counts all of them now, and the test passes.\n")
        .model()
}
