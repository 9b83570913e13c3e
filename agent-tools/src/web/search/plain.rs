//! The text of a title or a snippet, in linear time whatever a service answers.

/// Most bytes of a text that are read, far more than are shown: marks have a length too.
const READ: usize = 64 << 10;

/// Most bytes of an entity's name.
const NAME: usize = 8;

/// A text without marks of HTML and control characters, on one line, at most `most` characters of it.
pub(super) fn plain(text: &str, most: usize) -> String {
    let mut rest = text.get(..text.floor_char_boundary(READ)).unwrap_or_default();
    let mut bare = String::with_capacity(rest.len());
    // Where one tag has no end, none that follows has one: it is not looked for again.
    let mut has_end = true;
    while let Some(at) = rest.find(['<', '&']) {
        let (before, from) = rest.split_at(at);
        bare.push_str(before);
        let (mark, after) = from.split_at(1);
        rest = after;
        if mark == "&" {
            match entity(after) {
                Some((shown, after)) => {
                    bare.push(shown);
                    rest = after;
                }
                None => bare.push('&'),
            }
            continue;
        }
        let is_tag = after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!');
        let end = if is_tag && has_end { after.split_once('>') } else { None };
        match end {
            Some((_, after)) => rest = after,
            None => {
                has_end &= !is_tag;
                bare.push('<');
            }
        }
    }
    bare.push_str(rest);
    let words = bare.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// The character that the entity at the start of a text stands for, and the rest.
fn entity(text: &str) -> Option<(char, &str)> {
    let end = text.bytes().take(NAME + 1).position(|byte| byte == b';')?;
    let (name, rest) = (text.get(..end)?, text.get(end + 1..)?);
    let number = name.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => number.parse().ok(),
    });
    let shown = match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some(' '),
        _ => number.and_then(char::from_u32),
    };
    Some((shown?, rest))
}
