//! The layer around file tools: tells servers of files, and adds what they find wrong to results.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    message::Content,
    permission::{Admission, RuleEffect},
    tool::{NextCall, ToolError, ToolLayer, ToolOutput},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    LanguageServers,
    known::Heard,
    link::{Absent, Link},
    live::{Change, Live, Text, deadline},
    position::Lines,
    report::{Entry, Group, Report, SHOWN},
    wire::{Found, plain},
};
use crate::fs::{Source, Workspace};

/// Tools of a workspace that change the file at `path`, and those that show it.
const CHANGING: [&str; 4] = ["edit", "multiedit", "undo", "write"];
const SHOWING: [&str; 1] = ["view"];
/// Time that is left of a call after the wait.
pub(super) const SPARE: Duration = Duration::from_secs(1);
/// Most characters of a path that is shown.
pub(super) const PATH: usize = 200;

/// The diagnostics of one server for a file.
pub(super) struct Said {
    pub(super) server: String,
    pub(super) live: Result<(Arc<Live>, Heard), Absent>,
}

#[async_trait]
impl ToolLayer for LanguageServers {
    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        let name = next.spec().name();
        let is_named = |tools: &[&str]| {
            tools.iter().any(|tool| {
                name.strip_suffix(tool).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
            })
        };
        let changes = is_named(&CHANGING);
        let path = next.arguments().get("path").and_then(Value::as_str).map(str::to_owned);
        let Some(path) = path.filter(|_| changes || is_named(&SHOWING)) else { return next.run().await };
        let wait = if changes { self.0.after_change } else { self.0.after_view };
        let named: Vec<String> = next.context().footprint().subjects().map(str::to_owned).collect();
        let latest = next.spec().timeout().map(|time| deadline(time.saturating_sub(SPARE)));
        let admission = Arc::new(next.context().admission());
        let output = next.run().await?;
        // A file that the rules were not asked about, as that of another tool of such a name, is none to tell of.
        if output.is_error || !self.workspace().subjects(&path).iter().all(|it| named.contains(it)) {
            return Ok(output);
        }
        let until = latest.map_or(deadline(wait), |latest| latest.min(deadline(wait)));
        let created = output.metadata.as_ref().and_then(|it| it.get("created")).and_then(Value::as_bool);
        let change = changes.then_some(if created == Some(true) { Change::Created } else { Change::Changed });
        let report = Box::pin(self.told_of(&path, change, &admission, until)).await;
        Ok(match report {
            // It has words of other files of this workspace than the tool's, which may have other labels.
            Some(report) => {
                let labels = output.labels | self.workspace().labels();
                with_report(output, &report).with_labels(labels)
            }
            None => output,
        })
    }
}

/// Adds a report to a result.
pub(super) fn with_report(mut output: ToolOutput, report: &Report) -> ToolOutput {
    output.content.push(Content::Text(report.text(SHOWN)));
    let metadata = output.metadata.get_or_insert_with(|| json!({}));
    if let Some(fields) = metadata.as_object_mut() {
        fields.insert("diagnostics".to_owned(), report.metadata());
    }
    output
}

impl LanguageServers {
    /// Tells servers of the file that a call named, and waits. `None` if there is nothing to add to its result.
    async fn told_of(
        &self,
        path: &str,
        change: Option<Change>,
        admission: &Arc<Admission>,
        until: Instant,
    ) -> Option<Report> {
        let at = self.workspace().resolved_place(path)?;
        if self.links_for(&at).is_empty() {
            return None;
        }
        let (source, exists) = self.source(&at, until).await?;
        let said = self.tell(&at, source.as_ref(), change.map(|change| change.of(exists)), until).await;
        if said.iter().all(|said| said.live.as_ref().is_err_and(|absent| matches!(absent, Absent::Failed(_))))
        {
            return None;
        }
        let mut report = self.report(&at, source.as_ref(), &said, admission).await;
        if change.is_none() {
            report.notes.clear();
        }
        let has_more = change.is_some() && (report.file.is_some() || !report.notes.is_empty());
        (has_more || !report.is_clean()).then_some(report)
    }

    /// Reads a file, if it is a text that servers are told, and looks if it exists.
    async fn source(&self, at: &Path, until: Instant) -> Option<(Option<Source>, bool)> {
        let (ws, at) = (self.workspace().clone(), at.to_owned());
        let read = tokio::task::spawn_blocking(move || (ws.source(&at), ws.stamp(&at).is_some()));
        timeout_at(until, read).await.ok()?.ok()
    }

    /// Tells all servers of a file as it is now, and waits for what each says of it.
    pub(super) async fn tell(
        &self,
        at: &Path,
        source: Option<&Source>,
        change: Option<Change>,
        until: Instant,
    ) -> Vec<Said> {
        let path = self.workspace().root().join(at);
        let text = source.map(|source| text_of(path.clone(), source));
        let mut each = JoinSet::new();
        for (number, link) in self.links_for(at).into_iter().enumerate() {
            let (ws, path, text) = (self.workspace().clone(), path.clone(), text.clone());
            each.spawn(async move {
                let live = one(&link, &ws, (&path, text.as_ref()), change, until).await;
                (number, Said { server: link.server.name().to_owned(), live })
            });
        }
        in_order(each).await
    }

    /// Returns the diagnostics of a file, and of the others that the call may read.
    pub(super) async fn report(
        &self,
        at: &Path,
        source: Option<&Source>,
        said: &[Said],
        admission: &Arc<Admission>,
    ) -> Report {
        let path = self.workspace().root().join(at);
        let (mut file, mut notes, mut has_file) = (Group::default(), Vec::new(), false);
        for Said { server, live } in said {
            match live {
                // One that failed meanwhile is none.
                Ok((live, Heard::Nothing)) if live.over().is_some() => {}
                Ok((_, Heard::Nothing)) => {
                    notes.push(format!("the language server `{server}` has not checked this text yet"));
                }
                Ok((live, heard)) => {
                    has_file |= source.is_some();
                    let lines = source.map(|source| Lines::of(&source.text));
                    file.add("", &live.known().of(&path), |it| {
                        lines.as_ref().map(|lines| lines.column(it, live.encoding))
                    });
                    if *heard == Heard::Busy {
                        notes.push(format!("the language server `{server}` is still at work"));
                    }
                }
                Err(Absent::Starting) => {
                    notes.push(format!("the language server `{server}` is still starting"));
                }
                Err(Absent::Failed(_)) => {}
            }
        }
        let file = has_file.then(|| (shown(self.workspace(), &path), file.sorted()));
        Report { file, project: self.project(Some(&path), admission).await, notes }
    }

    /// The diagnostics of all files but one, as far as the call may read them.
    pub(super) async fn project(&self, without: Option<&Path>, admission: &Arc<Admission>) -> Group {
        let running = self.0.links.iter().filter_map(|link| link.running());
        let found = running.flat_map(|live| live.known().all()).filter(|(path, _)| without != Some(&**path));
        let found: Vec<_> = found.collect();
        let paths = found.iter().map(|(path, _)| path.clone()).collect();
        let effects = self.workspace().effects_on(paths, admission).await;
        let mut group = Group::default();
        for (path, found) in found.iter().filter(|(path, _)| effects.get(path) == Some(&RuleEffect::Allow)) {
            group.add(&shown(self.workspace(), path), found, |_| None);
        }
        group.sorted()
    }
}

/// The results of tasks in the order of their numbers. A panic in one costs its result alone.
pub(super) async fn in_order<T: 'static>(mut tasks: JoinSet<(usize, T)>) -> Vec<T> {
    let mut results = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        results.extend(ended);
    }
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

impl Group {
    fn add(
        &mut self,
        name: &str,
        found: &Found,
        column: impl Fn(super::position::Position) -> Option<usize>,
    ) {
        self.files = self.files.saturating_add(1);
        self.counts = self.counts.and(found.counts);
        self.entries.extend(found.kept.iter().map(|it| Entry {
            severity: it.severity,
            name: name.to_owned(),
            line: it.range.start.line.saturating_add(1),
            column: column(it.range.start),
            text: format!("{}{}", it.message, it.origin),
        }));
    }
}

/// A path as it is shown: below the root, or absolute.
pub(super) fn shown(workspace: &Workspace, path: &Path) -> String {
    let inside = workspace.inside(path).unwrap_or_else(|| path.to_owned());
    plain(&inside.to_string_lossy(), PATH)
}

pub(super) fn text_of(path: PathBuf, source: &Source) -> Text {
    Text { path, text: source.text.as_str().into(), stamp: source.stamp.clone() }
}

/// Tells one server of a file, and waits for what it says.
async fn one(
    link: &Arc<Link>,
    workspace: &Workspace,
    (path, text): (&Path, Option<&Text>),
    change: Option<Change>,
    until: Instant,
) -> Result<(Arc<Live>, Heard), Absent> {
    let live = link.live(until).await?;
    refresh(&live, workspace, until).await;
    let Some(text) = text else {
        let change = change.filter(|change| *change == Change::Removed);
        live.changed(path, change.unwrap_or(Change::Unreadable));
        return Ok((live, Heard::Fresh));
    };
    live.show(text, change.is_some(), until).await;
    if let Some(change) = change {
        live.changed(path, change);
    }
    let heard = live.diagnosed(path, until).await;
    Ok((live, heard))
}

/// Tells a server of files that it has open, and that somebody else changed.
pub(super) async fn refresh(live: &Arc<Live>, workspace: &Workspace, until: Instant) {
    let (open, ws) = (live.open(), workspace.clone());
    let look = tokio::task::spawn_blocking(move || {
        let changed = open.into_iter().filter_map(|(path, stamp)| {
            let at = ws.inside(&path)?;
            let now = ws.stamp(&at);
            (now.as_ref() != Some(&stamp)).then(|| (path, ws.source(&at), now.is_some()))
        });
        changed.collect::<Vec<_>>()
    });
    // What cannot be read in time is as it was told.
    let Ok(Ok(changed)) = timeout_at(until, look).await else { return };
    for (path, source, exists) in changed {
        match source {
            Some(source) => live.show(&text_of(path, &source), true, until).await,
            None => live.changed(&path, Change::Removed.of(exists)),
        }
    }
}
