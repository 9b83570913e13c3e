//! Changes of several files that belong together: all are made, or none.

use std::{ops::Range, sync::Arc, time::Duration};

use entourage_core::{
    Digest,
    tool::{ToolContext, ToolError},
};

use super::{
    change::decoded,
    diff::{self, Diff},
    document::Document,
    save::{Current, Target},
    seen::{Known, digest_of},
    sight::Sight,
    stop::{Stop, blocking},
    workspace::Workspace,
};

const TIME: Duration = Duration::from_secs(20);
/// Most bytes of all files together, before and after their change, which are held at once.
const LARGEST: usize = 64 << 20;

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
    before: Digest,
    after: Digest,
}

impl Changed {
    /// The first files, of which a text with this number of bytes can have the whole differences.
    pub(crate) fn shown(files: &[Self], most: usize) -> &[Self] {
        let mut left = Some(most);
        let shown = files.iter().take_while(|file| {
            left = left.and_then(|left| left.checked_sub(file.diff.len()));
            left.is_some() && !diff::is_cut(&file.diff)
        });
        files.get(..shown.count()).unwrap_or_default()
    }

    /// The same for all changes that make the same texts of the same ones.
    pub(crate) fn digest<'f>(files: impl IntoIterator<Item = &'f Self>) -> Digest {
        let parts = |file: &Self| [file.name.clone(), file.before.to_string(), file.after.to_string()];
        let all: Vec<_> = files.into_iter().flat_map(parts).collect();
        Digest::of(all.iter().map(String::as_bytes))
    }
}

/// The changes that a call may make, by what was shown before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The one that the session was shown; `None` if that is not known any more.
    pub(crate) shown: Option<Digest>,
    /// The one that the approver of the call was shown, if one was.
    pub(crate) approved: Option<Digest>,
}

struct Prepared<'a> {
    target: Target<'a>,
    path: &'a str,
    current: Current,
    after: String,
    changed: Changed,
}

impl Prepared<'_> {
    /// Adds its size to that of the files before it.
    fn check_size(&self, size: &mut usize) -> Result<(), ToolError> {
        *size = size.saturating_add(self.current.bytes().len()).saturating_add(self.after.len());
        if *size > LARGEST {
            return Err(ToolError::tell(
                "the files of this change have more than 64 MiB before and after it together; change fewer or smaller ones",
            ));
        }
        Ok(())
    }
}

impl Workspace {
    /// Returns what a change of these files, by their resolved paths, would be. Writes nothing. The session has seen
    /// the files whose differences are whole in the first `shown` bytes, since it is shown these. The errors are for
    /// the model.
    pub(crate) async fn compare_all(
        &self,
        paths: Vec<String>,
        shown: usize,
        cx: &ToolContext<'_>,
        parts: impl Fn(&str, &str) -> Result<Parts, ToolError> + Send + 'static,
    ) -> Result<Vec<Changed>, ToolError> {
        let (ws, session, admission) = (self.clone(), cx.session().clone(), cx.admission());
        blocking(TIME, move |stop| {
            let sight = Sight::new(&ws, &session, &admission);
            let mut size = 0;
            let each = paths.iter().map(|path| {
                sight.start(&ws.place(path)?)?;
                let prepared = prepared(&sight, path, stop, &parts)?;
                prepared.check_size(&mut size)?;
                Ok(prepared)
            });
            let all: Vec<_> = each.collect::<Result<_, ToolError>>()?;
            check_apart(&all)?;
            let all: Vec<_> = all.into_iter().map(|file| file.changed).collect();
            for (file, path) in Changed::shown(&all, shown).iter().zip(&paths) {
                sight.saw(path.as_ref(), Known::Content(file.before));
            }
            Ok(all)
        })
        .await
    }

    /// Changes these files, which the call names as written, by the rules of `write`. If one cannot be written, those
    /// before it are changed back. With the digest of a change that was shown, only this one is made. The errors are
    /// for the model, and say what is left changed.
    pub(crate) async fn change_all(
        &self,
        paths: Vec<String>,
        limits: Limits,
        cx: &ToolContext<'_>,
        parts: impl Fn(&str, &str) -> Result<Parts, ToolError> + Send + 'static,
    ) -> Result<Vec<Changed>, ToolError> {
        let (ws, session, admission) = (self.clone(), cx.session().clone(), cx.admission());
        let judged = cx.footprint().writes.clone();
        blocking(TIME, move |stop| {
            let sight = Sight::new(&ws, &session, &admission).changing(judged);
            let _one_at_a_time = ws.writing();
            let mut size = 0;
            let each = paths.iter().map(|path| {
                let prepared = prepared(&sight, path, stop, &parts)?;
                prepared.check_size(&mut size)?;
                Ok(prepared)
            });
            let all: Vec<_> = each.collect::<Result<_, ToolError>>()?;
            check_apart(&all)?;
            check_shown(&all, limits)?;
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
    let before = decoded(&target, &current)?;
    let mut document = Document::read(before);
    let parts = parts(path, document.text())?;
    document.replace(&parts);
    let after = document.written();
    let Diff { text, added, removed } = Diff::of(&target.name, before, &after);
    let changed = Changed {
        name: target.name.clone(),
        diff: text,
        added,
        removed,
        before: current.digest,
        after: digest_of(after.as_bytes()),
    };
    Ok(Prepared { target, path, current, after, changed })
}

/// Checks that no two of the files are one: to write one of its names changes what the other one is.
fn check_apart(files: &[Prepared<'_>]) -> Result<(), ToolError> {
    for (number, file) in files.iter().enumerate() {
        let before = files.get(..number).unwrap_or_default();
        if let Some(same) = before.iter().find(|other| other.current.is_same_file(&file.current)) {
            return Err(ToolError::tell(format!(
                "nothing was changed, since `{}` and `{}` are two names of one file (hard links); make them two files, \
                 or change it by `edit`",
                same.changed.name, file.changed.name
            )));
        }
    }
    Ok(())
}

/// Checks that a change is the one that the session and the approver were shown. Where that is not known any more, the
/// session has to have seen the files as they are.
fn check_shown(files: &[Prepared<'_>], Limits { shown, approved }: Limits) -> Result<(), ToolError> {
    let other = |than: &str| {
        ToolError::tell(format!(
            "nothing was changed, since this would be another change than {than}; let the tool show it first"
        ))
    };
    let change = Changed::digest(files.iter().map(|file| &file.changed));
    if approved.is_some_and(|approved| approved != change) {
        return Err(other("the one that was approved"));
    }
    if shown == Some(change) {
        return Ok(());
    }
    files.iter().try_for_each(|file| file.target.check_seen(&file.current))?;
    if shown.is_none() { Ok(()) } else { Err(other("it showed")) }
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
        if now.as_ref().map(Current::bytes) != Some(file.after.as_bytes()) {
            return Err(ToolError::tell("it has changed meanwhile"));
        }
        target.put(now.as_ref(), file.current.bytes()).map(|_| ())
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
    fn ce02_a_change_holds_few_bytes_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (ws, session) = (Workspace::open(dir.path()).unwrap(), SessionId::new("several").unwrap());
        let (sight, stop) = (Sight::whole(&ws, &session), Stop::after(Duration::from_secs(60)));
        fs::write(dir.path().join("a"), "x".repeat(15 << 20)).unwrap();
        let same = |_: &str, _: &str| Ok(Parts::new());
        let (file, mut size) = (prepared(&sight, "a", &stop, &same).unwrap(), 0);
        let sizes = [(); 3].map(|()| file.check_size(&mut size).is_ok());
        assert_eq!(sizes, [true, true, false]);
    }

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
