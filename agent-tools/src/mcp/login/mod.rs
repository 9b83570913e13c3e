//! Logins at servers that want one: OAuth 2.1 with PKCE, by way of a person's browser or with the program's own secret.
//!
//! No browser is started here, and no address that a server names is opened or asked before it was checked.

mod flow;
mod http;
mod listen;
mod store;
mod token;

use std::{collections::BTreeSet, fmt, path::PathBuf, sync::Arc, time::Duration};

pub(super) use flow::{Login, Wanted};
pub(super) use http::is_loopback;

/// Time that a person has to log in.
const LOGIN_TIME: Duration = Duration::from_secs(300);

/// A login at a server that wants one, by OAuth 2.1: for [`McpServer::with_login`](super::McpServer::with_login).
///
/// # Contract
/// - A login begins when the server answers that it wants one (401), or more rights than were granted (403). It is
///   asked where its authorization server is, by the metadata of RFC 9728 and RFC 8414. This program registers there,
///   unless [`McpLogin::with_client`] names a client.
/// - The address that a person has to open is given to the closure, and nothing else is done with it: to open it is up
///   to the program. It is https, or http on this machine if the server is there too; never another scheme. The
///   browser ends at a port of this machine, which is open for that one request alone. State, issuer and PKCE (S256)
///   are checked.
/// - Who logs in, and with which rights, is what the authorization server says. While a person is waited for, the
///   state is [`McpState::NeedsAuth`](super::McpState::NeedsAuth). It stays so if none logs in; another login begins
///   with a call after a minute at the earliest.
/// - Tokens are sent to the address of the server they were made for, and refreshed before they expire, by the
///   authorization server that made them alone. They are never in an error, a state or a log. A token that is no bearer
///   token of 1 to 16,384 visible ASCII characters is none.
/// - What the server names is asked by https, at hosts of the internet, at the server's own host, and at those of
///   [`McpLogin::with_hosts`]; if the server is on this machine, at this machine too. Answers have at most 256 KiB, and
///   a login makes at most 32 requests for metadata.
///
/// ```
/// use entourage_tools::mcp::{McpLogin, McpServer};
///
/// # fn main() -> entourage_core::Result<()> {
/// let login = McpLogin::new(|server, address| println!("Log in at {server}: {address}"));
/// let docs = McpServer::http("docs", "https://docs.example/mcp")?.with_login(login.kept_in("logins.json"))?;
/// # assert_eq!(docs.name(), "docs");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct McpLogin {
    who: Who,
    client: Option<(String, Option<String>)>,
    scopes: Vec<String>,
    file: Option<PathBuf>,
    hosts: BTreeSet<String>,
    issuer: Option<String>,
    pub(super) time: Duration,
    port: u16,
}

/// Shows a person the name of a server, and the address to open.
type Show = dyn Fn(&str, &str) + Send + Sync;

/// The one that logs in.
#[derive(Clone)]
enum Who {
    Person(Arc<Show>),
    Program,
}

impl McpLogin {
    fn of(who: Who, client: Option<(String, Option<String>)>) -> Self {
        Self {
            who,
            client,
            scopes: Vec::new(),
            file: None,
            hosts: BTreeSet::new(),
            issuer: None,
            time: LOGIN_TIME,
            port: 0,
        }
    }

    /// The login of a person. The closure is given the name of the server and the address that the person has to open.
    /// It shows or opens the address, and returns at once. Pass the address to a browser as one argument, never to a
    /// shell: a server has chosen most of it.
    pub fn new(show: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        Self::of(Who::Person(Arc::new(show)), None)
    }

    /// The login of this program itself, with an id and a secret (client credentials). No person is asked.
    pub fn client_credentials(id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self::of(Who::Program, Some((id.into(), Some(secret.into()))))
    }

    /// Names the client as which this program logs in, with its secret if it has one. An id that is an https address is
    /// that of the client's metadata, and used where the authorization server reads such. Without it this program
    /// registers at each login.
    #[must_use]
    pub fn with_client(mut self, id: impl Into<String>, secret: Option<String>) -> Self {
        self.client = Some((id.into(), secret));
        self
    }

    /// Asks for these scopes, in place of those that the server names.
    #[must_use]
    pub fn with_scopes<T: Into<String>>(mut self, scopes: impl IntoIterator<Item = T>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// Keeps the tokens in a file, which only its user can read; without it they end with the process. Several servers
    /// and processes may share the file. Keep it where no agent can read or write.
    #[must_use]
    pub fn kept_in(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Asks these hosts too, which are in a private network, such as that of a company's authorization server.
    #[must_use]
    pub fn with_hosts<T: Into<String>>(mut self, hosts: impl IntoIterator<Item = T>) -> Self {
        self.hosts = hosts.into_iter().map(|host| host.into().to_ascii_lowercase()).collect();
        self
    }

    /// Names the one authorization server that is asked, by its issuer, such as `https://login.example`. Without it the
    /// server names any, and gets the secret of [`McpLogin::with_client`] and [`McpLogin::client_credentials`] sent
    /// there.
    #[must_use]
    pub fn with_issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    /// Sets the time that a person has to log in; 5 minutes without it. The time to connect does not run meanwhile.
    #[must_use]
    pub fn with_timeout(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Lets the browser end at `http://127.0.0.1:<port>/callback`, for a client that is registered with that address.
    /// Without it the port is another one each time.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }
}

impl fmt::Debug for McpLogin {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.who {
            Who::Person(_) => "person",
            Who::Program => "program",
        };
        f.debug_struct("McpLogin").field("who", &who).finish_non_exhaustive()
    }
}
