//! Settings of one language server.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt,
    path::Path,
    time::Duration,
};

use entourage_core::{Error, ErrorKind, Result};
use serde_json::Value;

const START_TIME: Duration = Duration::from_secs(20);
/// Most bytes of a name.
const NAME: usize = 32;

/// The names of languages that are not the ends of their files' names.
const LANGUAGES: [(&str, &str); 28] = [
    ("bash", "shellscript"),
    ("cc", "cpp"),
    ("cjs", "javascript"),
    ("cs", "csharp"),
    ("cts", "typescript"),
    ("cxx", "cpp"),
    ("ex", "elixir"),
    ("exs", "elixir"),
    ("h", "c"),
    ("hpp", "cpp"),
    ("hs", "haskell"),
    ("js", "javascript"),
    ("jsx", "javascriptreact"),
    ("kt", "kotlin"),
    ("md", "markdown"),
    ("mjs", "javascript"),
    ("ml", "ocaml"),
    ("mts", "typescript"),
    ("pl", "perl"),
    ("py", "python"),
    ("pyi", "python"),
    ("rb", "ruby"),
    ("rs", "rust"),
    ("sh", "shellscript"),
    ("tex", "latex"),
    ("ts", "typescript"),
    ("tsx", "typescriptreact"),
    ("yml", "yaml"),
];

/// A language server: a program, the files that it is for, and its settings.
///
/// It runs as a child of this program with all that this program may do, outside of any sandbox, and with its
/// environment but for what looks like a secret. Many servers run code of the project: build scripts, macros, plug-ins.
/// Configure one only where the user trusts the project.
///
/// ```
/// use entourage_tools::lsp::LanguageServer;
///
/// let rust = LanguageServer::command("rust", "rust-analyzer", [""; 0]).for_extensions(["rs"]);
/// let python = LanguageServer::command("python", "basedpyright-langserver", ["--stdio"]);
/// let python = python.for_extensions(["py", "pyi"]);
/// assert_eq!((rust.name(), python.name()), ("rust", "python"));
/// ```
#[derive(Clone)]
pub struct LanguageServer {
    name: String,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    extensions: BTreeSet<String>,
    languages: BTreeMap<String, String>,
    pub(super) settings: Value,
    pub(super) options: Value,
    pub(super) start_time: Duration,
}

impl LanguageServer {
    /// A server that is a program, spoken to over its standard input and output. No shell reads the arguments. A name
    /// is looked up in `PATH` without its entries in the workspace, where an agent may write; the server has this
    /// `PATH` as well, unless [`with_env`](Self::with_env) gives it another one.
    pub fn command<A: Into<OsString>>(
        name: impl Into<String>,
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            extensions: BTreeSet::new(),
            languages: BTreeMap::new(),
            settings: Value::Null,
            options: Value::Null,
            start_time: START_TIME,
        }
    }

    /// Adds ends of names of the files that the server is for, without the dot. A file may have several servers: the
    /// diagnostics of all are shown, and of those that run the first that can answers a question.
    #[must_use]
    pub fn for_extensions<E: Into<String>>(mut self, extensions: impl IntoIterator<Item = E>) -> Self {
        self.extensions.extend(extensions.into_iter().map(Into::into));
        self
    }

    /// Sets the name that the protocol has for the language of files with this end. The common ones are known; a file
    /// of another end has that end as its language.
    #[must_use]
    pub fn with_language(mut self, extension: impl Into<String>, language: impl Into<String>) -> Self {
        self.languages.insert(extension.into(), language.into());
        self
    }

    /// Adds a variable to the server's environment.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the settings that the server asks for, by sections: `{"python": {"analysis": {…}}}`.
    #[must_use]
    pub fn with_settings(mut self, settings: Value) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the options that the server is given when it starts.
    #[must_use]
    pub fn with_options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// Sets the time to start, up to the answer to the handshake. Default: 20 seconds.
    #[must_use]
    pub fn with_start_timeout(mut self, time: Duration) -> Self {
        self.start_time = time;
        self
    }

    /// The name, for people and for the tool `lsp_restart`.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_for(&self, path: &Path) -> bool {
        extension(path).is_some_and(|extension| self.extensions.contains(extension))
    }

    /// The name that the protocol has for the language of a file.
    pub(super) fn language_of<'a>(&'a self, path: &'a Path) -> &'a str {
        let extension = extension(path).unwrap_or_default();
        let known = || LANGUAGES.iter().find(|(end, _)| *end == extension).map(|(_, language)| *language);
        self.languages.get(extension).map(String::as_str).or_else(known).unwrap_or(extension)
    }

    /// Checks servers that are used together.
    ///
    /// # Errors
    /// [`ErrorKind::Config`].
    pub(super) fn check(servers: &[Self]) -> Result<()> {
        let mut names = BTreeSet::new();
        for Self { name, extensions, .. } in servers {
            let wrong =
                |why: &str| Error::new(ErrorKind::Config, format!("the language server `{name}` {why}"));
            let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || name.len() > NAME || !name.chars().all(safe) {
                return Err(wrong("needs another name: use 1 to 32 letters, digits, _ and -"));
            }
            if !names.insert(name) {
                return Err(wrong("has the name of another one; give each its own"));
            }
            if extensions.is_empty() {
                return Err(wrong("is for no files; name their ends by `for_extensions`"));
            }
            if let Some(dotted) = extensions.iter().find(|it| it.is_empty() || it.contains(['.', '/'])) {
                return Err(wrong(&format!(
                    "is for the end `{dotted}`; give it without a dot, such as `rs`"
                )));
            }
        }
        Ok(())
    }
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

impl fmt::Debug for LanguageServer {
    /// Shows no values of variables, settings and arguments, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LanguageServer")
            .field("name", &self.name)
            .field("program", &self.program)
            .field("extensions", &self.extensions)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ce02_servers_that_cannot_be_used_are_refused() {
        let server = |name: &str| LanguageServer::command(name, "x", [""; 0]);
        for (servers, part) in [
            (vec![server("a")], "is for no files"),
            (vec![server("a").for_extensions([".rs"])], "without a dot"),
            (vec![server("a b").for_extensions(["rs"])], "another name"),
            (vec![server("a").for_extensions(["rs"]), server("a").for_extensions(["py"])], "of another one"),
        ] {
            let error = LanguageServer::check(&servers).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
        let rust = server("rust").for_extensions(["rs", "ron"]).with_language("ron", "rusty");
        LanguageServer::check(std::slice::from_ref(&rust)).unwrap();
        for (file, is_for, language) in
            [("a/b.rs", true, "rust"), ("b.ron", true, "rusty"), ("c.zig", false, "zig"), ("rs", false, "")]
        {
            let path = Path::new(file);
            assert_eq!((rust.is_for(path), rust.language_of(path)), (is_for, language), "{file}");
        }
        let shown = format!("{:?}", rust.with_env("KEY", "sk-1").with_settings(Value::from("sk-2")));
        assert!(!shown.contains("sk-"), "{shown}");
    }
}
