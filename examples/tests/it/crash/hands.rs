//! Work with hands: files that are changed and commands that are run, in a workspace that outlives the processes.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use entourage::{
    event::Event,
    prelude::*,
    session::SharedStore,
    testkit::{
        ScriptedProvider,
        crash::{self, Medium, Place, Scenario, Tree},
    },
};
use serde_json::json;

/// The seven changes of the scenario: the tool, what its arguments name, the file, and the file's content with and
/// without the change.
const CHANGES: [(&str, &str, &str, &str, &str); 7] = [
    ("edit", "a.txt", "a.txt", "one\ntwo\n", "one\n"),
    ("bash", "log-1", "log-1", "x", ""),
    ("write", "made/new.txt", "made/new.txt", "new\n", ""),
    ("multiedit", "b.txt", "b.txt", "uno\ndue\n", "one\ntwo\n"),
    ("bash", "log-2", "log-2", "xyz", ""),
    ("edit", "c.txt", "c.txt", "2\n", "1\n"),
    ("bash", "log-3", "log-3", "x", ""),
];

/// Three prompts, in the workspace of the directory `at`.
pub(crate) fn scenario(at: &Path) -> Scenario {
    let at = at.to_owned();
    let scenario = Scenario::new("hands", move |life| {
        let workspace = Workspace::open(at.join("workspace"))?.with_history(at.join("versions"))?;
        let shell = Shell::open(at.join("workspace"))?;
        let append = |file: &str, text: &str| json!({ "command": format!("printf {text} >> {file}") });
        let provider = ScriptedProvider::by_history()
            .calls(["a.txt", "b.txt", "c.txt"].map(|path| ("view", json!({ "path": path }))))
            .call("edit", json!({ "path": "a.txt", "old": "one\n", "new": "one\ntwo\n" }))
            .call("bash", append("log-1", "x"))
            .text("The first is done.")
            .calls([
                ("write", json!({ "path": "made/new.txt", "content": "new\n" })),
                (
                    "multiedit",
                    json!({ "path": "b.txt", "edits": [
                    { "old": "one", "new": "uno" }, { "old": "two", "new": "due" }
                ] }),
                ),
            ])
            // Three steps of one command: a half of them would show.
            .call("bash", json!({ "command": "printf x >> log-2 && printf y >> log-2 && printf z >> log-2" }))
            .text("The second is done.")
            .calls([
                ("edit", json!({ "path": "c.txt", "old": "1", "new": "2" })),
                ("bash", append("log-3", "x")),
            ])
            .text("All is done.");
        let watched =
            |tools: Vec<Arc<dyn Tool>>| tools.into_iter().map(|tool| life.tool(tool)).collect::<Vec<_>>();
        ReactAgent::builder("worker", life.model(&provider.model()))
            .tools(watched(workspace.read_tools()))
            .tools(watched(workspace.write_tools()))
            .tools(watched(shell.tools()))
            .build()
    });
    let scenario = scenario.prompt("Begin.").prompt("Go on.").prompt("End.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(6))
}

/// Makes the workspace what it is before the first prompt.
pub(crate) fn reset(at: &Path) {
    drop(fs::remove_dir_all(at));
    fs::create_dir_all(at.join("workspace")).unwrap();
    for (path, text) in [("a.txt", "one\n"), ("b.txt", "one\ntwo\n"), ("c.txt", "1\n")] {
        fs::write(at.join("workspace").join(path), text).unwrap();
    }
}

/// The place of the work of processes.
pub(crate) fn place(directory: &Path) -> PathBuf {
    directory.join("hands")
}

/// Resets the place if the work has not begun yet.
pub(crate) async fn begin(directory: &Path, store: &SharedStore, root: &SessionId) {
    if Tree::load(store, root).await.unwrap().get(root).is_none() {
        reset(&place(directory));
    }
}

/// Checks the place after the work.
pub(crate) async fn end(directory: &Path, store: &SharedStore, root: &SessionId) {
    let tree = Tree::load(store, root).await.unwrap();
    next_change(&place(directory).join("workspace")).await;
    let faults = faults(&place(directory), &tree, root);
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Makes a change in each directory: it removes what a killed process left beside a file there. The change that it was
/// killed at is not repeated, so no other one need follow.
async fn next_change(workspace: &Path) {
    let paths = ["next", "made/next"];
    let hands = Workspace::open(workspace).unwrap();
    let provider = ScriptedProvider::new()
        .calls(paths.map(|path| ("write", json!({ "path": path, "content": "next" }))))
        .text("Done.");
    let agent = ReactAgent::builder("next", provider.model()).tools(hands.write_tools()).build().unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    assert!(runtime.session().start(&agent, "Write both.").outcome().await.unwrap().is_completed());
    paths.iter().for_each(|path| fs::remove_file(workspace.join(path)).unwrap());
}

/// The faults of a workspace after the work: each change is there as often as its call says, and whole.
pub(crate) fn faults(at: &Path, tree: &Tree, root: &SessionId) -> Vec<String> {
    let mut faults = Vec::new();
    let events = &tree.get(root).unwrap().events;
    let results: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::ToolFinished(call) => Some(&call.result),
            _ => None,
        })
        .filter(|result| &*result.name != "view")
        .collect();
    if results.len() != CHANGES.len() {
        faults.push(format!("{} of {} calls have a result", results.len(), CHANGES.len()));
    }
    for (result, (tool, _, path, after, before)) in results.iter().zip(CHANGES) {
        let now = fs::read_to_string(at.join("workspace").join(path)).unwrap_or_default();
        // Of a command that was cut, any part may have been done, once.
        let may = match (result.is_error, tool) {
            (false, _) => now == after,
            (true, "bash") => after.starts_with(&now),
            (true, _) => now == after || now == before,
        };
        if !may || &*result.name != tool {
            faults.push(format!("`{path}` is {now:?} after `{tool}`, whose result is {}", result.to_text()));
        }
    }
    faults.extend(strangers(at));
    faults
}

/// The files of a workspace that no call made: what a change left beside its file.
fn strangers(at: &Path) -> Vec<String> {
    let known = ["a.txt", "b.txt", "c.txt", "log-1", "log-2", "log-3", "made", "new.txt"];
    let names =
        ["workspace", "workspace/made"].into_iter().filter_map(|place| fs::read_dir(at.join(place)).ok());
    let names = names.flatten().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| !known.contains(&&**name)).map(|name| format!("`{name}` was left over")).collect()
}

/// Undoes what the work changed of files, in the same session, and returns what is not as before the first prompt.
async fn undo(at: &Path, store: SharedStore, root: &SessionId) -> Vec<String> {
    let workspace = Workspace::open(at.join("workspace")).unwrap().with_history(at.join("versions")).unwrap();
    let paths = ["c.txt", "b.txt", "made/new.txt", "a.txt"];
    let provider = ScriptedProvider::new()
        .calls(paths.map(|path| ("undo", json!({ "path": path }))))
        .text("All is as before.");
    let agent = ReactAgent::builder("undoer", provider.model()).tool(workspace.undo()).build().unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).shared_store(store).build();
    let outcome = runtime.open(root).await.unwrap().start(&agent, "Take all back.").outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome}");
    let mut faults = strangers(at);
    for (tool, _, path, _, before) in CHANGES {
        let now = fs::read_to_string(at.join("workspace").join(path)).unwrap_or_default();
        if tool != "bash" && now != before {
            faults.push(format!("`{path}` is {now:?} after `{tool}` was undone"));
        }
    }
    faults
}

/// The same in memory, with the workspace at `at`: it is looked at when the next work begins, and at the end.
struct InMemory {
    at: PathBuf,
    last: Mutex<Option<Arc<MemoryStore>>>,
    faults: Mutex<Vec<String>>,
}

impl InMemory {
    fn look(&self) {
        let Some(store) = self.last.lock().unwrap().take() else { return };
        let root = SessionId::new("work").unwrap();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = store as SharedStore;
        let tree = tokio.block_on(Tree::load(&store, &root)).unwrap();
        let mut found = faults(&self.at, &tree, &root);
        found.extend(tokio.block_on(undo(&self.at, store, &root)));
        self.faults.lock().unwrap().extend(found);
    }

    fn begin(&self) -> Arc<MemoryStore> {
        self.look();
        reset(&self.at);
        let store = Arc::new(MemoryStore::new());
        *self.last.lock().unwrap() = Some(Arc::clone(&store));
        store
    }
}

#[test]
fn attack_11_hands_killed_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("hands");
    let memory = Arc::new(InMemory { at: at.clone(), last: Mutex::default(), faults: Mutex::default() });
    let places = Arc::clone(&memory);
    let medium = Medium::new("memory", move || {
        let store = places.begin();
        Place::new(move || std::future::ready(Ok(Arc::clone(&store))))
    });
    let report = crash::sample(&scenario(&at), &medium, super::wanted(1, 4));
    memory.look();
    super::tell(&report);
    report.assert();
    let faults = memory.faults.lock().unwrap();
    assert!(faults.is_empty(), "{faults:#?}");
}
