use futures_util::FutureExt;
use rmcp::model::NumberOrString;

use super::*;

/// A step of what may happen to the requests of one id.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// A request comes.
    Arrive,
    /// The client cancels the id.
    Cancel,
    /// The request is dropped on its way to rmcp.
    Lose,
    /// rmcp takes the request.
    Receive,
    /// The handler begins.
    Begin,
    /// The handler ends: its answer is on the way out.
    End,
    /// The handler panics: there is no answer.
    Panic,
    /// rmcp sends the answer.
    Answer,
    /// The client leaves.
    Leave,
}

const STEPS: [Step; 9] = [
    Step::Arrive,
    Step::Cancel,
    Step::Lose,
    Step::Receive,
    Step::Begin,
    Step::End,
    Step::Panic,
    Step::Answer,
    Step::Leave,
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Arrives,
    Received,
    Begun,
    Ended,
}

/// The request that there is, as it ought to be: there is never a second one of the id.
#[derive(Debug, Clone, Copy)]
struct Expected {
    live: Option<(Stage, bool)>,
    left: bool,
}

impl Expected {
    /// Returns what follows; `None` for a step that cannot happen.
    fn after(mut self, step: Step) -> Option<Self> {
        self.live = match (step, self.live) {
            (Step::Arrive, None) => Some((Stage::Arrives, false)),
            (Step::Cancel, None) | (Step::Arrive, Some(_)) => self.live,
            (Step::Cancel, Some((stage, _))) => Some((stage, true)),
            (Step::Lose, Some((Stage::Arrives, _))) => None,
            (Step::Receive, Some((Stage::Arrives, cancelled))) => Some((Stage::Received, cancelled)),
            (Step::Begin, Some((Stage::Received, cancelled))) => Some((Stage::Begun, cancelled)),
            // Of some requests the handler never says that it begins.
            (Step::End, Some((Stage::Received | Stage::Begun, cancelled))) => Some((Stage::Ended, cancelled)),
            (Step::Panic, Some((Stage::Received | Stage::Begun, _))) => None,
            (Step::Answer, Some((Stage::Ended, _))) => None,
            (Step::Leave, live) if !self.left => {
                self.left = true;
                live
            }
            _ => return None,
        };
        Some(self)
    }
}

fn id() -> RequestId {
    NumberOrString::Number(7)
}

/// Performs the steps, and checks each against what is expected.
fn perform(steps: &[Step]) {
    let all = InFlight::default();
    let mut expected = Expected { live: None, left: false };
    let mut place: Option<Admitted> = None;
    let mut stop: Option<CancellationToken> = None;
    // True while rmcp has the request, and has neither begun nor answered it.
    let mut opens = false;
    for step in steps {
        opens = match step {
            Step::Receive => true,
            Step::Begin | Step::Answer | Step::Panic => false,
            _ => opens,
        };
        let before = expected;
        expected = expected.after(*step).unwrap();
        match step {
            Step::Arrive => {
                let admitted = all.place(&id());
                assert_eq!(admitted.is_some(), before.live.is_none(), "{steps:?}");
                place = admitted.or(place);
            }
            Step::Cancel => all.cancel(&id()),
            Step::Lose => place = None,
            Step::Receive => place.as_ref().unwrap().received(true),
            Step::Begin => {
                let token = CancellationToken::new();
                let begins = place.as_ref().unwrap().begin(&token);
                let may = !before.left && before.live.is_some_and(|(_, cancelled)| !cancelled);
                assert_eq!(begins, may, "{steps:?}");
                stop = begins.then_some(token);
            }
            Step::End => drop((place.take(), stop.take())),
            Step::Panic => {
                let (place, _) = (place.take(), stop.take());
                let panics = thread::spawn(move || {
                    let _place = place;
                    // Not `panic!`, which writes to standard error.
                    std::panic::resume_unwind(Box::new(()));
                });
                assert!(panics.join().is_err());
            }
            Step::Answer => {
                let (_, cancelled) = before.live.unwrap();
                assert_eq!(all.answer(&id()), !cancelled, "{steps:?}");
            }
            Step::Leave => all.cancel_all(),
        }
        let taken = all.locked().by_id.len();
        assert_eq!(taken, usize::from(expected.live.is_some()), "{steps:?}");
        assert_eq!(all.opened().now_or_never().is_none(), opens, "{steps:?}");
        let cancelled = expected.left || expected.live.is_some_and(|(_, cancelled)| cancelled);
        assert!(stop.iter().all(|it| it.is_cancelled() == cancelled), "{steps:?}");
    }
}

/// Performs all orders of up to `more` further steps. Returns their number.
fn all_orders(steps: &mut Vec<Step>, expected: Expected, more: usize) -> usize {
    perform(steps);
    let mut orders = 1;
    for step in STEPS.into_iter().filter(|_| more > 0) {
        if let Some(next) = expected.after(step) {
            steps.push(step);
            orders += all_orders(steps, next, more - 1);
            steps.pop();
        }
    }
    orders
}

#[test]
fn an_id_is_taken_as_long_as_its_request_can_happen_or_be_answered_in_all_orders() {
    let orders = all_orders(&mut Vec::new(), Expected { live: None, left: false }, 8);
    assert!(orders > 10_000, "{orders}");
}

/// A transport that receives these messages, and keeps what it sends.
struct Fake {
    receives: Vec<RxJsonRpcMessage<RoleServer>>,
    sent: Arc<Mutex<Vec<TxJsonRpcMessage<RoleServer>>>>,
}

impl Transport<RoleServer> for Fake {
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.sent.lock().unwrap().push(message);
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.receives.pop()
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

#[tokio::test]
async fn a_cancel_ends_at_the_transport_and_the_answer_of_its_request_too() {
    let message = |text: &str| serde_json::from_str::<RxJsonRpcMessage<RoleServer>>(text).unwrap();
    let request = || message(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    let all = InFlight::default();
    let receives = vec![message(cancel), all.admit(request()).unwrap()];
    assert!(all.admit(request()).is_err());
    let sent = Arc::default();
    let mut tracked = Tracked::new(Fake { receives, sent: Arc::clone(&sent) }, all.clone());
    let received = tracked.receive().await.unwrap();
    assert!(!all.0.ended.is_cancelled());
    assert!(tracked.receive().await.is_none() && all.0.ended.is_cancelled());
    // rmcp has dropped the message, and its answer is on the way.
    drop(received);
    assert!(all.admit(request()).is_err());
    let answer = |id| JsonRpcMessage::error(ErrorData::internal_error("none", None), Some(id));
    tracked.send(answer(id())).await.unwrap();
    assert!(sent.lock().unwrap().is_empty());
    // The id is free, and an answer that nobody cancelled is sent.
    drop(all.admit(request()).unwrap());
    tracked.send(answer(id())).await.unwrap();
    assert_eq!(sent.lock().unwrap().len(), 1);
}
