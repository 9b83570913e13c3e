//! A language server that others made: `.ci/lsp.sh` installs one, and runs this.

use std::time::Duration;

use entourage_tools::lsp::{LanguageServer, LanguageServers};
use serde_json::{Value, json};

use crate::Bench;

/// The command of a server for Python that checks types, with spaces between its words.
const COMMAND: &str = "ENTOURAGE_LSP_PYTHON";

#[tokio::test]
#[ignore = "needs a language server for Python, which .ci/lsp.sh installs"]
async fn ce02_a_real_server_for_python() {
    let command =
        std::env::var(COMMAND).unwrap_or_else(|_| panic!("{COMMAND} has the command of a language server"));
    let mut words = command.split_whitespace();
    let server = LanguageServer::command("python", words.next().unwrap(), words).for_extensions(["py"]);
    let mut bench = Bench::with(|_| Vec::new());
    let builder =
        LanguageServers::builder(&bench.workspace).server(server.with_start_timeout(Duration::from_secs(60)));
    bench.servers = builder.wait_after_change(Duration::from_secs(60)).build().unwrap();
    bench.file("shapes.py", "def area(width: int, height: int) -> int:\n    return width * height\n");

    let result =
        bench.write("main.py", "from shapes import area\n\nsize = \"é😀\"; total: str = area(2, 3)\n").await;
    assert!(result.contains("- error 3:27 ") && result.contains("reportAssignmentType"), "{result}");
    let edit = json!({"path": "main.py", "old": "total: str", "new": "total: int"});
    let results = bench.call_all(vec![("view", json!({"path": "main.py"})), ("edit", edit)]).await;
    let text = results[1].to_text();
    assert!(text.contains("Diagnostics: ") && !text.contains("- error"), "{text}");

    let place = |line: usize, symbol: &str| json!({"path": "main.py", "line": line, "symbol": symbol});
    let result = bench.call("lsp_definition", place(3, "area")).await;
    assert!(result.contains("shapes.py:1:5: def area(width"), "{result}");
    let result = bench.call("lsp_references", place(3, "area")).await;
    assert!(
        result.starts_with("3 references of `area`:") && result.contains("main.py:3:27: size"),
        "{result}"
    );
    let result = bench.call("lsp_symbols", json!({"path": "shapes.py"})).await;
    assert!(result.contains("function area (line 1)"), "{result}");
    let result = bench.call("lsp_symbols", json!({"query": "area"})).await;
    assert!(result.contains("shapes.py:1: function area"), "{result}");

    let rename = |files: Value| json!({"path": "main.py", "line": 3, "symbol": "area", "new_name": "surface", "files": files});
    let calls =
        vec![("lsp_rename", rename(json!([]))), ("lsp_rename", rename(json!(["main.py", "shapes.py"])))];
    let results = bench.call_all(calls).await;
    assert!(results.iter().all(|result| !result.is_error), "{results:?}");
    assert!(bench.read("shapes.py").starts_with("def surface(width"));
    assert!(bench.read("main.py").contains("= surface(2, 3)"));
    assert!(!results[1].to_text().contains("- error"), "{}", results[1].to_text());
    let result = bench.call("lsp_restart", json!({})).await;
    assert_eq!(result, "the language server `python` runs again");
    bench.servers.shut_down().await;
}
