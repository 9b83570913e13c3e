//! Trees of agents in any order of events: they all end, and within the limit.

use std::{
    collections::{BTreeMap, VecDeque},
    task::Waker,
};

use proptest::prelude::*;

use crate::children::pool::{Number, Places};

/// One step of an agent: its own work, or agents below it.
#[derive(Debug, Clone)]
enum Step {
    Work,
    /// Waits for all of them, with a wait for each.
    Join(Vec<Vec<Step>>),
    /// Waits for any of them again and again.
    Any(Vec<Vec<Step>>),
    /// Starts them, waits for any, and gives up before one ends. Waits for them when its own work is done.
    Leave(Vec<Vec<Step>>),
}

fn agent() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop::collection::vec(Just(Step::Work), 0..3).boxed();
    leaf.prop_recursive(4, 40, 4, |below| {
        let children = prop::collection::vec(below, 1..5);
        let step = prop_oneof![
            2 => Just(Step::Work),
            3 => children.clone().prop_map(Step::Join),
            3 => children.clone().prop_map(Step::Any),
            1 => children.prop_map(Step::Leave),
        ];
        prop::collection::vec(step, 0..4)
    })
}

/// An agent that runs.
struct Runner {
    above: Option<Number>,
    steps: VecDeque<Step>,
    /// Children that have not ended.
    children: Vec<Number>,
    waits: Waits,
}

#[derive(PartialEq)]
enum Waits {
    No,
    All(Vec<Number>),
    Any(u64),
    /// Its own work is done.
    Rest,
}

/// A tree under test. The picks decide which agent steps next, and if a queued one is cancelled.
struct Play {
    places: Places,
    runners: BTreeMap<Number, Runner>,
    began: Vec<Number>,
    most: usize,
    /// True once something happened after which the limit may be exceeded for a while.
    lenient: bool,
}

impl Play {
    fn new(limit: usize) -> Self {
        let (runners, began) = (BTreeMap::new(), Vec::new());
        Self { places: Places::new(limit), runners, began, most: 0, lenient: false }
    }

    fn enter(&mut self, above: Option<Number>, steps: Vec<Step>) -> Number {
        let number = self.places.enter(above);
        let runner = Runner { above, steps: steps.into(), children: Vec::new(), waits: Waits::No };
        self.runners.insert(number, runner);
        number
    }

    fn placed(&mut self, number: Number) -> bool {
        self.places.is_placed(number, Waker::noop())
    }

    /// Returns the agents that can step.
    fn ready(&mut self) -> Vec<Number> {
        let all: Vec<_> = self.runners.keys().copied().collect();
        all.into_iter().filter(|number| self.is_free(*number) && self.may_go_on(*number)).collect()
    }

    fn is_free(&self, number: Number) -> bool {
        let runner = &self.runners[&number];
        match &runner.waits {
            Waits::No => true,
            Waits::All(these) => !runner.children.iter().any(|child| these.contains(child)),
            Waits::Any(_) => false,
            Waits::Rest => runner.children.is_empty(),
        }
    }

    /// True when the agent has a slot or rests. Only one that has not begun may wait for a slot.
    fn may_go_on(&mut self, number: Number) -> bool {
        let rests = self.runners[&number].waits == Waits::Rest;
        if rests || self.placed(number) {
            return true;
        }
        assert!(!self.began.contains(&number), "it waits for a place in order to go on");
        false
    }

    fn step(&mut self, number: Number) {
        if !self.began.contains(&number) {
            self.began.push(number);
        }
        let runner = self.runners.get_mut(&number).unwrap();
        runner.waits = if runner.waits == Waits::Rest { Waits::Rest } else { Waits::No };
        match runner.steps.pop_front() {
            Some(Step::Work) => {}
            Some(Step::Join(below)) => {
                let children = self.start(number, below);
                for child in &children {
                    self.places.wait(number, [*child]);
                }
                self.runners.get_mut(&number).unwrap().waits = Waits::All(children);
            }
            Some(Step::Any(below)) => {
                self.start(number, below);
                self.wait_any(number);
            }
            Some(Step::Leave(below)) => {
                let children = self.start(number, below);
                let (wait, _) = self.places.wait(number, children);
                self.lenient = true;
                self.places.wait_over(number, wait);
            }
            None if self.runners[&number].children.is_empty() => self.end(number),
            None => {
                self.places.rest(number);
                self.runners.get_mut(&number).unwrap().waits = Waits::Rest;
            }
        }
    }

    fn start(&mut self, above: Number, below: Vec<Vec<Step>>) -> Vec<Number> {
        let children: Vec<_> = below.into_iter().map(|steps| self.enter(Some(above), steps)).collect();
        self.runners.get_mut(&above).unwrap().children.extend(&children);
        children
    }

    fn wait_any(&mut self, number: Number) {
        let children = self.runners[&number].children.clone();
        if children.is_empty() {
            return;
        }
        let (wait, _) = self.places.wait(number, children);
        self.runners.get_mut(&number).unwrap().waits = Waits::Any(wait);
    }

    fn end(&mut self, number: Number) {
        self.places.leave(number, true);
        let gone = self.runners.remove(&number).unwrap();
        let Some(above) = gone.above else { return };
        let parent = self.runners.get_mut(&above).unwrap();
        parent.children.retain(|child| *child != number);
        if let Waits::Any(wait) = parent.waits {
            parent.waits = Waits::No;
            assert!(self.placed(above), "it was handed the place of the child that it waited for");
            self.places.wait_over(above, wait);
            self.wait_any(above);
        }
    }

    fn check(&mut self) {
        let placed = self.places.runs.values().filter(|run| run.placed).count();
        assert_eq!(placed, self.places.taken);
        self.most = self.most.max(placed);
        let has_place = |number: &Number| self.places.runs.get(number).is_some_and(|run| run.placed);
        let in_line = self.runners.keys().any(|number| !self.began.contains(number) && !has_place(number));
        assert!(!in_line || placed >= self.places.limit, "a place is free, and somebody waits for it");
    }
}

/// Plays `roots` to their end.
fn play(limit: usize, roots: Vec<Vec<Step>>, picks: &[usize], cancels: bool) -> Play {
    let mut play = Play::new(limit);
    for steps in roots {
        play.enter(None, steps);
    }
    let mut picks = picks.iter().copied().cycle();
    while !play.runners.is_empty() {
        play.check();
        let pick = picks.next().unwrap_or_default();
        let line: Vec<_> =
            play.places.line.iter().copied().filter(|it| play.runners.contains_key(it)).collect();
        if cancels && pick % 7 == 0 && !line.is_empty() {
            play.lenient = true;
            play.end(line[pick % line.len()]);
            continue;
        }
        let ready = play.ready();
        assert!(!ready.is_empty(), "nobody can go on: {:?}", play.places);
        play.step(ready[pick % ready.len()]);
    }
    play
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn ai04_any_tree_ends_within_the_limit(
        limit in 1_usize..4,
        roots in prop::collection::vec(agent(), 1..6),
        picks in prop::collection::vec(0_usize..1_000, 1..60),
        cancels: bool,
    ) {
        let play = play(limit, roots, &picks, cancels);
        prop_assert_eq!(play.places.taken, 0);
        prop_assert!(play.places.runs.is_empty());
        if !play.lenient {
            prop_assert!(play.most <= limit, "{} at once", play.most);
        }
    }
}

#[test]
fn ai04_the_line_is_served_in_order_and_who_left_it_is_passed_over() {
    let mut places = Places::new(1);
    let [first, second, third, fourth] = [(); 4].map(|()| places.enter(None));
    assert!(places.try_enter(None).is_none());
    places.leave(second, true);
    places.leave(first, true);
    let placed = |places: &mut Places, run| places.is_placed(run, Waker::noop());
    assert!(placed(&mut places, third) && !placed(&mut places, fourth));
    places.leave(third, true);
    assert!(placed(&mut places, fourth) && places.try_enter(None).is_none());
    places.leave(fourth, true);
    assert!(places.try_enter(None).is_some());
}

#[test]
fn ai04_a_paused_child_is_not_the_end_that_is_waited_for() {
    let mut places = Places::new(1);
    let parent = places.enter(None);
    let [pauses, works] = [(); 2].map(|()| places.enter(Some(parent)));
    let (wait, _) = places.wait(parent, [pauses, works]);
    assert!(places.is_placed(pauses, Waker::noop()));
    places.leave(pauses, false);
    assert!(!places.is_placed(parent, Waker::noop()), "it goes on waiting");
    assert!(places.is_placed(works, Waker::noop()), "for this one, which has the place now");
    places.leave(works, true);
    assert!(places.is_placed(parent, Waker::noop()));
    places.wait_over(parent, wait);
    assert_eq!(places.taken, 1);
}
