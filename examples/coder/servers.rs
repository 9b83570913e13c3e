//! The language servers that this machine has, for `--lsp`.

use std::{env, path::Path};

use entourage::{
    lsp::{LanguageServer, LanguageServers, LanguageServersBuilder},
    prelude::*,
    terminal::Terminal,
};

struct Known {
    language: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    extensions: &'static [&'static str],
}

/// Of a language the first program that is there is used.
const KNOWN: [Known; 6] = [
    Known { language: "rust", program: "rust-analyzer", args: &[], extensions: &["rs"] },
    Known {
        language: "python",
        program: "basedpyright-langserver",
        args: &["--stdio"],
        extensions: &["py", "pyi"],
    },
    Known {
        language: "python",
        program: "pyright-langserver",
        args: &["--stdio"],
        extensions: &["py", "pyi"],
    },
    Known { language: "go", program: "gopls", args: &[], extensions: &["go"] },
    Known { language: "c", program: "clangd", args: &[], extensions: &["c", "cc", "cpp", "cxx", "h", "hpp"] },
    Known {
        language: "typescript",
        program: "typescript-language-server",
        args: &["--stdio"],
        extensions: &["ts", "tsx", "mts", "js", "jsx", "mjs"],
    },
];

/// The servers on the PATH, none if `wanted` is false. None of them is started yet.
pub(crate) fn found(workspace: &Workspace, wanted: bool, terminal: &Terminal) -> Result<LanguageServers> {
    let all = KNOWN.iter().filter(|known| wanted && is_on_path(known.program, workspace.root()));
    let mut used: Vec<&Known> = Vec::new();
    for known in all {
        if used.iter().all(|other| other.language != known.language) {
            used.push(known);
        }
    }
    if wanted {
        let programs: Vec<_> = used.iter().map(|known| known.program).collect();
        let programs = if programs.is_empty() { "none on the PATH".to_owned() } else { programs.join(", ") };
        terminal.say(&format!("language servers: {programs}"));
    }
    let add = |builder: LanguageServersBuilder, known: &Known| {
        let server = LanguageServer::command(known.language, known.program, known.args);
        builder.server(server.for_extensions(known.extensions.iter().copied()))
    };
    used.into_iter().fold(LanguageServers::builder(workspace), add).build()
}

/// The library starts no program of the workspace either, which the agent may have written.
fn is_on_path(program: &str, root: &Path) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut entries = env::split_paths(&path).filter(|entry| entry.is_absolute() && !entry.starts_with(root));
    entries.any(|entry| entry.join(program).is_file())
}
