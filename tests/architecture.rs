//! Checks of what must be absent: dependencies, arrows between crates, and words in sources.
//!
//! Manifests are read through `cargo metadata --no-deps`, dependency trees through `cargo tree`: `cargo metadata`
//! unites the features of the whole workspace and so cannot tell what one crate alone pulls in. Both run offline.
//! Nothing here is about style; a rule is listed only when breaking it breaks a promise of the architecture.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic, in its helpers too"
)]

#[path = "architecture/rooms.rs"]
mod rooms;
#[path = "architecture/scan.rs"]
mod scan;
#[path = "architecture/tree.rs"]
mod tree;
#[path = "architecture/types.rs"]
mod types;
#[path = "architecture/words.rs"]
mod words;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use rooms::{DEBTS, Rooms, TABLE};
use scan::{code, has_word, lines_without_tests, names_more, paths, tokens};
use tree::Crates;

/// Maximum number of crates below the core: itself not counted, build scripts and macros counted.
const CORE_TREE_LIMIT: usize = 50;

/// Crates that only providers, tools and stores may pull in. An entry that ends in `-` stands for all names that start
/// so.
const NOT_IN_CORE: &str = "reqwest, hyper, hyper-util, h2, http, rustls, native-tls, openssl, tungstenite, sqlx, sqlx-, \
    rusqlite, libsqlite3-sys, tokio-postgres, redis, rocksdb, sled, cap-std, cap-primitives, \
    cap-fs-ext, tempfile, ignore, walkdir, globset, notify, grep-searcher, process-wrap, nix, rustix, \
    landlock, seccompiler, mio, socket2, signal-hook-registry, tokio-process";

/// Crates that the facade's default features may not pull in.
const NOT_IN_FACADE: &str = "reqwest, hyper, rustls, sqlx, sqlx-, libsqlite3-sys, cap-std, opentelemetry, rmcp, \
    entourage-mcp-server, entourage-otel, entourage-providers, entourage-store, entourage-terminal, \
    entourage-tools";

const CORE_TOKIO_FEATURES: &[&str] = &["sync", "time", "rt", "macros"];

/// Paths that the core's code may not name. Prefixes: `std::net::Tcp` covers streams and listeners.
const CORE_PATHS: &str = "std::fs, std::process, std::env, std::os, std::net::Tcp, std::net::Udp, std::net::ToSocketAddrs, \
    tokio::fs, tokio::net, tokio::process, tokio::signal, tokio::io";

/// Names of vendors, matched anywhere: in code, strings and documentation.
const VENDORS: &str = "openai, anthropic, gemini, ollama, mistral, groq, deepseek, openrouter, claude, chatgpt, gpt-, \
    llama, lm studio, lmstudio, vllm, hugging face, huggingface, cerebras, qwen, moonshot, bedrock, \
    fireworks";

/// Names of vendors that are parts of common words, and so are matched as whole words.
const VENDOR_WORDS: &str = "cohere, azure, grok, xai, gpt, together ai";

/// `(package, what it may depend on in this workspace, and in its tests besides)`.
const ARROWS: &[(&str, &[&str], &[&str])] = &[
    ("counting-alloc", &[], &[]),
    (
        "entourage-benches",
        &[],
        &["counting-alloc", "entourage", "entourage-core", "entourage-runners", "entourage-runtime"],
    ),
    ("entourage-examples", &[], &["entourage", "entourage-core"]),
    ("entourage-outside", &["entourage-core"], &["entourage-testkit"]),
    ("entourage-core", &[], &["entourage-runners", "entourage-runtime", "entourage-testkit"]),
    ("entourage-macros", &[], &[]),
    (
        "entourage-macros-tests",
        &[],
        &[
            "entourage-core",
            "entourage-macros",
            "entourage-runners",
            "entourage-runtime",
            "entourage-testkit",
        ],
    ),
    (
        "entourage-mcp-server",
        &["entourage-core", "entourage-runners", "entourage-runtime"],
        &["entourage-testkit", "entourage-tools"],
    ),
    ("entourage-otel", &["entourage-core", "entourage-runtime"], &["entourage-runners", "entourage-testkit"]),
    (
        "entourage-providers",
        &["entourage-core"],
        &["entourage-runners", "entourage-runtime", "entourage-testkit"],
    ),
    ("entourage-runners", &["entourage-core", "entourage-runtime"], &["entourage-testkit"]),
    // Itself with all features for tests.
    (
        "entourage-runtime",
        &["entourage-core"],
        &["entourage-runners", "entourage-runtime", "entourage-testkit"],
    ),
    // Itself with all stores for tests.
    (
        "entourage-store",
        &["entourage-core"],
        &["entourage-runners", "entourage-runtime", "entourage-store", "entourage-testkit"],
    ),
    (
        "entourage-terminal",
        &["entourage-core", "entourage-runners", "entourage-runtime"],
        &["entourage-testkit"],
    ),
    ("entourage-testkit", &["entourage-core", "entourage-runners", "entourage-runtime"], &[]),
    (
        "entourage-tools",
        &["entourage-core"],
        &["entourage-macros", "entourage-runners", "entourage-runtime", "entourage-testkit"],
    ),
    (
        "entourage",
        &[
            "entourage-core",
            "entourage-macros",
            "entourage-mcp-server",
            "entourage-otel",
            "entourage-providers",
            "entourage-runners",
            "entourage-runtime",
            "entourage-store",
            "entourage-terminal",
            "entourage-testkit",
            "entourage-tools",
        ],
        &["entourage"],
    ),
];

/// The packages that do no I/O and name no vendor, with their folders.
const CLEAN: &[(&str, &str)] = &[
    ("entourage-core", "agent-core"),
    ("entourage-runtime", "agent-runtime"),
    ("entourage-runners", "agent-runners"),
];

/// The crates that know only the core, with their folders.
const SIBLINGS: &[(&str, &str)] = &[
    ("agent-providers", "entourage-providers"),
    ("agent-tools", "entourage-tools"),
    ("agent-store", "entourage-store"),
];

/// The one folder that may hold unsafe code and so does not inherit the lints.
const UNSAFE_HOME: &str = "benches/counting-alloc";

/// The most characters in a line of a comment; rustfmt leaves these lines alone.
const COMMENT_WIDTH: usize = 120;

/// The most doc comments in a hundred that may open with a relative clause.
const CLAUSES: usize = 2;

/// Most lines without tests of what a package holds by `tests/architecture/rooms.txt`; for the core never above 13,000.
/// Lower it with what moves away.
const LINES: &[(&str, usize)] = &[("core", 13_000)];

/// Lines by which a limit of `LINES` may be too high.
const SLACK: usize = 500;

/// Types that users of a crate can name, all features turned on and doubles for tests left out. Lower it, and raise it
/// only for a feature that is new as a whole.
const TYPES: &[(&str, usize)] = &[("entourage-core", 196), ("entourage", 288)];

const FILE_LIMIT: usize = 500;

/// Files above the limit that are better whole: `(path, why)`.
const LONG_FILES: &[(&str, &str)] = &[];

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(", ")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn cargo(arguments: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output =
        Command::new(program).args(arguments).args(["--offline", "--locked"]).current_dir(root()).output();
    let output = output.expect("cargo starts");
    assert!(
        output.status.success(),
        "`cargo {}` failed; run `cargo fetch` once if crates are missing:\n{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The packages of this workspace, as `cargo metadata` describes their manifests.
fn members() -> Vec<Value> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap();
    let members = metadata["packages"].as_array().unwrap().clone();
    assert!(members.len() >= 7, "only {} packages found", members.len());
    members
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap()
}

fn folder(member: &Value) -> PathBuf {
    Path::new(member["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// The names of the crates that `package` with its default features is built from on this machine, itself excluded.
fn tree(package: &str) -> BTreeSet<String> {
    let lines = cargo(&["tree", "-p", package, "-e", "normal,build", "--prefix", "none", "-f", "{p}"]);
    // `name v1.2.3 (…)`: versions count, so that two of one crate are two.
    let mut crates: BTreeSet<_> = lines
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    let before = crates.len();
    crates.retain(|one| one.split(' ').next() != Some(package));
    assert_eq!(crates.len() + 1, before, "{package} itself stands once in its own tree");
    crates
}

fn holds(tree: &BTreeSet<String>, wanted: &str) -> Vec<String> {
    let fits = |name: &str| if wanted.ends_with('-') { name.starts_with(wanted) } else { name == wanted };
    tree.iter().filter(|one| fits(one.split(' ').next().unwrap_or_default())).cloned().collect()
}

/// A path below the root, with `/` on every system.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Returns all `.rs` files below `folder`, sorted. Files that a compiler never builds into a crate (`target`, the
/// refused examples of `tests/ui`) are left out.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') && !path.ends_with("tests/ui") {
                    open.push(path);
                }
            } else if name.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no sources below {}", folder.display());
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn refuse(found: &[String], remedy: &str) {
    assert!(found.is_empty(), "{remedy}\n  {}", found.join("\n  "));
}

#[test]
fn the_core_is_small_and_knows_no_network_database_file_or_process() {
    for (package, _) in CLEAN {
        let tree = tree(package);
        println!("{package}: {} crates below it (limit {CORE_TREE_LIMIT})", tree.len());
        assert!(tree.len() > 20, "the tree was not read: {tree:?}");
        let found: Vec<_> = list(NOT_IN_CORE).flat_map(|one| holds(&tree, one)).collect();
        refuse(
            &found,
            &format!(
                "{package} may not depend on these, not even indirectly; move what needs them to another crate:"
            ),
        );
        assert!(
            tree.len() <= CORE_TREE_LIMIT,
            "{package} pulls in {} crates, {CORE_TREE_LIMIT} are allowed; drop one or turn off its features: {tree:?}",
            tree.len()
        );
    }
}

#[test]
fn the_core_declares_four_features_of_tokio() {
    let members = members();
    let clean = members.iter().filter(|one| CLEAN.iter().any(|(package, _)| *package == name(one)));
    let declared: Vec<_> = clean
        .flat_map(|one| one["dependencies"].as_array().unwrap())
        .filter(|one| name(one) == "tokio" && one["kind"].as_str() != Some("dev"))
        .flat_map(|one| one["features"].as_array().unwrap())
        .map(|one| one.as_str().unwrap().to_owned())
        .collect();
    assert!(!declared.is_empty(), "their tokio was not found in their manifests");
    let found: Vec<_> =
        declared.into_iter().filter(|one| !CORE_TOKIO_FEATURES.contains(&one.as_str())).collect();
    refuse(
        &found,
        "core, runtime and runners take only sync, time, rt and macros of tokio; the workspace's line counts too, so \
         name more features in the crate that needs them:",
    );
}

#[test]
fn the_core_touches_no_file_socket_process_or_environment() {
    let mut found = Vec::new();
    for path in core_sources() {
        for used in paths(&code(&read(&path))) {
            if list(CORE_PATHS)
                .any(|one| used == one || used.starts_with(&format!("{one}::")) || names_more(one, &used))
            {
                found.push(format!("{}: {used}", shown(&path)));
            }
        }
    }
    refuse(
        &found,
        "core, runtime and runners perform no I/O of their own; put it behind a trait that another crate implements:",
    );
}

/// Returns the sources that must know no vendor and do no I/O.
fn core_sources() -> Vec<PathBuf> {
    CLEAN.iter().flat_map(|(_, folder)| sources(&root().join(folder).join("src"))).collect()
}

#[test]
fn the_core_names_no_vendor() {
    let mut found = Vec::new();
    for path in core_sources() {
        for (i, line) in read(&path).lines().enumerate() {
            let low = line.to_lowercase();
            if list(VENDORS).any(|one| low.contains(one)) || list(VENDOR_WORDS).any(|one| has_word(&low, one))
            {
                found.push(format!("{}:{}: {}", shown(&path), i + 1, line.trim()));
            }
        }
    }
    refuse(
        &found,
        "core, runtime and runners name no model service, in documentation neither; say what is meant in general words:",
    );
}

#[test]
fn arrows_point_at_the_core() {
    let members = members();
    let names: BTreeSet<_> = members.iter().map(name).collect();
    let mut found = Vec::new();
    for member in &members {
        let Some((_, normal, in_tests)) = ARROWS.iter().find(|(one, ..)| *one == name(member)) else {
            found.push(format!("{} has no line in ARROWS of tests/architecture.rs", name(member)));
            continue;
        };
        for dependency in
            member["dependencies"].as_array().unwrap().iter().filter(|one| names.contains(name(one)))
        {
            let dev = dependency["kind"].as_str() == Some("dev");
            let allowed = normal.contains(&name(dependency)) || (dev && in_tests.contains(&name(dependency)));
            if !allowed {
                let kind = dependency["kind"].as_str().unwrap_or("normal");
                found.push(format!("{} -> {} ({kind})", name(member), name(dependency)));
            }
        }
    }
    refuse(
        &found,
        "crates depend on entourage-core alone and only the facade on all; move the shared part to the core:",
    );
}

#[test]
fn providers_tools_and_stores_never_name_each_other() {
    let mut found = Vec::new();
    for (folder, package) in SIBLINGS {
        let manifest = root().join(folder).join("Cargo.toml");
        for path in sources(&root().join(folder)).into_iter().chain([manifest]) {
            let text = read(&path).replace('_', "-");
            for (other_folder, other) in SIBLINGS.iter().filter(|(_, other)| other != package) {
                if has_word(&text, other) || has_word(&text, other_folder) {
                    found.push(format!("{}: {other}", shown(&path)));
                }
            }
        }
    }
    refuse(
        &found,
        "providers, tools and stores do not know of each other; speak of the core's trait instead:",
    );
}

#[test]
fn the_facade_by_default_has_no_http_and_no_database() {
    let tree = tree("entourage");
    println!("entourage with default features: {} crates below it", tree.len());
    assert!(!holds(&tree, "entourage-core").is_empty(), "the tree was not read: {tree:?}");
    let found: Vec<_> = list(NOT_IN_FACADE).flat_map(|one| holds(&tree, one)).collect();
    refuse(
        &found,
        "the facade's default features pull these in; make the dependency optional, behind a feature:",
    );
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    let found: Vec<_> = members()
        .iter()
        .filter(|member| shown(&folder(member)) != UNSAFE_HOME)
        .map(|member| folder(member).join("Cargo.toml"))
        .filter(|manifest| {
            let text = read(manifest);
            let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            !lines.windows(2).any(|pair| pair == ["[lints]", "workspace = true"])
        })
        .map(|manifest| shown(&manifest))
        .collect();
    refuse(&found, "add `[lints]` with `workspace = true` to:");
    let manifest = read(&root().join("Cargo.toml"));
    assert!(
        manifest.lines().any(|line| line.trim() == "unsafe_code = \"forbid\""),
        "the workspace's lints must forbid unsafe code"
    );
}

#[test]
fn unsafe_code_is_in_the_counting_allocator_alone() {
    let home = root().join(UNSAFE_HOME);
    let found: Vec<_> = sources(root())
        .iter()
        .filter(|path| !path.starts_with(&home))
        .filter(|path| tokens(&code(&read(path))).iter().any(|token| token == "unsafe"))
        .map(|path| shown(path))
        .collect();
    refuse(&found, "write these without `unsafe`:");
}

#[test]
fn nothing_is_left_to_do() {
    let mut found = Vec::new();
    for path in sources(root()) {
        for pair in tokens(&code(&read(&path))).windows(2) {
            if pair[1] == "!" && ["todo", "unimplemented", "dbg"].contains(&pair[0].as_str()) {
                found.push(format!("{}: {}!", shown(&path), pair[0]));
            }
        }
    }
    refuse(&found, "finish these, or return a typed error:");
}

#[test]
fn doc_comments_are_plain() {
    let (mut all, mut clauses, mut found) = (0, Vec::new(), Vec::new());
    // Comments of tools in the macro's tests are their descriptions, for a model.
    let described = root().join("agent-macros/tests");
    for path in sources(root()).into_iter().filter(|path| !path.starts_with(&described)) {
        for doc in words::docs(&read(&path)) {
            let place =
                format!("{}:{}: {}", shown(&path), doc.line, doc.text.lines().next().unwrap_or_default());
            all += 1;
            if let Some(id) = doc.row_id() {
                found.push(format!("{id}: {place}"));
            }
            if doc.is_one_word() {
                found.push(format!("one word: {place}"));
            }
            if doc.opens_with_a_clause() {
                clauses.push(place);
            }
        }
    }
    assert!(all > 1_000, "only {all} doc comments were read");
    println!("{} of {all} doc comments open with a relative clause", clauses.len());
    refuse(&found, "say what it is in a sentence, and leave ids of a specification to names of tests:");
    if clauses.len() * 100 > all * CLAUSES {
        refuse(&clauses, "open these with a noun phrase or a verb in the third person:");
    }
}

#[test]
fn models_are_shown_no_links_of_rustdoc() {
    let mut found = Vec::new();
    let mut read_types = 0;
    for path in
        sources(root()).into_iter().filter(|path| path.components().any(|part| part.as_os_str() == "src"))
    {
        let source = read(&path);
        read_types += source.matches("JsonSchema)]").count();
        found.extend(words::shown_to_models(&source).iter().map(|line| format!("{}:{line}", shown(&path))));
    }
    assert!(read_types > 40, "only {read_types} types with a schema were read");
    refuse(
        &found,
        "a model sees these links as they are; give a `#[schemars(description = \"…\")]`, or say it plainly:",
    );
}

#[test]
fn lines_of_comments_are_short() {
    let mut found = Vec::new();
    for path in sources(root()) {
        for (i, line) in
            read(&path).lines().enumerate().filter(|(_, line)| words::is_too_long(line, COMMENT_WIDTH))
        {
            found.push(format!("{}:{}: {line}", shown(&path), i + 1));
        }
    }
    refuse(&found, &format!("wrap these comments at {COMMENT_WIDTH} characters:"));
}

/// The crates whose rooms and public types are looked at, by the name that the table has for them.
fn crates() -> Crates {
    let mut crates = Crates::default();
    for member in members() {
        let folder = folder(&member).join("src");
        if name(&member) != "entourage-macros" && folder.join("lib.rs").exists() {
            crates.add(name(&member), &|file| fs::read_to_string(folder.join(file)).ok());
        }
    }
    crates
}

#[test]
fn rooms_name_only_the_rooms_below_them() {
    let found = Rooms::read(TABLE).offences(&crates(), DEBTS);
    refuse(
        &found,
        "tests/architecture/rooms.txt says which rooms there are and which may name which. Move what is shared to the \
         lower room, or say in rooms.txt where a module belongs now; debts.txt may only shrink:",
    );
}

#[test]
fn the_ground_floor_is_small() {
    let (rooms, crates) = (Rooms::read(TABLE), crates());
    for (package, limit) in LINES {
        let lines = rooms.lines(&crates, package);
        println!("{package}: {lines} lines without tests (limit {limit})");
        assert!(
            lines <= *limit,
            "{package} has {lines} lines, {limit} are allowed; move something to a higher package"
        );
        assert!(
            lines + SLACK > *limit,
            "{package} has {lines} lines left of {limit}; lower it in LINES of tests/architecture.rs"
        );
    }
}

#[test]
fn the_public_types_do_not_grow() {
    let crates = crates();
    for (of, limit) in TYPES {
        let count = types::count(&crates, of);
        assert!(
            count <= *limit,
            "users can name {count} types of {of}, {limit} are allowed; make one private"
        );
        assert!(
            count == *limit,
            "users can name {count} types of {of}, {limit} are allowed; lower it in TYPES of tests/architecture.rs"
        );
    }
}

#[test]
fn public_types_have_names_of_their_own() {
    refuse(
        &types::doubles(&crates(), "entourage"),
        "users can name two types by each of these names; say in the name of one what sets it apart:",
    );
}

#[test]
fn a_module_with_modules_of_its_own_is_a_folder_with_mod_rs() {
    let found: Vec<_> = members()
        .iter()
        .flat_map(|member| sources(&folder(member).join("src")))
        .filter(|path| path.with_extension("").is_dir() && !path.ends_with("src/lib.rs"))
        .map(|path| shown(&path))
        .collect();
    refuse(&found, "a crate has one style of modules; move these to `mod.rs` in the folder beside them:");
}

#[test]
fn files_stay_readable() {
    let mut found = Vec::new();
    for member in members() {
        let sources_of = folder(&member).join("src");
        for path in sources(&sources_of) {
            let inside = path.strip_prefix(&sources_of).unwrap();
            if inside.iter().any(|part| part == "tests" || part == "tests.rs") {
                continue;
            }
            let lines = lines_without_tests(&read(&path));
            if lines > FILE_LIMIT && !LONG_FILES.iter().any(|(allowed, _)| *allowed == shown(&path)) {
                found.push(format!("{}: {lines} lines", shown(&path)));
            }
        }
    }
    refuse(
        &found,
        "split these along what they own (tests not counted), or give the reason in LONG_FILES of tests/architecture.rs:",
    );
    for (path, reason) in LONG_FILES {
        let lines = lines_without_tests(&read(&root().join(path)));
        assert!(lines > FILE_LIMIT, "{path} ({reason}) is short again: take it out of LONG_FILES");
    }
}
