//! Base64 in either alphabet: the form of `Basic` credentials, and of vectors.

const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes in the standard alphabet, without padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for group in bytes.chunks(3) {
        let byte = |at: usize| group.get(at).copied().map_or(0, u32::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for shift in [18, 12, 6, 0].into_iter().take(group.len().saturating_add(1)) {
            let sign = usize::try_from((bits >> shift) & 63).ok().and_then(|at| SIGNS.get(at));
            out.extend(sign.map(|sign| char::from(*sign)));
        }
    }
    out
}

/// Decodes either alphabet, with or without padding.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text.trim_end_matches('=').bytes() {
        bits = (bits << 6 | sextet(byte)?) & 0x00ff_ffff;
        count = count.saturating_add(6);
        if count >= 8 {
            count = count.saturating_sub(8);
            out.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(out)
}

/// The six bits that a sign stands for. Replies hold millions of signs, so there is no search.
fn sextet(sign: u8) -> Option<u32> {
    let (from, first) = match sign {
        b'A'..=b'Z' => (b'A', 0),
        b'a'..=b'z' => (b'a', 26),
        b'0'..=b'9' => (b'0', 52),
        b'+' | b'-' => return Some(62),
        b'/' | b'_' => return Some(63),
        _ => return None,
    };
    Some(u32::from(sign.saturating_sub(from)).saturating_add(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_to_the_same() {
        for (text, signs) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("user:pass word", "dXNlcjpwYXNzIHdvcmQ"),
            ("\u{3ff}?>", "z78/Pg"),
        ] {
            assert_eq!(encode(text.as_bytes()), signs);
            assert_eq!(decode(signs).as_deref(), Some(text.as_bytes()));
            assert_eq!(decode(&format!("{}==", signs.replace('/', "_"))).as_deref(), Some(text.as_bytes()));
        }
        let all = std::str::from_utf8(SIGNS).unwrap();
        assert_eq!(encode(&decode(all).unwrap()), all);
        assert_eq!(decode("no base64!"), None);
    }
}
