//! Detects the type of a file by its first bytes, never by its name. Pure.

/// Number of bytes that are examined.
pub(super) const HEAD: usize = 8 << 10;

/// Image types that models accept.
const SHOWN: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

const MAGIC: [(&[u8], &str); 21] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\x01\0", "image/x-icon"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\x7fELF", "application/x-executable"),
    (b"\0asm", "application/wasm"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfe", "text/plain; charset=utf-16le"),
    (b"\xfe\xff", "text/plain; charset=utf-16be"),
];

/// Media type of a head that is not UTF-8 text; `None` for text and for an empty head.
pub(super) fn binary(head: &[u8]) -> Option<&'static str> {
    let valid = match std::str::from_utf8(head) {
        Ok(_) => true,
        // The last character may continue after the head.
        Err(error) => error.error_len().is_none(),
    };
    // A text may begin with the letters of a magic number; a PDF counts although its start is text.
    if valid && !head.contains(&0) && !head.starts_with(b"%PDF-") {
        return None;
    }
    let riff = |kind: &[u8]| head.starts_with(b"RIFF") && head.get(8..12) == Some(kind);
    if riff(b"WEBP") {
        return Some("image/webp");
    }
    if riff(b"WAVE") {
        return Some("audio/wav");
    }
    if head.get(4..8) == Some(b"ftyp") {
        return Some("video/mp4");
    }
    let known = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, mime)| *mime);
    Some(known.unwrap_or("application/octet-stream"))
}

/// True if models accept media of this type.
pub(super) fn is_shown(mime: &str) -> bool {
    SHOWN.contains(&mime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cx09_types_come_from_content() {
        for (head, mime) in [
            (&b""[..], None),
            (b"fn main() {}\n", None),
            (b"BMW and GIF89a are words", None),
            ("é".as_bytes().get(..1).unwrap(), None),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a\x01\0", Some("image/gif")),
            (b"RIFF\x04\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"BM\x3a\0\0\0", Some("image/bmp")),
            (b"%PDF-1.7\n", Some("application/pdf")),
            (b"\x7fELF\x02\x01\0", Some("application/x-executable")),
            (b"\xff\xfea\0", Some("text/plain; charset=utf-16le")),
            (b"caf\xe9 au lait", Some("application/octet-stream")),
            (b"a\0b", Some("application/octet-stream")),
        ] {
            assert_eq!(binary(head), mime, "{head:?}");
        }
    }
}
