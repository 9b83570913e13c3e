//! The requirements for playing a service on a wire, and the parts that the wires' spellings share.

use std::{marker::PhantomData, sync::Arc};

use async_trait::async_trait;
use entourage_core::{Error, ErrorKind, Money, Result, Usage, provider::Provider};
use entourage_testkit::stream::{
    Ending, Failure, Manifest, Reply, Say, Stage, StreamScenario, Subject, Watch,
};
use serde_json::{Number, Value};
use tokio::sync::OnceCell;

use crate::server::{Answer, Server, Then};

/// A key of which no part occurs in any expected value.
pub(crate) const KEY: &str = "sk-4f0c9a71d2e8";

/// The spelling of scenarios by the services of a wire.
pub(crate) trait Spelling: Send + Sync + 'static {
    /// The content type of streams.
    const CONTENT_TYPE: &'static str = "text/event-stream";

    /// Bytes that mean nothing to a reader of a stream.
    const FILLER: &'static str = ": still here\n\n";

    /// Required parts of each request's head: the request line, and the header with the key.
    const WANTED: &'static [&'static str];

    fn manifest() -> Manifest;

    /// The wire's public provider at this address, with [`KEY`].
    fn provider(address: &str) -> Result<Arc<dyn Provider>>;

    /// The body of a refusal.
    fn refused(failure: &Failure) -> Result<String>;

    /// Headers of a refusal.
    fn headers(failure: &Failure) -> Vec<(&'static str, String)> {
        let wait = failure.retry_after.map(|wait| ("Retry-After", wait.as_secs().to_string()));
        [("Content-Type", "application/json".to_owned())].into_iter().chain(wait).collect()
    }

    /// The events of a stream, as bytes. A stream that is cut off or stays open has no end.
    fn streamed(says: &[Say], ending: &Ending) -> Result<Vec<String>>;
}

/// A wire as a subject of the suite. All cases share one provider: setting up its TLS takes longer than a case.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    spelling: PhantomData<S>,
    cut: Then,
    service: OnceCell<(Server, Arc<dyn Provider>)>,
}

impl<S: Spelling> Wire<S> {
    /// A service whose connection breaks when a reply is cut off.
    pub(crate) fn new() -> Self {
        Self { spelling: PhantomData, cut: Then::Breaks, service: OnceCell::new() }
    }

    /// A service behind a proxy: the HTTP body ends properly when a reply is cut off.
    pub(crate) fn behind_a_proxy() -> Self {
        Self { cut: Then::Closes, ..Self::new() }
    }

    async fn start() -> Result<(Server, Arc<dyn Provider>)> {
        let server = Server::start(S::WANTED).await;
        let server =
            server.map_err(|error| Error::new(ErrorKind::Transport, "no loopback").caused_by(error))?;
        let provider = S::provider(&server.address)?;
        Ok((server, provider))
    }

    fn answer(&self, reply: &Reply, piece: Option<usize>) -> Result<Answer> {
        Ok(match reply {
            Reply::Refused(failure) => Answer::Refusal {
                status: failure.status,
                headers: S::headers(failure),
                body: S::refused(failure)?,
            },
            Reply::Silent => Answer::Silence,
            Reply::Streamed { says, ending } => {
                let nothing = says.is_empty() && *ending == Ending::CutOff;
                let spelt = match ending {
                    Ending::Unclosed(reason) => &Ending::Finish(*reason),
                    ending => ending,
                };
                let events = if nothing { Vec::new() } else { S::streamed(says, spelt)? };
                let pieces = match piece {
                    Some(bytes) => events.concat().as_bytes().chunks(bytes).map(<[u8]>::to_vec).collect(),
                    None => events.into_iter().map(String::into_bytes).collect(),
                };
                Answer::Stream { content_type: S::CONTENT_TYPE, pieces, then: self.then(ending)? }
            }
            other => return Err(unsupported(format!("no server answers so: {other:?}"))),
        })
    }

    fn then(&self, ending: &Ending) -> Result<Then> {
        Ok(match ending {
            Ending::Finish(_) => Then::Ends,
            Ending::Unclosed(_) => Then::Floods(S::FILLER),
            Ending::Failed(_) => Then::Closes,
            Ending::CutOff => self.cut,
            Ending::Open => Then::StaysOpen,
            other => return Err(unsupported(format!("no stream ends so: {other:?}"))),
        })
    }
}

#[async_trait]
impl<S: Spelling> Subject for Wire<S> {
    fn manifest(&self) -> Manifest {
        S::manifest()
    }

    async fn play(&self, scenario: &StreamScenario) -> Result<Stage> {
        let answers =
            scenario.replies.iter().map(|reply| self.answer(reply, scenario.piece)).collect::<Result<_>>()?;
        let (server, provider) = self.service.get_or_try_init(Self::start).await?;
        let watch = Watch::new();
        server.play(answers, &watch);
        Ok(Stage::new(Arc::clone(provider)).watched(&watch).with_secret(KEY))
    }
}

/// Facts of a reply about itself and its cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) id: Option<&'static str>,
    pub(crate) model: &'static str,
    pub(crate) usage: Option<Usage>,
}

impl Facts {
    pub(crate) fn of(says: &[Say]) -> Self {
        let mut facts = Self { id: None, model: "model-1", usage: None };
        for say in says {
            match say {
                Say::ResponseId(id) => facts.id = Some(id),
                Say::ResponseModel(model) => facts.model = model,
                Say::Usage(usage) => facts.usage = Some(*usage),
                _ => {}
            }
        }
        facts
    }
}

/// The complete arguments of a call.
pub(crate) fn arguments(says: &[Say], call: u32) -> String {
    let pieces = says.iter().filter_map(|say| match say {
        Say::Arguments { index, json } if *index == call => Some(*json),
        _ => None,
    });
    pieces.collect()
}

/// The complete arguments as an object, for a wire whose calls come whole.
pub(crate) fn object(says: &[Say], call: u32) -> Result<Value> {
    let text = arguments(says, call);
    let text = if text.is_empty() { "{}" } else { &text };
    serde_json::from_str(text).map_err(|_| unsupported("arguments are an object on this wire"))
}

/// The call that the content at `at` completes: nothing more of it follows, but something else does.
pub(crate) fn completed(says: &[Say], at: usize, ending: &Ending) -> Option<u32> {
    let (Say::CallStart { index: call, .. } | Say::Arguments { index: call, .. }) = says.get(at)? else {
        return None;
    };
    let rest = says.get(at + 1..).unwrap_or_default();
    let goes_on = rest.iter().any(|say| matches!(say, Say::Arguments { index, .. } if index == call));
    let is_last = rest.is_empty() && matches!(ending, Ending::CutOff | Ending::Open);
    (!goes_on && !is_last).then_some(*call)
}

/// An event of a stream of server-sent events.
pub(crate) fn event(name: &str, data: &Value) -> String {
    match name {
        "" => format!("data: {data}\n\n"),
        name => format!("event: {name}\ndata: {data}\n\n"),
    }
}

/// The amount in dollars, as a JSON number.
pub(crate) fn dollars(money: Money) -> Number {
    const PICO: u64 = 1_000_000_000_000;
    let text = format!("{}.{:012}", money.as_pico() / PICO, money.as_pico() % PICO);
    text.parse().unwrap()
}

pub(crate) fn unsupported(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, text.into())
}
