//! A language server that does as it is told: another process of this program.
//!
//! It knows a language of words: `ERROR` and `WARN` in a line are diagnostics, `BREAKS other.fk` is an error in that
//! file, `fn x` is a symbol, and each word is a reference to itself.

use std::{
    collections::BTreeMap,
    io::{BufRead, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use entourage_tools::lsp::LanguageServer;
use serde_json::{Value, json};

pub(crate) use crate::manners::notes;
use crate::manners::{self, MANNER, NOTES};

/// A server of this manner for `.fk`, which leaves its notes in `notes`.
pub(crate) fn server(name: &str, manner: &str, notes: &Path) -> LanguageServer {
    let (program, args) = manners::program(module_path!());
    LanguageServer::command(name, program, args)
        .for_extensions(["fk"])
        .with_env(MANNER, manner)
        .with_env(NOTES, notes)
        .with_settings(json!({"fake": {"mode": "strict"}}))
}

struct Fake {
    manner: String,
    notes: String,
    out: Mutex<std::io::Stdout>,
    root: Mutex<String>,
    open: Mutex<BTreeMap<String, (i64, String)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fake {
    fn note(&self, name: &str, text: &str) {
        manners::note(Path::new(&self.notes), name, text);
    }

    fn raw(&self, bytes: &[u8]) {
        let mut out = lock(&self.out);
        // The client may be gone.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    fn send(&self, message: &Value) {
        let text = message.to_string();
        self.raw(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    fn tell(&self, method: &str, params: impl Into<Value>) {
        let params = params.into();
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn answer(&self, id: &Value, result: impl Into<Value>) {
        let result = result.into();
        if self.is("confuses") {
            // Answers to nobody, and what is no message.
            for id in [
                json!(-1),
                json!(i64::MAX),
                json!(1e300),
                json!("x".repeat(10_000)),
                json!({"a": []}),
                json!([1]),
            ] {
                self.send(&json!({"jsonrpc": "2.0", "id": id, "result": "lies"}));
                self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "workspace/configuration"}));
            }
            [json!([]), json!(null), json!("x"), json!({"id": null, "method": 1})]
                .iter()
                .for_each(|it| self.send(it));
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        if self.is("confuses") {
            self.send(&json!({"jsonrpc": "2.0", "id": id, "result": "again"}));
        }
    }

    /// Sends a message that nests deeper than what reads it goes.
    fn nested(&self, before: &str, after: &str) {
        let text = format!("{before}{}{}{after}", "[".repeat(200_000), "]".repeat(200_000));
        self.raw(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    fn refuse(&self, id: &Value, code: i64, text: &str) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}));
    }

    fn is(&self, manner: &str) -> bool {
        self.manner == manner
    }

    fn lives(&self) -> usize {
        notes(Path::new(&self.notes), "started").len()
    }

    /// Waits until the test wrote a file of this name.
    fn wait_for(&self, name: &str) {
        while !Path::new(&self.notes).join(name).exists() {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The units before a byte of a line.
    fn units(&self, line: &str, byte: usize) -> usize {
        let before = &line[..byte];
        if self.is("utf8") { before.len() } else { before.encode_utf16().count() }
    }

    fn range(&self, number: usize, line: &str, from: usize, to: usize) -> Value {
        json!({"start": {"line": number, "character": self.units(line, from)},
            "end": {"line": number, "character": self.units(line, to)}})
    }

    fn uri(&self, name: &str) -> String {
        format!("{}/{name}", lock(&self.root))
    }

    fn diagnostics(&self, text: &str) -> Vec<Value> {
        let mut found = Vec::new();
        for (number, line) in text.lines().enumerate() {
            for (word, severity) in [("WARN", 2), ("ERROR", 1), ("HINT", 4), ("INFO", 3)] {
                if let Some(at) = line.find(word) {
                    let range = self.range(number, line, at, at + word.len());
                    found.push(json!({"range": range, "severity": severity, "source": "fake", "code": word,
                        "message": format!("found {word}\non \u{202e}\u{200b}line {}", number + 1)}));
                }
            }
        }
        if self.is("many") {
            let range = self.range(0, "", 0, 0);
            let all = (0..500).map(|n| {
                json!({"range": range, "severity": 1 + n % 2, "message": format!("m{n} {}", "x".repeat(5_000))})
            });
            found.extend(all);
        }
        found
    }

    fn publish(&self, uri: &str, version: Option<i64>, diagnostics: &[Value]) {
        let mut params = json!({"uri": uri, "diagnostics": diagnostics});
        if let Some(version) = version {
            params["version"] = version.into();
        }
        self.tell("textDocument/publishDiagnostics", params);
    }

    /// Says what is wrong with a file.
    fn check(&self, uri: &str, version: i64, text: &str) {
        match self.manner.as_str() {
            "hangs" | "pulls" => return,
            "crashes" => {
                let _ = std::io::stderr().write_all(b"out of cheese\n");
                std::process::exit(3);
            }
            "detaches" => {
                // It leaves the group, and has the pipes.
                let child =
                    Command::new("setsid").args(["sleep", "600"]).stdin(Stdio::null()).spawn().unwrap();
                let name = format!("/proc/{}/comm", child.id());
                while std::fs::read_to_string(&name).unwrap().trim() != "sleep" {
                    thread::sleep(Duration::from_millis(2));
                }
                self.note("detached", &child.id().to_string());
                std::process::exit(3);
            }
            "crashes_once" if self.lives() < 2 => std::process::exit(3),
            "garbage" => return self.raw(b"Content-Length: 5\r\n\r\nxxxxx"),
            "deep_garbage" => return self.nested("{\"result\":", "x"),
            "no_frames" => return self.raw(&b"x".repeat(1 << 20)),
            "huge" => return self.raw(b"Content-Length: 99999999\r\n\r\n{}"),
            "old_version" => return self.publish(uri, Some(version - 1), &self.diagnostics("ERROR of old")),
            "late" => {
                self.publish(uri, Some(version - 1), &self.diagnostics("ERROR of old"));
                self.wait_for("go");
            }
            "works" => {
                self.tell(
                    "$/progress",
                    json!({"token": "t", "value": {"kind": "begin", "title": "checking"}}),
                );
                self.publish(uri, Some(version), &[]);
                self.wait_for("go");
            }
            _ => {}
        }
        // The other files first: with this one a client may have waited long enough.
        for other in text.split("BREAKS ").skip(1).filter_map(|rest| rest.split_whitespace().next()) {
            let other = if other.starts_with('/') { format!("file://{other}") } else { self.uri(other) };
            self.publish(&other, None, &self.diagnostics("ERROR by another file"));
        }
        let version = (!self.is("no_version")).then_some(version);
        self.publish(uri, version, &self.diagnostics(text));
        if self.is("works") {
            self.tell("$/progress", json!({"token": "t", "value": {"kind": "end"}}));
        }
    }

    fn show(&self, uri: &str, version: i64, text: &str) {
        lock(&self.open).insert(uri.to_owned(), (version, text.to_owned()));
        let name = uri.rsplit('/').next().unwrap_or_default();
        self.note("shown", &format!("{name} {version} {}", text.escape_debug()));
        self.check(uri, version, text);
    }

    /// The files by address, as they are open or on the disk.
    fn files(&self) -> BTreeMap<String, String> {
        let root = lock(&self.root).clone();
        let dir = root.strip_prefix("file://").unwrap_or_default();
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            if let (Ok(name), Ok(text)) =
                (entry.file_name().into_string(), std::fs::read_to_string(entry.path()))
                && name.ends_with(".fk")
            {
                let text = if self.is("marks") { &text } else { text.trim_start_matches('\u{feff}') };
                files.insert(self.uri(&name), text.to_owned());
            }
        }
        files.extend(lock(&self.open).iter().map(|(uri, (_, text))| (uri.clone(), text.clone())));
        files
    }

    /// The word at a place.
    fn word(&self, params: &Value) -> Option<String> {
        let (_, text) = lock(&self.open).get(params["textDocument"]["uri"].as_str()?)?.clone();
        let line = text.lines().nth(usize::try_from(params["position"]["line"].as_u64()?).ok()?)?.to_owned();
        let at = usize::try_from(params["position"]["character"].as_u64()?).ok()?;
        let byte = line.char_indices().map(|(byte, _)| byte).find(|byte| self.units(&line, *byte) == at)?;
        let word: String = line[byte..].chars().take_while(|c| c.is_alphanumeric()).collect();
        (!word.is_empty()).then_some(word)
    }

    fn uses(&self, word: &str) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        for (uri, text) in self.files() {
            for (number, line) in text.lines().enumerate() {
                for (at, _) in line.match_indices(word) {
                    let around = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
                    if ![around.0, around.1].into_iter().flatten().any(char::is_alphanumeric) {
                        found.push((uri.clone(), self.range(number, line, at, at + word.len())));
                    }
                }
            }
        }
        found
    }

    fn places(&self, params: &Value) -> Value {
        let Some(word) = self.word(params) else { return Value::Null };
        let place = |(uri, range): (String, Value)| json!({"uri": uri, "range": range});
        let mut places: Vec<_> = self.uses(&word).into_iter().map(place).collect();
        if self.is("outside") {
            places.push(json!({"uri": "file:///etc/hosts", "range": self.range(0, "", 0, 0)}));
        }
        places.into()
    }

    fn rename(&self, params: &Value) -> Value {
        let Some(word) = self.word(params) else { return Value::Null };
        self.note("renamed", &word);
        let mut edits: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (uri, range) in self.uses(&word) {
            edits.entry(uri).or_default().push(json!({"range": range, "newText": params["newName"]}));
        }
        let mut say = |end: &str| {
            let text = format!("{}{end}", params["newName"].as_str().unwrap_or_default());
            edits.values_mut().flatten().for_each(|edit| edit["newText"] = text.as_str().into());
        };
        match self.manner.as_str() {
            "outside" => {
                let edit = json!({"range": self.range(0, "", 0, 0), "newText": "evil"});
                edits.insert("file:///etc/hosts".to_owned(), vec![edit]);
            }
            // It changes its mind after the first answer.
            "fickle" if notes(Path::new(&self.notes), "renamed").len() > 1 => say("2"),
            "twice" => edits.values_mut().for_each(|edits| {
                let mut other = edits[0].clone();
                other["newText"] = "other".into();
                edits.push(other);
            }),
            // `adds x` has an x behind each new name.
            manner => manner.strip_prefix("adds ").into_iter().for_each(&mut say),
        }
        let changes = |edits: BTreeMap<String, Vec<Value>>, version: &Value| -> Vec<Value> {
            let change =
                |(uri, edits)| json!({"textDocument": {"uri": uri, "version": version}, "edits": edits});
            edits.into_iter().map(change).collect()
        };
        match self.manner.as_str() {
            "creates" => {
                let mut all = changes(edits, &Value::Null);
                all.push(json!({"kind": "create", "uri": self.uri("new.fk")}));
                json!({"documentChanges": all})
            }
            "torn" => {
                let both = [changes(edits.clone(), &json!(1)), changes(edits, &json!(99))].concat();
                json!({"documentChanges": both})
            }
            "stale" => json!({"documentChanges": changes(edits, &json!(99))}),
            "versions" => json!({"documentChanges": changes(edits, &Value::Null)}),
            _ => json!({"changes": edits}),
        }
    }

    fn initialize(&self, id: &Value, params: &Value) {
        *lock(&self.root) = params["rootUri"].as_str().unwrap_or_default().to_owned();
        self.note("greeted", &params["capabilities"]["general"]["positionEncodings"].to_string());
        let mut capabilities = json!({"textDocumentSync": {"openClose": true, "change": 1, "save": true},
            "definitionProvider": true, "referencesProvider": true, "renameProvider": true,
            "documentSymbolProvider": true, "workspaceSymbolProvider": {}});
        match self.manner.as_str() {
            "utf8" => capabilities["positionEncoding"] = "utf-8".into(),
            "odd_units" => capabilities["positionEncoding"] = "utf-7".into(),
            "pulls" => capabilities["diagnosticProvider"] = json!({"interFileDependencies": true}),
            _ => {}
        }
        self.answer(id, json!({"capabilities": capabilities}));
    }

    fn request(&self, method: &str, id: &Value, params: &Value) {
        match method {
            "initialize" if self.is("refuses") => self.refuse(id, -32_000, "no licence"),
            "initialize" => self.initialize(id, params),
            "shutdown" if self.is("deaf") => {}
            "shutdown" => {
                self.note("shut_down", "");
                self.answer(id, Value::Null);
            }
            _ if self.is("hangs") => self.note("asked", method),
            "textDocument/definition" | "textDocument/references" => self.answer(id, self.places(params)),
            "textDocument/rename" => self.answer(id, self.rename(params)),
            "textDocument/documentSymbol" if self.is("deep") => {
                self.nested("{\"method\":\"window/logMessage\",\"params\":", "}");
                self.nested("{\"id\":\"q\",\"method\":\"workspace/configuration\",\"params\":", "}");
                self.nested("{\"jsonrpc\":\"2.0\",\"result\":{\"children\":", &format!("}},\"id\":{id}}}"));
            }
            "textDocument/documentSymbol" | "workspace/symbol" => {
                let query = params["query"].as_str();
                let asked = params["textDocument"]["uri"].as_str();
                let files =
                    self.files().into_iter().filter(|(uri, _)| asked.is_none_or(|asked| asked == uri));
                let mut found = Vec::new();
                for (uri, text) in files {
                    for (number, line) in text.lines().enumerate() {
                        let name =
                            line.strip_prefix("fn ").filter(|name| query.is_none_or(|it| name.contains(it)));
                        let Some(name) = name else { continue };
                        let range = self.range(number, line, 3, line.len());
                        found.push(match query {
                            Some(_) => json!({"name": name, "kind": 12, "containerName": "m",
                                "location": {"uri": uri, "range": range}}),
                            None => json!({"name": name, "kind": 12, "range": range, "selectionRange": range,
                                "children": [{"name": "inner", "kind": 13, "range": range, "selectionRange": range}]}),
                        });
                    }
                }
                self.answer(id, found);
            }
            "textDocument/diagnostic" if self.is("pulls") => {
                let uri = params["textDocument"]["uri"].as_str().unwrap_or_default();
                let text = lock(&self.open).get(uri).cloned().unwrap_or_default().1;
                let other = json!({"kind": "full", "items": self.diagnostics("ERROR related")});
                let related = json!({ self.uri("related.fk"): other });
                self.answer(
                    id,
                    json!({"kind": "full", "items": self.diagnostics(&text), "relatedDocuments": related}),
                );
            }
            method => self.refuse(id, -32_601, &format!("no {method}")),
        }
    }

    fn notice(&self, method: &str, params: &Value) {
        let document = &params["textDocument"];
        let uri = document["uri"].as_str().unwrap_or_default();
        let name = uri.rsplit('/').next().unwrap_or_default();
        match method {
            "initialized" if self.is("asks") => self.ask(),
            "initialized" if self.is("stuck") => thread::sleep(Duration::from_secs(600)),
            "textDocument/didOpen" => {
                self.note(
                    "opened",
                    &format!("{name} {}", document["languageId"].as_str().unwrap_or_default()),
                );
                self.show(uri, 1, document["text"].as_str().unwrap_or_default());
            }
            "textDocument/didChange" => {
                let text = params["contentChanges"][0]["text"].as_str().unwrap_or_default();
                self.show(uri, document["version"].as_i64().unwrap_or_default(), text);
            }
            "textDocument/didClose" => {
                lock(&self.open).remove(uri);
                self.note("closed", name);
            }
            "textDocument/didSave" => self.note("saved", name),
            "workspace/didChangeWatchedFiles" => {
                let change = &params["changes"][0];
                let name = change["uri"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
                self.note("watched", &format!("{name} {}", change["type"]));
            }
            "$/cancelRequest" => self.note("cancelled", &params["id"].to_string()),
            "exit" if !self.is("deaf") => std::process::exit(0),
            _ => {}
        }
    }

    /// Asks what servers ask.
    fn ask(&self) {
        for (id, method, params) in [
            (
                "configuration",
                "workspace/configuration",
                json!({"items": [{"section": "fake.mode"}, {"section": "x"}]}),
            ),
            ("register", "client/registerCapability", json!({"registrations": []})),
            ("progress", "window/workDoneProgress/create", json!({"token": 1})),
            ("edit", "workspace/applyEdit", json!({"edit": {"changes": {}}})),
            ("folders", "workspace/workspaceFolders", Value::Null),
            ("message", "window/showMessageRequest", json!({"type": 1, "message": "?"})),
            ("unknown", "fake/unknown", Value::Null),
        ] {
            self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        }
    }
}

fn message(input: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim().split_once(": ") {
            Some((_, value)) => length = value.parse().ok()?,
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut content = vec![0; length];
    input.read_exact(&mut content).ok()?;
    serde_json::from_slice(&content).ok()
}

/// The server's main loop.
#[test]
#[ignore = "the other process of the tests"]
#[allow(clippy::zombie_processes, reason = "the test looks whether somebody ends it")]
fn the_server() {
    let Some((manner, notes)) = manners::asked() else { return };
    let (out, root, open) = (Mutex::new(std::io::stdout()), Mutex::default(), Mutex::default());
    let fake = Arc::new(Fake { manner, notes, out, root, open });
    // The harness has begun a line.
    println!();
    fake.note("started", &std::process::id().to_string());
    match fake.manner.as_str() {
        "dies" => {
            eprintln!("no licence for \u{1b}[31mthis machine");
            std::process::exit(3);
        }
        "silent" => thread::sleep(Duration::from_secs(600)),
        "child" => {
            // It outlives its parent, unless somebody ends it.
            let child = Command::new("sleep").arg("600").spawn().unwrap();
            fake.note("children", &child.id().to_string());
        }
        "floods" => {
            let flooding = Arc::clone(&fake);
            thread::spawn(move || {
                loop {
                    flooding.tell("window/logMessage", json!({"type": 4, "message": "x".repeat(1_000)}));
                    let diagnostics = flooding.diagnostics("ERROR again");
                    flooding.publish(&flooding.uri("flood.fk"), None, &diagnostics);
                    flooding.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "workspace/configuration"}));
                }
            });
        }
        _ => {}
    }
    let mut input = std::io::stdin().lock();
    while let Some(message) = message(&mut input) {
        let (id, params) = (&message["id"], &message["params"]);
        match message["method"].as_str() {
            Some(method) if id.is_null() => fake.notice(method, params),
            Some(method) => fake.request(method, id, params),
            None if fake.is("floods") => {}
            None => fake.note("answers", &message.to_string()),
        }
    }
    // A server that does not end by itself when its input does.
    if fake.is("deaf") {
        thread::sleep(Duration::from_secs(600));
    }
}
