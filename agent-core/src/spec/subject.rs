//! Paths and hosts in the one form that rules match, however they are spelled. Pure: asks no disk and no name server.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Component, MAIN_SEPARATOR, Path, PathBuf};

use super::Footprint;

/// `path` without `.` and empty parts, and with `..` resolved by name. One that climbs above its start keeps its `..`.
pub fn normal_path(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut out, part| {
        match (part, out.components().next_back()) {
            (Component::CurDir, _) | (Component::ParentDir, Some(Component::RootDir)) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => drop(out.pop()),
            _ => out.push(part),
        }
        out
    })
}

impl Footprint {
    /// Adds a path by `naming` ([`Footprint::reading`] or [`Footprint::writing`]) in the form of the file tools. One
    /// that is absolute or climbs is also named relative to `base` if it lies below: relative paths are opened there.
    /// A leading `~`, which some programs expand, or a NUL makes the footprint unclear.
    #[must_use]
    pub fn naming_path(mut self, naming: fn(Self, String) -> Self, path: &Path, base: Option<&Path>) -> Self {
        let text = path.to_string_lossy();
        self.unclear |= text.starts_with('~') || text.contains('\0');
        let normal = normal_path(path);
        let below = base.and_then(|it| Some(normal_path(&it.join(path)).strip_prefix(it).ok()?.to_owned()));
        let below = below.filter(|below| *below != normal);
        [Some(normal), below].into_iter().flatten().fold(self, |footprint, path| {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            naming(footprint, path.to_string_lossy().replace(MAIN_SEPARATOR, "/"))
        })
    }

    /// Adds a host, or that of a URL: in lower case, without user, port and final dot. A text that programs read in
    /// different ways is added as it is; so is one beyond ASCII, in lower case. Both make the footprint unclear.
    #[must_use]
    pub fn naming_host(mut self, text: &str) -> Self {
        let host = host(text);
        self.unclear |= host.as_ref().is_none_or(|host| !host.is_ascii());
        self.talking_to(host.unwrap_or_else(|| text.to_owned()))
    }
}

/// The host that a scope names. A text with a scheme, a port, a path or a user stays as it is, and so admits nothing.
pub(crate) fn scope_host(text: &str) -> String {
    let (below, name) = text.strip_prefix("*.").map_or(("", text), |name| ("*.", name));
    let has_port = name.contains(':') && !name.ends_with(']') && name.parse::<Ipv6Addr>().is_err();
    let host = host(name).filter(|_| !has_port && !name.contains(['/', '?', '#', '@']));
    below.to_owned() + &host.unwrap_or_else(|| name.to_lowercase())
}

fn host(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, host) = authority.split_once('@').unwrap_or(("", authority));
    let bare = host.ends_with(']') || host.parse::<Ipv6Addr>().is_ok();
    let (name, port) = host.rsplit_once(':').filter(|_| !bare).unwrap_or((host, ""));
    // Lenient programs read `http:/a.example` as a URL.
    let cut =
        name.len() < host.len() && ["http", "https", "ws", "wss", "ftp"].contains(&&*name.to_lowercase());
    let odd = |c: char| c.is_whitespace() || c.is_control() || "\\@".contains(c);
    let scheme_is_odd = scheme.contains(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
    if cut || scheme_is_odd || user.contains(odd) || !(port.is_empty() || port.parse::<u16>().is_ok()) {
        return None;
    }
    let inner = name.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(name);
    if let Ok(address) = inner.parse::<Ipv6Addr>() {
        return Some(address.to_canonical().to_string());
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_lowercase();
    let is_label = |it: &str| !it.is_empty() && it.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
    // `127.1` and `0x7f000001` are addresses for some programs.
    let is_number = name.rsplit('.').next()?.starts_with(|c: char| c.is_ascii_digit());
    (name.split('.').all(is_label) && (!is_number || name.parse::<Ipv4Addr>().is_ok())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Access;

    fn path(text: &str) -> (Vec<String>, bool) {
        let base = Path::new("/w/root");
        let footprint =
            Footprint::new(Access::WRITE).naming_path(Footprint::writing, Path::new(text), Some(base));
        (footprint.writes, footprint.unclear)
    }

    fn host(text: &str) -> (String, bool) {
        let footprint = Footprint::new(Access::NETWORK).naming_host(text);
        (footprint.hosts.concat(), footprint.unclear)
    }

    #[test]
    #[cfg(unix)]
    fn attack_24_every_spelling_of_a_path_has_one_form() {
        for text in [
            "secrets/key",
            "./secrets/key",
            "secrets//key",
            "secrets/./key/",
            "a/../secrets/key",
            "a/b/../../secrets/key",
            "secrets/a/../key",
        ] {
            assert_eq!(path(text), (vec!["secrets/key".to_owned()], false), "{text}");
        }
        for (text, subjects) in [
            ("", vec!["."]),
            (".", vec!["."]),
            ("a/..", vec!["."]),
            ("/", vec!["/"]),
            ("/..", vec!["/"]),
            ("/etc/../etc//passwd", vec!["/etc/passwd"]),
            ("/w/root", vec!["/w/root", "."]),
            ("/w/root/secrets/key", vec!["/w/root/secrets/key", "secrets/key"]),
            ("/w/root-evil/key", vec!["/w/root-evil/key"]),
            ("..", vec![".."]),
            ("../x", vec!["../x"]),
            ("a/../../x", vec!["../x"]),
            ("../../x/../y", vec!["../../y"]),
            ("../root/secrets/key", vec!["../root/secrets/key", "secrets/key"]),
            ("..a/x", vec!["..a/x"]),
            ("%2e%2e/x", vec!["%2e%2e/x"]),
            // Names of their own on Unix.
            ("secrets\\key", vec!["secrets\\key"]),
            ("a\\..\\..\\key", vec!["a\\..\\..\\key"]),
            ("SECRETS/key", vec!["SECRETS/key"]),
            ("\u{455}ecrets/key", vec!["\u{455}ecrets/key"]),
            ("secrets\u{2215}key", vec!["secrets\u{2215}key"]),
            (" secrets/key", vec![" secrets/key"]),
        ] {
            let subjects: Vec<_> = subjects.into_iter().map(str::to_owned).collect();
            assert_eq!(path(text), (subjects, false), "{text}");
        }
        for (text, subject) in [
            ("~/secrets/key", "~/secrets/key"),
            ("~root/../x", "x"),
            ("secrets/key\0.txt", "secrets/key\0.txt"),
        ] {
            assert_eq!(path(text), (vec![subject.to_owned()], true), "{text}");
        }
    }

    #[test]
    fn attack_24_every_spelling_of_a_host_has_one_form() {
        for text in [
            "a.example",
            "A.Example.",
            "a.example:8080",
            "a.example:",
            "https://a.example",
            "HTTPS://user:p%40ss@A.EXAMPLE:443/x?y=http://b.example#z",
            "ftp://a.example/x@b.example",
            "git+ssh://git@a.example/x",
            "https://a.example?@b.example",
            "https://a.example#@b.example",
            "a.example/x",
        ] {
            assert_eq!(host(text), ("a.example".to_owned(), false), "{text}");
        }
        for (text, name) in [
            ("http://[::1]:80/", "::1"),
            ("[0:0:0:0:0:0:0:1]", "::1"),
            ("::1", "::1"),
            ("http://[::ffff:127.0.0.1]/", "127.0.0.1"),
            ("http://127.0.0.1:8080/", "127.0.0.1"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(host(text), (name.to_owned(), false), "{text}");
        }
        assert_eq!(host("http://B\u{dc}CHER.example"), ("b\u{fc}cher.example".to_owned(), true));
    }

    #[test]
    fn attack_24_what_programs_read_in_different_ways_is_unclear() {
        for text in [
            "",
            " http://a.example",
            "http://a.example\n",
            "http://a\t.example",
            "ht\ntp://a.example",
            "http:/a.example",
            "http:a.example",
            "HTTP:0",
            "http:\\\\a.example",
            "http:///a.example",
            "//a.example",
            "http://b.example\\@a.example",
            "http://a.example\\.b.example",
            "http://x@b.example@a.example",
            "http://a%2eexample",
            "http://a\u{3002}example",
            "http://a..example",
            "http://a.example..",
            "http://a.example:80:80",
            "http://a.example:99999",
            "http://2130706433",
            "http://127.1",
            "http://0x7f.0.0.1",
            "http://0177.0.0.1",
            "http://[a.example]",
            "http://[fe80::1%25eth0]",
            "http://[::1]x",
            "file:///etc/passwd",
            "data:text/plain,x",
            "git@a.example:x",
        ] {
            assert_eq!(host(text), (text.to_owned(), true), "{text}");
        }
    }
}
