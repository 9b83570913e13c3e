//! Slots in the pool: however an agent ends, its slot is free for the next; and a waiting agent can be stopped.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind,
    agent::Agent,
    event::Event,
    run::{Delegate, Effect, Observation, Outcome, Pause, Spawn, Status, Waited},
    session::{SessionFilter, SharedStore},
};
use entourage_testkit::Gate;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    common::{act, memory, stored},
    workers::{Worker, await_all, few, spawn_all},
};

#[tokio::test(start_paused = true)]
async fn ai04_a_place_is_free_after_an_answer_an_error_and_a_panic() {
    let worker = Worker::new(|prompt, _| {
        Box::pin(async move {
            match prompt {
                "fails" => Err(Error::new(ErrorKind::NotFound, "there is nothing")),
                "panics" => panic!("on purpose"),
                other => Ok(other.to_owned()),
            }
        })
    });
    let shared = worker.shared();
    let doer = act(move |cx| {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let prompts = ["fails", "panics", "answers", "panics", "fails", "ends"].map(str::to_owned);
            let children = spawn_all(cx, &shared, prompts).await?;
            let ends = await_all(cx, children).await?;
            assert!(cx.try_spawn(shared, "one more").await.is_ok());
            Ok(ends.iter().map(|end| end.status.to_string()).collect::<Vec<_>>().join("; "))
        })
    });
    let outcome = few(&memory(), 1).session().start(&doer, "Go").outcome().await.unwrap();
    let (fails, panics) = ("failed: there is nothing", "failed: the agent panicked: on purpose");
    assert_eq!(outcome.text, format!("{fails}; {panics}; completed; {panics}; {fails}; completed"));
    assert_eq!((worker.shift.most(), worker.shift.working()), (1, 0));
}

/// Returns the recorded ends of the children of the only root.
async fn ends(store: &SharedStore) -> Vec<(String, Outcome)> {
    let root = store.query(&SessionFilter::roots()).await.unwrap().pop().unwrap().record.id;
    let mut ends = Vec::new();
    for child in store.query(&SessionFilter::children_of(root)).await.unwrap() {
        let events = stored(store, &child.record.id).await;
        match &events.last().unwrap().event {
            Event::RunFinished(end) => ends.push((child.head.title.to_string(), end.outcome.clone())),
            other => panic!("{} has no end: {other:?}", child.head.title),
        }
    }
    ends.sort_by(|a, b| a.0.cmp(&b.0));
    ends
}

#[tokio::test(start_paused = true)]
async fn ai04_who_waits_in_the_line_is_cancelled_at_once_and_never_begins() {
    let (store, gate) = (memory(), Gate::new());
    let worker = Worker::behind(&gate);
    let (shared, open) = (worker.shared(), gate.clone());
    let doer = act(move |cx| {
        let (shared, open) = (Arc::clone(&shared), open.clone());
        Box::pin(async move {
            let child = |index| cx.session().child(1, index).unwrap();
            let run = |index, token| {
                let spawn = Spawn::new(Arc::clone(&shared), format!("{index}"));
                let delegate = Delegate::new(child(index), spawn).cancelled_by(token);
                cx.effects().perform(cx, None, Effect::Delegate(Box::new(delegate)))
            };
            let tokens = [(); 3].map(|()| cx.cancellation().child_token());
            let [first, second, third] =
                [0, 1, 2].map(|index| run(index, tokens[usize::try_from(index).unwrap()].clone()));
            let stop = async {
                open.arrived(1).await;
                tokens[1].cancel();
            };
            let (mut first, mut third) = (first, third);
            let (second, ()) = tokio::join!(
                async {
                    tokio::select! {
                        biased;
                        _ = &mut first => panic!("it works behind the gate"),
                        _ = &mut third => panic!("it waits in the line"),
                        ended = second => ended,
                    }
                },
                stop
            );
            let Observation::Child { outcome: Some(second), .. } = second? else { panic!() };
            open.open();
            let (first, third) = tokio::join!(first, third);
            let texts = [first?, third?].map(|it| match it {
                Observation::Child { outcome: Some(outcome), .. } => outcome.text,
                other => panic!("{other:?}"),
            });
            Ok(format!("{}, {}", second.status, texts.join(", ")))
        })
    });
    let outcome = few(&store, 1).session().start(&doer, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "cancelled, did 0, did 2");
    assert_eq!(worker.shift.began(), ["0", "2"]);
    let ends = ends(&store).await;
    assert_eq!(
        ends.iter().map(|(_, end)| end.status.to_string()).collect::<Vec<_>>(),
        ["completed", "cancelled", "completed"]
    );
}

#[tokio::test(start_paused = true)]
async fn ca06_a_cancel_of_the_root_ends_those_that_work_and_those_that_wait() {
    let (store, gate) = (memory(), Gate::new());
    let worker = Worker::behind(&gate);
    let shared = worker.shared();
    let doer = act(move |cx| {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let children = spawn_all(cx, &shared, (0..25).map(|n| format!("{n:02}"))).await?;
            Ok(await_all(cx, children).await?.len().to_string())
        })
    });
    let run = few(&store, 10).session().start(&doer, "Go");
    gate.arrived(10).await;
    let began = Instant::now();
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!((worker.shift.began().len(), worker.shift.working()), (10, 0));
    assert_eq!(began.elapsed(), Duration::ZERO);
    let ends = ends(&store).await;
    assert_eq!(ends.len(), 25, "each is recorded");
    assert!(ends.iter().all(|(_, end)| end.status == Status::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn ai04_a_finished_wait_continues_even_when_all_slots_are_taken() {
    let gate = Gate::new();
    let hangs = Worker::behind(&gate);
    let leaf = hangs.shared();
    let middle = Worker::new(move |_, cx| {
        let leaf = Arc::clone(&leaf);
        Box::pin(async move {
            let child = cx.spawn(leaf, "hangs").await?;
            match cx.wait_any(&[child], Some(Duration::from_secs(5))).await? {
                Waited::TimedOut => Ok("gave up".to_owned()),
                Waited::Ended { outcome, .. } => panic!("{outcome:?}"),
            }
        })
    });
    let above = middle.shared();
    let doer = act(move |cx| {
        let above = Arc::clone(&above);
        Box::pin(async move {
            let children = spawn_all(cx, &above, ["a".into(), "b".into()]).await?;
            let ends = await_all(cx, children).await?;
            Ok(ends.iter().map(|end| end.text.as_str()).collect::<Vec<_>>().join(", "))
        })
    });
    let began = Instant::now();
    let outcome = few(&memory(), 1).session().start(&doer, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "gave up, gave up");
    // Each releases its slot: the first to the other one, and that one to the first one's child, which keeps it.
    assert_eq!((began.elapsed().as_secs(), hangs.shift.began().len(), hangs.shift.working()), (5, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn ai04_a_run_that_pauses_lets_its_children_have_its_place() {
    let store = memory();
    let worker = Worker::second();
    let leaf = worker.shared();
    let middle = Worker::new(move |_, cx| {
        let leaf = Arc::clone(&leaf);
        Box::pin(async move {
            let children = spawn_all(cx, &leaf, ["a".into(), "b".into()]).await?;
            let signal = cx.signal("go").await?;
            let ends = await_all(cx, children).await?;
            Ok(format!("{signal}: {}", ends.len()))
        })
    });
    let above = middle.shared();
    let doer = act(move |cx| {
        let above: Arc<dyn Agent> = Arc::clone(&above);
        Box::pin(async move {
            let child = cx.spawn(above, "Go").await?;
            Ok(await_all(cx, vec![child]).await?[0].text.clone())
        })
    });
    let runtime = few(&store, 1);
    let session = runtime.session();
    let paused = session.start(&doer, "Go").outcome().await.unwrap();
    assert!(matches!(paused.status, Status::Paused(Pause::Signal { .. })), "{paused:?}");
    assert_eq!((worker.shift.began().len(), worker.shift.most(), worker.shift.working()), (2, 1, 0));
    let child = store.query(&SessionFilter::children_of(session.id().clone())).await.unwrap().pop().unwrap();
    runtime.open(&child.record.id).await.unwrap().signal("go", json!("now")).await.unwrap();
    let outcome = session.resume(&doer).outcome().await.unwrap();
    assert_eq!(outcome.text, "\"now\": 2");
    assert_eq!(worker.shift.began().len(), 2, "what was completed is not repeated");
}
