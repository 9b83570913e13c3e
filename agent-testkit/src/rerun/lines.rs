//! Transcripts as lines of JSON: written, read, and changed before they are written. Pure.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Money, Result, Usage,
    bound::{self, EVENT, VALUE},
    message::Message,
    run::Status,
    tool::Labels,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    exact::Exact,
    transcript::{Transcript, TranscriptCall, TranscriptRun},
};

/// The version of the format.
const FORMAT: u32 = 1;
/// Most messages, runs and calls of one session, together.
pub(super) const MOST: usize = 100_000;
/// Most bytes of a call's place: the id of its session has 240, and its own numbers less than 60.
const PLACE: usize = 300;

/// One line of a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Transcript(Head),
    Given(Arc<Message>),
    Prompt(Prompt),
    Call(TranscriptCall),
    Answer(Answer),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    format: u32,
    name: String,
    session: String,
    steps: u64,
    #[serde(default, skip_serializing_if = "Usage::is_unknown")]
    usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<Money>,
    /// Number of lines behind this one; `None` where nobody counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lines: Option<usize>,
}

/// The part of the first line that every version has.
#[derive(Deserialize)]
struct Version<'a> {
    #[serde(borrow)]
    transcript: VersionOf<'a>,
}

#[derive(Deserialize)]
struct VersionOf<'a> {
    /// A number of any size.
    #[serde(borrow)]
    format: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prompt {
    agent: Arc<str>,
    message: Arc<Message>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    labels: Labels,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

fn lines(of: &Transcript) -> Vec<Line> {
    let Transcript { name, session, given, runs, calls, steps, usage, cost } = of;
    let (name, session) = (name.clone(), session.clone());
    let called: usize = calls.iter().filter(|call| call.run < runs.len()).count();
    let behind = [given.len(), runs.len(), runs.len(), called].into_iter().fold(0, usize::saturating_add);
    let mut lines = vec![Line::Transcript(Head {
        format: FORMAT,
        name,
        session,
        steps: *steps,
        usage: *usage,
        cost: *cost,
        lines: Some(behind),
    })];
    lines.extend(given.iter().map(|message| Line::Given(Arc::clone(message))));
    for (place, run) in runs.iter().enumerate() {
        let (agent, message) = (Arc::clone(&run.agent), Arc::clone(&run.prompt));
        lines.push(Line::Prompt(Prompt { agent, message, labels: run.labels }));
        lines.extend(calls.iter().filter(|call| call.run == place).cloned().map(Line::Call));
        lines.push(Line::Answer(Answer { text: run.answer.clone(), status: run.status.clone() }));
    }
    lines
}

pub(super) fn write(transcript: &Transcript) -> Result<String> {
    let mut text = String::new();
    for line in lines(transcript) {
        text.push_str(&json(&line)?);
        text.push('\n');
    }
    Ok(text)
}

fn json(line: &impl Serialize) -> Result<String> {
    serde_json::to_string(line).map_err(|error| {
        Error::new(ErrorKind::Internal, "a recorded session does not serialize").caused_by(error)
    })
}

/// Refuses a file that no session of tests has.
fn check_size(bytes: usize) -> Result<()> {
    if bytes <= EVENT {
        return Ok(());
    }
    let text = "a recorded session has at most 192 MiB; rerun a smaller session";
    Err(Error::new(ErrorKind::TooLarge, text))
}

pub(super) fn read(text: &str) -> Result<Transcript> {
    check_size(text.len())?;
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    collect(numbered.map(|(place, line)| {
        let line = if place == 0 { line.trim_start_matches('\u{feff}') } else { line };
        let read = if line.len() > VALUE { Err(too_much()) } else { parse(line) };
        read.map_err(|error| error.with("line", (place + 1).to_string()))
    }))
}

fn parse(line: &str) -> Result<Line> {
    if let Ok(Version { transcript: VersionOf { format } }) = serde_json::from_str(line)
        && format.get().parse::<f64>().is_ok_and(|format| format > f64::from(FORMAT))
    {
        let text = "the recorded session was written by a newer version; update this one, or record it again";
        return Err(Error::new(ErrorKind::NewerVersion, text)
            .with("format", bound::shortened(format.get(), bound::WORD).into_owned()));
    }
    serde_json::from_str(line).map_err(|error| {
        let text = "the line is none of a recorded session; see `Transcript::to_jsonl`";
        Error::new(ErrorKind::InvalidInput, text).caused_by(error)
    })
}

fn collect(lines: impl Iterator<Item = Result<Line>>) -> Result<Transcript> {
    let (mut read, mut behind, mut seen): (Option<Transcript>, _, usize) = (None, None, 0);
    for (count, line) in lines.enumerate() {
        if count > MOST {
            return Err(too_much());
        }
        seen = count;
        match (line?, &mut read) {
            (Line::Transcript(head), _) if head.format != FORMAT => {
                return Err(misplaced(&format!("there is no version {} of the format", head.format)));
            }
            (Line::Transcript(head), read @ None) => {
                let mut begun = Transcript::new(head.name);
                begun.session = head.session;
                (begun.steps, begun.usage, begun.cost) = (head.steps, head.usage, head.cost);
                behind = head.lines;
                *read = Some(begun);
            }
            (line, Some(read)) => {
                add(read, line).map_err(|error| error.with("line", (count + 1).to_string()))?;
            }
            (_, None) => return Err(misplaced("the first line is `transcript`")),
        }
    }
    match behind.filter(|behind| *behind != seen) {
        // A case with a part of its session would pass for the whole one.
        Some(behind) => Err(misplaced(&format!(
            "{seen} lines are behind the first one, which says {behind}; record it again, or leave `lines` out there"
        ))),
        None => read.ok_or_else(|| misplaced("it has no line")),
    }
}

fn add(read: &mut Transcript, line: Line) -> Result<()> {
    match line {
        Line::Given(message) if read.runs.is_empty() => read.given.push(message),
        Line::Prompt(Prompt { agent, message, labels }) => {
            let (answer, status) = (String::new(), None);
            read.runs.push(TranscriptRun { agent, prompt: message, labels, answer, status });
        }
        // Each place above it is looked for.
        Line::Call(call) if call.place.len() > PLACE => {
            return Err(misplaced(&format!("the `place` of a call has at most {PLACE} bytes")));
        }
        Line::Call(call) => {
            let run = read.runs.len().checked_sub(1);
            let run = run.ok_or_else(|| misplaced("a `call` comes after its `prompt`"))?;
            read.calls.push(TranscriptCall { run, ..call });
        }
        Line::Answer(Answer { text, status }) => {
            let run = read.runs.last_mut();
            let run = run.ok_or_else(|| misplaced("an `answer` comes after its `prompt`"))?;
            (run.answer, run.status) = (text, status);
        }
        Line::Given(_) => return Err(misplaced("a `given` comes before all prompts")),
        Line::Transcript(_) => return Err(misplaced("there is one line `transcript`")),
    }
    Ok(())
}

fn misplaced(rule: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("this is no recorded session: {rule}"))
}

pub(super) fn too_much() -> Error {
    let text = "a recorded session has at most 100,000 runs and calls, 32 MiB a line and 192 MiB; rerun a smaller one";
    Error::new(ErrorKind::TooLarge, text)
}

/// Returns a copy with each text changed.
pub(super) fn changed(transcript: &Transcript, change: &dyn Fn(&str) -> String) -> Result<Transcript> {
    let changed = collect(lines(transcript).iter().enumerate().map(|(place, line)| {
        changed_line(line, change).map_err(|error| error.with("line", (place + 1).to_string()))
    }))?;
    // Whatever was changed, and wherever: the file is what counts.
    let text = write(&changed)?;
    if change(&text) == text {
        return Ok(changed);
    }
    let error = stands();
    match text.lines().position(|line| change(line) != line) {
        Some(place) => Err(error.with("line", (place + 1).to_string())),
        None => Err(error),
    }
}

fn changed_line(line: &Line, change: &dyn Fn(&str) -> String) -> Result<Line> {
    let value = Exact::parse(&json(line)?);
    let value = value.ok_or_else(|| Error::new(ErrorKind::Internal, "a recorded session is no JSON"))?;
    let (mut fixed, mut text) = (None, String::new());
    value.change(change, &mut fixed).write(&mut text);
    let read = serde_json::from_str(&text).map_err(|error| {
        let text = "a changed text no longer fits its place; change only what users, tools and models wrote";
        Error::new(ErrorKind::InvalidInput, text).caused_by(error)
    })?;
    match fixed {
        Some(place) => Err(stands().with("place", place)),
        None => Ok(read),
    }
}

/// Returns a text in which `other` stands for each place that these texts take. Places that overlap are one, so that no
/// part of a text is left, whatever the order.
pub(super) fn without(text: &str, hidden: &[String], other: &str) -> String {
    let find = |hidden: &str, from: usize| Some(from + text.get(from..)?.find(hidden)?);
    // The next place of each, and no list of all: a letter has as many places as a file has letters.
    let mut next: Vec<_> = hidden.iter().map(|hidden| (find(hidden, 0), hidden)).collect();
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    loop {
        let found = next.iter_mut().filter_map(|(at, hidden)| Some(((*at)?, at, hidden)));
        let Some((begin, at, hidden)) = found.min_by_key(|(begin, ..)| *begin) else { break };
        if begin >= done {
            out.push_str(text.get(done..begin).unwrap_or_default());
            out.push_str(other);
        }
        done = done.max(begin + hidden.len());
        // The next one may overlap this one.
        *at = find(hidden, begin + hidden.chars().next().map_or(1, char::len_utf8));
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

fn stands() -> Error {
    let text = "a text to take out would still stand in the file: in a key or a figure of the format, across several \
        texts, or in what was put in its place; take out a longer text, change the figure, or put another text there";
    Error::new(ErrorKind::InvalidInput, text)
}
