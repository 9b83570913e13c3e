//! The signatures of graphs.

use entourage_runners::graph::{GraphSignature, TaskGraph, TaskGraphBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Named, login, nop};

fn differences(old: impl Fn(&TaskGraphBuilder), new: impl Fn(&TaskGraphBuilder)) -> Vec<String> {
    let of = |write: &dyn Fn(&TaskGraphBuilder)| -> GraphSignature {
        let graph = TaskGraph::builder("graph");
        write(&graph);
        graph.build().unwrap().signature().clone()
    };
    of(&old).differences(&of(&new)).iter().map(ToString::to_string).collect()
}

#[test]
fn the_same_graph_has_the_same_signature_and_survives_being_stored() {
    let (one, other) = (login(), login());
    assert_eq!(one.signature(), other.signature());
    assert!(one.signature().differences(other.signature()).is_empty());
    let json = serde_json::to_string(one.signature()).unwrap();
    assert_eq!(serde_json::from_str::<GraphSignature>(&json).unwrap(), *one.signature());
    for word in ["String", "u32", "Named", "closure", "graph_build"] {
        assert!(!json.contains(word), "{word} in {json}");
    }
}

#[test]
fn each_difference_is_said() {
    let base = |graph: &TaskGraphBuilder| {
        let a = graph.agent("a", &Named("coder"), "x");
        let b = nop(graph, "b").after(&a);
        nop(graph, "c").after(&b);
    };
    let changed = differences(base, |graph| {
        let a = graph.agent("a", &Named("tester"), "x").version("v2");
        let c = nop(graph, "c").after(&a);
        nop(graph, "d").after(&c);
    });
    assert_eq!(
        changed,
        [
            "`a` is for `tester` now, and was for `coder`",
            "`a` is version `v2` now, and was without a version",
            "`b` was removed",
            "`c` no longer depends on `b`",
            "`c` now depends on `a`",
            "`d` was added",
        ]
    );
    let changed = differences(base, |graph| {
        let a = nop(graph, "a");
        let b = graph.step("b", a.optional(), |_| async { Ok(0_u32) });
        nop(graph, "c").when(&b, |b| *b > 0);
    });
    assert_eq!(
        changed,
        [
            "`a` is a step of the program now, and was for `coder`",
            "`b` now depends on `a` without a condition, as optional",
            "`c` now depends on `b` with a condition, as required",
        ]
    );
}

#[test]
fn order_texts_limits_and_settings_of_how_it_runs_make_no_difference() {
    let changed = differences(
        |graph| {
            let a = nop(graph, "a");
            let b = nop(graph, "b");
            graph.agent("c", &Named("coder"), "x").after(&a).after(&b);
        },
        |graph| {
            let b = nop(graph, "b").attempts(3).expected(std::time::Duration::from_secs(3));
            let a = nop(graph, "a");
            graph.agent("c", &Named("coder"), "y").after(&b).after(&a);
        },
    );
    assert!(changed.is_empty(), "{changed:?}");
}

mod first {
    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema)]
    pub(super) struct Verdict {
        /// True when the work is good.
        pub(super) good: bool,
    }
}

mod second {
    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema)]
    pub(super) struct Judgement {
        /// In other words.
        pub(super) good: bool,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    pub(super) struct Longer {
        pub(super) good: bool,
        pub(super) why: String,
    }
}

#[test]
fn the_schema_of_what_a_node_returns_counts_the_name_of_its_type_does_not() {
    let ask = |graph: &TaskGraphBuilder| graph.agent("a", &Named("judge"), "Is it good?");
    let base = move |graph: &TaskGraphBuilder| drop(ask(graph).returns::<first::Verdict>());
    let renamed = differences(base, move |graph| drop(ask(graph).returns::<second::Judgement>()));
    assert!(renamed.is_empty(), "{renamed:?}");
    let longer = differences(base, move |graph| drop(ask(graph).returns::<second::Longer>()));
    assert_eq!(longer, ["`a` returns values of another schema"]);
    let steps = differences(
        |graph| {
            graph.step("a", (), |()| async { Ok(first::Verdict { good: true }) }).with_schema();
        },
        |graph| {
            let longer = || second::Longer { good: true, why: String::new() };
            graph.step("a", (), move |()| async move { Ok(longer()) }).with_schema();
        },
    );
    assert_eq!(steps, ["`a` returns values of another schema"]);
}
