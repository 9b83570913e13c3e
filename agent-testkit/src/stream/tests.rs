//! The suite itself: a provider without a wire passes, and one that breaks a promise fails the case for it.

use entourage_core::{
    RetryStatus, Usage,
    provider::{CallContext, Delta, DeltaStream, Finish, FinishReason, Request},
};
use futures_util::{StreamExt, stream};

use super::*;

#[tokio::test(start_paused = true)]
async fn words_without_a_wire_pass() {
    let report = conformance(&Spoken).await;
    report.assert();
    assert_eq!(report.passed().len(), scenarios().len());
    assert_eq!(
        report.to_string(),
        format!("stream conformance spoken: {} passed, 0 failed, 0 skipped", scenarios().len())
    );
}

#[test]
fn scenarios_have_names_of_their_own() {
    let all = scenarios();
    let names: std::collections::BTreeSet<_> = all.iter().map(|one| one.name).collect();
    assert_eq!(names.len(), all.len());
    assert!(all.iter().all(|one| !one.replies.is_empty()));
    assert!(all.iter().any(|one| one.piece == Some(1)));
}

fn names(report: &ConformanceReport) -> Vec<&str> {
    report.failed().iter().map(|(case, _)| case.as_str()).collect()
}

/// One broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    FinishesTwice,
    GoesOnAfterTheFinish,
    NeverFinishes,
    FinishesWhatWasCutOff,
    LosesTheLastPiece,
    LosesWhatCameBeforeAnError,
    SwallowsErrors,
    GoesOnAfterAnError,
    SendsArgumentsFirst,
    GivesAllArgumentsToOneCall,
    CountsCallsBackwards,
    CutsArgumentsAnew,
    NamesCallsItself,
    CallsToolsAStop,
    TakesRefusalsForText,
    ForgetsSignatures,
    ForgetsBlocks,
    ForgetsTheWord,
    CallsUnknownUsageZero,
    ForgetsCachedTokens,
    ForgetsTheWait,
    CallsAllErrorsInternal,
    CallsAllErrorsPermanent,
    RefusesLate,
    HidesTheServicesWords,
    Gathers,
    KeepsTheCall,
    SaysNothingOften,
    Panics,
}

#[derive(Debug)]
struct Broken(Arc<dyn Provider>, Fault);

#[async_trait]
impl Provider for Broken {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let fault = self.1;
        assert!(fault != Fault::Panics, "the provider is out of order");
        let stream = match self.0.stream(request, cx).await {
            Ok(stream) => stream,
            Err(error) if fault == Fault::RefusesLate => Box::pin(stream::iter([Err(error)])),
            Err(error) => return Err(spoil(fault, &error)),
        };
        Ok(match fault {
            Fault::Gathers => {
                let all: Vec<_> = stream.collect().await;
                Box::pin(stream::iter(all))
            }
            Fault::KeepsTheCall => {
                let (pass, passed) = tokio::sync::mpsc::unbounded_channel();
                tokio::spawn(async move {
                    let mut stream = stream;
                    while let Some(item) = stream.next().await {
                        let _ = pass.send(item);
                    }
                });
                Box::pin(stream::unfold(
                    passed,
                    |mut passed| async move { Some((passed.recv().await?, passed)) },
                ))
            }
            _ => Box::pin(broken(stream, fault)),
        })
    }
}

fn broken(stream: DeltaStream, fault: Fault) -> impl futures_util::Stream<Item = Result<Delta>> {
    let end = stream::once(async { None });
    let mut held: Option<Delta> = None;
    let mut finished = false;
    stream.map(Some).chain(end).flat_map(move |item| {
        let out = match item {
            None if fault == Fault::FinishesWhatWasCutOff && !finished => vec![Ok(stop())],
            None => Vec::new(),
            Some(Err(error)) => {
                finished = true;
                on_error(fault, &error)
            }
            Some(Ok(delta)) => {
                finished |= matches!(delta, Delta::Finish(_));
                on_delta(fault, &mut held, delta)
            }
        };
        stream::iter(out)
    })
}

fn stop() -> Delta {
    Delta::finish(FinishReason::Stop)
}

fn spoil(fault: Fault, error: &Error) -> Error {
    let kind = if fault == Fault::CallsAllErrorsInternal { ErrorKind::Internal } else { error.kind() };
    let retry = if fault == Fault::CallsAllErrorsPermanent { RetryStatus::Permanent } else { error.retry() };
    let text = if fault == Fault::HidesTheServicesWords { "it failed" } else { error.message() };
    let spoilt = Error::new(kind, text.to_owned()).with_retry(retry);
    match error.retry_after() {
        Some(wait) if fault != Fault::ForgetsTheWait => spoilt.with_retry_after(wait),
        _ => spoilt,
    }
}

fn on_error(fault: Fault, error: &Error) -> Vec<Result<Delta>> {
    match fault {
        Fault::SwallowsErrors => vec![Ok(stop())],
        Fault::GoesOnAfterAnError => vec![Err(spoil(fault, error)), Ok(Delta::text("but"))],
        _ => vec![Err(spoil(fault, error))],
    }
}

fn on_delta(fault: Fault, held: &mut Option<Delta>, delta: Delta) -> Vec<Result<Delta>> {
    let out = match (fault, delta) {
        (Fault::FinishesTwice, delta @ Delta::Finish(_)) => vec![delta.clone(), delta],
        (Fault::GoesOnAfterTheFinish, delta @ Delta::Finish(_)) => {
            vec![delta, Delta::Usage(Box::new(Usage::new(1, 1)))]
        }
        (Fault::NeverFinishes, Delta::Finish(_)) => Vec::new(),
        (Fault::LosesTheLastPiece | Fault::LosesWhatCameBeforeAnError, delta @ Delta::Text(_)) => {
            held.replace(delta).into_iter().collect()
        }
        (Fault::LosesWhatCameBeforeAnError, delta) => held.take().into_iter().chain([delta]).collect(),
        (Fault::SendsArgumentsFirst, delta @ Delta::ToolCallStart(_)) => {
            *held = Some(delta);
            Vec::new()
        }
        (Fault::SendsArgumentsFirst, delta) => [delta].into_iter().chain(held.take()).collect(),
        (Fault::GivesAllArgumentsToOneCall, Delta::ToolCallArguments { text, .. }) => {
            vec![Delta::arguments(0, text)]
        }
        (Fault::CountsCallsBackwards, Delta::ToolCallStart(call)) => {
            vec![Delta::tool_call(9 - call.index, call.id, call.name)]
        }
        (Fault::CountsCallsBackwards, Delta::ToolCallArguments { index, text }) => {
            vec![Delta::arguments(9 - index, text)]
        }
        (Fault::CutsArgumentsAnew, Delta::ToolCallArguments { index, text }) => {
            vec![Delta::arguments(index, text.replace(' ', ""))]
        }
        (Fault::NamesCallsItself, Delta::ToolCallStart(call)) => {
            vec![Delta::tool_call(call.index, format!("own_{}", call.index), call.name)]
        }
        (Fault::SaysNothingOften, delta @ Delta::Text(_)) => {
            std::iter::once(delta).chain(std::iter::repeat_n(Delta::text(""), 10)).collect()
        }
        (Fault::CallsToolsAStop, Delta::Finish(_)) => vec![stop()],
        (Fault::TakesRefusalsForText, Delta::Refusal(text)) => vec![Delta::Text(text)],
        (Fault::ForgetsSignatures, Delta::ReasoningSignature(_))
        | (Fault::ForgetsBlocks, Delta::Opaque(_)) => Vec::new(),
        (Fault::ForgetsTheWord, Delta::Finish(finish)) => vec![Delta::finish(Finish::new(finish.reason))],
        (Fault::CallsUnknownUsageZero, delta @ Delta::Finish(_)) => {
            vec![Delta::Usage(Box::new(Usage::new(0, 0))), delta]
        }
        (Fault::ForgetsCachedTokens, Delta::Usage(mut usage)) => {
            usage.cache_read = None;
            vec![Delta::Usage(usage)]
        }
        (_, delta) => vec![delta],
    };
    out.into_iter().map(Ok).collect()
}

const FAULTS: &[(Fault, &str)] = &[
    (Fault::FinishesTwice, "text_in_pieces"),
    (Fault::GoesOnAfterTheFinish, "text_in_pieces"),
    (Fault::NeverFinishes, "text_in_pieces"),
    (Fault::NeverFinishes, "an_empty_reply"),
    (Fault::FinishesWhatWasCutOff, "cut_off_after_text"),
    (Fault::FinishesWhatWasCutOff, "cut_off_before_anything"),
    (Fault::FinishesWhatWasCutOff, "cut_off_inside_arguments"),
    (Fault::LosesTheLastPiece, "text_in_pieces"),
    (Fault::LosesWhatCameBeforeAnError, "an_error_after_text"),
    (Fault::LosesWhatCameBeforeAnError, "cut_off_after_text"),
    (Fault::SwallowsErrors, "an_error_after_text"),
    (Fault::SwallowsErrors, "an_error_before_any_text"),
    (Fault::SwallowsErrors, "an_error_after_a_call"),
    (Fault::GoesOnAfterAnError, "an_error_after_text"),
    (Fault::SendsArgumentsFirst, "a_call_with_streamed_arguments"),
    (Fault::GivesAllArgumentsToOneCall, "several_calls"),
    (Fault::GivesAllArgumentsToOneCall, "interleaved_calls"),
    (Fault::CountsCallsBackwards, "several_calls"),
    (Fault::CutsArgumentsAnew, "arguments_come_back_byte_for_byte"),
    (Fault::NamesCallsItself, "ids_of_calls_come_through"),
    (Fault::CallsToolsAStop, "a_call_without_arguments"),
    (Fault::TakesRefusalsForText, "a_refusal_in_its_own_channel"),
    (Fault::ForgetsSignatures, "signed_reasoning"),
    (Fault::ForgetsSignatures, "a_signature_without_shown_reasoning"),
    (Fault::ForgetsBlocks, "a_block_of_the_service"),
    (Fault::ForgetsTheWord, "the_wires_own_word_is_kept"),
    (Fault::CallsUnknownUsageZero, "unreported_usage_is_unknown"),
    (Fault::ForgetsCachedTokens, "usage_with_cached_tokens"),
    (Fault::ForgetsTheWait, "refused_with_a_time_to_wait"),
    (Fault::CallsAllErrorsInternal, "refused_for_load"),
    (Fault::CallsAllErrorsInternal, "a_rate_limit_inside_the_stream"),
    (Fault::CallsAllErrorsPermanent, "refused_for_too_many_requests"),
    (Fault::RefusesLate, "a_refusal_is_the_error_of_the_call"),
    (Fault::HidesTheServicesWords, "refused_as_invalid"),
    (Fault::Gathers, "text_is_shown_while_the_reply_goes_on"),
    (Fault::Gathers, "arguments_are_shown_while_they_come"),
    (Fault::KeepsTheCall, "a_dropped_stream_ends_the_call"),
    (Fault::KeepsTheCall, "a_cancelled_run_ends_the_call"),
    (Fault::SaysNothingOften, "text_in_pieces"),
    (Fault::SaysNothingOften, "a_thousand_pieces"),
    (Fault::Panics, "text_in_pieces"),
];

#[tokio::test(start_paused = true)]
async fn each_broken_promise_fails_its_case() {
    let mut reports: Vec<(Fault, ConformanceReport)> = Vec::new();
    for (fault, case) in FAULTS {
        if reports.last().is_none_or(|(last, _)| last != fault) {
            let fault = *fault;
            let subject = Layered::new(Spoken, "a fault", move |inner| Arc::new(Broken(inner, fault)));
            reports.push((fault, conformance(&subject).await));
        }
        let (_, report) = reports.last().unwrap();
        assert!(names(report).contains(case), "{fault:?} is not noticed by {case}: {report:#}");
    }
    // Precise: a fault about one thing leaves the others alone.
    let failed = |fault| names(&reports.iter().find(|(one, _)| *one == fault).unwrap().1).len();
    assert_eq!([Fault::ForgetsTheWait, Fault::ForgetsTheWord, Fault::RefusesLate].map(failed), [1; 3]);
    assert_eq!(failed(Fault::Panics), scenarios().len());
}

#[tokio::test(start_paused = true)]
async fn a_stale_skip_fails() {
    let subject = Layered::new(Spoken, "nothing", |inner| inner)
        .without(Capability::Cost, "nobody says")
        .skipping("text_in_pieces", "too hard")
        .skipping("text_in_colours", "there is none");
    let report = conformance(&subject).await;
    assert_eq!(names(&report), ["text_in_colours", "text_in_pieces", "usage_with_a_price"]);
    assert!(report.failed()[1].1.contains("must not be declared as unsupported (too hard)"));
}

/// A subject that cannot spell blocks, and may or may not declare so.
struct Plain(Manifest, ErrorKind);

#[async_trait]
impl Subject for Plain {
    fn manifest(&self) -> Manifest {
        self.0.clone()
    }

    async fn play(&self, scenario: &StreamScenario) -> Result<Stage> {
        let has_block = scenario
            .replies
            .iter()
            .any(|reply| matches!(reply, Reply::Streamed { says, .. } if says.contains(&Say::Block)));
        if has_block {
            return Err(Error::new(self.1, "this wire has no blocks"));
        }
        Spoken.play(scenario).await
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_spelled_must_be_declared() {
    let case = "a_block_of_the_service";
    let plain = Manifest::new("plain");
    let declared = plain.clone().without(Capability::Blocks, "no server tools");
    assert!(plain.can(Capability::Blocks) && !declared.can(Capability::Blocks));

    let report = conformance(&Plain(declared.clone(), ErrorKind::Unsupported)).await;
    report.assert();
    assert_eq!(report.skipped().len(), 1);
    assert!(
        format!("{report:#}")
            .contains("a_block_of_the_service skipped: no server tools (this wire has no blocks")
    );

    assert_eq!(names(&conformance(&Plain(plain, ErrorKind::Unsupported)).await), [case]);
    // A subject that fails is no reason to skip.
    assert_eq!(names(&conformance(&Plain(declared, ErrorKind::Transport)).await), [case]);
}

/// A provider whose key is in its errors.
struct Talkative;

#[async_trait]
impl Subject for Talkative {
    fn manifest(&self) -> Manifest {
        Manifest::new("talkative")
    }

    async fn play(&self, scenario: &StreamScenario) -> Result<Stage> {
        Ok(Spoken.play(scenario).await?.with_secret("invalid key"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_shown_fails() {
    let report = conformance(&Talkative).await;
    assert_eq!(names(&report), ["refused_for_the_key"]);
    assert_eq!(report.failed()[0].1, "the provider's key is shown");
}
