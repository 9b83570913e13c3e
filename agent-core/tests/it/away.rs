//! A store that is away for a moment: what is told of prompts that waited, and of a call whose result it did not take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Agents, Error, ErrorKind, Result, SessionId,
    agent::ReactAgent,
    event::{Envelope, Event},
    permission::Policy,
    session::{Batch, ReadRange, Row, SessionFilter, SessionInfo, SessionStore, SharedStore},
    testkit::{self, FakeTool, Gate, ScriptedProvider},
    tool::{Access, Repeat},
};
use serde_json::json;

use crate::common::{LaterClock, Meddles, Through, agent, count, memory, settled, stored};

/// Fails whatever is asked while it is away.
#[derive(Debug)]
struct Away(SharedStore, AtomicBool);

impl Away {
    fn check(&self) -> Result<()> {
        match self.1.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Store, "the disk is gone; put it back")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Meddles for Away {
    fn inner(&self) -> &SharedStore {
        &self.0
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        self.check()?;
        self.0.append(session, expected, batch).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        self.check()?;
        self.0.read(session, range).await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.check()?;
        self.0.query(filter).await
    }
}

fn payer(gate: &Gate) -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("pay", json!({})).text("Paid.").text("Again.");
    let pay = FakeTool::new("pay").access(Access::WRITE).repeat(Repeat::Once).behind(gate);
    agent(provider.model()).tool(pay).build().unwrap()
}

fn prompts(events: &[Envelope], text: &str) -> usize {
    let of = |event: &&Envelope| matches!(&event.event, Event::RunStarted(run) if run.prompt.text() == text);
    events.iter().filter(of).count()
}

#[tokio::test(start_paused = true)]
async fn a_queued_prompt_whose_handle_failed_says_that_it_will_run_and_runs_once() {
    for cancels in [false, true] {
        let inner = memory();
        let store = Arc::new(Through(Away(Arc::clone(&inner), AtomicBool::new(false))));
        let gate = Gate::new();
        let open = || testkit::runtime().policy(Policy::allow_all());
        let runtime = open().shared_store(Arc::clone(&store) as Arc<dyn SessionStore>).build();
        let session = runtime.session();
        let first = session.start(&payer(&gate), "Pay");
        gate.arrived(1).await;
        let second = session.start(&payer(&gate), "transfer 100");
        while count(&stored(&inner, session.id()).await, "prompt_queued") == 0 {
            tokio::task::yield_now().await;
        }
        store.1.store(true, Ordering::SeqCst);
        if cancels {
            session.cancel();
        } else {
            gate.open();
        }
        let (first, second) = (first.outcome().await.unwrap_err(), second.outcome().await.unwrap_err());
        assert_eq!(first.kind(), ErrorKind::Store, "{first}");
        assert_eq!(second.kind(), ErrorKind::Queued, "{second}");
        assert!(second.message().contains("the disk is gone"), "{second}");
        store.1.store(false, Ordering::SeqCst);
        gate.open();
        // As the error says: it is not given again, and the next recovery runs it.
        let later = LaterClock::new(Duration::from_secs(60));
        let runtime = open().clock(later).shared_store(Arc::clone(&inner)).build();
        for run in runtime.recover(&Agents::new().with(payer(&gate))).await.unwrap().resumed {
            run.outcome().await.unwrap();
        }
        let session = runtime.open(session.id()).await.unwrap();
        while session.is_busy() || !session.state().await.unwrap().queue().is_empty() {
            tokio::task::yield_now().await;
        }
        let events = stored(&inner, session.id()).await;
        assert_eq!((prompts(&events, "Pay"), prompts(&events, "transfer 100")), (1, 1));
        // Of the call nobody knows more than that its result is not there.
        let (_, result) = settled(&events).remove(0);
        assert!(result.contains("no result of this call was stored"), "{result}");
    }
}
