//! A server that runs: its handshake, what it can do, the files that it was told, and its end.

use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use entourage_core::Digest;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    connection::{Failed, Tasks, Wire},
    incoming,
    known::{Heard, Known},
    position::Encoding,
    server::LanguageServer,
    uri,
    wire::{Found, plain},
};
use crate::{
    fs::Stamp,
    process::{environment, server::ServerProcess},
};

/// Most files that a server has open.
const OPEN: usize = 64;
/// Time for the answer to the request to shut down.
const GOODBYE: Duration = Duration::from_secs(2);
/// Time after which a request is repeated that a server was too busy for.
const AGAIN: Duration = Duration::from_millis(200);
/// Codes for such a request: the content changed, the server cancelled it.
const TRY_AGAIN: [i64; 2] = [-32_801, -32_802];

/// Abilities of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ability {
    Definition,
    Diagnostics,
    References,
    Rename,
    Symbols,
    WorkspaceSymbols,
}

impl Ability {
    fn key(self) -> &'static str {
        match self {
            Self::Definition => "definitionProvider",
            Self::Diagnostics => "diagnosticProvider",
            Self::References => "referencesProvider",
            Self::Rename => "renameProvider",
            Self::Symbols => "documentSymbolProvider",
            Self::WorkspaceSymbols => "workspaceSymbolProvider",
        }
    }
}

/// A server that answered the handshake. Dropping it kills its process group.
#[derive(Debug)]
pub(super) struct Live {
    wire: Arc<Wire>,
    process: ServerProcess,
    _tasks: Tasks,
    capabilities: Value,
    pub(super) encoding: Encoding,
    documents: Mutex<Documents>,
    server: LanguageServer,
    pub(super) born: Instant,
}

/// The files that a server has open, by their absolute paths.
#[derive(Debug, Default)]
struct Documents {
    open: HashMap<PathBuf, Document>,
    clock: u64,
}

#[derive(Debug)]
struct Document {
    version: i64,
    digest: Digest,
    stamp: Stamp,
    used: u64,
}

/// A file as it is told.
#[derive(Debug, Clone)]
pub(super) struct Text {
    /// Its absolute path.
    pub(super) path: PathBuf,
    pub(super) text: Arc<str>,
    pub(super) stamp: Stamp,
}

impl Live {
    /// Starts a server, and greets it.
    ///
    /// # Errors
    /// The reason that it is of no use.
    pub(super) async fn start(server: LanguageServer, root: PathBuf) -> Result<Self, String> {
        let (program, args): (&OsString, &[OsString]) = (&server.program, &server.args);
        // No file that a tool may write takes the place of a program (attack 29).
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = ("PATH".into(), environment::search_path(&path, Some(&root)));
        let env: Vec<_> = [path].into_iter().chain(server.env.iter().cloned()).collect();
        let started = ServerProcess::start((program, args), &env, Some(&root), ());
        let (process, output, input) =
            started.map_err(|error| format!("`{}` cannot be started: {error}", program.to_string_lossy()))?;
        let (wire, tasks) = Wire::begin((output, input), &process, server.settings.clone(), root);
        let deadline = deadline(server.start_time);
        let greeted = wire.request("initialize", greeting(&wire, &server), deadline).await;
        let answer = match greeted {
            Ok(answer) => answer,
            Err(failed) => {
                let reason = match failed {
                    Failed::Over(reason) => reason,
                    Failed::Refused(_, text) => text,
                    Failed::Deep => "its first answer nests too deep to be read".to_owned(),
                    Failed::Late => format!("it was not ready within {} s", server.start_time.as_secs_f64()),
                };
                return Err(process.with_last_words(reason).await);
            }
        };
        let capabilities = answer.get("capabilities").cloned().unwrap_or_default();
        let named = capabilities.get("positionEncoding").and_then(Value::as_str);
        let encoding = Encoding::named(named).ok_or_else(|| {
            format!("it counts in `{}`, which is unknown", plain(named.unwrap_or_default(), 40))
        })?;
        wire.notify("initialized", json!({}));
        if !server.settings.is_null() {
            wire.notify("workspace/didChangeConfiguration", json!({ "settings": server.settings }));
        }
        let (documents, born) = (Mutex::default(), Instant::now());
        Ok(Self { wire, process, _tasks: tasks, capabilities, encoding, documents, server, born })
    }

    /// The reason that it is of no use any more.
    pub(super) fn over(&self) -> Option<String> {
        self.wire.over().map(|reason| self.process.with_words(reason))
    }

    pub(super) fn known(&self) -> &Known {
        &self.wire.known
    }

    pub(super) fn can(&self, ability: Ability) -> bool {
        self.capabilities.get(ability.key()).is_some_and(|it| !matches!(it, Value::Null | Value::Bool(false)))
    }

    fn documents(&self) -> MutexGuard<'_, Documents> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that it has open, with the facts by which a change of them is noticed.
    pub(super) fn open(&self) -> Vec<(PathBuf, Stamp)> {
        self.documents().open.iter().map(|(path, document)| (path.clone(), document.stamp.clone())).collect()
    }

    /// The version of an open file.
    pub(super) fn version(&self, path: &Path) -> Option<i64> {
        self.documents().open.get(path).map(|document| document.version)
    }

    /// Tells the server a file as it is, unless it knows that already. While the server has much to read, waits for it
    /// before, no longer than to the deadline.
    pub(super) async fn show(&self, file: &Text, is_saved: bool, deadline: Instant) {
        self.wire.drained(deadline).await;
        let uri = uri::of(&file.path);
        {
            // Held while a message is queued, so that versions are told in their order.
            let mut documents = self.documents();
            let Some(version) = documents.next(file, &self.wire) else { return };
            self.wire.known.told(&file.path, version);
            self.told(&uri, file, version);
        }
        if is_saved {
            self.saved(&uri, &file.text);
        }
    }

    fn told(&self, uri: &str, file: &Text, version: i64) {
        if version == 1 {
            let language = self.server.language_of(&file.path);
            let document =
                json!({ "uri": uri, "languageId": language, "version": version, "text": &*file.text });
            return self.wire.notify("textDocument/didOpen", json!({ "textDocument": document }));
        }
        let document = json!({ "uri": uri, "version": version });
        let changes = json!([{ "text": &*file.text }]);
        let params = json!({ "textDocument": document, "contentChanges": changes });
        self.wire.notify("textDocument/didChange", params);
    }

    fn saved(&self, uri: &str, text: &str) {
        let save = self.capabilities.get("textDocumentSync").and_then(|sync| sync.get("save"));
        let document = json!({ "uri": uri });
        let params = match save {
            None | Some(Value::Null | Value::Bool(false)) => return,
            Some(save) if save.get("includeText").and_then(Value::as_bool) == Some(true) => {
                json!({ "textDocument": document, "text": text })
            }
            Some(_) => json!({ "textDocument": document }),
        };
        self.wire.notify("textDocument/didSave", params);
    }

    /// Tells the server that a file on the disk was created, changed or removed.
    pub(super) fn changed(&self, path: &Path, change: Change) {
        let uri = uri::of(path);
        if matches!(change, Change::Removed | Change::Unreadable) {
            let mut documents = self.documents();
            if documents.open.remove(path).is_some() {
                self.wire.notify("textDocument/didClose", json!({ "textDocument": { "uri": uri } }));
            }
            self.wire.known.closed(path, true);
        }
        let kind = match change {
            Change::Created => 1,
            Change::Changed => 2,
            Change::Removed => 3,
            Change::Unreadable => 2,
        };
        let changes = json!({ "changes": [{ "uri": uri, "type": kind }] });
        self.wire.notify("workspace/didChangeWatchedFiles", changes);
    }

    /// Waits for the diagnostics of a file that the server was told; asks for them where it wants to be asked.
    pub(super) async fn diagnosed(&self, path: &Path, deadline: Instant) -> Heard {
        if self.can(Ability::Diagnostics) {
            let params = json!({ "textDocument": { "uri": uri::of(path) } });
            if let Ok(answer) = self.ask("textDocument/diagnostic", params, deadline).await {
                self.take_report(path, &answer);
            }
        }
        self.wire.known.heard(path, deadline).await
    }

    fn take_report(&self, path: &Path, report: &Value) {
        let found = |report: &Value| report.get("items").map(Found::read);
        self.wire.known.answered(path, found(report));
        let related = report.get("relatedDocuments").and_then(Value::as_object);
        for (other, report) in related.into_iter().flatten() {
            if let (Some(other), Some(found)) = (uri::path(other), found(report)) {
                self.wire.known.answered(&other, Some(found));
            }
        }
    }

    /// Asks the server, again where it was too busy.
    ///
    /// # Errors
    /// The reason that there is no answer.
    pub(super) async fn ask(&self, method: &str, params: Value, deadline: Instant) -> Result<Value, Failed> {
        loop {
            let answer = self.wire.request(method, params.clone(), deadline).await;
            match answer {
                Err(Failed::Refused(code, _)) if TRY_AGAIN.contains(&code) && Instant::now() < deadline => {
                    sleep(AGAIN).await;
                }
                answer => return answer,
            }
        }
    }

    /// Lets the server end; kills it where it does not.
    pub(super) async fn shut_down(&self) {
        // Whatever it answers, it has to go.
        let _ = self.wire.request("shutdown", Value::Null, deadline(GOODBYE)).await;
        self.wire.notify("exit", Value::Null);
        self.wire.close();
        self.process.end().await;
        self.wire.end("it was shut down");
    }
}

/// The change of a file on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Changed,
    Removed,
    /// It is no text that servers are told, or not any more.
    Unreadable,
}

impl Change {
    /// The change of a file that exists, or does not.
    pub(super) fn of(self, exists: bool) -> Self {
        match (self, exists) {
            (_, false) => Self::Removed,
            (Self::Removed, true) => Self::Unreadable,
            (change, true) => change,
        }
    }
}

impl Documents {
    /// The version of a file with this text; `None` if it is the one that the server knows.
    fn next(&mut self, file: &Text, wire: &Wire) -> Option<i64> {
        let digest = Digest::of([file.text.as_bytes()]);
        self.clock = self.clock.saturating_add(1);
        let (used, stamp) = (self.clock, file.stamp.clone());
        let before = self.open.get_mut(&file.path).map(|document| {
            (document.used, document.stamp) = (used, stamp.clone());
            (document.version, document.digest)
        });
        let version = match before {
            Some((_, known)) if known == digest => return None,
            Some((version, _)) => version.saturating_add(1),
            None => {
                self.make_room(wire);
                1
            }
        };
        self.open.insert(file.path.clone(), Document { version, digest, stamp, used });
        Some(version)
    }

    /// Closes the file that was not used for the longest time, if there are too many.
    fn make_room(&mut self, wire: &Wire) {
        while self.open.len() >= OPEN {
            let oldest = self.open.iter().min_by_key(|(_, document)| document.used);
            let Some(path) = oldest.map(|(path, _)| path.clone()) else { return };
            self.open.remove(&path);
            wire.notify("textDocument/didClose", json!({ "textDocument": { "uri": uri::of(&path) } }));
            wire.known.closed(&path, false);
        }
    }
}

/// The moment after so much time.
pub(super) fn deadline(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

/// The parameters of the handshake.
fn greeting(wire: &Wire, server: &LanguageServer) -> Value {
    json!({
        // A server watches it, and ends where this program does.
        "processId": std::process::id(),
        "clientInfo": { "name": "entourage", "version": env!("CARGO_PKG_VERSION") },
        "rootPath": wire.root.to_string_lossy(),
        "rootUri": uri::of(&wire.root),
        "workspaceFolders": [incoming::folder(wire)],
        "initializationOptions": server.options,
        "capabilities": {
            "general": { "positionEncodings": ["utf-8", "utf-16", "utf-32"] },
            "textDocument": {
                "synchronization": { "didSave": true },
                "publishDiagnostics": { "versionSupport": true, "relatedInformation": false },
                "diagnostic": { "relatedDocumentSupport": true },
                "definition": { "linkSupport": true },
                "references": {},
                "rename": { "prepareSupport": false },
                "documentSymbol": { "hierarchicalDocumentSymbolSupport": true },
            },
            "window": { "workDoneProgress": true, "showDocument": { "support": false } },
            "workspace": {
                "applyEdit": false,
                "configuration": true,
                "workspaceFolders": true,
                "didChangeConfiguration": { "dynamicRegistration": false },
                // Files that no tool changes are watched by servers themselves.
                "didChangeWatchedFiles": { "dynamicRegistration": false },
                "symbol": {},
                "workspaceEdit": { "documentChanges": true, "resourceOperations": [], "failureHandling": "abort" },
            },
        },
    })
}
