//! The skills as a prompt lists them. Pure.

use super::{
    Skill,
    document::{self, shortened},
};

/// Most bytes of a listing, and most skills in it.
const BYTES: usize = 32 << 10;
const SKILLS: usize = 200;
/// The lengths of descriptions, in characters, of which the first with room for all skills is taken.
const LENGTHS: [usize; 6] = [1_024, 512, 256, 128, 64, 32];

const HEAD: &str = "Skills are instructions for tasks of one kind. Before you begin a task that the description of a skill \
    fits, load the skill: call the tool `skill` with its name, or `view` with its path where you have no such tool.\n";

pub(super) fn text<'a>(skills: impl Iterator<Item = &'a Skill>) -> String {
    let skills: Vec<_> = skills.collect();
    if skills.is_empty() {
        return String::new();
    }
    let mut text = HEAD.to_owned();
    // Room for the note below.
    let room = BYTES.saturating_sub(text.len()).saturating_sub(128);
    let size =
        |length: &usize| skills.iter().map(|skill| line(skill, *length).len()).fold(0, usize::saturating_add);
    let length = LENGTHS.into_iter().find(|length| size(length) <= room).unwrap_or(32);
    let mut left = room;
    let mut listed = 0_usize;
    for skill in skills.iter().take(SKILLS) {
        let line = line(skill, length);
        let Some(rest) = left.checked_sub(line.len()) else { break };
        left = rest;
        listed = listed.saturating_add(1);
        text.push_str(&line);
    }
    match skills.len().saturating_sub(listed) {
        0 => {}
        more => text.push_str(&format!(
            "[{more} more are left out, since a listing has at most 200 skills and 32 KiB]\n"
        )),
    }
    text.truncate(text.trim_end().len());
    text
}

fn line(skill: &Skill, length: usize) -> String {
    let Skill { name, description, path, .. } = skill;
    format!("- {name} (`{}`): {}\n", document::line(path), shortened(description, length))
}
