//! Knowledge of the project that a server has told: diagnostics by file, and if it is still at work.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::wire::Found;

/// Most files with diagnostics, diagnostics of all files, and works in progress, of one server.
const FILES: usize = 2_000;
const DIAGNOSTICS: usize = 20_000;
const WORKS: usize = 256;
/// Time without news after which a server has said what it has to say.
const QUIET: Duration = Duration::from_millis(200);

/// The knowledge that one server gave.
#[derive(Debug)]
pub(super) struct Known {
    inner: Mutex<Inner>,
    news: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    /// The files with diagnostics, and of those that the server was told all of which it spoke.
    files: BTreeMap<PathBuf, OfFile>,
    /// Number of the diagnostics in them.
    kept: usize,
    /// The versions that the server was told, and the number of news by then.
    told: BTreeMap<PathBuf, Told>,
    works: BTreeSet<String>,
    revision: u64,
    /// Time of the last news.
    at: Instant,
    is_over: bool,
}

#[derive(Debug, Default)]
struct OfFile {
    pushed: Found,
    pulled: Found,
    /// The number of the news that had it.
    revision: u64,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    version: i64,
    revision: u64,
}

/// The state of a file's diagnostics after a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Heard {
    /// They are for the text that the server was told.
    Fresh,
    /// They are, and the server is still at work.
    Busy,
    /// The server said nothing of that text.
    Nothing,
}

impl Known {
    pub(super) fn new() -> Self {
        let inner = Inner {
            files: BTreeMap::new(),
            kept: 0,
            told: BTreeMap::new(),
            works: BTreeSet::new(),
            revision: 0,
            at: Instant::now(),
            is_over: false,
        };
        Self { inner: Mutex::new(inner), news: watch::channel(0).0 }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner();
        inner.revision = inner.revision.saturating_add(1);
        inner.at = Instant::now();
        change(&mut inner);
        let revision = inner.revision;
        drop(inner);
        self.news.send_replace(revision);
    }

    /// Notes that the server is told this version of a file.
    pub(super) fn told(&self, path: &Path, version: i64) {
        let mut inner = self.inner();
        let revision = inner.revision;
        inner.told.insert(path.to_owned(), Told { version, revision });
    }

    /// Notes that the server is not told of a file any more.
    pub(super) fn closed(&self, path: &Path, is_gone: bool) {
        let mut inner = self.inner();
        inner.told.remove(path);
        if is_gone || inner.files.get(path).is_some_and(OfFile::is_empty) {
            inner.forget(path);
        }
    }

    /// Takes what the server published about a file. What is for an older text than the one it was told is left out.
    pub(super) fn published(&self, path: &Path, version: Option<i64>, found: Found) {
        self.change(|inner| {
            let told = inner.told.get(path);
            if let (Some(told), Some(version)) = (told, version)
                && version < told.version
            {
                return;
            }
            inner.keep(path, found, |file| &mut file.pushed);
        });
    }

    /// Takes the answer about a file; `None` if it is the same as the one before.
    pub(super) fn answered(&self, path: &Path, found: Option<Found>) {
        self.change(|inner| {
            let before = || inner.files.get(path).map(|file| file.pulled.clone()).unwrap_or_default();
            let found = found.unwrap_or_else(before);
            inner.keep(path, found, |file| &mut file.pulled);
        });
    }

    /// Takes a report of progress.
    pub(super) fn progressed(&self, params: &Value) {
        let token = params.get("token").map(ToString::to_string).filter(|token| token.len() < 200);
        let kind = params.get("value").and_then(|value| value.get("kind")).and_then(Value::as_str);
        let Some(token) = token else { return };
        match kind {
            Some("begin") => self.change(|inner| {
                if inner.works.len() < WORKS {
                    inner.works.insert(token);
                }
            }),
            Some("end") => self.change(|inner| {
                inner.works.remove(&token);
            }),
            _ => {}
        }
    }

    /// Ends all waits: nothing more will be said.
    pub(super) fn end(&self) {
        self.change(|inner| inner.is_over = true);
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.inner().works.is_empty()
    }

    /// The diagnostics of all files that have some.
    pub(super) fn all(&self) -> Vec<(PathBuf, Found)> {
        let inner = self.inner();
        let all = inner.files.iter().filter(|(_, file)| !file.is_empty());
        all.map(|(path, file)| (path.clone(), file.found())).collect()
    }

    pub(super) fn of(&self, path: &Path) -> Found {
        self.inner().files.get(path).map(OfFile::found).unwrap_or_default()
    }

    /// Waits until the server has said what it has to say of a file as it was told: until then, and no news for a
    /// moment. Waits no longer than to the deadline.
    pub(super) async fn heard(&self, path: &Path, deadline: Instant) -> Heard {
        let mut news = self.news.subscribe();
        loop {
            news.borrow_and_update();
            let (is_fresh, is_busy, until) = {
                let inner = self.inner();
                if inner.is_over {
                    return Heard::Nothing;
                }
                let is_fresh = inner.is_fresh(path);
                let quiet = inner.at.checked_add(QUIET).unwrap_or(deadline);
                let is_busy = !inner.works.is_empty();
                (is_fresh, is_busy, if is_fresh && !is_busy { quiet.min(deadline) } else { deadline })
            };
            // An error of the inner one cannot be: this value has the sender.
            if timeout_at(until, news.changed()).await.is_err() {
                return match (is_fresh, is_busy) {
                    (true, false) => Heard::Fresh,
                    (true, true) => Heard::Busy,
                    (false, _) => Heard::Nothing,
                };
            }
        }
    }

    /// Waits until the server reports no work. Waits no longer than to the deadline.
    pub(super) async fn idle(&self, deadline: Instant) {
        let mut news = self.news.subscribe();
        let idle = async { while self.is_busy() && !self.inner().is_over && news.changed().await.is_ok() {} };
        // Nothing more can be done then.
        let _ = timeout_at(deadline, idle).await;
    }
}

impl Inner {
    /// Keeps what was said of a file in a part of its entry, as far as there is room. What is said of a file that the
    /// server was told is always kept.
    fn keep(&mut self, path: &Path, mut found: Found, part: impl Fn(&mut OfFile) -> &mut Found) {
        let is_told = self.told.contains_key(path);
        if !self.has_room(path, is_told) {
            return;
        }
        let file = self.files.entry(path.to_owned()).or_default();
        file.revision = self.revision;
        let place = part(file);
        self.kept = self.kept.saturating_sub(place.kept.len());
        if !is_told {
            found.kept.truncate(DIAGNOSTICS.saturating_sub(self.kept));
        }
        self.kept = self.kept.saturating_add(found.kept.len());
        *place = found;
        if !is_told && file.is_empty() {
            self.files.remove(path);
        }
    }

    /// True if a file has an entry or may have one. That of a file which the server was told takes the place of
    /// another.
    fn has_room(&mut self, path: &Path, is_told: bool) -> bool {
        if self.files.len() < FILES || self.files.contains_key(path) {
            return true;
        }
        let other = self.files.keys().find(|other| is_told && !self.told.contains_key(*other)).cloned();
        other.inspect(|other| self.forget(other)).is_some()
    }

    fn forget(&mut self, path: &Path) {
        if let Some(OfFile { pushed, pulled, .. }) = self.files.remove(path) {
            self.kept = self.kept.saturating_sub(pushed.kept.len().saturating_add(pulled.kept.len()));
        }
    }

    fn is_fresh(&self, path: &Path) -> bool {
        let heard = self.files.get(path).map(|file| file.revision);
        let told = self.told.get(path).map(|told| told.revision);
        heard.zip(told).is_some_and(|(heard, told)| heard > told)
    }
}

impl OfFile {
    fn is_empty(&self) -> bool {
        self.pushed.counts.all() == 0 && self.pulled.counts.all() == 0
    }

    fn found(&self) -> Found {
        self.pulled.with(&self.pushed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(message: &str) -> Found {
        Found::read(
            &json!([{"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}},
            "message": message}]),
        )
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test(start_paused = true)]
    async fn ce02_only_what_is_said_of_the_new_text_is_fresh() {
        let (known, a) = (Known::new(), Path::new("/a"));
        known.published(a, None, found("old"));
        known.told(a, 2);
        let began = Instant::now();
        assert_eq!(known.heard(a, soon()).await, Heard::Nothing);
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        known.published(a, Some(1), found("older"));
        assert_eq!(known.heard(a, soon()).await, Heard::Nothing);
        assert_eq!(known.of(a).kept[0].message, "old");
        for version in [None, Some(2), Some(7)] {
            known.told(a, 2);
            known.published(a, version, found("new"));
            let began = Instant::now();
            assert_eq!(known.heard(a, soon()).await, Heard::Fresh, "{version:?}");
            assert_eq!(began.elapsed(), QUIET);
        }
        // What is known already is not waited for.
        let began = Instant::now();
        assert_eq!((known.heard(a, soon()).await, began.elapsed()), (Heard::Fresh, Duration::ZERO));
        assert_eq!(known.of(a).kept[0].message, "new");
        known.closed(a, true);
        assert_eq!(known.all().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn ce02_a_server_at_work_is_waited_for_to_the_limit() {
        let (known, a) = (Known::new(), Path::new("/a"));
        known.told(a, 1);
        known.progressed(&json!({"token": 1, "value": {"kind": "begin"}}));
        known.published(a, None, found("x"));
        let began = Instant::now();
        assert_eq!(known.heard(a, soon()).await, Heard::Busy);
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        let (heard, ()) = tokio::join!(known.heard(a, soon()), async {
            tokio::time::advance(Duration::from_secs(1)).await;
            known.progressed(&json!({"token": 1, "value": {"kind": "end"}}));
        });
        assert_eq!(heard, Heard::Fresh);
        known.end();
        assert_eq!(known.heard(a, soon()).await, Heard::Nothing);
    }

    #[test]
    fn ce02_what_is_kept_is_bounded() {
        let known = Known::new();
        for number in 0..FILES + 10 {
            known.published(Path::new(&format!("/{number}")), None, found("x"));
        }
        assert_eq!(known.all().len(), FILES);
        for number in 0..WORKS * 2 {
            known.progressed(&json!({"token": number, "value": {"kind": "begin"}}));
        }
        assert_eq!(known.inner().works.len(), WORKS);
        known.answered(Path::new("/1"), Some(found("x")));
        known.answered(Path::new("/1"), None);
        assert_eq!(known.of(Path::new("/1")).counts.errors, 1, "said twice, it counts once");
    }

    #[tokio::test(start_paused = true)]
    async fn ce02_where_a_project_is_full_of_errors_a_file_that_is_asked_about_has_room() {
        let (known, one) = (Known::new(), found("x"));
        let many = Found { kept: vec![one.kept[0].clone(); 200], counts: one.counts };
        for number in 0..FILES * 10 {
            known.published(Path::new(&format!("/{number}")), None, many.clone());
        }
        assert_eq!(known.inner().kept, DIAGNOSTICS);
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        for path in [a, b] {
            known.told(path, 1);
            known.published(path, Some(1), one.clone());
            assert_eq!(known.heard(path, soon()).await, Heard::Fresh);
            assert_eq!(known.of(path), one);
        }
        assert_eq!(known.all().len(), FILES);
        // What is taken back leaves nothing.
        for number in 0..FILES {
            known.published(Path::new(&format!("/{number}")), None, Found::default());
        }
        for path in [a, b] {
            known.closed(path, true);
        }
        let inner = known.inner();
        assert_eq!((inner.kept, inner.files.len()), (0, 0));
    }
}
