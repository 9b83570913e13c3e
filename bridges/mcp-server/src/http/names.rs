//! The hosts and origins that requests may name. Pure.

use std::net::Ipv6Addr;

use entourage_core::{Error, ErrorKind, Result};
use http::Uri;

/// Names under which a server on the same machine is reached, whatever the port.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Hosts and origins that are served; others get 403.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) hosts: Vec<String>,
    pub(crate) origins: Vec<String>,
}

impl Names {
    /// Adds the program's names to those of this machine.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a text that can be no host or origin: no request would ever match it.
    pub(crate) fn new(hosts: &[String], origins: &[String]) -> Result<Self> {
        for host in hosts {
            if !is_host(host) && host.parse::<Ipv6Addr>().is_err() {
                let form = "a host is a name, with or without a port, as `example.com:8080`";
                return Err(Error::new(ErrorKind::Config, format!("`{host}` is no host: {form}")));
            }
        }
        for origin in origins {
            if !is_origin(origin) {
                let form =
                    "an origin is a scheme and a host, as `https://example.com:443` or `http://localhost:*`";
                return Err(Error::new(ErrorKind::Config, format!("`{origin}` is no origin: {form}")));
            }
        }
        let hosts = LOOPBACK.into_iter().map(str::to_owned).chain(hosts.iter().cloned()).collect();
        Ok(Self { hosts, origins: origins.to_vec() })
    }
}

/// True for a name or an address, with or without a port. Stricter than `Authority`, which also takes a user, and text
/// behind an address in brackets.
pub(super) fn is_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) if address.parse::<Ipv6Addr>().is_ok() => match rest.strip_prefix(':') {
            None if rest.is_empty() => return true,
            port => ("address", port),
        },
        Some(_) => return false,
        None => host.split_once(':').map_or((host, Some("0")), |(name, port)| (name, Some(port))),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !name.is_empty() && name.chars().all(is_plain) && port.is_some_and(|port| port.parse::<u16>().is_ok())
}

fn is_origin(origin: &str) -> bool {
    let fixed = origin.strip_suffix(":*").unwrap_or(origin);
    let is_plain = |uri: Uri| {
        uri.scheme().is_some()
            && uri.authority().is_some_and(|it| is_host(it.as_str()))
            && uri.path() == "/"
            && uri.query().is_none()
    };
    origin == "null" || !fixed.ends_with('/') && fixed.parse::<Uri>().is_ok_and(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_request_could_match_are_refused() {
        for (host, fine) in [
            ("example.com", true),
            ("example.com:8080", true),
            ("[fe80::1]:80", true),
            ("fe80::1", true),
            ("[::1]", true),
            ("[::1].evil.example", false),
            ("[::1]:", false),
            ("[::1]80", false),
            ("[evil.example]", false),
            ("example.com:", false),
            ("example.com:65536", false),
            ("example.com:80:80", false),
            ("", false),
            ("*", false),
            ("*.example.com", false),
            ("user@example.com", false),
            ("http://example.com", false),
            ("exa mple.com", false),
        ] {
            assert_eq!(Names::new(&[host.to_owned()], &[]).is_ok(), fine, "{host:?}");
        }
        for (origin, fine) in [
            ("https://example.com", true),
            ("https://example.com:443", true),
            ("http://localhost:*", true),
            ("http://[::1]:*", true),
            ("null", true),
            ("", false),
            ("*", false),
            ("example.com", false),
            ("https://", false),
            ("https://example.com/", false),
            ("https://example.com/page", false),
            ("https://*.example.com", false),
        ] {
            assert_eq!(Names::new(&[], &[origin.to_owned()]).is_ok(), fine, "{origin:?}");
        }
    }

    #[test]
    fn loopback_names_are_always_served() {
        let names = Names::new(&["example.com".to_owned()], &[]).map(|it| it.hosts);
        assert_eq!(names.unwrap_or_default(), ["localhost", "127.0.0.1", "::1", "example.com"]);
    }
}
