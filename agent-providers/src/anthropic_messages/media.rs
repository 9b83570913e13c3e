//! Files as this wire represents them: images and documents, the same in messages and in tool results.

use entourage_core::{message::Media, provider::Profile};
use serde_json::{Value, json};

use super::NAME;
use crate::media::{Source, left_out, not_shown, source};

/// Image types that may be sent inline.
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Types of files that the model is known not to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sight {
    images: bool,
    documents: bool,
}

impl Sight {
    pub(super) fn of(profile: &Profile) -> Self {
        Self { images: profile.vision != Some(false), documents: profile.documents != Some(false) }
    }

    /// The key under which messages keep their bytes for this sight.
    pub(super) fn key(self) -> &'static str {
        match (self.images, self.documents) {
            (true, true) => NAME,
            (true, false) => "anthropic-messages, no documents",
            (false, true) => "anthropic-messages, no images",
            (false, false) => "anthropic-messages, no files",
        }
    }
}

/// The block for `media`, or the note that replaces it.
pub(super) fn block(media: &Media, sight: Sight) -> Result<Value, String> {
    let source = source(media)?;
    let mime = media.mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if mime.starts_with("image/") {
        return image(media, &mime, source, sight);
    }
    let text = mime.starts_with("text/") || matches!(mime.as_str(), "application/json" | "application/xml");
    if mime != "application/pdf" && !text {
        return Err(not_shown(media));
    }
    if !sight.documents {
        return Err(left_out(media, "this model cannot read documents"));
    }
    let source = match source {
        Source::Inline(data) if text => {
            let read = decode(data).and_then(|bytes| String::from_utf8(bytes).ok());
            let read = read.ok_or_else(|| left_out(media, "its text is not UTF-8"))?;
            if read.trim().is_empty() {
                return Err(left_out(media, "it is empty"));
            }
            json!({"type": "text", "media_type": "text/plain", "data": read})
        }
        Source::Inline(data) => json!({"type": "base64", "media_type": "application/pdf", "data": data}),
        Source::Url(_) if text => {
            return Err(left_out(media, "this service fetches only images and PDF documents"));
        }
        Source::Url(url) => json!({"type": "url", "url": secure(media, url)?}),
    };
    let mut block = json!({"type": "document", "source": source});
    if let (Some(title), Some(fields)) = (&media.name, block.as_object_mut()) {
        fields.insert("title".to_owned(), json!(title));
    }
    Ok(block)
}

fn image(media: &Media, mime: &str, source: Source<'_>, sight: Sight) -> Result<Value, String> {
    if !sight.images {
        return Err(left_out(media, "this model does not see images"));
    }
    let source = match source {
        Source::Url(url) => json!({"type": "url", "url": secure(media, url)?}),
        Source::Inline(data) => {
            let mime = if mime == "image/jpg" { "image/jpeg" } else { mime };
            if !IMAGES.contains(&mime) {
                return Err(not_shown(media));
            }
            json!({"type": "base64", "media_type": mime, "data": data})
        }
    };
    Ok(json!({"type": "image", "source": source}))
}

fn secure<'a>(media: &Media, url: &'a str) -> Result<&'a str, String> {
    if url.starts_with("https://") {
        return Ok(url);
    }
    Err(left_out(media, "this service fetches https addresses only"))
}

/// The bytes of padded base64; `None` if it is invalid.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((held >> bits) & 0xFF).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn base64_is_read_at_every_padding() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("aA==", b"h"),
            ("aGk=", b"hi"),
            ("aGkh", b"hi!"),
            ("/+8A", b"\xFF\xEF\x00"),
            ("w7w=", b"\xC3\xBC"),
        ] {
            assert_eq!(decode(text).unwrap(), bytes);
        }
        assert_eq!(decode("a-b="), None);
    }
}
