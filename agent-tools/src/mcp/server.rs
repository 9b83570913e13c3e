//! Settings of one server.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::PathBuf, time::Duration};

use entourage_core::{Error, ErrorKind, Result};
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};

use super::{
    content,
    login::{McpLogin, is_loopback},
};

/// Time for one handshake and the list of the tools, unless the server's settings say otherwise.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The same with a login, which needs some requests more.
const LOGIN_TIME: Duration = Duration::from_secs(30);
/// Most bytes of a server's name: the names of its tools begin with it, and have 64.
const NAME: usize = 32;

/// An MCP server: the way to reach it, its offered tools, and its limits.
///
/// A server that is a command runs as a child of this program with all that this program may do, and with its
/// environment but for what looks like a secret: pass a key with [`McpServer::with_env`]. Nothing is started before
/// [`Mcp::start`](super::Mcp::start).
///
/// ```
/// use entourage_tools::mcp::McpServer;
///
/// # fn main() -> entourage_core::Result<()> {
/// let files = McpServer::command("files", "npx", ["-y", "@modelcontextprotocol/server-filesystem", "."]);
/// let docs = McpServer::http("docs", "https://docs.example/mcp")?.with_tools(["search", "read"]);
/// assert_eq!((files.name(), docs.name()), ("files", "docs"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct McpServer {
    pub(super) name: String,
    pub(super) reach: Reach,
    pub(super) tools: Option<Vec<String>>,
    pub(super) is_disabled: bool,
    pub(super) lifecycle: McpLifecycle,
    connect_time: Option<Duration>,
    pub(super) call_time: Option<Duration>,
}

/// The way to a server.
#[derive(Clone)]
pub(super) enum Reach {
    Command { program: OsString, args: Vec<OsString>, env: Vec<(OsString, OsString)>, dir: Option<PathBuf> },
    Http { url: Url, headers: HeaderMap, with_proxies: bool, login: Option<Box<McpLogin>> },
}

/// The handshake with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum McpLifecycle {
    /// Asks with `server/discover` (2026-07-28), and goes on with `initialize` (up to 2025-11-25) where the server does
    /// not know that.
    #[default]
    Auto,
    /// `initialize` alone; for servers that end, or say nothing, when they are asked anything else first.
    Initialize,
    /// `server/discover` alone.
    Discover,
}

impl McpServer {
    fn new(name: impl Into<String>, reach: Reach) -> Self {
        Self {
            name: name.into(),
            reach,
            tools: None,
            is_disabled: false,
            lifecycle: McpLifecycle::Auto,
            connect_time: None,
            call_time: None,
        }
    }

    /// True for a server on another machine.
    pub(super) fn is_remote(&self) -> bool {
        matches!(&self.reach, Reach::Http { url, .. } if !is_loopback(url))
    }

    /// A server that is a program, spoken to over its standard input and output. No shell reads the arguments.
    pub fn command<A: Into<OsString>>(
        name: impl Into<String>,
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self::new(name, Reach::Command { program: program.into(), args, env: Vec::new(), dir: None })
    }

    /// A server at an address, spoken to over streamable HTTP. Redirects are followed within the same origin.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for text that is no address of the scheme `http` or `https`, or that has a user in it.
    pub fn http(name: impl Into<String>, url: &str) -> Result<Self> {
        let name = name.into();
        let wrong = |why: &str| {
            let text = format!("the address of the MCP server `{name}` {why}");
            // The address itself may hold a secret.
            Error::new(ErrorKind::Config, text)
        };
        let parsed = Url::parse(url).map_err(|error| wrong("cannot be read").caused_by(error))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(wrong("has to begin with http:// or https://"));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(wrong("has a user in it; send what it needs with `with_header`"));
        }
        Ok(Self::new(
            name,
            Reach::Http { url: parsed, headers: HeaderMap::new(), with_proxies: false, login: None },
        ))
    }

    /// Adds a variable to a command's environment. A server at an address has none.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        if let Reach::Command { env, .. } = &mut self.reach {
            env.push((name.into(), value.into()));
        }
        self
    }

    /// Runs a command in this directory, not in that of the program.
    #[must_use]
    pub fn in_dir(mut self, path: impl Into<PathBuf>) -> Self {
        if let Reach::Command { dir, .. } = &mut self.reach {
            *dir = Some(path.into());
        }
        self
    }

    /// Adds a header to each request to an address, such as `authorization`. A command has none.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for text that is no header.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self> {
        let server = &self.name;
        let wrong = || {
            let text = format!("the header `{name}` of the MCP server `{server}` cannot be sent");
            Error::new(ErrorKind::Config, text)
        };
        let key = HeaderName::try_from(name).map_err(|error| wrong().caused_by(error))?;
        // The value may be a secret, and the error would show it.
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        if let Reach::Http { headers, .. } = &mut self.reach {
            headers.insert(key, value);
        }
        Ok(self)
    }

    /// Logs in at an address where the server wants that.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a command, and for an address that is neither https nor on this machine.
    pub fn with_login(mut self, login: McpLogin) -> Result<Self> {
        let wrong = |why: &str| {
            let text = format!("the MCP server `{}` cannot have a login: {why}", self.name);
            Err(Error::new(ErrorKind::Config, text))
        };
        match &mut self.reach {
            Reach::Command { .. } => return wrong("it is a command; pass a key with `with_env`"),
            Reach::Http { url, .. } if url.scheme() != "https" && !is_loopback(url) => {
                return wrong("others could read its tokens; use https");
            }
            Reach::Http { login: of, .. } => *of = Some(Box::new(login)),
        }
        Ok(self)
    }

    /// Reaches an address through the proxies that the environment names.
    #[must_use]
    pub fn with_proxies(mut self) -> Self {
        if let Reach::Http { with_proxies, .. } = &mut self.reach {
            *with_proxies = true;
        }
        self
    }

    /// Offers these tools alone, by the names that the server gives them.
    #[must_use]
    pub fn with_tools<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.tools = Some(tools.into_iter().map(Into::into).collect());
        self
    }

    /// Leaves the server out: it is listed and never started.
    #[must_use]
    pub fn disabled(mut self) -> Self {
        self.is_disabled = true;
        self
    }

    /// Sets the handshake; [`McpLifecycle::Auto`] without it.
    #[must_use]
    pub fn with_lifecycle(mut self, lifecycle: McpLifecycle) -> Self {
        self.lifecycle = lifecycle;
        self
    }

    /// Sets the time to connect, which includes the list of tools. Without it these are 10 seconds, and 20 with
    /// [`McpLifecycle::Auto`], since a server that says nothing to the first handshake is waited for 10 seconds; 30
    /// with a login. It does not run while a person is waited for.
    #[must_use]
    pub fn with_connect_timeout(mut self, time: Duration) -> Self {
        self.connect_time = Some(time);
        self
    }

    pub(super) fn connect_time(&self) -> Duration {
        let handshakes = if self.lifecycle == McpLifecycle::Auto { 2 } else { 1 };
        let time = match &self.reach {
            Reach::Http { login: Some(_), .. } => LOGIN_TIME,
            _ => CONNECT_TIME * handshakes,
        };
        self.connect_time.unwrap_or(time)
    }

    /// Sets the time of one call; without it the agent's own limit holds.
    #[must_use]
    pub fn with_call_timeout(mut self, time: Duration) -> Self {
        self.call_time = Some(time);
        self
    }

    /// The name, with which the names of its tools begin.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The words of an error as far as there is room, without the address. That is taken out first: a cut through it
    /// would leave the beginning of its secret.
    pub(super) fn told(&self, text: &str, most: usize) -> String {
        content::told(&self.without_address(text), most)
    }

    /// A text in which errors may have named the address, whose query may be a secret, without it.
    fn without_address(&self, text: &str) -> String {
        let Reach::Http { url, .. } = &self.reach else { return text.to_owned() };
        let text = text.replace(url.as_str(), "its address");
        match url.query().filter(|query| !query.is_empty()) {
            Some(query) => text.replace(query, "…"),
            None => text,
        }
    }

    /// Checks the names of servers that are started together.
    ///
    /// # Errors
    /// [`ErrorKind::Config`].
    pub(super) fn check(servers: &[Self]) -> Result<()> {
        let mut names: BTreeMap<&str, ()> = BTreeMap::new();
        for Self { name, reach, .. } in servers {
            let wrong = |why: &str| {
                let text = format!("`{name}` cannot name an MCP server: {why}");
                Error::new(ErrorKind::Config, text)
            };
            let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || name.len() > NAME || !name.chars().all(safe) {
                return Err(wrong("use 1 to 32 letters, digits, _ and -"));
            }
            if let Reach::Http { headers, login: Some(_), .. } = reach
                && headers.contains_key(AUTHORIZATION)
            {
                return Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "the MCP server `{name}` has a login and the header `authorization`; give it one of them"
                    ),
                ));
            }
            if names.insert(name, ()).is_some() {
                return Err(wrong("another one has the name"));
            }
        }
        // The tools of `a_b` have names that a pattern for all tools of `a` fits.
        for name in names.keys() {
            let beside = name.match_indices('_').filter_map(|(at, _)| name.get(..at));
            if let Some(other) = beside.into_iter().find(|other| names.contains_key(other)) {
                let text = format!(
                    "the MCP servers `{other}` and `{name}` cannot be told apart by the names of their tools; rename one \
                     of them"
                );
                return Err(Error::new(ErrorKind::Config, text));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for McpServer {
    /// Shows no values of variables and headers, which may be secrets, and no arguments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("McpServer");
        shown.field("name", &self.name);
        match &self.reach {
            Reach::Command { program, .. } => shown.field("program", program),
            Reach::Http { url, .. } => shown.field("host", &url.host_str()),
        };
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ce01_servers_whose_tools_could_be_taken_for_each_other_are_refused() {
        let servers = |names: &[&str]| {
            let servers: Vec<_> =
                names.iter().map(|name| McpServer::command(*name, "true", [""; 0])).collect();
            McpServer::check(&servers).map_err(|error| error.message().to_owned())
        };
        assert!(servers(&["a", "b", "a-b", "ab", "b_"]).unwrap_err().contains("`b` and `b_`"));
        assert_eq!(servers(&["a", "c", "a-b", "ab", "A_b"]), Ok(()));
        for (names, part) in [
            (&["a", "a_b"][..], "`a` and `a_b`"),
            (&["x_y_z", "x_y"], "`x_y` and `x_y_z`"),
            (&["a", "a"], "another one"),
            (&[""], "1 to 32"),
            (&["a b"], "1 to 32"),
            (&["é"], "1 to 32"),
            (&["a".repeat(33).as_str()], "1 to 32"),
        ] {
            let error = servers(names).unwrap_err();
            assert!(error.contains(part), "{names:?}: {error}");
        }
    }

    #[test]
    fn nothing_that_may_be_secret_is_shown() {
        let command = McpServer::command("a", "npx", ["--key=sk-1"]).with_env("KEY", "sk-2");
        let http = McpServer::http("b", "https://h.example/mcp?key=sk-3").unwrap();
        let http = http.with_header("authorization", "Bearer sk-4").unwrap();
        for shown in [format!("{command:?}"), format!("{http:?}")] {
            assert!(!shown.contains("sk-"), "{shown}");
        }
        let error =
            McpServer::http("b", "https://h.example").unwrap().with_header("x", "sk-5\n").unwrap_err();
        assert!(!format!("{error:?} {error}").contains("sk-5"));
        for url in ["ftp://x.example", "x", "http://me:sk-6@x.example", "file:///etc/passwd", "http://"] {
            let error = McpServer::http("b", url).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("sk-6"), "{url}");
        }
        let told = http.without_address("error for url (https://h.example/mcp?key=sk-3) or /mcp?key=sk-3");
        assert_eq!(told, "error for url (its address) or /mcp?…");
        let long = format!("https://h.example/mcp?key=sk-{}", "3".repeat(1_000));
        let told = McpServer::http("b", &long).unwrap().told(&format!("error for url ({long})"), 64);
        assert_eq!(told, "error for url (its address)");
    }
}
