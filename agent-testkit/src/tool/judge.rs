//! The faults of a call, by what it did to its tree and what it gave back. Pure.

use entourage_core::{
    ErrorKind, bound,
    message::{Content, Media, MediaSource},
    run::Limits,
    tool::{Access, Footprint, ToolOutput, ToolSpec},
};

use super::{
    bench::{Call, End, Seen, text_of},
    cases::Case,
    tree::{Entry, Look, below_inside, shown},
};

/// Most paths that a text names.
const NAMED: usize = 5;

/// The cases that a call breaks, each with the reason.
pub(super) fn faults(spec: &ToolSpec, call: &Call) -> Vec<(Case, String)> {
    let mut found = changes(spec, call);
    let Some(seen) = &call.seen else { return found };
    if seen.preview_changed {
        found.push((Case::Preview, "the preview changed the tree".to_owned()));
    }
    if seen.preview_panicked {
        found.push((Case::Panic, "the preview panicked".to_owned()));
    }
    if !spec.access().contains(seen.footprint.access) {
        let text =
            format!("a footprint needs {}, and the tool declares {}", seen.footprint.access, spec.access());
        found.push((Case::Covered, text));
    }
    match &seen.end {
        End::Panicked(text) => found.push((Case::Panic, format!("the call panicked: {text}"))),
        // A pause or a cancel of a run below is no answer.
        End::Fatal(ErrorKind::Paused | ErrorKind::Cancelled, _) | End::Dropped(_) => {}
        End::Fatal(_, text) => found.push((Case::Fatal, format!("the call ended the run: {text}"))),
        End::Told(text) => found.extend(error_text(text)),
        End::Output(output) => found.extend(answer(spec, seen, output)),
    }
    found
}

/// The cases that the changes of the tree break.
fn changes(spec: &ToolSpec, call: &Call) -> Vec<(Case, String)> {
    let mut found = Vec::new();
    let changed = call.before.differences(&call.after);
    let outside: Vec<_> = changed.iter().copied().filter(|path| below_inside(path).is_none()).collect();
    // The directory itself is outside of what is in it, unless it is gone.
    if !outside.is_empty() {
        found.push((Case::Outside, format!("changed outside of its directory: {}", named(&outside))));
    }
    let inside: Vec<_> = changed.iter().filter_map(|path| below_inside(path)).collect();
    let Some(seen) = &call.seen else {
        if !inside.is_empty() {
            found.push((Case::Covered, format!("a call that did not begin changed {}", named(&inside))));
        }
        return found;
    };
    let uncovered: Vec<_> = inside
        .into_iter()
        .filter(|path| !may_change(spec, &seen.footprint, path, call.after.0.get(&format!("inside/{path}"))))
        .collect();
    if !uncovered.is_empty() {
        let text = format!("{} changed {}", footprint_text(&seen.footprint), named(&uncovered));
        found.push((Case::Covered, text));
    }
    found
}

/// True if a footprint says that a path may be changed. What programs do is not named in it.
fn may_change(spec: &ToolSpec, footprint: &Footprint, path: &str, after: Option<&Entry>) -> bool {
    if footprint.access.contains(Access::EXECUTE) || (footprint.unclear && !footprint.access.is_read_only()) {
        return true;
    }
    if !footprint.access.contains(Access::WRITE) {
        return false;
    }
    let leads = |written: &String| after == Some(&Entry::Directory) && is_below(written, path);
    !spec.names_subjects() || footprint.writes.iter().any(|it| is_below(path, it) || leads(it))
}

/// The cases that the output of a call breaks.
fn answer(spec: &ToolSpec, seen: &Seen, output: &ToolOutput) -> Vec<(Case, String)> {
    let mut found = Vec::new();
    let text = text_of(&output.content);
    if output.is_error {
        found.extend(error_text(&text));
    }
    let limits = Limits::default();
    let files: usize = output.content.iter().map(file_bytes).sum();
    for (what, bytes, most) in [("text", text.len(), limits.tool_output), ("files", files, limits.tool_media)]
    {
        if bytes > most {
            found.push((
                Case::Bounded,
                format!("a result has {bytes} bytes of {what}; keep it within {most}"),
            ));
        }
    }
    if let Some(metadata) = &output.metadata
        && let Err(flaw) = bound::check(metadata, limits.tool_metadata)
    {
        found.push((Case::Bounded, format!("metadata of a result cannot be kept: {flaw}")));
    }
    let metadata = output.metadata.as_ref().map(ToString::to_string).unwrap_or_default();
    let unnamed: Vec<_> =
        shown(&format!("{text}\n{metadata}")).filter(|file| !may_show(spec, seen, file)).collect();
    if !unnamed.is_empty() {
        let text = format!("{} and the result shows {}", footprint_text(&seen.footprint), named(&unnamed));
        found.push((Case::Covered, text));
    }
    found
}

fn error_text(text: &str) -> Option<(Case, String)> {
    if text.trim().is_empty() {
        return Some((Case::ErrorText, "an error result has no text; say what to do instead".to_owned()));
    }
    let most = Limits::default().tool_output;
    let bytes = text.len();
    (bytes > most)
        .then(|| (Case::Bounded, format!("an error has {bytes} bytes of text; keep it within {most}")))
}

/// True if a footprint says that the content of a file of the tree may be shown.
fn may_show(spec: &ToolSpec, seen: &Seen, file: &str) -> bool {
    let footprint = &seen.footprint;
    if footprint.unclear || footprint.access.contains(Access::EXECUTE) {
        return true;
    }
    if !footprint.access.intersects(Access::READ | Access::WRITE) {
        return false;
    }
    let named = |path: &String| match below_inside(file) {
        Some(inside) => is_below(inside, path),
        None => path.ends_with(file),
    };
    // Without the declaration a call could touch anything, and is judged so.
    !spec.names_subjects() || footprint.reads.iter().chain(&footprint.writes).any(named)
}

/// True if `path` is `root` or below it. Both are relative to the tool's directory, or `root` is absolute and ends in
/// a path relative to it.
fn is_below(path: &str, root: &str) -> bool {
    let root =
        root.rsplit_once("/inside/").filter(|_| root.starts_with('/')).map_or(root, |(_, below)| below);
    let root = root.trim_start_matches("./").trim_end_matches('/');
    root == "."
        || root.ends_with("/inside")
        || path == root
        || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

/// The files that a dropped call left neither as they were nor as the whole call leaves them.
pub(super) fn half_done<'a>(before: &'a Look, after: &'a Look, whole: &'a Look) -> Vec<&'a str> {
    let mut paths = before.differences(after);
    paths.retain(|path| {
        let now = after.0.get(*path);
        now != whole.0.get(*path) && now != Some(&Entry::Directory)
    });
    paths
}

fn footprint_text(footprint: &Footprint) -> String {
    let subjects: Vec<_> = footprint.subjects().map(|it| bound::shortened(it, 100)).take(NAMED).collect();
    format!("the footprint has access {} and names {subjects:?},", footprint.access)
}

fn named(paths: &[&str]) -> String {
    let shown: Vec<_> =
        paths.iter().take(NAMED).map(|path| format!("`{}`", bound::shortened(path, 100))).collect();
    let more = paths.len().saturating_sub(NAMED);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

fn file_bytes(content: &Content) -> usize {
    match content {
        Content::Media(Media { source: MediaSource::Base64(source) | MediaSource::Url(source), .. }) => {
            source.len()
        }
        _ => 0,
    }
}
