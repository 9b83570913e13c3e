//! The tool by which an agent asks its user.

use async_trait::async_trait;
use entourage_core::{
    Error, Result,
    event::plain_line,
    run::RunContext,
    tool::{Access, LayerVerdict, Tool, ToolLayer, ToolSpec, schema_of},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{external::external, layered::layered};

/// Name of the tool.
const QUESTION: &str = "question";
/// Questions of one call.
const MOST: usize = 5;
/// Characters of a question, options of a question, and characters of an option.
const LONGEST: usize = 2_000;
const OPTIONS: usize = 20;
const OPTION: usize = 200;

const DESCRIPTION: &str = "Asks the user 1 to 5 questions and waits for the answers, which may take long. Ask only what \
    you cannot find out and cannot decide yourself, and all that you need at once.";

/// One question to the user, of a call of [`question`].
///
/// ```
/// use entourage_runners::{Question, QuestionKind};
///
/// let arguments = r#"{"questions": [{"text": "Which one?", "kind": "single", "options": ["a", "b"]}]}"#;
/// let asked = Question::all(arguments);
/// assert_eq!((asked[0].kind, asked[0].options.len()), (QuestionKind::Single, 2));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "One question to the user.")]
#[non_exhaustive]
pub struct Question {
    /// The question.
    pub text: String,
    /// The kind of answer.
    pub kind: QuestionKind,
    /// The answers to choose from, for the kinds `single` and `multi`.
    #[serde(default)]
    pub options: Vec<String>,
}

/// The kind of answer that a [`Question`] wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "The kind of answer that a question wants.")]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// Yes or no.
    YesNo,
    /// One of the options.
    Single,
    /// Any number of the options.
    Multi,
    /// A text.
    Text,
}

/// The arguments. Some models write a list as a text that holds it.
#[derive(Debug, Deserialize, JsonSchema)]
struct Asked {
    /// The questions.
    #[schemars(extend("type" = ["array", "string"], "minItems" = 1, "maxItems" = MOST))]
    questions: Vec<Question>,
}

impl Question {
    /// Returns the questions of a call, from its arguments as [`Waiting::Call`](entourage_runtime::Waiting) has them;
    /// none if they are not those of [`question`].
    #[must_use]
    pub fn all(arguments: &str) -> Vec<Self> {
        let decoded = serde_json::from_str(arguments).map(decoded);
        let asked = decoded.and_then(serde_json::from_value::<Asked>);
        asked.map(|asked| asked.questions).unwrap_or_default().into_iter().map(Self::plain).collect()
    }

    /// The same question with texts of one line each, without characters that control a terminal or hide text.
    fn plain(mut self) -> Self {
        self.text = plain_line(&self.text);
        self.options.iter_mut().for_each(|option| *option = plain_line(option));
        self
    }

    fn problem(&self) -> Option<String> {
        let chooses = matches!(self.kind, QuestionKind::Single | QuestionKind::Multi);
        let is_long = |text: &String, most: usize| text.chars().nth(most).is_some();
        let twice =
            || (1..).zip(&self.options).any(|(next, one)| self.options.iter().skip(next).any(|it| it == one));
        Some(match self {
            _ if self.text.is_empty() => "has no text".to_owned(),
            _ if is_long(&self.text, LONGEST) => format!("is longer than {LONGEST} characters"),
            _ if chooses && self.options.len() < 2 => {
                "needs at least two options, or another kind".to_owned()
            }
            _ if !chooses && !self.options.is_empty() => {
                "has options, which its kind does not take".to_owned()
            }
            _ if self.options.len() > OPTIONS => format!("has more than {OPTIONS} options"),
            _ if self.options.iter().any(String::is_empty) => "has an option without a text".to_owned(),
            _ if self.options.iter().any(|option| is_long(option, OPTION)) => {
                format!("has an option of more than {OPTION} characters")
            }
            _ if twice() => "has an option twice".to_owned(),
            _ => return None,
        })
    }
}

/// Makes the tool `question`, by which a model asks its user 1 to 5 questions.
///
/// A call is handed out like that of any [external](crate::external) tool: the run pauses, `Session::pending` lists the
/// call, whose arguments [`Question::all`] reads, and `Session::answer` gives the answers from any process, days later,
/// as a text that the model reads, such as one line for each question. To end the run instead, answer with
/// `ToolOutput::error("…").stopping()`.
///
/// Only an agent that runs at the top of its tree can ask; agents below it are told to decide or to report back. Wrong
/// questions are refused before anybody sees them: a choice without options or with one twice, a text of more than
/// 2,000 characters, more than 20 options or 200 characters of one. Texts are shown on one line, without characters
/// that control a terminal or hide text.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::{Question, ReactAgent, question};
/// use entourage_runtime::{Runtime, Waiting};
/// use entourage_testkit::ScriptedProvider;
/// use serde_json::json;
///
/// let asked = json!({"questions": [{"text": "May I delete it?", "kind": "yes_no"}]});
/// let provider = ScriptedProvider::new().call("question", asked).text("Kept.");
/// let agent = ReactAgent::builder("clerk", provider.model()).tool(question()).build()?;
/// let runtime = Runtime::in_memory();
/// let session = runtime.session();
/// session.start(&agent, "Tidy up").outcome().await?;
///
/// let pending = runtime.pending().await?;
/// let Waiting::Call { id, call } = &pending[0].waits_for else { panic!() };
/// assert_eq!(Question::all(call.arguments.as_str())[0].text, "May I delete it?");
/// session.answer(id, "No.").await?;
/// assert_eq!(session.resume(&agent).outcome().await?.text, "Kept.");
/// # Ok::<_, entourage_core::Error>(())
/// # }).unwrap();
/// ```
pub fn question() -> impl Tool {
    let spec = ToolSpec::new(QUESTION, DESCRIPTION, schema_of::<Asked>()).with_access(Access::ASK);
    layered(external(spec), Checked)
}

/// Refuses questions that nobody could answer, and reads lists that came as a text.
#[derive(Debug)]
struct Checked;

#[async_trait]
impl ToolLayer for Checked {
    async fn before(&self, _: &ToolSpec, arguments: &mut Value, cx: &RunContext) -> Result<LayerVerdict> {
        if cx.parent().is_some() {
            let text = "only the agent that talks with the user can ask; decide yourself, or return the question as \
                        your answer";
            return Ok(LayerVerdict::Refuse(text.to_owned()));
        }
        *arguments = decoded(std::mem::take(arguments));
        let refused = |text: String| Ok(LayerVerdict::Refuse(text));
        let asked: Asked = match serde_json::from_value(arguments.clone()) {
            Ok(asked) => asked,
            Err(error) => return refused(format!("the questions cannot be read: {error}")),
        };
        if !(1..=MOST).contains(&asked.questions.len()) {
            return refused(format!("ask 1 to {MOST} questions; these are {}", asked.questions.len()));
        }
        let questions: Vec<_> = asked.questions.into_iter().map(Question::plain).collect();
        let problem =
            questions.iter().zip(1..).find_map(|(question, number)| Some((number, question.problem()?)));
        if let Some((number, problem)) = problem {
            return refused(format!("question {number} {problem}"));
        }
        if let Some(shown) = arguments.get_mut("questions") {
            *shown = serde_json::to_value(questions).map_err(Error::from)?;
        }
        Ok(LayerVerdict::Pass)
    }
}

/// Returns the arguments with the list of questions as a list, if it is a text that holds one.
fn decoded(mut arguments: Value) -> Value {
    if let Some(questions) = arguments.get_mut("questions")
        && let Some(list) =
            questions.as_str().and_then(|text| entourage_core::message::parse_value(text).ok())
    {
        *questions = list;
    }
    arguments
}
