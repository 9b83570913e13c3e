//! Changes of several files that belong together: all are made, or none.

use std::{ops::Range, sync::Arc, time::Duration};

use entourage_core::tool::{ToolContext, ToolError};

use super::{
    change::decoded,
    diff::Diff,
    document::Document,
    save::{Current, Target},
    seen::Known,
    sight::Sight,
    stop::{Stop, blocking},
    workspace::Workspace,
};

const TIME: Duration = Duration::from_secs(20);

/// Parts of a text with LF alone between its lines, and their new texts.
pub(crate) type Parts = Vec<(Range<usize>, String)>;

/// A file before and after a change.
#[derive(Debug)]
pub(crate) struct Changed {
    /// Its path as it is shown.
    pub(crate) name: String,
    pub(crate) diff: String,
    pub(crate) added: usize,
    pub(crate) removed: usize,
}

struct Prepared<'a> {
    target: Target<'a>,
    path: &'a str,
    current: Current,
    after: String,
    changed: Changed,
}

impl Workspace {
    /// Returns what a change of these files, by their resolved paths, would be. Writes nothing. With `is_shown` the
    /// session has seen the files, since it is shown the result. The errors are for the model.
    pub(crate) async fn compare_all(
        &self,
        paths: Vec<String>,
        is_shown: bool,
        cx: &ToolContext<'_>,
        parts: impl Fn(&str, &str) -> Result<Parts, ToolError> + Send + 'static,
    ) -> Result<Vec<Changed>, ToolError> {
        let (ws, session, admission) = (self.clone(), cx.session().clone(), cx.admission());
        blocking(TIME, move |stop| {
            let sight = Sight::new(&ws, &session, &admission);
            let each = paths.iter().map(|path| {
                sight.start(&ws.place(path)?)?;
                let Prepared { current, changed, .. } = prepared(&sight, path, stop, &parts)?;
                if is_shown {
                    sight.saw(path.as_ref(), Known::Content(current.digest));
                }
                Ok(changed)
            });
            each.collect()
        })
        .await
    }

    /// Changes these files, which the call names as written, by the rules of `write`. If one cannot be written, those
    /// before it are changed back. The errors are for the model, and say what is left changed.
    pub(crate) async fn change_all(
        &self,
        paths: Vec<String>,
        cx: &ToolContext<'_>,
        parts: impl Fn(&str, &str) -> Result<Parts, ToolError> + Send + 'static,
    ) -> Result<Vec<Changed>, ToolError> {
        let (ws, session, admission) = (self.clone(), cx.session().clone(), cx.admission());
        let judged = cx.footprint().writes.clone();
        blocking(TIME, move |stop| {
            let sight = Sight::new(&ws, &session, &admission).changing(judged);
            let _one_at_a_time = ws.writing();
            let each = paths.iter().map(|path| {
                let prepared = prepared(&sight, path, stop, &parts)?;
                prepared.target.check_seen(&prepared.current)?;
                Ok(prepared)
            });
            let all: Vec<_> = each.collect::<Result<_, ToolError>>()?;
            for (number, file) in all.iter().enumerate() {
                if let Err(error) = file.target.put(Some(&file.current), file.after.as_bytes()) {
                    let before = all.get(..number).unwrap_or_default();
                    return Err(told(&error, &taken_back(&sight, before)));
                }
            }
            Ok(all.into_iter().map(|file| file.changed).collect())
        })
        .await
    }
}

fn prepared<'a>(
    sight: &'a Sight<'a>,
    path: &'a str,
    stop: &'a Stop,
    parts: &impl Fn(&str, &str) -> Result<Parts, ToolError>,
) -> Result<Prepared<'a>, ToolError> {
    let target = Target::of(sight, path, stop)?;
    let missing = || ToolError::tell(format!("there is nothing at `{}` any more", target.name));
    let current = target.read()?.ok_or_else(missing)?;
    let before = decoded(&target, &current)?.to_owned();
    let mut document = Document::read(&before);
    let parts = parts(path, document.text())?;
    document.replace(&parts);
    let after = document.written();
    let Diff { text, added, removed } = Diff::of(&target.name, &before, &after);
    let changed = Changed { name: target.name.clone(), diff: text, added, removed };
    Ok(Prepared { target, path, current, after, changed })
}

/// Changes files back, the last one first. Returns the names of those that stay changed.
fn taken_back(sight: &Sight<'_>, files: &[Prepared<'_>]) -> Vec<String> {
    // The time of the call may be over, which must not leave some of the files changed.
    let stop = Stop::new(Arc::default(), TIME);
    let back = |file: &&Prepared<'_>| -> Result<(), ToolError> {
        let target = Target::of(sight, file.path, &stop)?;
        if sight.workspace().history().is_some() {
            return target.undo().map(|_| ());
        }
        let now = target.read()?;
        if now.as_ref().map(|now| &*now.content) != Some(file.after.as_bytes()) {
            return Err(ToolError::tell("it has changed meanwhile"));
        }
        target.put(now.as_ref(), &file.current.content).map(|_| ())
    };
    files.iter().rev().filter(|file| back(file).is_err()).map(|file| file.changed.name.clone()).collect()
}

fn told(error: &ToolError, left: &[String]) -> ToolError {
    if left.is_empty() {
        return ToolError::tell(format!("nothing was changed, since {error}"));
    }
    let names: Vec<_> = left.iter().map(|name| format!("`{name}`")).collect();
    ToolError::tell(format!(
        "the change was broken off, since {error}; what was changed before could not be changed back in {}: view these \
         files, and mend them; all others are as they were",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use entourage_core::SessionId;

    use super::*;

    #[test]
    fn ce02_files_that_were_changed_before_a_failure_are_changed_back() {
        for with_history in [false, true] {
            let (dir, history) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let mut ws = Workspace::open(dir.path()).unwrap();
            if with_history {
                ws = ws.with_history(history.path()).unwrap();
            }
            let session = SessionId::new("several").unwrap();
            let sight = Sight::whole(&ws, &session);
            let stop = Stop::after(Duration::from_secs(60));
            let names = ["a", "b", "c"];
            for name in names {
                fs::write(dir.path().join(name), "old\r\n").unwrap();
            }
            let parts = |_: &str, _: &str| Ok(vec![(0..3, "new".to_owned())]);
            let all: Vec<_> =
                names.iter().map(|path| prepared(&sight, path, &stop, &parts).unwrap()).collect();
            for file in &all {
                file.target.put(Some(&file.current), file.after.as_bytes()).unwrap();
            }
            assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"new\r\n");
            // Somebody else's change stays.
            fs::write(dir.path().join("b"), "theirs").unwrap();
            let left = taken_back(&sight, &all);
            assert_eq!(left, ["b"], "{with_history}");
            let now = names.map(|name| fs::read_to_string(dir.path().join(name)).unwrap());
            assert_eq!(now, ["old\r\n", "theirs", "old\r\n"], "{with_history}");
            let text = told(&ToolError::tell("no"), &left).to_string();
            assert!(text.contains("`b`: view these files"), "{text}");
        }
    }
}
