//! Paths as the addresses of files that the protocol has. Pure.

use std::path::{Path, PathBuf};

use entourage_core::tool::normal_path;

const SCHEME: &str = "file://";
/// Most bytes of a path, and of an address, in which each may be written as three.
const PATH: usize = 4_096;
const ADDRESS: usize = 3 * PATH + 64;

/// The address of an absolute path.
pub(super) fn of(path: &Path) -> String {
    let mut uri = SCHEME.to_owned();
    let text = path.as_os_str().as_encoded_bytes();
    if text.first() != Some(&b'/') {
        // A path that begins with a drive.
        uri.push('/');
    }
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(*byte));
            }
            b'\\' if cfg!(windows) => uri.push('/'),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// The absolute path that an address names, without `.` and `..`; `None` if it is the address of no file of this
/// machine, or one that no file can have for its length.
pub(super) fn path(uri: &str) -> Option<PathBuf> {
    if uri.len() > ADDRESS {
        return None;
    }
    let rest = uri.get(..SCHEME.len()).filter(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
    let rest = rest.and_then(|_| uri.get(SCHEME.len()..))?;
    let at = rest.strip_prefix("localhost").unwrap_or(rest);
    let at = at.split(['?', '#']).next().filter(|at| at.starts_with('/'))?;
    let bytes = decoded(at)?;
    let path = native(bytes).filter(|path| path.is_absolute())?;
    Some(normal_path(&path))
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        };
        out.push(byte);
    }
    (!out.contains(&0) && out.len() <= PATH).then_some(out)
}

fn digit(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps, reason = "other systems have paths of text alone")]
fn native(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn native(bytes: Vec<u8>) -> Option<PathBuf> {
    let text = String::from_utf8(bytes).ok()?;
    let drive = text.strip_prefix('/').filter(|rest| rest.get(1..2) == Some(":"));
    Some(drive.unwrap_or(&text).into())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn ce02_paths_survive_as_addresses() {
        for (at, uri) in [
            ("/w/a.rs", "file:///w/a.rs"),
            ("/w/a b/é%#?.rs", "file:///w/a%20b/%C3%A9%25%23%3F.rs"),
            ("/", "file:///"),
        ] {
            assert_eq!(of(Path::new(at)), uri);
            assert_eq!(path(uri).as_deref(), Some(Path::new(at)), "{uri}");
        }
        assert_eq!(path("FILE://localhost/w/%2e%2e/x//y?q#f").as_deref(), Some(Path::new("/x/y")));
        for uri in [
            "",
            "file:",
            "file://",
            "file://host/w",
            "https://x/w",
            "untitled:a",
            "file:///a%00",
            "file:///a%",
            "file:///a%zz",
            "file:///a%+f",
            "é",
            "file:/",
        ] {
            assert_eq!(path(uri), None, "{uri}");
        }
    }

    #[test]
    fn ce02_addresses_are_bounded() {
        for part in ["x", "%78"] {
            let uri = |length: usize| format!("{SCHEME}/{}", part.repeat(length - 1));
            assert!(path(&uri(PATH)).is_some(), "{part}");
            assert_eq!(path(&uri(PATH + 1)), None, "{part}");
        }
    }
}
