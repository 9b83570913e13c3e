//! The recordings, which are outside the repository: in `CASSETTES_DIR`, else in `../shared/cassettes` beside it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::wires::Wire;

pub(crate) struct Sequence {
    pub(crate) id: String,
    pub(crate) interactions: Vec<Interaction>,
}

pub(crate) struct Interaction {
    pub(crate) protocol: String,
    pub(crate) wire: Wire,
    pub(crate) path: String,
    pub(crate) request: Value,
    pub(crate) status: u16,
    /// The content type of the reply, if it was kept.
    pub(crate) kind: String,
    pub(crate) body: Vec<u8>,
    pub(crate) expect: Value,
}

pub(crate) fn folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cassettes");
    std::env::var_os("CASSETTES_DIR").map_or(beside, PathBuf::from)
}

/// Writes the lines for `compare_cassettes.py` to the file named by `CASSETTES_OUT`, else `target/cassettes.jsonl`.
pub(crate) fn write_results(lines: &str) {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/cassettes.jsonl");
    let file = std::env::var_os("CASSETTES_OUT").map_or(beside, PathBuf::from);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, lines).unwrap();
}

/// All sequences below `folder`, in the order of their names; `None` if there is no such folder.
pub(crate) fn read(folder: &Path) -> Option<Vec<Sequence>> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    Some(files.iter().map(|file| sequence(file)).collect())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Option<()> {
    for entry in fs::read_dir(folder).ok()? {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "json") {
            files.push(path);
        }
    }
    Some(())
}

fn sequence(file: &Path) -> Sequence {
    let mut value: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (protocol, provider) = (word(&value["protocol"]), word(&value["provider"]));
    let interactions = value["interactions"].as_array_mut().unwrap().drain(..);
    let interactions = interactions.map(|mut one| {
        let protocol = one["protocol"].as_str().unwrap_or(&protocol).to_owned();
        let text = one["response"]["body"].as_str().unwrap_or_default();
        assert_ne!(one["response"]["base64"], Value::Bool(true), "{}: no body is binary", file.display());
        Interaction {
            wire: Wire::named(&protocol, &provider),
            protocol,
            path: word(&one["request"]["path"]),
            status: u16::try_from(one["response"]["status"].as_u64().unwrap()).unwrap(),
            kind: word(&one["response"]["headers"]["content-type"]),
            body: text.as_bytes().to_vec(),
            request: one["request"]["body"].take(),
            expect: one["expect"].take(),
        }
    });
    let interactions = interactions.collect();
    Sequence { id: word(&value["id"]), interactions }
}
