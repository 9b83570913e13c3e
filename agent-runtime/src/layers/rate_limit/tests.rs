use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{queue::Outcome, *};
use entourage_core::provider::{RateLimits, RateWindow};

fn queue(permits: usize) -> Queue {
    let second = Duration::from_secs;
    Queue::new(Adaptive::new(1..=permits, second(5), second(15), 5), None, None)
}

#[test]
fn lo14_a_newer_call_supersedes_calls_of_its_key() {
    let now = Instant::now();
    let mut queue = queue(1);
    let title: Arc<str> = "title".into();
    let (running, none) = queue.join(Priority::COMMAND, 1, Some(Arc::clone(&title)));
    assert!(none.is_empty());
    assert_eq!(queue.admit(now), Some(running));
    let (other, none) = queue.join(Priority::BACKGROUND, 1, Some("other".into()));
    assert!(none.is_empty());
    let (_, first) = queue.join(Priority::CHAT, 1, Some(Arc::clone(&title)));
    assert_eq!(first, [running]);
    let (newest, older) = queue.join(Priority::COMMAND, 1, Some(title));
    assert_eq!(older.len(), 2);
    assert_eq!((queue.waiting(), queue.running()), (2, 1), "a running one keeps its place until it is gone");
    assert_eq!(queue.admit(now), None);
    queue.leave(Priority::COMMAND, running, now, Outcome::default());
    assert_eq!(queue.admit(now), Some(newest));
    queue.leave(Priority::COMMAND, newest, now, Outcome::default());
    assert_eq!(queue.admit(now), Some(other));
}

#[test]
fn lo14_a_service_report_holds_all_calls_for_at_most_a_minute() {
    let now = Instant::now();
    let mut queue = queue(3);
    queue.join(Priority::CHAT, 1, None);
    let window = |remaining, seconds| {
        let mut window = RateWindow::default();
        (window.remaining, window.reset) = (Some(remaining), Some(Duration::from_secs(seconds)));
        window
    };
    let limits = |requests, input_tokens| {
        let mut limits = RateLimits::default();
        (limits.requests, limits.input_tokens) = (requests, input_tokens);
        limits
    };
    let none = RateWindow::default;
    queue.note(now, &limits(window(1, 50), none()));
    assert_eq!(queue.opens_at(now), None, "something is left");
    queue.note(now, &limits(none(), window(0, 7)));
    assert_eq!(queue.opens_at(now), Some(now + Duration::from_secs(7)));
    assert_eq!(queue.admit(now), None);
    queue.note(now, &limits(window(0, 1_000_000_000), none()));
    assert_eq!(queue.opens_at(now), Some(now + Duration::from_secs(60)));
    assert!(queue.admit(now + Duration::from_secs(60)).is_some());
}

#[derive(Debug, Clone)]
enum Step {
    Join(u8),
    Leave(usize),
    Pass(u64, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u8..4).prop_map(Step::Join),
        2 => (0_usize..8).prop_map(Step::Leave),
        2 => (0_u64..20, any::<bool>()).prop_map(|(seconds, timed)| Step::Pass(seconds, timed)),
    ]
}

proptest! {
    /// The machine against a list that is searched for the first call of the highest priority.
    #[test]
    fn lo14_the_highest_and_oldest_runs_and_never_too_many(steps in prop::collection::vec(step(), 1..80)) {
        let mut now = Instant::now();
        let mut queue = queue(3);
        let (mut waiting, mut running) = (BTreeSet::new(), Vec::new());
        for step in steps {
            match step {
                Step::Join(priority) => {
                    let (ticket, _) = queue.join(Priority(priority), 0, None);
                    waiting.insert((std::cmp::Reverse(priority), ticket));
                }
                Step::Leave(place) => {
                    let first = waiting.iter().nth(place).copied();
                    if let Some((std::cmp::Reverse(priority), ticket)) = first {
                        waiting.remove(&(std::cmp::Reverse(priority), ticket));
                        queue.leave(Priority(priority), ticket, now, Outcome::default());
                    }
                }
                Step::Pass(seconds, timed) => {
                    now += Duration::from_secs(seconds);
                    if let Some((priority, ticket)) = running.pop() {
                        queue.leave(Priority(priority), ticket, now, Outcome { timed, tokens: None });
                    }
                }
            }
            while let Some(ticket) = queue.admit(now) {
                let Some((std::cmp::Reverse(priority), first)) = waiting.pop_first() else {
                    return Err(TestCaseError::fail("nobody waited"));
                };
                prop_assert_eq!(ticket, first);
                running.push((priority, ticket));
                prop_assert!(running.len() <= queue.permits());
            }
            prop_assert!((1..=3).contains(&queue.permits()));
            prop_assert!(waiting.is_empty() || running.len() >= queue.permits());
            prop_assert_eq!((queue.waiting(), queue.running()), (waiting.len(), running.len()));
        }
    }
}
