//! Reports that are kept for a time, so that the same question need not be looked into again.
//!
//! They are recorded values of a session of their own. A research reads and writes them by two tools, so that its own
//! record holds what it was answered, and a resumed run is answered the same.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, Result, Timestamp,
    event::{Envelope, Record, weigh_plain},
    run::{Outcome, RunContext},
    session::SessionState,
    tool::{Access, Labels, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools},
};
use entourage_runtime::Session;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::shelf::{Likeness, Shelf};

/// Least likeness of two questions with the same answer.
const ALIKE: f64 = 0.85;

/// Time for which a report is used.
const FRESH: Duration = Duration::from_secs(3_600);

/// Most bytes of a question and its report: a tool's result of more would be cut.
const LONGEST: usize = 200 << 10;

/// Most bytes of a question, which is compared with all that are kept. A longer one is none of two in an hour.
const QUESTION: usize = 8 << 10;

/// Most events of the session that are read for a question, newest first. One report has about six.
const WINDOW: u64 = 6_000;

const RECALL: &str = "research_recall";
const KEEP: &str = "research_keep";

/// The cache as the tools of a research.
pub(super) struct Cache {
    shelf: Shelf,
    tools: Tools,
}

impl Cache {
    pub(super) fn new(session: Session, likeness: Likeness) -> Result<Self> {
        let (shelf, question) = (Shelf::new(session, WINDOW), json!({ "type": "string" }));
        let spec = |name: &str, description: &str, keys: &[&str]| {
            let properties: serde_json::Map<_, _> =
                keys.iter().map(|key| ((*key).to_owned(), question.clone())).collect();
            let schema = json!({ "type": "object", "properties": properties, "required": keys });
            // Asked for by the runner alone, of its own reports.
            ToolSpec::new(name, description, schema).with_access(Access::NONE).with_repeat(Repeat::Idempotent)
        };
        let recall = Recall {
            spec: spec(RECALL, "Returns the report on a question like this one.", &["question"]),
            shelf: shelf.clone(),
            likeness,
        };
        let keep = Keep {
            spec: spec(KEEP, "Keeps the report on a question.", &["question", "report"]),
            shelf: shelf.clone(),
        };
        let tools = Tools::new([Arc::new(recall) as Arc<dyn Tool>, Arc::new(keep)])?;
        Ok(Self { shelf, tools })
    }

    pub(super) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Checks that the run is not within the cache's own session, where a report would wait for the run to end.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](entourage_core::ErrorKind::Config) if it is.
    pub(super) fn check(&self, cx: &RunContext) -> Result<()> {
        let text = "the cache of the research is the session that it runs in; give it a session of its own, one for \
                    each project";
        self.shelf.check(cx.session(), text)
    }

    /// Returns the report that is kept for a question like this one, if there is one. A cache that cannot be read has
    /// none.
    ///
    /// # Errors
    /// Those of the effect: a cancel, a pause, a store's error.
    pub(super) async fn recall(&self, question: &str, cx: &RunContext) -> Result<Option<String>> {
        if question.len() > QUESTION {
            return Ok(None);
        }
        let found = cx.call_tool(&self.tools, RECALL, &json!({ "question": question })).await?;
        let report = found.to_text();
        Ok(Some(report).filter(|report| !found.is_error && !report.is_empty()))
    }

    /// Keeps a report, if it is complete. One that cannot be kept is no failure of the research.
    ///
    /// # Errors
    /// Those of the effect.
    pub(super) async fn keep(&self, question: &str, outcome: &Outcome, cx: &RunContext) -> Result<()> {
        let complete = outcome.is_completed() && outcome.failed.is_empty();
        if complete && question.len() <= QUESTION && question.len() + outcome.text.len() <= LONGEST {
            let kept = json!({ "question": question, "report": outcome.text });
            cx.call_tool(&self.tools, KEEP, &kept).await?;
        }
        Ok(())
    }
}

/// A report in the session of the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KeptReport {
    question: String,
    report: String,
    /// Labels of what the research had read that found it.
    #[serde(default = "Labels::all")]
    labels: Labels,
}

impl Record for KeptReport {
    const KIND: &'static str = "research.report";

    fn summary(&self) -> String {
        format!("report on: {}", self.question)
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}

/// Returns the best report and its age: the most alike, the newest of several that are. Reports that are too old count
/// as absent, and so do values that cannot be read.
///
/// Yields after each comparison, so that other tasks go on beside it.
async fn best(
    question: &str,
    events: &[Envelope],
    now: Timestamp,
    likeness: &Likeness,
) -> Option<(Arc<KeptReport>, Duration)> {
    let mut best: Option<(f64, Arc<KeptReport>, Duration)> = None;
    for envelope in events {
        let Ok(Some(kept)) = envelope.event.record::<KeptReport>() else { continue };
        let age = now.since(envelope.at);
        if age >= FRESH {
            continue;
        }
        let alike = likeness(question, &kept.question);
        // Oldest first: a later one of the same likeness wins. No comparison holds for a number that is none.
        if alike >= ALIKE && best.as_ref().is_none_or(|(most, ..)| alike >= *most) {
            best = Some((alike, kept, age));
        }
        tokio::task::yield_now().await;
    }
    best.map(|(_, kept, age)| (kept, age))
}

struct Recall {
    spec: ToolSpec,
    shelf: Shelf,
    likeness: Likeness,
}

#[derive(Deserialize)]
struct Asked {
    question: String,
}

#[async_trait]
impl Tool for Recall {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Asked { question } = input.parse()?;
        let events = self.shelf.events().await.map_err(|error| told(&error))?;
        // The result is recorded: a resumed run does not read the clock again.
        let found = best(&question, &events, cx.run().effects().time(), &self.likeness).await;
        let labels = found.as_ref().map_or(Labels::empty(), |(kept, _)| kept.labels);
        let text = found.map_or_else(String::new, |(kept, age)| {
            format!("{}\n\n(This was found {} seconds ago.)", kept.report, age.as_secs())
        });
        Ok(ToolOutput::text(text).with_labels(labels))
    }
}

struct Keep {
    spec: ToolSpec,
    shelf: Shelf,
}

#[async_trait]
impl Tool for Keep {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let mut kept: KeptReport = input.parse()?;
        kept.labels = cx.run().read(SessionState::labels);
        let question = kept.question.clone();
        self.shelf.keep(kept, "research-cache", question).await.map_err(|error| told(&error))?;
        Ok(ToolOutput::text("kept"))
    }
}

/// A failure of the cache is one of the tool, and no failure of the research.
fn told(error: &Error) -> ToolError {
    ToolError::tell(format!("the cache of the research does not work: {error}"))
}
