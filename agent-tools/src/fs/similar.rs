//! Names in the same directory that are similar to a missing one.

use std::path::PathBuf;

use super::{path::Inside, sight::Sight, text};

/// Most directory entries that are compared.
const MOST: usize = 2_000;
/// Most names that are offered.
const OFFERED: usize = 3;
/// Longest name that is compared letter by letter, in characters.
const LONGEST: usize = 100;

/// Up to three similar paths, the most similar first. Empty when the directory cannot be read.
pub(super) fn names(sight: &Sight<'_>, missing: &Inside) -> Vec<String> {
    let path = missing.names();
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
    let Ok(listing) = sight.workspace().dir().read_dir(Inside::reached(parent).as_path()) else {
        return Vec::new();
    };
    let wanted = name.to_string_lossy().to_lowercase();
    let mut close: Vec<(usize, PathBuf)> = listing
        .take(MOST)
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let distance = distance(&wanted, &name.to_string_lossy().to_lowercase())?;
            Some((distance, parent.join(name)))
        })
        .collect();
    close.sort();
    let offered = close.into_iter().filter(|(_, path)| sight.names(path)).take(OFFERED);
    offered.map(|(_, path)| format!("`{}`", text::show(&path))).collect()
}

/// Edit distance of two names; `None` if they are not similar.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let (a, b) = (wanted.chars().count(), name.chars().count());
    if a == 0 || a > LONGEST || b > LONGEST {
        return None;
    }
    let letters = strsim::levenshtein(wanted, name);
    let part = a >= 3 && b >= 3 && (name.contains(wanted) || wanted.contains(name));
    (part || letters <= (a / 3).max(1)).then_some(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted_and_strangers_left_out() {
        assert_eq!(distance("main.rs", "main.rs"), Some(0));
        assert_eq!(distance("mian.rs", "main.rs"), Some(2));
        assert_eq!(distance("main", "main.rs"), Some(3));
        assert_eq!(distance("main.rs", "cargo.toml"), None);
        assert_eq!(distance("a", "b"), Some(1));
        assert_eq!(distance("a", "bcd"), None);
    }
}
