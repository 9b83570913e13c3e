//! Spellings of one text: as it is, in any case, and escaped for JSON, HTML or an address, character by character.

/// First bytes of escapes.
pub(super) const ESCAPES: [u8; 3] = [b'\\', b'%', b'&'];

/// The longest escape of one byte that is recognised at the end of a text.
const LONGEST: usize = 16;

/// Levels of nested escapes that are followed.
const MAX_DEPTH: usize = 4;

/// Most steps of a search where a text is ambiguous.
const MAX_STEPS: usize = 4_096;
/// Most backslashes before one character: four layers of JSON within JSON write fewer.
const MAX_SLASHES: usize = 32;

/// The extent to which a text begins with a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// The whole secret, in this many bytes.
    Whole(usize),
    /// The text ended after this many bytes of the secret.
    Cut(usize),
    None,
}

/// Checks if `text` begins with a spelling of `secret`.
pub(super) fn find(text: &[u8], secret: &[u8]) -> Match {
    let mut steps = MAX_STEPS;
    follow(text, secret, 0, &mut steps)
}

/// True if `text`, which begins with `length` bytes of `secret`, may continue so that more of it belongs to the
/// secret: one of the secret's last bytes may be the start of an escape that also spells it.
pub(super) fn is_open(text: &[u8], length: usize, secret: &[u8]) -> bool {
    let (_, tail) = secret.split_at(secret.len().saturating_sub(LONGEST));
    // Behind the first such byte each one may be escaped too.
    let first = tail.iter().position(|byte| ESCAPES.contains(byte));
    first.is_some_and(|first| {
        let most = (tail.len() - first).saturating_mul(LONGEST);
        text.len() < length.saturating_add(most)
    })
}

/// Follows `secret` from its byte `known` on.
fn follow(text: &[u8], secret: &[u8], known: usize, steps: &mut usize) -> Match {
    let (mut at, mut known) = (0_usize, known);
    while let Some(wanted) = secret.get(known) {
        let rest = text.get(at..).unwrap_or_default();
        let Some(first) = rest.first() else { return Match::Cut(known) };
        if ESCAPES.contains(first) {
            let found = escaped(rest, *wanted, secret, known, steps);
            return match found {
                Match::Whole(more) => Match::Whole(at.saturating_add(more)),
                Match::None if rest.len() < LONGEST => Match::Cut(known),
                other => other,
            };
        }
        let space = *first == b'+' && *wanted == b' ';
        if !space && !first.eq_ignore_ascii_case(wanted) {
            return Match::None;
        }
        (at, known) = (at.saturating_add(1), known.saturating_add(1));
    }
    Match::Whole(at)
}

/// Follows the secret through a possible escape: all its meanings are tried, since a secret may itself contain
/// something like an escape.
fn escaped(text: &[u8], wanted: u8, secret: &[u8], known: usize, steps: &mut usize) -> Match {
    let mut cut = Match::None;
    for (byte, length) in meanings(text) {
        if !byte.eq_ignore_ascii_case(&wanted) {
            continue;
        }
        let Some(left) = steps.checked_sub(1) else { return cut };
        *steps = left;
        let rest = text.get(length..).unwrap_or_default();
        match follow(rest, secret, known.saturating_add(1), steps) {
            Match::Whole(more) => return Match::Whole(length.saturating_add(more)),
            found @ Match::Cut(_) => cut = found,
            Match::None => {}
        }
    }
    cut
}

/// The bytes that the start of `text` can stand for, each with its length in the text.
fn meanings(text: &[u8]) -> Vec<(u8, usize)> {
    let mut all = Vec::new();
    match text.first() {
        Some(b'\\') => json(text, &mut all),
        Some(b'%') => percent(text, &mut all),
        Some(b'&') => html(text, &mut all),
        _ => {}
    }
    all.extend(text.first().map(|byte| (*byte, 1)));
    all
}

/// Meanings of JSON escapes: `\u0041`, `\"`, `\/`, `\\`; also of JSON inside JSON, with more backslashes.
fn json(text: &[u8], all: &mut Vec<(u8, usize)>) {
    // A service never writes a longer run; counting it again at each of its bytes would be quadratic.
    let slashes = text.iter().take(MAX_SLASHES + 1).take_while(|byte| **byte == b'\\').count();
    if slashes > MAX_SLASHES {
        return;
    }
    let escape = match text.get(slashes..).unwrap_or_default() {
        [b'u', digits @ ..] => digits.get(..4).and_then(hex).map(|byte| (byte, 5)),
        [b'x', digits @ ..] => digits.get(..2).and_then(hex).map(|byte| (byte, 3)),
        [sign @ (b'"' | b'/' | b'\''), ..] => Some((*sign, 1)),
        [b't', ..] => Some((b'\t', 1)),
        _ => None,
    };
    all.extend(escape.map(|(byte, length)| (byte, slashes.saturating_add(length))));
    all.extend([8, 4, 2].into_iter().filter(|few| *few <= slashes).map(|few| (b'\\', few)));
}

/// Meanings of `%41`; also of an address inside an address, as `%2541`.
fn percent(text: &[u8], all: &mut Vec<(u8, usize)>) {
    let mut from = 1_usize;
    while let Some(byte) = text.get(from..from.saturating_add(2)).and_then(hex) {
        all.push((byte, from.saturating_add(2)));
        if byte != b'%' || all.len() >= MAX_DEPTH {
            return;
        }
        from = from.saturating_add(2);
    }
}

/// Meanings of `&#65;`, `&#x41;`, `&amp;`; also of HTML inside HTML, as `&amp;quot;`.
fn html(text: &[u8], all: &mut Vec<(u8, usize)>) {
    const NAMES: [(&[u8], u8); 8] = [
        (b"quot;", b'"'),
        (b"apos;", b'\''),
        (b"lt;", b'<'),
        (b"gt;", b'>'),
        (b"sol;", b'/'),
        (b"plus;", b'+'),
        (b"equals;", b'='),
        (b"nbsp;", b' '),
    ];
    let mut from = 1_usize;
    for _ in 0..MAX_DEPTH {
        let rest = text.get(from..).unwrap_or_default();
        if rest.starts_with(b"amp;") {
            from = from.saturating_add(4);
            all.push((b'&', from));
            continue;
        }
        let named = NAMES.iter().find(|(name, _)| rest.starts_with(name));
        all.extend(named.map(|(name, byte)| (*byte, from.saturating_add(name.len()))));
        all.extend(numbered(rest).map(|(byte, length)| (byte, from.saturating_add(length))));
        return;
    }
}

/// Parses `#65;` or `#x41;`.
fn numbered(text: &[u8]) -> Option<(u8, usize)> {
    let number = text.strip_prefix(b"#")?;
    let end = number.iter().take(8).position(|byte| *byte == b';')?;
    let digits = number.get(..end)?;
    let byte = match digits.strip_prefix(b"x").or_else(|| digits.strip_prefix(b"X")) {
        Some(digits) => hex(digits)?,
        None => std::str::from_utf8(digits).ok()?.parse().ok()?,
    };
    Some((byte, end.checked_add(2)?))
}

fn hex(digits: &[u8]) -> Option<u8> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::try_from(u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?).ok()
}
