//! A workspace as visible under the rules of one call: a walk leaves hidden places out and opens the others here.
//!
//! A path is judged both as it was reached and with links resolved, so no link is a way around a rule. Where rules
//! tell paths apart, a judged place is opened name by name without following links, so no link can take its place in
//! between.

use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
};

use cap_fs_ext::FollowSymlinks;
use cap_std::fs::{Dir, Metadata};
use entourage_core::{
    Digest, SessionId,
    permission::{Admission, RuleEffect},
    tool::ToolError,
};

use super::{level::Kind, path, path::Inside, seen::Known, similar, text, workspace::Workspace};

/// The view of one call on a workspace.
#[derive(Debug)]
pub(super) struct Sight<'a> {
    ws: &'a Workspace,
    /// The session that calls.
    session: &'a SessionId,
    /// Paths that the call was allowed to change; `None` where nothing was judged.
    judged: Option<Vec<String>>,
    /// `None` if all paths are judged alike: then the verdict on the call holds for every place it reaches.
    admission: Option<&'a Admission>,
    /// Number of places left out because they need approval.
    to_ask: Cell<usize>,
}

/// The start of a call, with its links resolved.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) path: PathBuf,
    /// `None` if it is the same path.
    real: Option<PathBuf>,
}

impl Start {
    /// The path of a place below the start with links resolved.
    fn real(&self, at: &Path) -> Option<PathBuf> {
        Some(self.real.as_ref()?.join(at.strip_prefix(&self.path).ok()?))
    }
}

impl<'a> Sight<'a> {
    pub(super) fn new(ws: &'a Workspace, session: &'a SessionId, admission: &'a Admission) -> Self {
        let admission = Some(admission).filter(|admission| !admission.is_uniform());
        Self { ws, session, judged: None, admission, to_ask: Cell::new(0) }
    }

    /// The same view, for a call that was allowed to change these paths.
    pub(super) fn changing(mut self, judged: Vec<String>) -> Self {
        self.judged = Some(judged);
        self
    }

    /// Checks that a resolved path is one that the call was allowed to change. The error is for the model.
    pub(super) fn check_judged(&self, at: &Path) -> Result<(), ToolError> {
        match &self.judged {
            // Where it leads now may be a place of which nothing is shown.
            Some(judged) if !judged.contains(&text::subject(at)) => Err(ToolError::tell(
                "the path led somewhere else when this call was allowed; look where it leads, and call the tool again",
            )),
            _ => Ok(()),
        }
    }

    #[cfg(test)]
    pub(super) fn whole(ws: &'a Workspace, session: &'a SessionId) -> Self {
        Self { ws, session, judged: None, admission: None, to_ask: Cell::new(0) }
    }

    pub(super) fn workspace(&self) -> &'a Workspace {
        self.ws
    }

    /// Judges again the place that a call names, now against the disk. The error is for the model.
    pub(super) fn start(&self, place: &Inside) -> Result<Start, ToolError> {
        let path = place.names().to_owned();
        let real = self.admission.and_then(|_| self.ws.resolved(&path)).filter(|real| *real != path);
        let start = Start { path, real };
        let admitted = self.judge(&start.path) == RuleEffect::Allow
            && start.real.as_deref().is_none_or(|real| self.judge(real) == RuleEffect::Allow);
        if admitted {
            return Ok(start);
        }
        Err(ToolError::tell(format!(
            "`{}` leads somewhere else than it did when this call was allowed; call the tool again",
            text::echo(&text::show(place.as_path()))
        )))
    }

    /// True if an entry of a tree may be shown. A directory that may not be shown is not entered either.
    pub(super) fn shows(&self, start: &Start, at: &Path, kind: Kind) -> bool {
        if self.admission.is_none() {
            return true;
        }
        let real = start.real(at);
        let target = (kind == Kind::Link).then(|| self.ws.resolved(at)).flatten();
        let places = [Some(at), real.as_deref(), target.as_deref()];
        self.admits(places.into_iter().flatten())
    }

    /// True if a name may be offered for a path that no walk reached.
    pub(super) fn names(&self, at: &Path) -> bool {
        self.admission.is_none() || {
            let resolved = self.ws.resolved(at);
            let beside = at.parent().and_then(|parent| Some(self.ws.resolved(parent)?.join(at.file_name()?)));
            self.admits([Some(at), beside.as_deref(), resolved.as_deref()].into_iter().flatten())
        }
    }

    fn admits<'p>(&self, places: impl Iterator<Item = &'p Path>) -> bool {
        let judged: Vec<_> = places.map(|place| self.judge(place)).collect();
        if judged.contains(&RuleEffect::Deny) {
            return false;
        }
        let asks = judged.contains(&RuleEffect::Ask);
        self.to_ask.set(self.to_ask.get() + usize::from(asks));
        !asks
    }

    fn judge(&self, at: &Path) -> RuleEffect {
        self.admission.map_or(RuleEffect::Allow, |admission| admission.reading(&text::subject(at)))
    }

    /// A note on the places that were left out because they need approval. Denied places are not mentioned.
    pub(super) fn left_out(&self) -> Option<String> {
        let places = self.to_ask.get();
        (places > 0).then(|| {
            let places = text::count(places, "file or directory was", "files or directories were");
            format!("({places} left out, since leave must be asked for first; name what you need as `path`)")
        })
    }

    /// Metadata of a place, links followed. The error is for the model and offers similar names.
    pub(super) fn look(&self, place: &Inside) -> Result<Metadata, ToolError> {
        self.ws.dir().metadata(place.as_path()).map_err(|error| self.explain(&error, place))
    }

    /// Opens the file that a call names; `None` if it is not a regular file.
    pub(super) fn open_named(&self, start: &Start) -> io::Result<Option<std::fs::File>> {
        match self.admission {
            None => Workspace::open_file(self.ws.dir(), &start.path, FollowSymlinks::Yes),
            Some(_) => self.open_plain(start.real.as_deref().unwrap_or(&start.path)),
        }
    }

    /// Opens a file that a walk from `start` reached, and listed as one.
    pub(super) fn open_file(&self, start: &Start, at: &Path) -> io::Result<Option<std::fs::File>> {
        match self.admission {
            None => Workspace::open_listed(self.ws.dir(), at, FollowSymlinks::No),
            Some(_) => self.open_plain(start.real(at).as_deref().unwrap_or(at)),
        }
    }

    /// Opens the start itself, which may be a link, or a directory that a walk from it reached.
    pub(super) fn open_dir(&self, start: &Start, at: &Path) -> io::Result<Dir> {
        match self.admission {
            Some(_) => self.plain(start.real(at).as_deref().unwrap_or(at)),
            None if at.as_os_str().is_empty() => self.ws.open_dir(Path::new("."), FollowSymlinks::Yes),
            None if at == start.path => self.ws.open_dir(at, FollowSymlinks::Yes),
            None => self.ws.open_dir(at, FollowSymlinks::No),
        }
    }

    /// The path of a place with links resolved: of the file or directory there, or of as much as exists.
    pub(super) fn resolved(&self, place: &Inside) -> PathBuf {
        let resolved = self.ws.resolved(place.names()).unwrap_or_else(|| place.names().to_owned());
        // Without a `/` at its end, which is no part of the name.
        resolved.components().collect()
    }

    pub(super) fn session(&self) -> &'a SessionId {
        self.session
    }

    /// The file at a resolved path as this session last saw it.
    pub(super) fn seen(&self, at: &Path) -> Option<Known> {
        self.ws.seen().get(self.session, at).or_else(|| {
            let seen = self.ws.history()?.seen(self.session, at.to_str()?);
            seen.ok().flatten().map(Known::Content)
        })
    }

    /// Notes that this session sees the file at a resolved path as it is, in the history as well.
    pub(super) fn saw(&self, at: &Path, known: Known) {
        if let (Some(history), Some(path), Known::Content(digest)) = (self.ws.history(), at.to_str(), &known)
            && self.ws.seen().get(self.session, at) != Some(known.clone())
        {
            // Where that fails, the file is viewed again after a restart.
            drop(history.saw(self.session, path, *digest));
        }
        self.ws.seen().note(self.session, at, known);
    }

    /// Notes the content that this session gave a file. The history has its version.
    pub(super) fn wrote(&self, at: &Path, content: Digest) {
        self.ws.seen().note(self.session, at, Known::Content(content));
    }

    /// Opens a file at a resolved path, without following links; `None` if it is not a regular file.
    pub(super) fn open_plain(&self, at: &Path) -> io::Result<Option<std::fs::File>> {
        let Some(name) = at.file_name() else { return Ok(None) };
        let dir = self.plain(at.parent().unwrap_or(Path::new("")))?;
        Workspace::open_file(&dir, Path::new(name), FollowSymlinks::No)
    }

    /// Opens a directory name by name; no link is followed.
    pub(super) fn plain(&self, at: &Path) -> io::Result<Dir> {
        self.ws.open_plain(at)
    }

    /// The error result for a system error at a place.
    pub(super) fn explain(&self, error: &io::Error, place: &Inside) -> ToolError {
        let shown = text::echo(&text::show(place.as_path()));
        ToolError::Tell(match error.kind() {
            // The handle's own refusal has no system error code.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => path::outside(&shown),
            io::ErrorKind::PermissionDenied => format!("the system does not allow reading `{shown}`"),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                let mut answer = format!("there is nothing at `{shown}`");
                let names = similar::names(self, place);
                if !names.is_empty() {
                    answer.push_str("; did you mean ");
                    answer.push_str(&names.join(" or "));
                    answer.push('?');
                }
                answer
            }
            _ => format!("`{shown}` cannot be read: {error}"),
        })
    }
}
