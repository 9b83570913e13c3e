//! Alternative names of a model. A rule belongs here only if it cannot lead to a model with another price:
//! `catalog/generate.py` lists each known exception under its full name, which goes first.

/// The names to look for, most exact first. `known_until` is the date of the table. Without one, no suffix is cut off,
/// since the exceptions may not be listed.
pub(super) fn candidates<'a>(
    vendor: &str,
    model: &'a str,
    known_until: Option<&str>,
) -> impl Iterator<Item = &'a str> {
    let bare = without_prefix(vendor, model);
    let short = bare.unwrap_or(model);
    let other = known_until
        .and_then(|day| without_date(short, day).or_else(|| short.strip_suffix("-latest")))
        .filter(|name| !name.is_empty());
    [Some(model), bare, other].into_iter().flatten()
}

fn without_prefix<'a>(vendor: &str, model: &'a str) -> Option<&'a str> {
    let own = || model.strip_prefix(vendor)?.strip_prefix('/');
    model.strip_prefix("models/").or_else(own).filter(|name| !name.is_empty())
}

/// `name` without the date at its end; `None` if there is none, or one after `known_until`.
fn without_date<'a>(name: &'a str, known_until: &str) -> Option<&'a str> {
    ["2025-09-29".len(), "20250929".len()].into_iter().find_map(|length| {
        let (front, day) = name.split_at_checked(name.len().checked_sub(length)?)?;
        let before = front.strip_suffix(['-', '@'])?;
        (date(day)? <= date(known_until)?).then_some(before)
    })
}

/// Year, month and day of `20250929` or `2025-09-29`.
fn date(text: &str) -> Option<(u32, u32, u32)> {
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let widths = [4, 2, 2];
    if digits != 8 || (text.len() != 8 && !text.split('-').map(str::len).eq(widths)) {
        return None;
    }
    let all = text.replace('-', "");
    let number = |range: std::ops::Range<usize>| all.get(range)?.parse::<u32>().ok();
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let real = (2020..2100).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    real.then_some((year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Option<&str> = Some("2026-11-22");

    fn names<'a>(vendor: &str, model: &'a str) -> Vec<&'a str> {
        candidates(vendor, model, DAY).collect()
    }

    #[test]
    fn prefixes_dates_and_latest_are_cut_off() {
        assert_eq!(names("a", "m-1"), ["m-1"]);
        assert_eq!(names("a", "a/m-1"), ["a/m-1", "m-1"]);
        assert_eq!(names("a", "models/m-1"), ["models/m-1", "m-1"]);
        assert_eq!(names("a", "m-20250929"), ["m-20250929", "m"]);
        assert_eq!(names("a", "m@20250929"), ["m@20250929", "m"]);
        assert_eq!(names("a", "m-2025-09-29"), ["m-2025-09-29", "m"]);
        assert_eq!(names("a", "m-1-2026-11-22"), ["m-1-2026-11-22", "m-1"]);
        assert_eq!(names("a", "m-latest"), ["m-latest", "m"]);
        assert_eq!(names("a", "models/m-latest"), ["models/m-latest", "m-latest", "m"]);
    }

    #[test]
    fn nothing_else_is_cut_off() {
        for name in [
            "",
            "m",
            "b/m",
            "m:free",
            "m-fast",
            "m-2508",
            "m-0309",
            "m-2026-11-23",
            "m-20261123",
            "m-20251301",
            "m-20250932",
            "m-19990101",
            "m-99999999",
            "m-2025-0929",
            "m-2025-9-29x",
            "m20250929",
            "m_20250929",
            "-20250929",
            "20250929",
            "-latest",
            "latest",
            "m-Latest",
            "modèle-é2025092",
            "models/",
            "a/",
        ] {
            assert_eq!(names("a", name), [name]);
        }
        assert_eq!(candidates("a", "m-20250929", None).collect::<Vec<_>>(), ["m-20250929"]);
        assert_eq!(candidates("a", "m-latest", None).collect::<Vec<_>>(), ["m-latest"]);
    }
}
