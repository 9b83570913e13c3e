//! Text files of a workspace for programs that work on the same files, such as language servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use entourage_core::{
    permission::{Admission, RuleEffect},
    tool::{ToolContext, ToolError},
};

use super::{
    seen::Stamp,
    sight::Sight,
    stop::{Stop, blocking},
    text,
    workspace::Workspace,
};

/// Most bytes of a file that is read.
const LARGEST: u64 = 4 << 20;
const TIME: Duration = Duration::from_secs(5);

/// A text file, without a byte order mark.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path as it is shown.
    pub(crate) name: String,
    /// Its path below the root, with links resolved.
    pub(crate) at: PathBuf,
    pub(crate) text: String,
    pub(crate) stamp: Stamp,
}

impl Source {
    fn read(at: PathBuf, file: std::fs::File) -> Option<Self> {
        let stamp = Stamp::of(&file.metadata().ok()?);
        let mut text = String::new();
        file.take(LARGEST.saturating_add(1)).read_to_string(&mut text).ok()?;
        if text.len() as u64 > LARGEST {
            return None;
        }
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        Some(Self { name: text::echo(&text::show(&at)), at, text, stamp })
    }
}

impl Workspace {
    /// The path below the root of a place that a call names, with links resolved.
    pub(crate) fn resolved_place(&self, path: &str) -> Option<PathBuf> {
        let place = self.place(path).ok()?;
        Some(self.resolved(place.names())?.components().collect())
    }

    /// The path below the root of an absolute path; `None` if it lies elsewhere.
    pub(crate) fn inside(&self, path: &Path) -> Option<PathBuf> {
        self.roots().iter().find_map(|root| path.strip_prefix(root).ok().map(Path::to_owned))
    }

    /// A file at a resolved path, of which a change was allowed. `None` if it is no text of at most 4 MiB. Blocks.
    pub(crate) fn source(&self, at: &Path) -> Option<Source> {
        Source::read(at.to_owned(), self.opened(at)?)
    }

    /// The facts about the file at a resolved path. Blocks.
    pub(crate) fn stamp(&self, at: &Path) -> Option<Stamp> {
        Some(Stamp::of(&self.opened(at)?.metadata().ok()?))
    }

    fn opened(&self, at: &Path) -> Option<std::fs::File> {
        let dir = self.open_plain(at.parent()?).ok()?;
        let follow = cap_fs_ext::FollowSymlinks::No;
        Self::open_file(&dir, Path::new(at.file_name()?), follow).ok().flatten()
    }

    /// The file that a call names. The errors are for the model.
    pub(crate) async fn named_source(&self, path: &str, cx: &ToolContext<'_>) -> Result<Source, ToolError> {
        let (ws, path, session, admission) =
            (self.clone(), path.to_owned(), cx.session().clone(), cx.admission());
        blocking(TIME, move |_: &Stop| {
            let sight = Sight::new(&ws, &session, &admission);
            let place = ws.place(&path)?;
            let name = text::echo(&text::show(place.as_path()));
            if sight.look(&place)?.is_dir() {
                return Err(ToolError::tell(format!("`{name}` is a directory; name a file")));
            }
            let start = sight.start(&place)?;
            let opened = sight.open_named(&start).map_err(|error| sight.explain(&error, &place))?;
            let source = opened.and_then(|file| Source::read(sight.resolved(&place), file));
            source.ok_or_else(|| ToolError::tell(format!("`{name}` is no UTF-8 text of at most 4 MiB")))
        })
        .await
    }

    /// The effects of the rules of a call on files that a program names, by their absolute paths. Those that cannot be
    /// judged in time are left out.
    pub(crate) async fn effects_on(
        &self,
        paths: BTreeSet<PathBuf>,
        admission: &Arc<Admission>,
    ) -> BTreeMap<PathBuf, RuleEffect> {
        if admission.is_uniform() {
            return paths.into_iter().map(|path| (path, RuleEffect::Allow)).collect();
        }
        let (ws, admission) = (self.clone(), Arc::clone(admission));
        let judged = blocking(TIME, move |stop| {
            let judge = |path: PathBuf| {
                let effect = ws.effect_on(&path, &admission);
                (path, effect)
            };
            Ok(paths.into_iter().take_while(|_| stop.check().is_ok()).map(judge).collect())
        });
        // Without a verdict nothing is shown.
        judged.await.unwrap_or_default()
    }

    /// Judges the name of a file, and its path with links resolved.
    fn effect_on(&self, path: &Path, admission: &Admission) -> RuleEffect {
        let subjects = match self.inside(path) {
            Some(at) => self.subjects(&at.to_string_lossy()),
            None => vec![path.to_string_lossy().into_owned()],
        };
        let effects: Vec<_> = subjects.iter().map(|subject| admission.reading(subject)).collect();
        let worst = [RuleEffect::Deny, RuleEffect::Ask].into_iter().find(|effect| effects.contains(effect));
        worst.unwrap_or(RuleEffect::Allow)
    }
}
