//! Servers from a file `.mcp.json`, as many programs share it.

use std::{collections::BTreeMap, io::Read, path::Path, time::Duration};

use entourage_core::{Error, ErrorKind, Result, bound};
use serde::Deserialize;

use super::server::{McpLifecycle, McpServer};

/// Most bytes of a file of servers, and most servers in it.
const LARGEST: u64 = 1 << 20;
const SERVERS: usize = 256;

/// The file. Other programs have fields of their own in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    mcp_servers: BTreeMap<String, Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
    /// Seconds to connect.
    timeout: Option<f64>,
    tools: Option<Vec<String>>,
    lifecycle: Option<String>,
}

impl McpServer {
    /// Reads the servers of a file, sorted by name: a JSON object with the field `mcpServers`, in which each server has
    /// `command`, `args`, `env` and `cwd`, or `url` and `headers`; and `disabled`, `timeout` (seconds to connect),
    /// `tools` (names) and `lifecycle` (`auto`, `initialize`, `discover`). Other fields are left to other programs.
    /// `${NAME}` and `${NAME:-default}` in the texts are variables of this program's environment; in a server that is
    /// disabled, one that is not set stays as it is written.
    ///
    /// The file names programs that are run with all rights of this one. Read one that belongs to a project only where
    /// the user trusts the project, and show what [`McpServer::shown`] says of it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a file with other contents, with a variable that is not set, or of more than 1 MiB or
    /// 256 servers; [`ErrorKind::Io`].
    pub async fn read_file(path: impl AsRef<Path>) -> Result<Vec<Self>> {
        let path = path.as_ref().to_owned();
        let at = path.display().to_string();
        let read = move || {
            // A pipe would never end, and a device neither.
            if !std::fs::metadata(&path)?.is_file() {
                return Err(std::io::Error::other("it is no plain file"));
            }
            let mut text = String::new();
            std::fs::File::open(&path)?.take(LARGEST + 1).read_to_string(&mut text)?;
            Ok(Some(text).filter(|text| u64::try_from(text.len()).is_ok_and(|size| size <= LARGEST)))
        };
        let text = tokio::task::spawn_blocking(read)
            .await
            .unwrap_or_else(|error| Err(error.into()))
            .map_err(|error| {
                Error::new(ErrorKind::Io, "the file of MCP servers cannot be read")
                    .caused_by(error)
                    .with("path", &at)
            })?;
        let text = text.ok_or_else(|| {
            Error::new(ErrorKind::Config, "the file of MCP servers has more than 1 MiB").with("path", &at)
        })?;
        Self::parse(&text, |name| std::env::var(name).ok()).map_err(|error| error.with("path", &at))
    }

    /// Reads the text of such a file.
    pub(super) fn parse(text: &str, var: impl Fn(&str) -> Option<String>) -> Result<Vec<Self>> {
        let file: File = serde_json::from_str(text).map_err(|error| {
            Error::new(ErrorKind::Config, format!("the file of MCP servers has another form: {error}"))
        })?;
        if file.mcp_servers.len() > SERVERS {
            return Err(Error::new(ErrorKind::Config, format!("there are more than {SERVERS} MCP servers")));
        }
        file.mcp_servers.into_iter().map(|(name, entry)| entry.into_server(&name, &var)).collect()
    }

    /// What would be started or asked, in one line for a person: the command with its arguments, or the address.
    pub fn shown(&self) -> String {
        use super::server::Reach;
        match &self.reach {
            Reach::Command { program, args, .. } => {
                let words = std::iter::once(program).chain(args).map(|word| word.to_string_lossy());
                words.collect::<Vec<_>>().join(" ")
            }
            Reach::Http { url, .. } => url.to_string(),
        }
    }
}

impl Entry {
    fn into_server(self, name: &str, var: &impl Fn(&str) -> Option<String>) -> Result<McpServer> {
        let wrong = |why: String| Error::new(ErrorKind::Config, format!("the MCP server `{name}` {why}"));
        let full = |text: &str| match expanded(text, var) {
            // It is shown and never started.
            Err(_) if self.disabled => Ok(text.to_owned()),
            other => other.map_err(&wrong),
        };
        let is_http = match self.kind.as_deref() {
            None => self.url.is_some(),
            Some("stdio") => false,
            Some("http" | "streamable-http" | "streamableHttp") => true,
            Some(other) => {
                let kind = bound::shortened(other, bound::WORD);
                return Err(wrong(format!("has the type `{kind}`; use `stdio` or `http` (streamable HTTP)")));
            }
        };
        let mut server = match (is_http, &self.command, &self.url) {
            (true, None, Some(url)) if self.disabled && expanded(url, var).is_err() => {
                McpServer::command(name, url, [""; 0])
            }
            (true, None, Some(url)) => {
                let mut server = McpServer::http(name, &full(url)?)?;
                for (key, value) in &self.headers {
                    server = server.with_header(key, &full(value)?)?;
                }
                server
            }
            (false, Some(command), None) => {
                let args = self.args.iter().map(|arg| full(arg)).collect::<Result<Vec<_>>>()?;
                let mut server = McpServer::command(name, full(command)?, args);
                for (key, value) in &self.env {
                    server = server.with_env(key, full(value)?);
                }
                match &self.cwd {
                    Some(dir) => server.in_dir(full(dir)?),
                    None => server,
                }
            }
            _ => return Err(wrong("needs either a `command` or a `url`".to_owned())),
        };
        server.is_disabled = self.disabled;
        server.tools = self.tools;
        if let Some(seconds) = self.timeout {
            let time = Duration::try_from_secs_f64(seconds)
                .map_err(|_| wrong(format!("has a timeout that is no number of seconds: {seconds}")))?;
            server = server.with_connect_timeout(time);
        }
        server.lifecycle = match self.lifecycle.as_deref() {
            None | Some("auto") => McpLifecycle::Auto,
            Some("initialize") => McpLifecycle::Initialize,
            Some("discover") => McpLifecycle::Discover,
            Some(_) => {
                return Err(wrong("has an unknown lifecycle; use auto, initialize or discover".to_owned()));
            }
        };
        Ok(server)
    }
}

/// Replaces `${NAME}` and `${NAME:-default}`. A value is taken as it is.
fn expanded(text: &str, var: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, after)) = after.split_once('}') else { break };
        out.push_str(before);
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        match (var(name).filter(|value| default.is_none() || !value.is_empty()), default) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => {
                let name = bound::shortened(name, bound::WORD);
                return Err(format!("needs the environment variable `{name}`, which is not set"));
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vars(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("sk-${HOME}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn parse(text: &str) -> Result<Vec<McpServer>, String> {
        McpServer::parse(text, vars).map_err(|error| format!("{error}"))
    }

    #[test]
    fn ce01_servers_of_a_file() {
        let servers = parse(
            r#"{"other": 1, "mcpServers": {
                "files": {"command": "npx", "args": ["-y", "x", "${DIR:-.}"], "env": {"T": "${TOKEN}"}, "cwd": "/w", "icon": "x"},
                "docs": {"type": "http", "url": "https://d.example/mcp", "headers": {"authorization": "Bearer ${TOKEN}"},
                         "disabled": true, "timeout": 1.5, "tools": ["read"], "lifecycle": "initialize"}}}"#,
        )
        .unwrap();
        let [docs, files] = servers.as_slice() else { panic!("{servers:?}") };
        assert_eq!((files.name(), files.shown()), ("files", "npx -y x .".to_owned()));
        assert_eq!((docs.name(), docs.shown()), ("docs", "https://d.example/mcp".to_owned()));
        assert!(docs.is_disabled && !files.is_disabled);
        assert_eq!(
            (docs.connect_time(), docs.lifecycle),
            (Duration::from_millis(1500), McpLifecycle::Initialize)
        );
        assert_eq!(docs.tools.as_deref(), Some(["read".to_owned()].as_slice()));
        assert_eq!(parse("{}").map(|all| all.len()), Ok(0));
        let off = parse(
            r#"{"mcpServers": {
                "a": {"url": "${NONE}/mcp", "headers": {"x": "${NONE}"}, "disabled": true},
                "b": {"url": "https://b.example/", "headers": {"x": "${NONE}"}, "disabled": true},
                "c": {"command": "x", "args": ["${NONE}"], "env": {"K": "${NONE}"}, "disabled": true}}}"#,
        );
        let shown: Vec<_> = off.unwrap().iter().map(McpServer::shown).collect();
        assert_eq!(shown, ["${NONE}/mcp", "https://b.example/", "x ${NONE}"]);
    }

    #[test]
    fn ce01_a_file_with_other_contents_says_which_server_is_wrong() {
        let deep = format!(r#"{{"mcpServers": {}{}}}"#, "[".repeat(500), "]".repeat(500));
        let many: String = (0..257).map(|n| format!(r#""s{n}": {{"command": "x"}},"#)).collect();
        let many = format!(r#"{{"mcpServers": {{{}}}}}"#, many.trim_end_matches(','));
        for (text, part) in [
            ("", "another form"),
            ("[1]", "another form"),
            (r#"{"mcpServers": []}"#, "another form"),
            (&deep, "another form"),
            (&many, "more than 256"),
            (r#"{"mcpServers": {"a": {}}}"#, "`a` needs either"),
            (r#"{"mcpServers": {"a": {"command": "x", "url": "http://x.example"}}}"#, "`a` needs either"),
            (r#"{"mcpServers": {"a": {"type": "sse", "url": "http://x.example"}}}"#, "`sse`"),
            (r#"{"mcpServers": {"a": {"command": "${NONE}"}}}"#, "`NONE`, which is not set"),
            (r#"{"mcpServers": {"a": {"command": "x", "timeout": -1}}}"#, "no number of seconds"),
            (r#"{"mcpServers": {"a": {"command": "x", "timeout": 1e300}}}"#, "no number of seconds"),
            (r#"{"mcpServers": {"a": {"command": "x", "lifecycle": "y"}}}"#, "unknown lifecycle"),
            (r#"{"mcpServers": {"a": {"url": "ftp://x.example"}}}"#, "http://"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn variables_are_replaced_once() {
        for (text, expected) in [
            ("a", Ok("a")),
            ("${TOKEN}", Ok("sk-${HOME}")),
            ("x${TOKEN}y${TOKEN}", Ok("xsk-${HOME}ysk-${HOME}")),
            ("${NONE:-d}", Ok("d")),
            ("${EMPTY:-d}", Ok("d")),
            ("${EMPTY}", Ok("")),
            ("${NONE:-}", Ok("")),
            ("$TOKEN ${", Ok("$TOKEN ${")),
            ("${NONE}", Err("NONE")),
            ("${}", Err("``")),
        ] {
            match (expanded(text, &vars), expected) {
                (Ok(full), Ok(expected)) => assert_eq!(full, expected),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_expanded_or_refused(text in "[a${}:\\-é]{0,40}") {
            let _ = expanded(&text, &vars);
        }
    }
}
