//! The cases: the scenario, the abilities of a wire that it needs, and its judge.

use std::{pin::Pin, time::Duration};

use entourage_core::{
    ErrorKind, Money, Usage,
    event::Event,
    provider::{Delta, DeltaStream, Egress, FinishReason, Model},
    run::Status,
};
use entourage_runners::ReactAgent;
use entourage_runtime::Runtime;
use entourage_runtime::reply::ProviderExt;
use futures_util::{FutureExt, StreamExt};

use super::{
    Capability::{self as Can, *},
    Checked, Ending, Failure, Flaw, Reply, Run, Say, Stage, StreamScenario, Watch,
    judge::{Rules, context, hear, holds, plays_out, raw_arguments, request, same},
};

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) needs: &'static [Can],
    replies: fn() -> Vec<Reply>,
    piece: Option<usize>,
    pub(super) run: Run,
}

impl Case {
    pub(super) fn scenario(&self) -> StreamScenario {
        let scenario = StreamScenario::new(self.name, (self.replies)());
        match self.piece {
            Some(bytes) => scenario.in_pieces_of(bytes),
            None => scenario,
        }
    }
}

/// Declares cases: a name, the abilities it needs, its judge (default: play it and compare) and the replies.
macro_rules! cases {
    ($($name:ident $([$($need:ident),+])? $(cut $piece:literal)? $(by $judge:ident)? => $replies:expr;)*) => {
        vec![$(Case {
            name: stringify!($name),
            needs: &[$($($need),+)?],
            replies: || $replies.into(),
            piece: cases!(@piece $($piece)?),
            run: |stage, scenario| Box::pin(cases!(@judge $($judge)?)(stage, scenario)),
        }),*]
    };
    (@piece) => { None };
    (@piece $piece:literal) => { Some($piece) };
    (@judge) => { plays_out };
    (@judge $judge:ident) => { $judge };
}

pub(super) fn cases() -> Vec<Case> {
    [contents(), calls(), facts(), refusals(), breaks(), lives()].into_iter().flatten().collect()
}

const STOP: FinishReason = FinishReason::Stop;

fn ends(says: impl Into<Vec<Say>>, reason: FinishReason) -> [Reply; 1] {
    [Reply::finished(says, reason)]
}

fn breaks_off(says: impl Into<Vec<Say>>, ending: Ending) -> Reply {
    Reply::Streamed { says: says.into(), ending }
}

fn contents() -> Vec<Case> {
    use Say::{Block as ServerBlock, Reasoning as Think, Refusal, Signature, Text};
    cases![
        text_in_pieces => ends([Text("Hel"), Text("lo, "), Text("world"), Text(".\n\n"), Text(" Bye. ")], STOP);
        an_empty_reply => ends([], STOP);
        text_split_inside_what_a_reader_sees_as_one_sign =>
            ends([Text("e"), Text("\u{301} 👩"), Text("\u{200d}"), Text("👧 \u{feff}"), Text("\\u0041\"\u{0}")], STOP);
        text_that_looks_like_the_wire =>
            ends([Text("data: [DONE]\n\n"), Text("event: x\r\n"), Text("{\"error\":"), Text("{}}\n: c\n")], STOP);
        a_reply_cut_at_every_byte cut 1 => ends(
            [Text("Grüße, 世界 "), Text("👩\u{200d}👧"), start(0, "look"), args(0, "{\"at\": \""), args(0, "é👧\"}")],
            FinishReason::ToolCalls,
        );
        reasoning_then_text [Reasoning] => ends([Think("Let me "), Think("see."), Text("Seen.")], STOP);
        reasoning_then_a_call [Reasoning] => ends(
            [Think("I look."), start(0, "look"), args(0, "{\"at\":\"a\"}")],
            FinishReason::ToolCalls,
        );
        signed_reasoning [Reasoning, Signatures] =>
            ends([Think("Let me "), Think("see."), Signature("c2lnbmVkIQ=="), Text("Seen.")], STOP);
        a_signature_without_shown_reasoning [Signatures] => ends([Signature("aGlkZGVu"), Text("Seen.")], STOP);
        a_refusal_in_its_own_channel [RefusalText] => ends([Refusal("I will "), Refusal("not.")], STOP);
        a_refusal_told_by_the_finish [RefusalFinish] => ends([Text("No.")], FinishReason::Refusal);
        a_block_of_the_service [Blocks] => ends([Text("Before."), ServerBlock, Text("After.")], STOP);
        the_output_limit => ends([Text("And then")], FinishReason::Length);
        a_content_filter [ContentFilter] => ends([Text("And")], FinishReason::ContentFilter);
        the_wires_own_word_is_kept [FinishWord] by has_word => ends([Text("Hi.")], STOP);
        a_text_of_a_mebibyte => ends(vec![Text(LONG); 256], STOP);
        a_thousand_pieces => ends(vec![Text("piece "); 1_000], STOP);
    ]
}

/// A text of 4 KiB.
const LONG: &str = {
    const BYTES: [u8; 4_096] = [b'x'; 4_096];
    match std::str::from_utf8(&BYTES) {
        Ok(text) => text,
        Err(_) => "",
    }
};

fn start(index: u32, name: &'static str) -> Say {
    const IDS: [&str; 3] = ["call_a", "call_b", "call_c"];
    let id = IDS.into_iter().cycle().nth(usize::try_from(index).unwrap_or_default());
    Say::CallStart { index, id: id.unwrap_or_default(), name }
}

fn args(index: u32, json: &'static str) -> Say {
    Say::Arguments { index, json }
}

fn calls() -> Vec<Case> {
    use FinishReason::ToolCalls;
    cases![
        a_call_with_streamed_arguments => ends(
            [start(0, "look"), args(0, "{\"at\""), args(0, ": \"src/a"), args(0, ".rs\", \"depth\": 12}")],
            ToolCalls,
        );
        several_calls => ends(
            [
                start(0, "look"), args(0, "{\"at\":\"a\"}"),
                start(1, "count"), args(1, "{\"at\":\"b\"}"),
                start(2, "look"), args(2, "{\"at\":\"c\"}"),
            ],
            ToolCalls,
        );
        interleaved_calls => ends(
            [
                start(0, "look"), start(1, "count"), args(0, "{\"at\":"), args(1, "{\"at\":"),
                args(0, "\"a\"}"), args(1, "\"b\"}"),
            ],
            ToolCalls,
        );
        the_same_call_twice => ends(
            [start(0, "look"), args(0, "{\"at\":\"a\"}"), start(1, "look"), args(1, "{\"at\":\"a\"}")],
            ToolCalls,
        );
        a_call_without_arguments => ends([start(0, "look")], ToolCalls);
        a_call_with_empty_arguments => ends([start(0, "look"), args(0, "{}")], ToolCalls);
        text_then_a_call =>
            ends([Say::Text("I look."), start(0, "look"), args(0, "{\"at\":\"a\"}")], ToolCalls);
        ids_of_calls_come_through [CallIds] by has_call_ids => ends(
            [start(0, "look"), args(0, "{\"at\":\"a\"}"), start(1, "count"), args(1, "{\"at\":\"b\"}")],
            ToolCalls,
        );
        arguments_come_back_byte_for_byte [RawArguments] by has_raw_arguments =>
            ends([start(0, "look"), args(0, "{ \"b\": 1.0,"), args(0, "\"a\" :\"\\u00e9é\" }")], ToolCalls);
        broken_arguments_are_marked [RawArguments] =>
            ends([start(0, "look"), args(0, "{\"at\": \"sr")], ToolCalls);
    ]
}

fn facts() -> Vec<Case> {
    use Say::{Text, Usage as Used};
    cases![
        usage_is_reported [Usage] => ends([Text("Hi."), Used(tokens(|_| {}))], STOP);
        usage_of_a_call [Usage] =>
            ends([start(0, "look"), args(0, "{}"), Used(tokens(|_| {}))], FinishReason::ToolCalls);
        usage_with_cached_tokens [Usage, CacheReads] =>
            ends([Text("Hi."), Used(tokens(|usage| usage.cache_read = Some(60)))], STOP);
        usage_with_tokens_written_to_a_cache [Usage, CacheWrites] =>
            ends([Text("Hi."), Used(tokens(|usage| usage.cache_write = Some(30)))], STOP);
        usage_with_reasoning [Usage, ReasoningUsage] =>
            ends([Text("Hi."), Used(tokens(|usage| usage.reasoning = Some(15)))], STOP);
        usage_with_a_price [Usage, Cost] => ends(
            [Text("Hi."), Used(tokens(|usage| usage.cost = Some(Money::from_pico(1_250_000_000))))],
            STOP,
        );
        unreported_usage_is_unknown [UnreportedUsage] by has_no_usage => ends([Text("Hi.")], STOP);
        the_responses_id [ResponseId] => ends([Say::ResponseId("resp-1"), Text("Hi.")], STOP);
        the_model_that_answered [ResponseModel] =>
            ends([Say::ResponseModel("model-1-2026-11-01"), Text("Hi.")], STOP);
    ]
}

/// Usage of 100 tokens in and 20 out, changed by `more`.
fn tokens(more: fn(&mut Usage)) -> Usage {
    let mut usage = Usage::new(100, 20);
    more(&mut usage);
    usage
}

fn refused(kind: ErrorKind, status: u16, message: &'static str) -> [Reply; 1] {
    [Reply::Refused(Failure::new(kind, status, message))]
}

fn refusals() -> Vec<Case> {
    use ErrorKind as Kind;
    cases![
        refused_as_invalid => refused(Kind::InvalidInput, 400, "temperature must be a number");
        refused_for_the_key => refused(Kind::Authentication, 401, "invalid key");
        refused_for_lack_of_rights => refused(Kind::PermissionDenied, 403, "not for this account");
        refused_for_an_unknown_model => refused(Kind::NotFound, 404, "there is no model-1");
        refused_as_too_large => refused(Kind::TooLarge, 413, "the body is larger than allowed");
        refused_for_too_many_requests => refused(Kind::RateLimited, 429, "slow down");
        refused_with_a_time_to_wait [RetryAfter] => [Reply::Refused(
            Failure::new(Kind::RateLimited, 429, "slow down").with_retry_after(Duration::from_secs(7)),
        )];
        refused_by_a_failing_service => refused(Kind::Overloaded, 500, "something broke");
        refused_for_lack_of_room => refused(Kind::Overloaded, 503, "no room");
        refused_for_load => refused(Kind::Overloaded, 529, "overloaded");
        refused_for_too_long_a_context => refused(Kind::ContextOverflow, 400, "9 tokens more than the model takes");
        refused_for_its_content [FilteredRequests] => refused(Kind::ContentFiltered, 400, "not this");
        a_refusal_is_the_error_of_the_call [RefusesAtOnce] by refuses_at_once =>
            refused(Kind::InvalidInput, 400, "no");
    ]
}

fn fails(kind: ErrorKind, status: u16, message: &'static str) -> Ending {
    Ending::Failed(Failure::new(kind, status, message))
}

fn breaks() -> Vec<Case> {
    use ErrorKind::{Overloaded, RateLimited};
    use Say::Text;
    cases![
        an_error_after_text [StreamErrors] =>
            [breaks_off([Text("Hel"), Text("lo")], fails(Overloaded, 529, "no room any more"))];
        an_error_before_any_text [StreamErrors] => [breaks_off([], fails(Overloaded, 529, "no room any more"))];
        an_error_after_a_call [StreamErrors] => [breaks_off(
            [start(0, "look"), args(0, "{\"at\":\"a\"}")],
            fails(Overloaded, 529, "no room any more"),
        )];
        a_rate_limit_inside_the_stream [StreamErrors] =>
            [breaks_off([Text("Hel")], fails(RateLimited, 429, "slow down"))];
        cut_off_after_text => [breaks_off([Text("Hel"), Text("lo")], Ending::CutOff)];
        cut_off_before_anything => [breaks_off([], Ending::CutOff)];
        cut_off_inside_arguments =>
            [breaks_off([start(0, "look"), args(0, "{\"at\": \"sr")], Ending::CutOff)];
        a_call_after_a_refusal_works => [
            Reply::Refused(Failure::new(ErrorKind::InvalidInput, 400, "no")),
            Reply::finished([Text("Yes.")], STOP),
        ];
        a_call_after_an_error_in_the_stream_works [StreamErrors] => [
            breaks_off([Text("Hel")], fails(Overloaded, 529, "no room any more")),
            Reply::finished([Text("Hello.")], STOP),
        ];
        a_call_after_a_break_works => [
            breaks_off([Text("Hel")], Ending::CutOff),
            Reply::finished([Text("Hello.")], STOP),
        ];
        three_calls_in_a_row => [
            Reply::finished([Text("One.")], STOP),
            Reply::finished([start(0, "look"), args(0, "{}")], FinishReason::ToolCalls),
            Reply::finished([Text("Three.")], STOP),
        ];
        a_fold_of_the_stream_says_the_same by folds => ends([Text("Hel"), Text("lo")], STOP);
    ]
}

fn lives() -> Vec<Case> {
    use Say::Text;
    cases![
        text_is_shown_while_the_reply_goes_on by shows_text =>
            [breaks_off([Text("Hel"), Text("lo")], Ending::Open)];
        arguments_are_shown_while_they_come [StreamedArguments] by shows_arguments =>
            [breaks_off([start(0, "look"), args(0, "{\"at\":"), args(0, " \"a")], Ending::Open)];
        a_dropped_stream_ends_the_call [Watched] by drops_the_stream => [breaks_off([Text("Hello")], Ending::Open)];
        a_dropped_call_ends [Watched] by drops_the_call => [Reply::Silent];
        a_cancelled_run_ends_the_call [Watched] by cancels_a_run => [breaks_off([Text("Hello")], Ending::Open)];
        a_reply_that_has_ended_is_left [Watched] by leaves_in_time =>
            [breaks_off([Text("Hel"), Text("lo")], Ending::Unclosed(STOP))];
        a_call_after_a_dropped_one_works by drops_and_calls_again => [
            breaks_off([Text("Hello")], Ending::Open),
            Reply::finished([Text("Again.")], STOP),
        ];
    ]
}

async fn has_word(stage: Stage, _: StreamScenario) -> Checked {
    let word = hear(&stage).await?.end?.finish.raw;
    holds("the finish has no word of the wire's own", word.is_some_and(|word| !word.is_empty()))
}

async fn has_no_usage(stage: Stage, _: StreamScenario) -> Checked {
    same("the usage", &hear(&stage).await?.end?.usage, &Usage::default())
}

async fn has_call_ids(stage: Stage, _: StreamScenario) -> Checked {
    let message = hear(&stage).await?.end?.into_message();
    let ids: Vec<_> = message.tool_calls().map(|call| call.id.to_string()).collect();
    same("the calls' ids", &ids, &vec!["call_a".to_owned(), "call_b".to_owned()])
}

async fn has_raw_arguments(stage: Stage, scenario: StreamScenario) -> Checked {
    let message = hear(&stage).await?.end?.into_message();
    let found = message.tool_calls().map(|call| call.arguments.as_str().to_owned()).next();
    let said = scenario.replies.first().and_then(|reply| match reply {
        Reply::Streamed { says, .. } => Some(raw_arguments(says, 0)),
        _ => None,
    });
    same("the arguments", &found, &said)
}

async fn refuses_at_once(stage: Stage, _: StreamScenario) -> Checked {
    holds("the refusal comes as the error of a stream", hear(&stage).await?.at_once)
}

async fn folds(stage: Stage, _: StreamScenario) -> Checked {
    let reply = stage.provider.complete(request(), &context()).await?;
    same("the text", &reply.into_message().text(), &"Hello".to_owned())
}

/// Reads until `wanted` has been said, with the stream still open.
async fn read_until(stream: &mut DeltaStream, wanted: &str, says: fn(&Delta) -> Option<&str>) -> Checked {
    let mut rules = Rules::default();
    let mut said = String::new();
    while said != wanted {
        let Some(delta) = stream.next().await else {
            return Err(Flaw(format!("the stream ends after `{said}`, while the reply goes on")));
        };
        let delta = delta?;
        rules.take(&delta)?;
        said.push_str(says(&delta).unwrap_or_default());
    }
    Ok(())
}

fn text(delta: &Delta) -> Option<&str> {
    if let Delta::Text(text) = delta { Some(text) } else { None }
}

fn arguments(delta: &Delta) -> Option<&str> {
    if let Delta::ToolCallArguments { text, .. } = delta { Some(text) } else { None }
}

async fn shows_text(stage: Stage, _: StreamScenario) -> Checked {
    let mut stream = stage.provider.stream(request(), &context()).await?;
    read_until(&mut stream, "Hello", text).await
}

async fn shows_arguments(stage: Stage, _: StreamScenario) -> Checked {
    let mut stream = stage.provider.stream(request(), &context()).await?;
    read_until(&mut stream, "{\"at\": \"a", arguments).await
}

fn watch(stage: &Stage) -> Checked<Watch> {
    stage.watch.clone().ok_or_else(|| Flaw("the stage has no watch".to_owned()))
}

async fn drops_the_stream(stage: Stage, _: StreamScenario) -> Checked {
    let watch = watch(&stage)?;
    let mut stream = stage.provider.stream(request(), &context()).await?;
    read_until(&mut stream, "Hello", text).await?;
    holds("the call is over while its stream is read", watch.gone().now_or_never().is_none())?;
    drop(stream);
    watch.gone().await;
    Ok(())
}

async fn leaves_in_time(stage: Stage, scenario: StreamScenario) -> Checked {
    let watch = watch(&stage)?;
    plays_out(stage, scenario).await?;
    watch.gone().await;
    Ok(())
}

async fn drops_the_call(stage: Stage, _: StreamScenario) -> Checked {
    let watch = watch(&stage)?;
    let cx = context();
    // A layer that retries returns a stream at once; then reading it is what waits.
    let mut call: Pin<Box<_>> = Box::pin(async {
        let mut stream = stage.provider.stream(request(), &cx).await?;
        stream.next().await.transpose()
    });
    tokio::select! {
        answer = &mut call => return Err(Flaw(format!("a silent service was answered for: {answer:?}"))),
        () = watch.asked() => {}
    }
    drop(call);
    watch.gone().await;
    Ok(())
}

async fn cancels_a_run(stage: Stage, _: StreamScenario) -> Checked {
    let watch = watch(&stage)?;
    let agent = ReactAgent::builder("suite", Model::new(stage.provider.clone(), "model-1")).build()?;
    let runtime = Runtime::builder().egress(Egress::Loopback).build();
    let mut run = runtime.session().start(&agent, "Say it.");
    loop {
        match run.next().await.map(|envelope| envelope.event) {
            Some(Event::Delta(Delta::Text(_))) => break,
            Some(_) => {}
            None => return Err(Flaw("the run ended before any text came".to_owned())),
        }
    }
    run.cancel();
    same("how the run ended", &run.outcome().await?.status, &Status::Cancelled)?;
    watch.gone().await;
    Ok(())
}

async fn drops_and_calls_again(stage: Stage, scenario: StreamScenario) -> Checked {
    let mut stream = stage.provider.stream(request(), &context()).await?;
    read_until(&mut stream, "Hello", text).await?;
    drop(stream);
    let rest = StreamScenario::new(scenario.name, scenario.replies.into_iter().skip(1).collect::<Vec<_>>());
    plays_out(stage, rest).await
}
