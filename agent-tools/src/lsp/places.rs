//! Places in files with the lines there, as far as the rules of a call allow each.

use std::{sync::Arc, time::Duration};

use entourage_core::permission::{Admission, RuleEffect};

use super::{
    LanguageServers,
    feedback::shown,
    position::{Encoding, Lines},
    report::counted,
    wire::{Place, plain},
};
use crate::fs::Workspace;

/// Most places that are shown, and most files of which lines are.
const SHOWN: usize = 100;
const FILES: usize = 50;
/// Most characters of a line that is shown.
const LINE: usize = 200;
const TIME: Duration = Duration::from_secs(5);

impl LanguageServers {
    /// The places as a text, one each line, and how many there are.
    pub(super) async fn listing(
        &self,
        places: Vec<Place>,
        encoding: Encoding,
        admission: &Arc<Admission>,
    ) -> (usize, String) {
        let paths = places.iter().map(|place| place.path.clone()).collect();
        let effects = self.workspace().effects_on(paths, admission).await;
        let (mut allowed, mut to_ask) = (Vec::new(), 0_usize);
        for place in places {
            match effects.get(&place.path) {
                Some(RuleEffect::Allow) => allowed.push(place),
                Some(RuleEffect::Ask) => to_ask = to_ask.saturating_add(1),
                Some(RuleEffect::Deny) | None => {}
            }
        }
        let (count, ws) = (allowed.len(), self.workspace().clone());
        allowed.truncate(SHOWN);
        let kept = allowed.clone();
        let read = tokio::task::spawn_blocking(move || with_lines(&ws, &kept, encoding));
        let read = tokio::time::timeout(TIME, read).await.ok().and_then(Result::ok);
        let named = || allowed.iter().map(|place| line(self.workspace(), place, None, encoding)).collect();
        let mut text: Vec<_> = read.unwrap_or_else(named);
        if count > SHOWN {
            text.push(format!("({} more)", count.saturating_sub(SHOWN)));
        }
        if to_ask > 0 {
            let places = counted(to_ask, "place was", "places were");
            text.push(format!("({places} left out, since leave must be asked for first: view such a file)"));
        }
        (count, text.join("\n"))
    }
}

/// The places, which are in the order of their files, with the lines there. Each file is read and taken apart once, and
/// one at a time is held. Blocks.
fn with_lines(workspace: &Workspace, places: &[Place], encoding: Encoding) -> Vec<String> {
    let mut shown = Vec::with_capacity(places.len());
    for (number, of_file) in places.chunk_by(|one, other| one.path == other.path).enumerate() {
        let path = of_file.first().map(|place| &place.path).filter(|_| number < FILES);
        let source = path.and_then(|path| workspace.source(&workspace.inside(path)?));
        let lines = source.as_ref().map(|source| Lines::of(&source.text));
        shown.extend(of_file.iter().map(|place| line(workspace, place, lines.as_ref(), encoding)));
    }
    shown
}

fn line(workspace: &Workspace, place: &Place, lines: Option<&Lines<'_>>, encoding: Encoding) -> String {
    let (name, start) = (shown(workspace, &place.path), place.range.start);
    let number = start.line.saturating_add(1);
    if workspace.inside(&place.path).is_none() {
        return format!("{name}:{number} (outside of the workspace)");
    }
    let Some(lines) = lines else { return format!("{name}:{number}") };
    let column = lines.column(start, encoding);
    let line = plain(lines.line(start.line).unwrap_or_default(), LINE);
    format!("{name}:{number}:{column}: {line}")
}
