mod open;

use proptest::prelude::*;

use super::*;
use crate::{ErrorKind, Money};

fn amount(tokens: u64, pico: u64) -> Charge {
    Charge::model_call(tokens, Some(Money::from_pico(pico)))
}

#[test]
fn design_7_a_refusal_says_what_is_short_and_takes_nothing() {
    let limits = BudgetLimits::none().with_money(Money::from_pico(1_000_000_000_000)).with_tokens(100);
    let budget = Budget::new(limits.with_tool_calls(1).with_model_calls(2));
    let held = budget.reserve(amount(60, 250_000_000_000)).unwrap();
    for (charge, text) in [
        (
            amount(41, 0),
            "the budget of 100 tokens does not cover this call: 0 spent, 60 set aside for calls under way",
        ),
        (
            amount(0, 750_000_000_001),
            "the budget of $1 does not cover this call: $0 spent, $0.25 set aside for calls under way",
        ),
        (Charge::model_call(1, None), "this model's price is unknown"),
        (Charge { model_calls: 2, ..Charge::nothing() }, "the budget's 2 model calls are used up"),
        (Charge { tool_calls: 2, ..Charge::nothing() }, "the budget's 1 tool calls are used up"),
    ] {
        let error = budget.reserve(charge).unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::BudgetExceeded, crate::RetryStatus::Permanent));
        assert!(error.message().contains(text), "{error}");
        let aside = error.exhausted().map(|exhausted| exhausted.reserved.tokens);
        assert_eq!(aside.unwrap_or(60), 60, "{error}");
        assert_eq!((budget.reserved().tokens, budget.spent()), (60, Spend::default()));
    }
    held.cancel();
    assert_eq!((budget.reserved(), budget.spent()), (Spend::default(), Spend::default()));
    budget.reserve(Charge::tool_call()).unwrap().settle(Charge::tool_call());
    assert!(budget.reserve(Charge::tool_call()).is_err());
}

#[test]
fn design_7_a_child_is_only_narrower_and_charges_all_above() {
    let root = Budget::new(BudgetLimits::none().with_tokens(100));
    let child = root.child(BudgetLimits::none().with_tokens(1_000).with_model_calls(5)).labelled("scout");
    let grandchild = child.child(BudgetLimits::none().with_tokens(30));
    assert_eq!(child.remaining().tokens, Some(100));
    assert_eq!((grandchild.remaining().tokens, grandchild.remaining().model_calls), (Some(30), Some(5)));
    grandchild.reserve(amount(30, 3)).unwrap().settle(amount(20, 2));
    root.labelled("captain").reserve(amount(50, 5)).unwrap().settle(amount(50, 5));
    assert_eq!((root.spent().tokens, child.spent().tokens, grandchild.spent().tokens), (70, 20, 20));
    let report = root.report();
    assert_eq!(report.keys().map(|label| &**label).collect::<Vec<_>>(), ["captain", "scout"]);
    assert_eq!((report["scout"].tokens, report["scout"].money), (20, Money::from_pico(2)));
    assert_eq!(child.report().len(), 1);
    // Nothing is left above although the child has bounds of its own.
    assert!(child.reserve(amount(31, 0)).is_err());
    drop(child);
    grandchild.reserve(amount(10, 1)).unwrap().settle(amount(10, 1));
    assert_eq!(root.spent().tokens, 80);
}

#[test]
fn design_7_unknown_outcomes_count_in_full() {
    let budget = Budget::new(BudgetLimits::none().with_money(Money::from_pico(100)));
    drop(budget.reserve(amount(10, 60)).unwrap());
    assert_eq!((budget.spent().money, budget.reserved().money), (Money::from_pico(60), Money::default()));
    // Unknown money counts as reserved.
    budget.reserve(amount(10, 30)).unwrap().settle(Charge::model_call(5, None));
    assert_eq!((budget.spent().money, budget.spent().unpriced), (Money::from_pico(90), 0));
    let open = Budget::new(BudgetLimits::none());
    drop(open.reserve(Charge::model_call(10, None)).unwrap());
    assert_eq!((open.spent().tokens, open.spent().unpriced), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn design_7_a_budget_survives_a_restart_with_its_open_calls_spent() {
    let limits = BudgetLimits::none().with_tokens(100).with_time(Duration::from_secs(60));
    let root = Budget::new(limits);
    let child = root.child(BudgetLimits::none().with_tokens(50)).labelled("scout");
    child.reserve(amount(10, 1)).unwrap().settle(amount(10, 1));
    let open = child.reserve(amount(30, 3)).unwrap();
    tokio::time::advance(Duration::from_secs(40)).await;
    let text = serde_json::to_string(&(root.state(), child.state())).unwrap();
    let (root_state, child_state): (BudgetState, BudgetState) = serde_json::from_str(&text).unwrap();
    assert_eq!((root_state.spent.tokens, root_state.reserved.tokens), (10, 30));
    drop(open);
    tokio::time::advance(Duration::from_secs(1_000)).await;

    let root = Budget::restore(root_state);
    let child = root.restore_child(child_state);
    assert_eq!((root.spent().tokens, root.reserved().tokens, child.spent().tokens), (40, 0, 40));
    assert_eq!(child.remaining().tokens, Some(10));
    assert_eq!(root.report().values().map(|spend| spend.tokens).sum::<u64>(), 40);
    assert_eq!(root.report()["scout"].tokens, 10);
    assert_eq!(root.remaining().time, Some(Duration::from_secs(20)));
    tokio::time::advance(Duration::from_secs(20)).await;
    let error = child.reserve(amount(1, 0)).unwrap_err();
    assert!(error.message().contains("time of 60s is used up"), "{error}");
    assert_eq!(serde_json::from_str::<BudgetState>("{}").unwrap(), BudgetState::default());
}

#[test]
fn design_7_a_budget_that_nobody_names_is_forgotten() {
    let root = Budget::new(BudgetLimits::none());
    for _ in 0..100 {
        root.child(BudgetLimits::none()).reserve(amount(1, 1)).unwrap().settle(amount(1, 1));
    }
    assert_eq!(root.spent().tokens, 100);
    assert_eq!(format!("{:?}", root.node.lock()).matches("parent:").count(), 1);
}

#[derive(Debug, Clone)]
enum Step {
    Child(usize, u64, u64),
    Reserve(usize, u64, u64),
    /// Settles at this percentage of the reservation.
    Settle(usize, u64),
    Cancel(usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let place = 0_usize..12;
    prop_oneof![
        1 => (place.clone(), 0_u64..300, 0_u64..300).prop_map(|(at, a, b)| Step::Child(at, a, b)),
        4 => (place.clone(), 0_u64..60, 0_u64..60).prop_map(|(at, a, b)| Step::Reserve(at, a, b)),
        3 => (place.clone(), 0_u64..=100).prop_map(|(at, percent)| Step::Settle(at, percent)),
        1 => place.clone().prop_map(Step::Cancel),
        1 => place.prop_map(Step::Drop),
    ]
}

fn pick<T>(from: &mut Vec<T>, at: usize) -> Option<T> {
    let place = at.checked_rem(from.len())?;
    Some(from.swap_remove(place))
}

proptest! {
    #[test]
    fn design_7_no_order_of_calls_breaks_a_bound(steps in prop::collection::vec(step(), 1..120)) {
        let bounds = |tokens, pico| BudgetLimits::none().with_tokens(tokens).with_money(Money::from_pico(pico));
        let root = Budget::new(bounds(500, 400));
        let mut budgets = vec![(root.clone(), None, bounds(500, 400))];
        let mut open: Vec<Reservation> = Vec::new();
        let mut expected = 0;
        for step in steps {
            match step {
                Step::Child(at, tokens, pico) => {
                    let parent = at % budgets.len();
                    let child = budgets[parent].0.child(bounds(tokens, pico)).labelled(format!("{parent}"));
                    budgets.push((child, Some(parent), bounds(tokens, pico)));
                }
                Step::Reserve(at, tokens, pico) => {
                    let budget = &budgets[at % budgets.len()].0;
                    let left = budget.remaining();
                    let fits = left.tokens >= Some(tokens) && left.money >= Some(Money::from_pico(pico));
                    let reserved = budget.reserve(amount(tokens, pico));
                    prop_assert_eq!(reserved.is_ok(), fits);
                    open.extend(reserved);
                }
                Step::Settle(at, percent) => {
                    if let Some(call) = pick(&mut open, at) {
                        let Charge { tokens, money, .. } = call.charge();
                        let tokens = tokens * percent / 100;
                        expected += tokens;
                        call.settle(Charge::model_call(tokens, money));
                    }
                }
                Step::Cancel(at) => {
                    if let Some(call) = pick(&mut open, at) {
                        call.cancel();
                    }
                }
                Step::Drop(at) => {
                    if let Some(call) = pick(&mut open, at) {
                        expected += call.charge().tokens;
                        drop(call);
                    }
                }
            }
            prop_assert_eq!(root.spent().tokens, expected);
            prop_assert_eq!(root.reserved().tokens, open.iter().map(|call| call.charge().tokens).sum::<u64>());
            for (place, (budget, _, limits)) in budgets.iter().enumerate() {
                let used = budget.spent().plus(&budget.reserved());
                prop_assert!(Some(used.tokens) <= limits.tokens && Some(used.money) <= limits.money);
                let below = budgets.iter().filter(|(_, parent, _)| *parent == Some(place));
                let below = below.fold(Spend::default(), |sum, (child, ..)| sum.plus(&child.spent()));
                prop_assert!(below.tokens <= budget.spent().tokens && below.money <= budget.spent().money);
                let told = budget.report().values().fold(Spend::default(), |sum, spend| sum.plus(spend));
                prop_assert_eq!(told, budget.spent());
            }
        }
        let later = Budget::restore(root.state());
        prop_assert_eq!(later.spent(), root.spent().plus(&root.reserved()));
        prop_assert_eq!(later.report().values().fold(Spend::default(), |sum, spend| sum.plus(spend)), later.spent());
        drop(open);
        prop_assert_eq!(root.reserved(), Spend::default());
        prop_assert_eq!(later.spent(), root.spent());
    }
}
