//! Trees of parallel calls against a model that recomputes the reservations each time it is asked.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    /// Adds a budget below the one at this index.
    Child(usize, Option<u64>, Option<u64>),
    Reserve(usize, u64, u64, bool),
    /// Settles at this percentage of the reservation; an open-ended call at ten times that.
    Settle(usize, u64),
    Cancel(usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let place = 0_usize..12;
    let bound = || proptest::option::weighted(0.6, 0_u64..300);
    prop_oneof![
        2 => (place.clone(), bound(), bound()).prop_map(|(at, a, b)| Step::Child(at, a, b)),
        5 => (place.clone(), 0_u64..60, 0_u64..60, proptest::bool::weighted(0.4))
            .prop_map(|(at, a, b, open)| Step::Reserve(at, a, b, open)),
        3 => (place.clone(), 0_u64..=100).prop_map(|(at, percent)| Step::Settle(at, percent)),
        1 => place.clone().prop_map(Step::Cancel),
        1 => place.prop_map(Step::Drop),
    ]
}

/// A budget that keeps every call, as the reference. Amounts are tokens and money.
struct Naive {
    parent: Option<usize>,
    bounds: [Option<u64>; 2],
    spent: [u64; 2],
    /// Largest excess of one call over its reservation.
    excess: [u64; 2],
}

struct Call {
    place: usize,
    amounts: [u64; 2],
    open: bool,
    reservation: Reservation,
}

#[derive(Default)]
struct Tree {
    nodes: Vec<Naive>,
    calls: Vec<Call>,
}

impl Tree {
    fn path(&self, from: usize) -> Vec<usize> {
        std::iter::successors(Some(from), |place| self.nodes[*place].parent).collect()
    }

    /// Reservations of each amount below a budget; `None` is all that is left.
    fn held(&self, place: usize) -> [Option<u64>; 2] {
        let below: Vec<_> = self.calls.iter().filter(|call| self.path(call.place).contains(&place)).collect();
        [0, 1].map(|of| {
            let all = below.iter().any(|call| call.open && (of == 0 || call.amounts[1] > 0));
            (!all).then(|| below.iter().map(|call| call.amounts[of]).sum())
        })
    }

    fn covers(&self, from: usize, wanted: [u64; 2]) -> bool {
        self.path(from).into_iter().all(|place| {
            let (node, held) = (&self.nodes[place], self.held(place));
            [0, 1].into_iter().all(|of| match (node.bounds[of], held[of]) {
                (None, _) => true,
                (Some(_), None) => wanted[of] == 0,
                (Some(bound), Some(held)) => {
                    wanted[of] <= bound.saturating_sub(node.spent[of].saturating_add(held))
                }
            })
        })
    }

    fn take(&mut self, at: usize) -> Option<Call> {
        let place = at.checked_rem(self.calls.len())?;
        Some(self.calls.swap_remove(place))
    }

    fn pay(&mut self, call: &Call, used: [u64; 2]) {
        for place in self.path(call.place) {
            let node = &mut self.nodes[place];
            for of in [0, 1] {
                node.spent[of] += used[of];
                node.excess[of] = node.excess[of].max(used[of].saturating_sub(call.amounts[of]));
            }
        }
    }
}

fn limits(bounds: [Option<u64>; 2]) -> BudgetLimits {
    let mut limits = BudgetLimits::none();
    (limits.tokens, limits.money) = (bounds[0], bounds[1].map(Money::from_pico));
    limits
}

proptest! {
    #[test]
    fn attack_23_no_tree_of_calls_exceeds_a_bound_by_more_than_one_open_ended_call(
        bounds in (0_u64..600, 0_u64..600), steps in prop::collection::vec(step(), 1..120),
    ) {
        let bounds = [Some(bounds.0), Some(bounds.1)];
        let mut budgets = vec![Budget::new(limits(bounds))];
        let mut tree = Tree::default();
        tree.nodes.push(Naive { parent: None, bounds, spent: [0; 2], excess: [0; 2] });
        for step in steps {
            match step {
                Step::Child(at, tokens, pico) => {
                    let (parent, bounds) = (at % budgets.len(), [tokens, pico]);
                    budgets.push(budgets[parent].child(limits(bounds)));
                    tree.nodes.push(Naive { parent: Some(parent), bounds, spent: [0; 2], excess: [0; 2] });
                }
                Step::Reserve(at, tokens, pico, open) => {
                    let (place, amounts) = (at % budgets.len(), [tokens, pico]);
                    // Some calls cost nothing, however long they are.
                    let charge =
                        Charge { open_tokens: open, open_money: open && pico > 0, ..amount(tokens, pico) };
                    match budgets[place].reserve(charge) {
                        Ok(reservation) => {
                            prop_assert!(tree.covers(place, amounts));
                            tree.calls.push(Call { place, amounts, open, reservation });
                        }
                        Err(error) => {
                            prop_assert!(!tree.covers(place, amounts), "{error}");
                            prop_assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
                            let bound = error.exhausted().map(|exhausted| exhausted.bound.to_string());
                            prop_assert!(matches!(bound.as_deref(), Some("tokens" | "money")), "{bound:?}");
                        }
                    }
                }
                Step::Settle(at, percent) => {
                    if let Some(call) = tree.take(at) {
                        let percent = if call.open { percent * 10 } else { percent };
                        let mut used = call.amounts.map(|amount| amount * percent / 100);
                        if call.open && used[1] == 0 {
                            used[1] = call.amounts[1];
                        }
                        tree.pay(&call, used);
                        call.reservation.settle(amount(used[0], used[1]));
                    }
                }
                Step::Cancel(at) => {
                    if let Some(call) = tree.take(at) {
                        call.reservation.cancel();
                    }
                }
                Step::Drop(at) => {
                    if let Some(call) = tree.take(at) {
                        tree.pay(&call, call.amounts);
                    }
                }
            }
            for (place, (budget, node)) in budgets.iter().zip(&tree.nodes).enumerate() {
                let (spent, reserved, held) = (budget.spent(), budget.reserved(), tree.held(place));
                for (of, spent, reserved) in
                    [(0, spent.tokens, reserved.tokens), (1, spent.money.as_pico(), reserved.money.as_pico())]
                {
                    prop_assert_eq!(spent, node.spent[of]);
                    if let Some(held) = held[of] {
                        prop_assert_eq!(reserved, held);
                    }
                    if let Some(bound) = node.bounds[of] {
                        prop_assert!(spent <= bound + node.excess[of], "{spent} of {bound}");
                        prop_assert!(held[of].is_some() || spent + reserved >= bound);
                    }
                }
            }
        }
        drop(tree);
        for budget in &budgets {
            prop_assert_eq!(budget.reserved(), Spend::default());
        }
    }
}

#[test]
fn attack_23_an_open_ended_call_sets_all_that_is_left_aside_in_each_budget_above() {
    let root = Budget::new(BudgetLimits::none().with_tokens(1_000).with_model_calls(9));
    let (one, two) = (root.child(BudgetLimits::none().with_tokens(100)), root.child(BudgetLimits::none()));
    let bounded = two.reserve(amount(200, 1)).unwrap();
    let call = one.reserve(amount(50, 1).open_ended()).unwrap();
    assert_eq!((one.reserved().tokens, root.reserved().tokens, two.reserved().tokens), (100, 1_000, 200));
    assert_eq!((root.remaining().tokens, two.remaining().tokens), (Some(0), Some(0)));
    let error = two.reserve(amount(1, 1)).unwrap_err();
    assert!(error.message().contains("1000 set aside"), "{error}");
    assert!(error.message().contains("set a smaller `max_output`"), "{error}");
    two.reserve(Charge::tool_call()).unwrap().settle(Charge::tool_call());
    // Killed now, it counts as what it needed at least.
    assert_eq!((root.state().reserved.tokens, Budget::restore(root.state()).spent().tokens), (250, 250));
    call.settle(amount(5_000, 1));
    bounded.settle(amount(200, 1));
    assert_eq!((root.spent().tokens, root.reserved().tokens), (5_200, 0));
    assert!(two.reserve(amount(1, 1)).is_err());
}

#[test]
fn attack_23_a_call_without_a_price_for_its_length_leaves_money_to_others() {
    let budget = Budget::new(limits([None, Some(100)]));
    let free = budget.reserve(Charge { open_tokens: true, ..amount(50, 0) }).unwrap();
    budget.reserve(amount(50, 60)).unwrap().cancel();
    let paid = budget.reserve(amount(50, 60).open_ended()).unwrap();
    assert_eq!(budget.reserved().money, Money::from_pico(100));
    assert!(budget.reserve(amount(50, 1)).is_err());
    budget.reserve(amount(50, 0)).unwrap().cancel();
    free.cancel();
    paid.cancel();
    assert_eq!(budget.reserved(), Spend::default());
}
