//! The steps of a plan, as a planner gives them, and the problems for which they are sent back. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use entourage_core::{
    agent::Agent,
    event::plain_line,
    tool::{Access, ToolSpec, Tools},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PartBudgets,
    budget::{tokens, tokens_of},
    questions::QUESTIONS,
};
use crate::graph::{self, PlanTask};

/// Most problems that a planner is told at once.
const TOLD: usize = 20;

/// Most characters of a question to the user.
const QUESTION: usize = 2_000;

/// Most characters of a step's type.
const KIND: usize = 60;

/// Greatest number of a step in the first plan for a request. A plan after it has as many more than the greatest one
/// before, so that there is room for its numbers whatever those were.
const NUMBER: u32 = 1_000_000;

/// A step of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "One step of a plan.")]
#[non_exhaustive]
pub struct PlannedStep {
    /// Its number, from 1.
    pub number: u32,
    /// Its type in a word, such as "read" or "edit".
    #[serde(rename = "type", default)]
    pub kind: String,
    /// What is to be done. Whoever does it sees this, and the results of the steps in `depends_on`.
    pub description: String,
    /// What must be kept to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub constraints: String,
    /// True for a step that only looks, which an executor does.
    #[serde(default)]
    pub executor_required: bool,
    /// The names of the tools that it needs.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The numbers of the steps whose results it needs.
    #[serde(default)]
    pub depends_on: Vec<u32>,
    /// True if the plan is done without it.
    #[serde(default)]
    pub optional: bool,
}

/// A planner's answer: steps, or questions to the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) struct Draft {
    /// The steps.
    #[serde(default)]
    pub(super) steps: Vec<PlannedStep>,
    /// Questions to the user, in place of steps.
    #[serde(default)]
    pub(super) questions: Vec<String>,
    /// True if the steps go on with an earlier request that was not met.
    #[serde(default)]
    pub(super) goes_on: bool,
}

/// What a plan is checked against.
pub(super) struct Rules<'a> {
    pub(super) tools: &'a Tools,
    /// Access of executors.
    pub(super) reads: Access,
    pub(super) budgets: &'a PartBudgets,
    /// Agents of steps: executor, planner.
    pub(super) agents: [&'a Arc<dyn Agent>; 2],
    /// Numbers of the steps that are done already.
    pub(super) done: &'a BTreeSet<u32>,
    /// True if the planner has tried to find out what it asks the user.
    pub(super) looked: bool,
    /// Greatest number of a step of the plans before; 0 without one.
    pub(super) highest: u32,
}

impl Draft {
    /// Checks the draft, with all problems in words for the planner.
    pub(super) fn check(&self, rules: &Rules<'_>) -> Result<(), String> {
        let mut problems = Vec::new();
        match (self.steps.is_empty(), self.questions.is_empty()) {
            (true, true) => problems.push("there are neither steps nor questions".to_owned()),
            (false, false) => {
                problems.push("there are both steps and questions; give one of them".to_owned());
            }
            (true, false) => self.check_questions(rules, &mut problems),
            (false, true) => {
                let tools = rules.tools.iter().map(|tool| tool.spec());
                let tools: HashMap<_, _> = tools.map(|spec| (spec.name(), (spec, tokens_of(spec)))).collect();
                for step in self.steps.iter().take(graph::Plan::MAX_TASKS) {
                    step.check(rules, &tools, &mut problems);
                }
                if !self.plainly_runs(rules) {
                    // The graph knows what a plan of tasks must be, and says what is wrong.
                    let graph = self.graph(rules).graph("plan", &rules.agents.map(Arc::clone));
                    problems.extend(graph.err().map(|error| error.message().to_owned()));
                }
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        let more = problems.len().saturating_sub(TOLD);
        problems.truncate(TOLD);
        if more > 0 {
            problems.push(format!("and {more} problems more"));
        }
        Err(problems.join("; "))
    }

    /// Returns the same with each tool and each dependency of a step named once.
    pub(super) fn without_doubles(mut self) -> Self {
        for step in &mut self.steps {
            let (mut tools, mut numbers) = (BTreeSet::new(), BTreeSet::new());
            step.tools.retain(|name| tools.insert(name.clone()));
            step.depends_on.retain(|number| numbers.insert(*number));
        }
        self
    }

    fn check_questions(&self, rules: &Rules<'_>, problems: &mut Vec<String>) {
        if self.questions.len() > QUESTIONS {
            problems.push(format!("there are {} questions; ask at most {QUESTIONS}", self.questions.len()));
        }
        if self.questions.iter().any(|question| plain_line(question).is_empty()) {
            problems.push("a question has no text".to_owned());
        }
        if self.questions.iter().any(|question| question.chars().nth(QUESTION).is_some()) {
            problems.push(format!("a question is longer than {QUESTION} characters"));
        }
        let can_look = || rules.tools.iter().any(|tool| rules.reads.contains(tool.spec().access()));
        if !rules.looked && can_look() {
            problems.push("the user is asked before you looked; use your tools first".to_owned());
        }
    }

    /// True for steps of which a graph can be made, without making it. Says nothing of others.
    fn plainly_runs(&self, rules: &Rules<'_>) -> bool {
        let numbers: HashSet<_> = self.steps.iter().map(|step| step.number).collect();
        let is_known = |number: &u32| numbers.contains(number) || rules.done.contains(number);
        let is_plain = |step: &PlannedStep| {
            let needs = &step.depends_on;
            !step.description.trim().is_empty()
                && needs.len() <= graph::Plan::MAX_TASKS
                && needs.iter().all(is_known)
                && needs.iter().collect::<BTreeSet<_>>().len() == needs.len()
        };
        let count = self.steps.len();
        count <= graph::Plan::MAX_TASKS
            && numbers.len() == count
            && self.steps.iter().all(is_plain)
            && in_order(&self.steps).len() == count
    }

    /// Returns the plan as tasks of a graph. Steps that are done already are no tasks of it.
    fn graph(&self, rules: &Rules<'_>) -> graph::Plan {
        let task = |step: &PlannedStep| {
            let [executor, planner] = rules.agents;
            let agent = if step.executor_required { executor } else { planner };
            let after = step.depends_on.iter().filter(|number| !rules.done.contains(number));
            PlanTask::new(step.number.to_string(), agent.name(), step.description.as_str())
                .after(after.map(u32::to_string))
        };
        graph::Plan { tasks: self.steps.iter().map(task).collect() }
    }
}

impl PlannedStep {
    /// Returns about how many bytes its JSON has.
    pub(super) fn bytes(&self) -> usize {
        let tools: usize = self.tools.iter().map(|name| name.len().saturating_add(3)).sum();
        let texts = [self.kind.len(), self.description.len(), self.constraints.len(), tools];
        let numbers = self.depends_on.len().saturating_mul(8);
        texts.into_iter().fold(numbers.saturating_add(160), usize::saturating_add)
    }

    /// Adds what is wrong with the step. Of each tool, by its name, the tokens are known.
    fn check(
        &self,
        rules: &Rules<'_>,
        tools: &HashMap<&str, (&ToolSpec, usize)>,
        problems: &mut Vec<String>,
    ) {
        let number = self.number;
        let mut problem = |text: String| problems.push(format!("step {number} {text}"));
        if number == 0 {
            problem("has no number; count from 1".to_owned());
        }
        let most = NUMBER.saturating_add(rules.highest);
        if number > most {
            problem(format!("has a number of more than {most}; use smaller ones"));
        }
        if rules.done.contains(&number) {
            problem("has the number of a step that is done".to_owned());
        }
        if self.kind.chars().nth(KIND).is_some() {
            problem(format!("has a type of more than {KIND} characters"));
        }
        let (budgets, executor) = (rules.budgets, self.executor_required);
        let most = if executor { budgets.executor_task } else { budgets.planner_conversation };
        let used = tokens(&self.description).saturating_add(tokens(&self.constraints));
        if used > most {
            problem(format!("has a description of {used} tokens; {most} are allowed"));
        }
        let mut taken = 0_usize;
        for name in &self.tools {
            let Some((spec, used)) = tools.get(name.as_str()) else {
                let shown: String = plain_line(name).chars().take(60).collect();
                problem(format!("names the tool `{shown}`, which does not exist"));
                continue;
            };
            taken = taken.saturating_add(*used);
            if executor && !rules.reads.contains(spec.access()) {
                let access = spec.access();
                problem(format!(
                    "gives an executor `{name}`, which needs {access} access; it is yours, set `executor_required` to false"
                ));
            }
        }
        if executor && taken > budgets.executor_tools {
            let most = budgets.executor_tools;
            problem(format!("has tools of {taken} tokens; {most} are allowed, give fewer tools or split it"));
        }
    }
}

/// Returns the steps with their places, in an order in which each comes after those that it depends on; steps of a
/// cycle are left out.
pub(super) fn in_order(steps: &[PlannedStep]) -> Vec<(usize, &PlannedStep)> {
    let numbers: BTreeSet<_> = steps.iter().map(|step| step.number).collect();
    let mut followers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut waits: Vec<usize> = Vec::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        let needs: BTreeSet<_> = step.depends_on.iter().filter(|number| numbers.contains(number)).collect();
        waits.push(needs.len());
        needs.into_iter().for_each(|number| followers.entry(*number).or_default().push(at));
    }
    let free = |(at, waits): (usize, &usize)| (*waits == 0).then_some(at);
    let mut ready: BTreeSet<usize> = waits.iter().enumerate().filter_map(free).collect();
    let mut ordered = Vec::with_capacity(steps.len());
    while let Some((place, step)) = ready.pop_first().and_then(|at| Some((at, steps.get(at)?))) {
        ordered.push((place, step));
        for at in followers.get(&step.number).into_iter().flatten() {
            if let Some(waits) = waits.get_mut(*at) {
                *waits = waits.saturating_sub(1);
                if *waits == 0 {
                    ready.insert(*at);
                }
            }
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use entourage_core::tool::{Tool, schema_of};
    use entourage_testkit::{FakeTool, ScriptedProvider, assert_plain_text};
    use proptest::prelude::*;

    use super::*;
    use crate::ReactAgent;

    fn step(number: u32, depends_on: &[u32]) -> PlannedStep {
        let description = format!("Look at {number}.");
        PlannedStep {
            number,
            description,
            executor_required: true,
            depends_on: depends_on.into(),
            ..Default::default()
        }
    }

    fn by_rules<T>(done: &[u32], looked: bool, ask: impl FnOnce(&Rules<'_>) -> T) -> T {
        let tools: [Arc<dyn Tool>; 3] = [
            Arc::new(FakeTool::new("view").access(Access::READ)),
            Arc::new(FakeTool::new("edit").access(Access::WRITE)),
            Arc::new(FakeTool::new("fetch").access(Access::NETWORK)),
        ];
        let agent = |name: &str| -> Arc<dyn Agent> {
            Arc::new(ReactAgent::builder(name, ScriptedProvider::new().model()).build().unwrap())
        };
        let (executor, planner) = (agent("executor"), agent("planner"));
        let rules = Rules {
            tools: &Tools::new(tools).unwrap(),
            reads: Access::READ,
            budgets: &PartBudgets::default(),
            agents: [&executor, &planner],
            done: &done.iter().copied().collect(),
            looked,
            highest: 0,
        };
        ask(&rules)
    }

    fn problem(draft: &Draft, done: &[u32], looked: bool) -> Option<String> {
        by_rules(done, looked, |rules| draft.check(rules).err())
    }

    fn steps(steps: Vec<PlannedStep>) -> Draft {
        Draft { steps, ..Draft::default() }
    }

    #[test]
    fn bo04_a_plan_is_checked_and_every_problem_is_named() {
        let with = |change: &dyn Fn(&mut PlannedStep)| {
            let mut changed = step(2, &[1]);
            change(&mut changed);
            steps(vec![step(1, &[]), changed])
        };
        let tools = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (case, draft, expected) in [
            ("fine", with(&|_| ()), None),
            ("not in order", steps(vec![step(3, &[1]), step(1, &[])]), None),
            ("done before", with(&|step| step.depends_on = vec![1, 7]), None),
            ("reads", with(&|step| step.tools = tools(&["view"])), None),
            ("none", Draft::default(), Some("neither steps nor questions")),
            ("no number", with(&|step| step.number = 0), Some("step 0 has no number")),
            ("twice", with(&|step| (step.number, step.depends_on) = (1, vec![])), Some("`1`")),
            ("done", with(&|step| step.number = 7), Some("step 7 has the number of a step that is done")),
            ("unknown", with(&|step| step.depends_on = vec![9]), Some("`9`")),
            ("itself", with(&|step| step.depends_on = vec![2]), Some("2")),
            ("cycle", steps(vec![step(1, &[2]), step(2, &[1])]), Some("1")),
            ("no words", with(&|step| step.description = " ".into()), Some("`2`")),
            (
                "long",
                with(&|step| step.description = "x".repeat(801)),
                Some("step 2 has a description of 201 tokens"),
            ),
            ("no tool", with(&|step| step.tools = tools(&["\u{1b}fly"])), Some("the tool `")),
            (
                "writes",
                with(&|step| step.tools = tools(&["edit"])),
                Some("gives an executor `edit`, which needs write"),
            ),
            ("network", with(&|step| step.tools = tools(&["fetch"])), Some("needs network access")),
            (
                "many tools",
                with(&|step| step.tools = tools(&["view"; 100])),
                Some("are allowed, give fewer tools"),
            ),
        ] {
            let found = problem(&draft, &[7], false);
            match expected {
                None => assert_eq!(found, None, "{case}"),
                Some(words) => {
                    let found = found.unwrap_or_else(|| panic!("{case} is refused"));
                    assert!(found.contains(words) && !found.contains('\u{1b}'), "{case}: {found}");
                }
            }
        }
    }

    #[test]
    fn bo02_a_step_that_writes_is_the_planners() {
        let mut own = step(1, &[]);
        (own.executor_required, own.tools) = (false, vec!["edit".to_owned()]);
        assert_eq!(problem(&steps(vec![own.clone()]), &[], false), None);
        own.executor_required = true;
        assert!(problem(&steps(vec![own]), &[], false).unwrap().contains("set `executor_required` to false"));
    }

    #[test]
    fn bo13_questions_come_after_a_look_and_without_steps() {
        let ask = |questions: &[&str]| Draft {
            questions: questions.iter().map(|text| (*text).to_owned()).collect(),
            ..Draft::default()
        };
        assert_eq!(problem(&ask(&["Which?"]), &[], true), None);
        assert!(problem(&ask(&["Which?"]), &[], false).unwrap().contains("before you looked"));
        assert!(problem(&ask(&["?"; 6]), &[], true).unwrap().contains("at most 5"));
        assert!(problem(&ask(&[" "]), &[], true).unwrap().contains("no text"));
        assert!(problem(&ask(&[&"x".repeat(2_001)]), &[], true).unwrap().contains("2000"));
        let both = Draft { steps: vec![step(1, &[])], ..ask(&["Which?"]) };
        assert!(problem(&both, &[], true).unwrap().contains("both"));
    }

    #[test]
    fn attack_a_plan_of_many_wrong_steps_is_told_in_few_words() {
        let many =
            (0..5_000).map(|_| PlannedStep { description: "x".into(), ..Default::default() }).collect();
        let told = problem(&steps(many), &[], false).unwrap();
        assert!(told.contains("problems more") && told.len() < 4_000, "{}", told.len());
    }

    #[test]
    fn the_schema_that_a_model_sees_is_plain() {
        assert_plain_text(&schema_of::<Draft>().to_string());
    }

    proptest! {
        #[test]
        fn bo04_of_steps_that_plainly_run_a_graph_is_made(
            drawn in prop::collection::vec((1_u32..8, prop::collection::vec(1_u32..9, 0..3), any::<bool>()), 1..7)
        ) {
            let drawn = drawn.into_iter().map(|(number, needs, has_words)| {
                let mut step = step(number, &needs);
                step.executor_required = number % 2 == 0;
                if !has_words && number == 7 {
                    step.description = " ".to_owned();
                }
                step
            });
            let draft = steps(drawn.collect());
            by_rules(&[8], true, |rules| {
                let graph = draft.graph(rules).graph("plan", &rules.agents.map(Arc::clone));
                prop_assert!(!draft.plainly_runs(rules) || graph.is_ok(), "{:?}", graph.err());
                Ok(())
            })?;
        }

        #[test]
        fn bo05_each_step_comes_after_those_that_it_needs(
            edges in prop::collection::vec((0_u32..12, 0_u32..12), 0..30)
        ) {
            let mut plan: Vec<_> = (0..12).rev().map(|number| step(number, &[])).collect();
            // Without a cycle: each needs smaller numbers only.
            for (a, b) in edges.iter().filter(|(a, b)| a != b) {
                plan[11 - *a.max(b) as usize].depends_on.push(*a.min(b));
            }
            let ordered: Vec<_> = in_order(&plan).iter().map(|(_, step)| step.number).collect();
            prop_assert_eq!(ordered.len(), 12);
            for step in &plan {
                let place = |number: u32| ordered.iter().position(|it| *it == number).unwrap();
                prop_assert!(step.depends_on.iter().all(|needed| place(*needed) < place(step.number)));
            }
        }
    }
}
