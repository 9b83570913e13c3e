//! Places in files with the lines there, as far as the rules of a call allow each.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use entourage_core::permission::{Admission, RuleEffect};

use super::{
    LanguageServers,
    feedback::shown,
    position::{Encoding, Lines},
    report::counted,
    wire::{Place, plain},
};
use crate::fs::{Source, Workspace};

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
        let read = tokio::task::spawn_blocking(move || sources(&ws, &kept));
        let sources = tokio::time::timeout(TIME, read).await.ok().and_then(Result::ok).unwrap_or_default();
        let mut text: Vec<_> = allowed.iter().map(|place| self.line(place, &sources, encoding)).collect();
        if count > SHOWN {
            text.push(format!("({} more)", count.saturating_sub(SHOWN)));
        }
        if to_ask > 0 {
            let places = counted(to_ask, "place was", "places were");
            text.push(format!("({places} left out, since leave must be asked for first: view such a file)"));
        }
        (count, text.join("\n"))
    }

    fn line(&self, place: &Place, sources: &BTreeMap<PathBuf, Source>, encoding: Encoding) -> String {
        let name = shown(self.workspace(), &place.path);
        let number = place.range.start.line.saturating_add(1);
        if self.workspace().inside(&place.path).is_none() {
            return format!("{name}:{number} (outside of the workspace)");
        }
        let Some(source) = sources.get(&place.path) else { return format!("{name}:{number}") };
        let lines = Lines::of(&source.text);
        let column = lines.column(place.range.start, encoding);
        let line = plain(lines.line(place.range.start.line).unwrap_or_default(), LINE);
        format!("{name}:{number}:{column}: {line}")
    }
}

fn sources(workspace: &Workspace, places: &[Place]) -> BTreeMap<PathBuf, Source> {
    let mut read = BTreeMap::new();
    for place in places {
        if read.len() < FILES
            && !read.contains_key(&place.path)
            && let Some(source) = workspace.inside(&place.path).and_then(|at| workspace.source(&at))
        {
            read.insert(place.path.clone(), source);
        }
    }
    read
}
