//! Subscribers that are slow, gone, or never read; and writes to the store while nothing new happens.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Result, SessionId,
    event::{Envelope, Event},
    provider::{Delta, FinishReason},
    run::Status,
    session::{Batch, Lease, SessionFilter, SharedStore},
};
use entourage_runtime::Subscription;
use entourage_testkit::{self as testkit, FakeTool, LiveProvider, Script, ScriptedProvider};
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::Instant;

use crate::common::{Meddles, Through, agent, count, drain, kinds, memory, open_runtime, stored};

/// The events that are ready now.
fn ready(events: &mut Subscription) -> Vec<Envelope> {
    let mut seen = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        seen.push(event);
    }
    seen
}

#[tokio::test]
async fn cd03_a_subscriber_sees_what_every_handle_sees_after_it_was_stored() {
    let store = memory();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store)).build();
    let mut events = runtime.subscribe();
    let provider = ScriptedProvider::by_history().call("look", json!({})).text("Done.");
    let agent = agent(provider.model()).tool(FakeTool::new("look")).build().unwrap();
    let mut handles = Vec::new();
    for _ in 0..2 {
        let mut run = runtime.session().start(&agent, "Go");
        handles.push(drain(&mut run).await);
        // Nothing is shown before it is stored, the end last of all.
        let rows = stored(&store, run.session()).await;
        assert_eq!(rows.last().unwrap().event.kind(), "run_finished");
    }
    let seen = ready(&mut events);
    for handle in &handles {
        let run = handle[0].origin.run;
        let own: Vec<_> = seen.iter().filter(|event| event.origin.run == run).cloned().collect();
        assert_eq!(&own, handle);
    }
    assert_eq!(events.missed(), 0);
    drop(runtime);
    assert!(events.next().await.is_none(), "it ends with the runtime");
}

/// A provider of one reply with `deltas` pieces.
fn talker(deltas: usize) -> ScriptedProvider {
    let script = (0..deltas).fold(Script::new(), |script, n| script.text(format!("{n} ")));
    ScriptedProvider::by_history().step(script.finish(FinishReason::Stop))
}

#[tokio::test(start_paused = true)]
async fn cd03_a_subscriber_that_never_reads_costs_a_moment_and_missed_events_are_counted() {
    let provider = talker(10_000);
    let agent = agent(provider.model()).build().unwrap();
    let runtime = open_runtime();
    let mut deaf = runtime.subscribe();
    let began = Instant::now();
    let mut run = runtime.session().start(&agent, "Talk");
    let all = drain(&mut run).await;
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);
    // Only the end had to wait: the start found room.
    assert_eq!(began.elapsed(), Duration::from_millis(50));
    let kept = ready(&mut deaf);
    assert_eq!(kept.len(), 4096);
    assert_eq!(kept, all[..4096], "the oldest, in order");
    assert_eq!(deaf.missed(), all.len() as u64 - 4096);
    assert!(all.len() > 10_000);
}

#[tokio::test(start_paused = true)]
async fn cd03_what_must_arrive_waits_for_room_and_the_rest_is_dropped() {
    let provider = talker(100);
    let agent = agent(provider.model()).build().unwrap();
    let runtime = testkit::runtime().event_buffer(2).build();
    let mut slow = runtime.subscribe();
    let reader = tokio::spawn(async move {
        let mut seen = Vec::new();
        loop {
            tokio::time::sleep(Duration::from_millis(40)).await;
            let event = slow.next().await.unwrap();
            let over = event.event.kind() == "run_finished";
            seen.push(event);
            if over {
                return (seen, slow.missed());
            }
        }
    });
    let mut run = runtime.session().start(&agent, "Talk");
    let all = drain(&mut run).await;
    run.outcome().await.unwrap();
    let (seen, missed) = reader.await.unwrap();
    assert_eq!(count(&seen, "run_started"), 1);
    assert_eq!(count(&seen, "run_finished"), 1, "{:?}", kinds(&seen));
    assert_eq!(seen.len() as u64 + missed, all.len() as u64);
    assert!(missed > 90, "{missed}");
}

#[tokio::test(start_paused = true)]
async fn cd03_several_full_subscribers_are_waited_for_together() {
    let provider = talker(3);
    let agent = agent(provider.model()).build().unwrap();
    let runtime = testkit::runtime().event_buffer(1).build();
    let deaf: Vec<_> = (0..20).map(|_| runtime.subscribe()).collect();
    let mut reads = runtime.subscribe();
    let reader = tokio::spawn(async move {
        let mut seen = Vec::<String>::new();
        while seen.last().is_none_or(|kind| kind != "run_finished") {
            seen.push(reads.next().await.unwrap().event.kind().to_owned());
        }
        seen
    });
    let began = Instant::now();
    runtime.session().start(&agent, "Talk").outcome().await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(50), "not for one after the other");
    assert_eq!(reader.await.unwrap()[0], "run_started");
    assert!(deaf.iter().all(|it| it.missed() > 0));
}

#[tokio::test(start_paused = true)]
async fn cd03_a_subscriber_that_never_reads_is_waited_for_once_until_it_reads_again() {
    let provider = talker(3);
    let agent = agent(provider.model()).build().unwrap();
    let runtime = testkit::runtime().event_buffer(4).build();
    let mut deaf = runtime.subscribe();
    let mut kept = 0;
    for _ in 0..3 {
        let (began, missed) = (Instant::now(), deaf.missed());
        let mut events = 0;
        for _ in 0..50 {
            let mut run = runtime.session().start(&agent, "Talk");
            events += drain(&mut run).await.len() as u64;
            run.outcome().await.unwrap();
        }
        assert_eq!(began.elapsed(), Duration::from_millis(50), "for all runs together");
        kept = ready(&mut deaf).len() as u64;
        assert_eq!(deaf.missed() - missed, events - kept, "what it has not is counted");
    }
    assert_eq!(kept, 4);
}

#[tokio::test(start_paused = true)]
async fn cd03_one_who_goes_away_is_not_waited_for() {
    let provider = talker(10);
    let agent = agent(provider.model()).build().unwrap();
    let runtime = testkit::runtime().event_buffer(1).build();
    let leaves = runtime.subscribe();
    let run = runtime.session().start(&agent, "Talk");
    let began = Instant::now();
    // It goes while the run waits for it.
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(leaves);
    });
    run.outcome().await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(20));
    let began = Instant::now();
    drop(runtime.subscribe());
    runtime.session().start(&agent, "Talk").outcome().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn cd03_a_subscription_is_a_stream_and_begins_when_it_is_made() {
    let provider = ScriptedProvider::new().text("One.").text("Two.");
    let agent = agent(provider.model()).build().unwrap();
    let runtime = open_runtime();
    runtime.session().start(&agent, "One?").outcome().await.unwrap();
    let events = runtime.subscribe();
    runtime.session().start(&agent, "Two?").outcome().await.unwrap();
    drop(runtime);
    let seen: Vec<_> = events.collect().await;
    assert_eq!(count(&seen, "run_started"), 1);
    assert!(matches!(&seen[0].event, Event::RunStarted(run) if run.prompt.text() == "Two?"));
}

/// A store that counts its writes, and the times of leases.
#[derive(Debug)]
struct Counting {
    inner: SharedStore,
    appends: AtomicUsize,
    leases: AtomicUsize,
}

impl Counting {
    fn new() -> Arc<Through<Self>> {
        let (appends, leases) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Through(Self { inner: memory(), appends, leases }))
    }

    fn writes(&self) -> (usize, usize) {
        (self.appends.load(Ordering::SeqCst), self.leases.load(Ordering::SeqCst))
    }
}

#[async_trait]
impl Meddles for Counting {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        self.inner.append(session, expected, batch).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.leases.fetch_add(1, Ordering::SeqCst);
        self.inner.lease(session, lease).await
    }
}

#[tokio::test(start_paused = true)]
async fn cd02_deltas_are_not_stored_and_a_silent_run_renews_its_lease_once_per_third_of_its_time() {
    let store = Counting::new();
    let lease = Duration::from_secs(30);
    let runtime = testkit::runtime().shared_store(Arc::clone(&store) as _).lease(lease).build();
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let mut run = runtime.session().start(&agent, "Go");
    let mut call = provider.asked().await;
    assert_eq!(store.writes(), (1, 0), "the prompt and the call are stored together");
    for _ in 0..100 {
        call.text("word ");
        while !matches!(run.next().await.unwrap().event, Event::Delta(Delta::Text(_))) {}
    }
    assert_eq!(store.writes(), (1, 0), "nothing is written for a delta");
    tokio::time::sleep(Duration::from_secs(101)).await;
    assert_eq!(store.writes(), (1, 10), "once in 10 s");
    call.finish(FinishReason::Stop);
    drain(&mut run).await;
    assert_eq!(store.writes(), (2, 10), "the reply and the end are stored together");
    run.outcome().await.unwrap();
    // Nobody renews anything any more.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(store.writes(), (2, 10));
    let info = store.inner.query(&SessionFilter::all()).await.unwrap().pop().unwrap();
    assert!(!info.lease.unwrap().is_live(info.head.updated), "the lease is given back with the end");
}

#[tokio::test(start_paused = true)]
async fn cd02_a_cancel_flushes_what_had_come() {
    let store = Counting::new();
    let runtime = testkit::runtime().shared_store(Arc::clone(&store) as _).build();
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let mut run = runtime.session().start(&agent, "Go");
    let mut call = provider.asked().await;
    for _ in 0..100 {
        call.text("word ");
        while !matches!(run.next().await.unwrap().event, Event::Delta(Delta::Text(_))) {}
    }
    run.cancel();
    let session = run.session().clone();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(store.writes(), (2, 0));
    let events = stored(&store.inner, &session).await;
    let reply = events.iter().find_map(|event| match &event.event {
        Event::ModelFinished(reply) => Some(reply.message.text()),
        _ => None,
    });
    assert_eq!(reply.unwrap(), "word ".repeat(100));
    assert_eq!(events.last().unwrap().event.kind(), "run_finished");
}
