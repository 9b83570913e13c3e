//! What a test needs of a session: prompts and answers, calls of tools with their results, and figures.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Money, Result, Usage,
    bound::EVENT,
    message::{Arguments, Content, Message},
    run::Status,
    session::SharedStore,
    tool::Labels,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{lines, read};

/// Extension of the files that [`Transcript::load_all`] reads.
const EXTENSION: &str = "jsonl";

/// Most files of a folder.
const MOST_FILES: usize = 10_000;

/// A session with the sessions below it, as tests see it.
///
/// # Contents
/// The prompts and answers of the session, a conversation that it began with, and each call of a tool in the session
/// and those below it: arguments and results, word for word. So it holds whatever users, tools and models wrote there,
/// secrets too. It holds no instructions, no reasoning, no messages between agents, and no replies between two calls.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Transcript {
    /// Name of the case: the id of the session, or the name of its file.
    pub name: String,
    /// Id of the session.
    pub session: String,
    /// Conversation that the session began with.
    pub given: Vec<Arc<Message>>,
    /// The runs of the session, in order.
    pub runs: Vec<TranscriptRun>,
    /// The calls of tools, of sessions below it too, in the order in which they began.
    pub calls: Vec<TranscriptCall>,
    /// Number of model calls, those of agents below included. Those for a title are left out here and below.
    pub steps: u64,
    /// Tokens of the model calls, as far as services reported them.
    pub usage: Usage,
    /// Cost of the model calls; `None` when the cost of any is unknown.
    pub cost: Option<Money>,
}

/// One run of a session, from its prompt to its answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TranscriptRun {
    /// The agent's name.
    pub agent: Arc<str>,
    /// The prompt, with those that joined the run later.
    pub prompt: Arc<Message>,
    /// Labels of the prompt.
    pub labels: Labels,
    /// The answer; empty without one.
    pub answer: String,
    /// Status at the end; paused for a run that waits, `None` for one that its process left.
    pub status: Option<Status>,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TranscriptCall {
    /// Index of the run that it belongs to, itself or through agents below; 0 before the first one.
    #[serde(skip)]
    pub run: usize,
    /// The agents from the root down, joined by `/`.
    pub agent: Arc<str>,
    /// Place in the tree of sessions. The place of a call that ran an agent begins those of all calls of that agent,
    /// before a `.` or a `$`. Empty in files of earlier versions.
    #[serde(default = "nowhere", skip_serializing_if = "str::is_empty")]
    pub place: Arc<str>,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// Arguments as the model wrote them. `None` for a call of a hand-written agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
    /// Result as the model saw it; empty while there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Content>,
    /// True if the result is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// True if the result is that of the tool, of a person or of a rule. Only such a call answers those of a rerun.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub is_answered: bool,
    /// True if the turn ended with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_turn: bool,
    /// Data for programs.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "metadata")]
    pub metadata: Option<Value>,
    /// Labels of the result.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Failure that ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fatal: Option<ErrorRecord>,
}

fn nowhere() -> Arc<str> {
    "".into()
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(yes: &bool) -> bool {
    *yes
}

/// A value with any keys, those of the serializer among them.
#[derive(Deserialize)]
struct Plain(#[serde(deserialize_with = "entourage_core::message::deserialize_value")] Value);

fn metadata<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Ok(Option::<Plain>::deserialize(from)?.map(|Plain(value)| value))
}

impl TranscriptCall {
    /// Returns the text of its result, pieces joined by line breaks.
    #[must_use]
    pub fn text(&self) -> String {
        self.content.iter().map(Content::as_text).collect::<Vec<_>>().join("\n")
    }
}

impl Transcript {
    /// Creates an empty transcript, of a session without runs.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let (given, runs, calls) = (Vec::new(), Vec::new(), Vec::new());
        let (session, usage, cost) = (String::new(), Usage::default(), Some(Money::default()));
        Self { name: name.into(), session, given, runs, calls, steps: 0, usage, cost }
    }

    /// Reads a session of a store, and those below it. `id` is its id, or a beginning that no other has. Nothing is
    /// written.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for no such session, [`ErrorKind::InvalidInput`] for several, and for a session below
    /// another one, [`ErrorKind::TooLarge`] for more than 100,000 runs and calls or 192 MiB, the store's.
    pub async fn read(store: &SharedStore, id: &str) -> Result<Self> {
        Box::pin(read::read(store, id)).await
    }

    /// Reads what [`Transcript::to_jsonl`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a line that is none, with its number, and for a file that was cut,
    /// [`ErrorKind::NewerVersion`] for a file of a newer version, [`ErrorKind::TooLarge`] for more than 192 MiB.
    pub fn from_jsonl(text: &str) -> Result<Self> {
        lines::read(text)
    }

    /// Returns the transcript as lines of JSON: first its name, figures and the number of other lines, then a line for
    /// each message of the conversation that it began with, each prompt, each call, and each answer.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when a value does not serialize.
    pub fn to_jsonl(&self) -> Result<String> {
        lines::write(self)
    }

    /// Reads a file of [`Transcript::to_jsonl`]. The case is named after the file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when the file cannot be read, [`ErrorKind::InvalidInput`] for what is none, such as a
    /// pipe, and those of [`Transcript::from_jsonl`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let named = |error: Error| error.with("file", path.display().to_string());
        let most = u64::try_from(EVENT).unwrap_or(u64::MAX).saturating_add(1);
        let mut text = String::new();
        // A pipe would be waited for.
        if !fs::metadata(path).map_err(|error| named(unreadable(error)))?.is_file() {
            return Err(named(Error::new(ErrorKind::InvalidInput, "a recorded session is a file")));
        }
        let read = File::open(path).and_then(|file| file.take(most).read_to_string(&mut text));
        read.map_err(|error| named(unreadable(error)))?;
        let mut read = Self::from_jsonl(&text).map_err(named)?;
        if let Some(name) = path.file_stem() {
            read.name = name.to_string_lossy().into_owned();
        }
        Ok(read)
    }

    /// Reads all files of a folder whose names end in `.jsonl`, in the order of their names.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when the folder cannot be read or has no such file, those of [`Transcript::load`].
    pub fn load_all(folder: impl AsRef<Path>) -> Result<Vec<Self>> {
        let folder = folder.as_ref();
        let named = |error: Error| error.with("folder", folder.display().to_string());
        let entries = fs::read_dir(folder).map_err(|error| named(unreadable(error)))?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<PathBuf>, _>>();
        let mut paths = paths.map_err(|error| named(unreadable(error)))?;
        paths.retain(|path| path.extension().is_some_and(|it| it == EXTENSION));
        if paths.len() > MOST_FILES {
            let text = "a set has at most 10,000 sessions; load some of its files with `Transcript::load`";
            return Err(named(Error::new(ErrorKind::TooLarge, text)));
        }
        paths.sort();
        if paths.is_empty() {
            let text = "the folder has no session; write one there with `Transcript::to_jsonl`, as `….jsonl`";
            return Err(named(Error::new(ErrorKind::NotFound, text)));
        }
        paths.iter().map(Self::load).collect()
    }

    /// Returns a copy in which `other` stands for each of these texts, wherever they are: the place to take secrets out
    /// before a transcript is written. All are taken out at once, in whatever order: one that holds or overlaps another
    /// leaves no part of itself. Empty ones are left out.
    ///
    /// ```
    /// use entourage_core::message::Message;
    /// use entourage_testkit::rerun::Transcript;
    ///
    /// let mut session = Transcript::new("login");
    /// session.given.push(Message::user("The key is sk-live-9f8e.").into());
    /// let hidden = session.hiding(["sk-live", "sk-live-9f8e"], "…").unwrap();
    /// assert_eq!(hidden.given[0].text(), "The key is ….");
    /// ```
    ///
    /// # Errors
    /// Those of [`Transcript::with_texts`].
    pub fn hiding<S: Into<String>>(&self, texts: impl IntoIterator<Item = S>, other: &str) -> Result<Self> {
        let texts: Vec<String> = texts.into_iter().map(Into::into).filter(|text| !text.is_empty()).collect();
        self.with_texts(|text| lines::without(text, &texts, other))
    }

    /// Returns a copy in which `change` was applied to each text: prompts, arguments, results, answers, names. To take
    /// secrets out, use [`Transcript::hiding`].
    ///
    /// Keys and numbers in arguments, and in data for programs, are texts too: a number that changes becomes a text.
    /// Those of the format itself stay. `change` is applied to the whole file at last, where it must find nothing more
    /// to change: so it takes texts out, wherever they are, and does not shorten or wrap those that it is given. A
    /// secret in another form, such as in base64 or escaped in a text that holds JSON, is another text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`], with the line, when a changed text no longer fits its place, such as the type of a
    /// file, and when what `change` takes out would still stand in the file.
    pub fn with_texts(&self, change: impl Fn(&str) -> String) -> Result<Self> {
        lines::changed(self, &change)
    }

    /// Changes the name of the case.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The answer of the last run; empty without one.
    #[must_use]
    pub fn answer(&self) -> &str {
        self.runs.last().map_or("", |run| run.answer.as_str())
    }

    /// The status of the last run; `None` without a run, and for one that its process left.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        self.runs.last().and_then(|run| run.status.as_ref())
    }

    /// True if there is a run, and all runs completed.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| run.status == Some(Status::Completed))
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(ErrorKind::NotFound, "the recorded sessions cannot be read; check the path").caused_by(error)
}
