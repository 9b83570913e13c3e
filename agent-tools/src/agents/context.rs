//! Context files of agents: which a file may name, and their text. Blocking.

use std::{
    io,
    path::{Component, Path},
};

use cap_fs_ext::DirExt;
use cap_std::{ambient_authority, fs::Dir};
use entourage_core::{Error, ErrorKind, Result, context::ContextFile};
use serde_json::Value;

use super::AgentFile;
use crate::{
    held::{self, Fault},
    invisible::{line, shortened, visible},
    project,
};

/// Most bytes of one file of a project, and of all; most files.
const FILE: usize = 64 << 10;
const TOTAL: usize = 256 << 10;
const COUNT: usize = 200;
/// Most characters of a path that an error repeats.
const ECHO: usize = 80;

/// Returns the instructions of `file` with the text of its context files. `root` is that of the project.
pub(super) fn complete(file: &AgentFile, root: Option<&Path>) -> Result<String> {
    let Some(paths) = paths(file)? else { return Ok(file.instructions.clone()) };
    let found = match (file.from_project, root) {
        (true, Some(root)) => of_project(file, root, &paths)?,
        (true, None) => return Err(wrong(file, "the project of its context files is not known; set it")),
        (false, root) => project::context_files(root.unwrap_or(Path::new(".")), &paths)?,
    };
    let mut text = file.instructions.clone();
    for file in found {
        let content = visible(&file.content);
        text.push_str(&format!("\n\nThe file `{}` says:\n\n{}", line(&file.path), content.trim()));
    }
    Ok(text)
}

fn wrong(file: &AgentFile, text: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("`{}`: {text}", file.path)).during("agents.context")
}

fn echo(path: &str) -> String {
    shortened(&line(path), ECHO)
}

fn paths(file: &AgentFile) -> Result<Option<Vec<String>>> {
    let no_list = || wrong(file, "`context` is no list of paths; write one");
    let paths: Vec<String> = match file.settings.get("context") {
        None => return Ok(None),
        Some(Value::String(text)) => text.split(',').map(|it| it.trim().to_owned()).collect(),
        Some(Value::Array(values)) => {
            let texts = values.iter().map(|it| it.as_str().map(str::to_owned));
            texts.collect::<Option<_>>().ok_or_else(no_list)?
        }
        Some(_) => return Err(no_list()),
    };
    if paths.len() > COUNT {
        return Err(wrong(file, format!("`context` has more than {COUNT} paths; name fewer")));
    }
    Ok(Some(paths))
}

/// Reads files of a project that one of its own files names. No link is followed, since it could give a secret another
/// name.
fn of_project(file: &AgentFile, root: &Path, paths: &[String]) -> Result<Vec<ContextFile>> {
    let mut paths: Vec<&String> = paths.iter().collect();
    paths.sort();
    paths.dedup();
    let root = std::fs::canonicalize(root).and_then(|root| Dir::open_ambient_dir(root, ambient_authority()));
    let root = root.map_err(|error| wrong(file, format!("its project cannot be opened: {error}")))?;
    let (mut found, mut left) = (Vec::new(), TOTAL);
    for path in paths {
        if !is_prose_inside(path) {
            let text = "is none that an agent of a project may name; name a text of the project, such as \
                        `docs/rules.md`";
            return Err(wrong(file, format!("the context file `{}` {text}", echo(path))));
        }
        let content = match read(&root, Path::new(path), left.min(FILE)) {
            Ok(content) => content,
            Err(Fault::System(error)) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(fault) => return Err(wrong(file, format!("the context file `{}`: {fault}", echo(path)))),
        };
        left = left.saturating_sub(content.len());
        found.push(ContextFile::new(path.as_str(), content));
    }
    Ok(found)
}

/// True for a path into the project, by its words, whose name ends as those of texts do.
fn is_prose_inside(path: &str) -> bool {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let is_plain = Path::new(path).components().all(is_plain);
    is_plain && !path.starts_with('~') && !path.contains(['$', '\\']) && project::is_prose(Path::new(path))
}

fn read(root: &Dir, path: &Path, most: usize) -> std::result::Result<String, Fault> {
    let name = path.file_name().ok_or(Fault::NoFile)?;
    let start = root.try_clone().map_err(Fault::System)?;
    let names =
        path.parent().into_iter().flat_map(Path::components).filter(|part| *part != Component::CurDir);
    let dir = names.into_iter().try_fold(start, |dir, part| dir.open_dir_nofollow(part.as_os_str()));
    let mut content = held::content(&dir.map_err(Fault::System)?, Path::new(name), most)?;
    let is_cut = content.start.len() > most;
    content.start.truncate(most);
    let mut text = String::from_utf8_lossy(&content.start).into_owned();
    if is_cut {
        text.push_str(&format!("\n[cut: the file has {} bytes, these are the first {most}]", content.size));
    }
    Ok(text)
}
