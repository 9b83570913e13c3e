//! The mailbox as there are more messages: all wait at once, then their recipient reads them. Each member's item is a
//! conversation of its own, so that nothing but the mailbox and the team's record grows with the number of messages.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_core::{message::Role, provider::Request, tool::Access};
use entourage_runners::{
    ReactAgent,
    from_fn::typed,
    team::{Member, Team},
};
use entourage_runtime::AgentExt;
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};
use tokio::runtime::Runtime as Tokio;

use crate::{
    least, seconds,
    stand_in::{self, Said},
};

/// Messages of one item: its sender makes so many calls in one step. The mailbox gives half of them with a prompt and
/// half of them with a result.
const EACH: usize = 100;

fn said(number: usize) -> Value {
    json!({ "to": "bob", "type": "status", "text": format!("Part {number} is done.") })
}

fn has_results(request: &Request) -> bool {
    request.messages.last().is_some_and(|message| message.role() != Role::User)
}

/// `ann` sends all in one item after the other, then `bob` reads.
fn plan(messages: usize) -> String {
    let count = messages / EACH;
    let chain = (0..count).map(|place| {
        let before: Vec<_> = place.checked_sub(1).map(|before| format!("a{before}")).into_iter().collect();
        stand_in::item(&format!("a{place}"), "code", Some("ann"), &before)
    });
    let last = [format!("a{}", count - 1)];
    let readers = (0..count).map(|place| stand_in::item(&format!("b{place}"), "code", Some("bob"), &last));
    stand_in::plan(&chain.chain(readers).collect::<Vec<_>>())
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A team, and the number of messages that `bob` has read.
fn team(messages: usize) -> (Team, Arc<AtomicUsize>) {
    let heard = Arc::new(AtomicUsize::new(0));
    let ann = stand_in::model(Duration::ZERO, |request| {
        if has_results(request) {
            return Said::Text("Sent.".to_owned());
        }
        Said::Calls((0..EACH).map(|number| ("send_message", said(number))).collect())
    });
    let counted = Arc::clone(&heard);
    let bob = stand_in::model(Duration::ZERO, move |request| {
        if !has_results(request) {
            return Said::Calls(vec![("look", json!({}))]);
        }
        let texts = request.messages.iter().map(|message| {
            let results: String = message.tool_results().map(|result| result.to_text()).collect();
            message.text() + &results
        });
        let count = texts.map(|text| text.matches("<message id=").count()).sum();
        counted.fetch_add(count, Ordering::Relaxed);
        Said::Text("Read.".to_owned())
    });
    let look = typed("look", "Looks.", Access::NONE, |Nothing {}| async move { Ok("Nothing.") });
    let ann = ReactAgent::builder("ann", ann).build().unwrap();
    let bob = ReactAgent::builder("bob", bob).tool(look).build().unwrap();
    let lead = stand_in::lead(Duration::ZERO, &plan(messages));
    let team = Team::builder("crew", lead).members([Member::new(ann), Member::new(bob)]).mailbox();
    (team.build().unwrap(), heard)
}

fn ours(messages: usize) -> impl Fn() -> BoxFuture<'static, ()> {
    let (team, heard) = team(messages);
    move || {
        let (team, heard) = (team.clone(), Arc::clone(&heard));
        async move {
            heard.store(0, Ordering::Relaxed);
            assert_eq!(team.ask("Go").await.unwrap(), "Done.");
            assert_eq!(heard.load(Ordering::Relaxed), messages);
        }
        .boxed()
    }
}

/// The floor: messages are JSON in a list, their numbers wait in a queue for each recipient, and no agent calls.
#[derive(Default)]
struct ByHand {
    record: Vec<Value>,
    waiting: HashMap<String, VecDeque<usize>>,
}

impl ByHand {
    fn send(&mut self, arguments: &str) {
        let message: Value = serde_json::from_str(arguments).unwrap();
        let to = message["to"].as_str().unwrap().to_owned();
        self.waiting.entry(to).or_default().push_back(self.record.len());
        self.record.push(message);
    }

    fn read(&mut self, to: &str, most: usize) -> String {
        let waiting = self.waiting.get_mut(to).unwrap();
        let taken = waiting.drain(..most.min(waiting.len()));
        let text = |place: usize| {
            format!("<message id=\"{place}\">{}</message>", self.record[place]["text"].as_str().unwrap())
        };
        taken.map(text).collect()
    }
}

fn by_hand(messages: usize) -> impl Fn() -> BoxFuture<'static, ()> {
    move || {
        async move {
            let (mut mailbox, mut heard) = (ByHand::default(), 0);
            for number in 0..messages {
                mailbox.send(&said(number % EACH).to_string());
            }
            for _ in 0..messages * 2 / EACH {
                heard += mailbox.read("bob", EACH / 2).matches("<message id=").count();
            }
            assert_eq!(heard, messages);
        }
        .boxed()
    }
}

/// Returns how the time grows from few messages to many, beside their numbers, and the microseconds of one of the many.
fn growth(
    tokio: &Tokio,
    samples: usize,
    [few, many]: [usize; 2],
    works: [&dyn Fn() -> BoxFuture<'static, ()>; 2],
) -> (f64, f64) {
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let [one, other] = works.map(|work| seconds(tokio, work()));
        short.push(one / few as f64);
        long.push(other / many as f64);
    }
    (least(&long) / least(&short), least(&long) * 1e6)
}

/// Returns the time of ten times the messages over ten times the time.
pub(crate) fn measure(tokio: &Tokio, quick: bool) -> f64 {
    let (samples, counts) = if quick { (1, [EACH, 2 * EACH]) } else { (21, [1_000, 10_000]) };
    let (floor, floor_each) = growth(tokio, samples, counts, [&by_hand(counts[0]), &by_hand(counts[1])]);
    let (ours, our_each) = growth(tokio, samples, counts, [&ours(counts[0]), &ours(counts[1])]);
    println!(
        "a message of {}, sent by a tool call and read: {our_each:.1} µs, floor {floor_each:.2} µs; growth of the floor {floor:.2}",
        counts[1]
    );
    ours
}
