//! The cost of a step with each kind of store: transactions, which are counted, and time.

use std::{path::Path, sync::Arc, time::Instant};

use entourage::store::Durability;
use entourage_core::session::SharedStore;
use entourage_runners::ReactAgent;
use entourage_runtime::{AgentExt, MemoryStore, Runtime};

use crate::{
    Results,
    material::{Noting, fan_reader},
    median, sqlite,
};

/// Number of transactions of a run with `steps` model calls, all but the last of which ask for `fan` pages that finish
/// in order.
async fn transactions(store: SharedStore, steps: u64, fan: u32) -> usize {
    let noting = Arc::new(Noting::new(store));
    let runtime = Runtime::builder().shared_store(Arc::clone(&noting) as SharedStore).build();
    let agent = fan_reader(steps, fan, Some(noting.settled()));
    let outcome = runtime.session().start(&agent, "Read.").outcome().await.unwrap();
    assert_eq!(outcome.text, "These pages are read.");
    noting.writes.lock().unwrap().len()
}

pub(crate) async fn count(results: &mut Results, directory: &Path) {
    const STEPS: u64 = 10;
    let store: SharedStore = Arc::new(sqlite(&directory.join("step.db"), Durability::PowerLoss).await);
    let begin_and_end = transactions(Arc::clone(&store), 1, 1).await;
    for fan in [1, 2, 3, 8] {
        let all = transactions(Arc::clone(&store), STEPS + 1, fan).await;
        assert!(
            (all - begin_and_end).is_multiple_of(STEPS as usize),
            "{all} with {fan} tools, {begin_and_end} with none"
        );
        let step = (all - begin_and_end) as f64 / STEPS as f64;
        let most = f64::from(fan) + 1.0;
        assert!(step <= most, "a step with {fan} tools takes {step} transactions");
        results.add(&format!("step_{fan}_transactions"), step, Some(most));
    }
    println!("a run of no tools takes {begin_and_end} transactions");
}

/// Microseconds per step with one tool.
async fn micros(store: Option<&SharedStore>, agent: &ReactAgent, steps: u64) -> f64 {
    let runtime = store.map(|store| Runtime::builder().shared_store(Arc::clone(store)).build());
    let session = runtime.map(|runtime| (runtime.session(), runtime));
    let start = Instant::now();
    let run = match &session {
        Some((session, _)) => session.start(agent, "Read."),
        None => agent.start("Read."),
    };
    assert_eq!(run.outcome().await.unwrap().text, "These pages are read.");
    let seconds = start.elapsed().as_secs_f64();
    if let Some((session, runtime)) = session {
        let events = session.events(0, usize::MAX).await.unwrap();
        let settled = events.iter().filter(|event| event.event.kind() == "tool_finished").count();
        assert_eq!(settled as u64, steps - 1);
        runtime.store().delete(session.id()).await.unwrap();
    }
    seconds * 1e6 / steps as f64
}

pub(crate) async fn journal(directory: &Path, quick: bool) {
    let (samples, steps) = if quick { (1, 5) } else { (31, 30) };
    let open = async |durability: Durability| {
        let store = sqlite(&directory.join(format!("journal-{durability:?}.db")), durability).await;
        Some(Arc::new(store) as SharedStore)
    };
    let memory: Option<SharedStore> = Some(Arc::new(MemoryStore::new()));
    let stores = [
        ("nothing", None),
        ("memory", memory),
        ("sqlite that survives the process", open(Durability::ProcessDeath).await),
        ("sqlite that survives a power cut", open(Durability::PowerLoss).await),
    ];
    let agent = fan_reader(steps, 1, None);
    let mut times = stores.each_ref().map(|_| Vec::new());
    for _ in 0..=samples {
        for (times, (_, store)) in times.iter_mut().zip(&stores) {
            // The run before waited for the disk, and left cold caches.
            micros(store.as_ref(), &agent, steps).await;
            times.push(micros(store.as_ref(), &agent, steps).await);
        }
    }
    for ((name, _), times) in stores.iter().zip(times) {
        println!("step with one tool, kept in {name}: {:.1} µs", median(times));
    }
}
