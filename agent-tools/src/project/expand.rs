//! Expansion of `~`, `$NAME` and `${NAME}` in configured paths.

use super::Lookup;

/// Expands paths with the values of `lookup`.
pub(super) struct Expander<'a> {
    lookup: &'a Lookup,
}

impl<'a> Expander<'a> {
    pub(super) fn new(lookup: &'a Lookup) -> Self {
        Self { lookup }
    }

    /// The path with its variables expanded. `None` if one is unset or empty: an empty value would turn `$DATA/notes`
    /// into another file.
    pub(super) fn expand(&self, path: &str) -> Option<String> {
        let (mut out, mut rest) = match path.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with(['/', '\\']) => (self.home()?, rest),
            _ => (String::new(), path),
        };
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let braced = after.strip_prefix('{').and_then(|inside| inside.split_once('}'));
            let (name, left) = braced.unwrap_or_else(|| {
                after.split_at(
                    after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len()),
                )
            });
            if is_name(name) {
                out.push_str(&self.value(name)?);
                rest = left;
            } else {
                out.push('$');
                rest = after;
            }
        }
        out.push_str(rest);
        (!out.is_empty()).then_some(out)
    }

    fn home(&self) -> Option<String> {
        self.value("HOME").or_else(|| self.value("USERPROFILE"))
    }

    fn value(&self, name: &str) -> Option<String> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
