//! Folders of agents on the disk, from the user's to the project's. Blocking.

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path, PathBuf},
};

use cap_fs_ext::DirExt;
use cap_std::{ambient_authority, fs::Dir};

use super::{
    AgentFile, FoundAgents,
    document::{self, Form, LARGEST},
};
use crate::{
    held::{self, entries, shown},
    invisible::line,
};

/// Most entries of a folder.
const ENTRIES: usize = 1_000;
/// Most agents of a folder.
const AGENTS: usize = 200;

/// The agents of all folders by name, those of a later folder in place of earlier ones.
pub(super) fn read(user: &[PathBuf], project: Option<&(PathBuf, Vec<PathBuf>)>) -> FoundAgents {
    let mut found = FoundAgents::default();
    let users = user.iter().map(|path| (path.clone(), false, open(path)));
    let projects = project.into_iter().flat_map(|(root, folders)| folders.iter().map(move |it| (root, it)));
    let projects = projects
        .map(|(root, folder)| (root.join(folder), true, open(root).and_then(|dir| inside(dir, folder))));
    for (path, from_project, dir) in users.chain(projects) {
        match dir {
            Ok(dir) => folder(&dir, &path, from_project, &mut found),
            // A list names folders that may be there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let text =
                    format!("cannot be opened as a folder of agents: {error}; name one that can be read");
                unread(&path, &text, &mut found);
            }
        }
    }
    found
}

/// Notes the problem of a folder of which no agent was read. It may describe any agent of an earlier folder anew, so
/// none of those holds.
fn unread(path: &Path, text: &str, found: &mut FoundAgents) {
    let path = shown(path);
    for (name, agent) in &mut found.agents {
        *agent = Err(format!("`{path}` may describe `{name}` anew, and {text}"));
    }
    found.problems.push(format!("`{path}` {text}"));
}

fn open(path: &Path) -> io::Result<Dir> {
    Dir::open_ambient_dir(std::fs::canonicalize(path)?, ambient_authority())
}

/// A folder below `dir`, without following a link.
fn inside(dir: Dir, folder: &Path) -> io::Result<Dir> {
    folder.components().filter(|part| *part != Component::CurDir).try_fold(dir, |dir, part| match part {
        Component::Normal(name) => dir.open_dir_nofollow(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the folder is no path in the project")),
    })
}

fn folder(dir: &Dir, path: &Path, from_project: bool, found: &mut FoundAgents) {
    let names = match entries(dir, &mut { ENTRIES }) {
        Ok(Some(names)) => names,
        Ok(None) => {
            return unread(path, "has more than 1,000 entries, so no agent of it was read; split it", found);
        }
        Err(error) => {
            return unread(path, &format!("cannot be listed: {error}; change its permissions"), found);
        }
    };
    let names = names.into_iter().filter(|(_, kind)| !kind.is_dir());
    let names: Vec<_> = names.map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    let mut here: BTreeMap<String, Result<AgentFile, String>> = BTreeMap::new();
    // Those beyond the bound.
    let mut over = BTreeMap::new();
    let mut is_cut = false;
    for (file, stem, form) in names.iter().filter_map(|it| Form::of(it).map(|(stem, form)| (it, stem, form)))
    {
        let at = shown(&path.join(file));
        if let Err(problem) = document::check_name(stem) {
            found.problems.push(format!("`{at}`: {problem}"));
            continue;
        }
        if here.len() >= AGENTS {
            let text = format!("has more than {AGENTS} agents, so the others were not read; split it");
            if !std::mem::replace(&mut is_cut, true) {
                found.problems.push(format!("`{}` {text}", shown(path)));
            }
            // It overrides one that was read all the same.
            if here.contains_key(stem) || found.agents.contains_key(stem) {
                over.insert(stem.to_owned(), Err(format!("`{at}` was not read: its folder {text}")));
            }
            continue;
        }
        let one = match here.contains_key(stem) {
            true => Err(format!("`{at}`: another file of this folder has the same name; keep one of them")),
            false => file_of(dir, file, stem, form, (&at, from_project))
                .map_err(|problem| format!("`{at}`: {problem}")),
        };
        here.insert(stem.to_owned(), one);
    }
    found.agents.extend(here.into_iter().chain(over));
}

fn file_of(
    dir: &Dir,
    file: &str,
    name: &str,
    form: Form,
    (path, from_project): (&str, bool),
) -> Result<AgentFile, String> {
    let content = held::content(dir, Path::new(file), LARGEST).map_err(|fault| fault.to_string())?;
    if content.start.len() > LARGEST {
        let text = "the most is 64 KiB, so move parts of it to files under `context`";
        return Err(format!("the file has {} bytes; {text}", content.size));
    }
    let (mut settings, instructions) = document::read(name, form, &content.start)?;
    if let Some(serde_json::Value::String(text)) = settings.get_mut("description") {
        *text = line(text);
    }
    Ok(AgentFile { name: name.to_owned(), path: path.to_owned(), from_project, settings, instructions })
}
