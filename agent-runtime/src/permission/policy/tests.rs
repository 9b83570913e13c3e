use proptest::prelude::*;
use serde_json::json;

use super::*;

fn spec(access: Access) -> ToolSpec {
    ToolSpec::new("write", "", json!({})).with_access(access).naming_subjects()
}

#[test]
fn wildcards() {
    for (pattern, text, expected) in [
        ("*", "", true),
        ("a*c", "abc", true),
        ("a*c", "abcd", false),
        ("*b*", "abc", true),
        ("git *", "git status", true),
        ("git *", "gitstatus", false),
        ("**é", "né", true),
        ("", "x", false),
    ] {
        assert_eq!(wildcard(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn without_rules_reading_is_allowed_and_writing_asked_for() {
    let policy = Policy::new();
    assert!(matches!(policy.judge(&spec(Access::READ), &Footprint::default()), Ruling::Allow(_)));
    for access in [Access::WRITE, Access::EXECUTE, Access::NETWORK] {
        assert!(matches!(policy.judge(&spec(access), &Footprint::default()), Ruling::Ask(_)), "{access}");
    }
}

#[test]
fn the_most_specific_rule_wins_for_each_subject_and_the_strictest_verdict_for_the_call() {
    let policy = Policy::new().allow("write:docs/*").deny("write:*.lock").ask("w*");
    let judge = |paths: &[&str]| {
        let footprint = paths.iter().fold(Footprint::new(Access::WRITE), |f, path| f.writing(*path));
        policy.judge(&spec(Access::WRITE), &footprint)
    };
    assert_eq!(judge(&["docs/a.md"]), Ruling::Allow("allow write:docs/*".into()));
    assert_eq!(judge(&["src/a.rs"]), Ruling::Ask("ask w*".into()));
    assert_eq!(judge(&["docs/a.md", "src/a.rs"]), Ruling::Ask("ask w*".into()), "one path is not covered");
    assert_eq!(judge(&["docs/a.lock"]), Ruling::Deny("deny write:*.lock".into()), "equal length: deny wins");
    assert_eq!(judge(&[]), Ruling::Ask("ask w*".into()), "a subject pattern needs a subject");
}

#[test]
fn an_unclear_call_is_judged_as_one_that_names_nothing_and_by_what_it_names() {
    let judge = |policy: &Policy, unclear| {
        let mut footprint = Footprint::new(Access::WRITE).writing("docs/~/a.md");
        footprint.unclear = unclear;
        policy.judge(&spec(Access::WRITE), &footprint)
    };
    let policy = Policy::new().allow("write:docs/*");
    assert_eq!(judge(&policy, false), Ruling::Allow("allow write:docs/*".into()));
    assert_eq!(judge(&policy, true), Ruling::Ask("default".into()), "no rule with a subject allows it");
    assert_eq!(judge(&policy.clone().allow("write"), true), Ruling::Allow("allow write:docs/*".into()));
    let denied = Ruling::Deny("deny write:secrets/*".into());
    assert_eq!(judge(&policy.allow("write").deny("write:secrets/*"), true), denied, "it might be there");
    let denied = Ruling::Deny("deny write:docs/*".into());
    assert_eq!(judge(&Policy::allow_all().deny("write:docs/*").ask("*:a/*"), true), denied);
    let (clear, mut unclear) = (Footprint::new(Access::WRITE), Footprint::new(Access::WRITE));
    unclear.unclear = true;
    assert_ne!(clear.digest(), unclear.digest(), "an approval of one is none of the other");
    assert_eq!(
        serde_json::to_value(&clear).unwrap(),
        json!({"access": "write"}),
        "as older versions wrote it"
    );
    assert_eq!(serde_json::from_value::<Footprint>(json!({"access": "write"})).unwrap(), clear);
}

#[test]
fn an_extra_allowed_path_does_not_suppress_an_ask() {
    for policy in
        [Policy::allow_all().ask("write:secrets/*"), Policy::new().allow("write:*").ask("write:secrets/*")]
    {
        let one = Footprint::new(Access::WRITE).writing("secrets/key");
        for footprint in
            [one.clone(), one.clone().writing("a.md"), one.reading("a.md").talking_to("a.example")]
        {
            let verdict = policy.judge(&spec(Access::WRITE), &footprint);
            assert_eq!(verdict, Ruling::Ask("ask write:secrets/*".into()), "{footprint:?}");
        }
    }
}

#[test]
fn a_rule_on_the_command_does_not_exempt_paths_and_hosts() {
    let policy = Policy::allow_all().deny("write:secrets/*").deny("write:*.internal");
    let running = Footprint::new(Access::ALL).running("make");
    for footprint in [
        running.clone().reading("secrets/key"),
        running.clone().writing("secrets/key"),
        running.clone().talking_to("db.internal"),
    ] {
        let verdict = policy.judge(&spec(Access::WRITE), &footprint);
        assert!(matches!(verdict, Ruling::Deny(_)), "{footprint:?}: {verdict:?}");
    }
    assert!(matches!(policy.judge(&spec(Access::WRITE), &running), Ruling::Allow(_)));
}

#[test]
fn attack_29_a_prefix_before_an_allowed_command_is_judged_with_it() {
    // Stands in for a shell tool, which judges the whole text: a pattern begins where the command does.
    let policy = Policy::new().allow("write:git *");
    for (command, allowed) in [
        ("git branch", true),
        ("export PAGER=evil; git branch", false),
        ("PAGER=evil git branch", false),
        (" git branch", false),
        ("\ngit branch", false),
    ] {
        let footprint = Footprint::new(Access::EXECUTE).running(command);
        let verdict = policy.judge(&spec(Access::EXECUTE), &footprint);
        assert_eq!(matches!(verdict, Ruling::Allow(_)), allowed, "{command:?}: {verdict:?}");
    }
}

#[test]
fn a_tool_that_cannot_name_subjects_is_held_to_every_strict_rule_with_one() {
    let blind = |access| ToolSpec::new("run_plain", "", json!({})).with_access(access);
    let judge = |policy: &Policy, spec: &ToolSpec| policy.judge(spec, &Footprint::new(spec.access()));
    let run = blind(Access::EXECUTE);
    let deny = Policy::new().allow("run_plain").deny("run_plain:rm *");
    assert_eq!(judge(&deny, &run), Ruling::Deny("deny run_plain:rm *".into()));
    let ask = Policy::new().allow("run_plain").ask("run_plain:rm *");
    assert_eq!(judge(&ask, &run), Ruling::Ask("ask run_plain:rm *".into()));
    let allow = Policy::new().allow("run_plain:ls *");
    assert_eq!(judge(&allow, &run), Ruling::Ask("default".into()));
    assert_eq!(judge(&deny, &run.clone().naming_subjects()), Ruling::Allow("allow run_plain".into()));
    // A rule for any tool does not stop one that touches nothing, nor one that starts agents, which are judged
    // themselves.
    let any = Policy::new().deny("*:secrets/*");
    for (access, stopped) in [
        (Access::NONE, false),
        (Access::DELEGATE | Access::ASK, false),
        (Access::READ, true),
        (Access::WRITE, true),
        (Access::EXECUTE, true),
        (Access::NETWORK, true),
        (Access::ALL, true),
    ] {
        let tool = blind(access);
        assert_eq!(matches!(judge(&any, &tool), Ruling::Deny(_)), stopped, "{access}");
        assert_eq!(any.unmatchable(&tool).count(), usize::from(stopped), "{access}");
        assert_eq!(any.unmatchable(&tool.naming_subjects()).count(), 0, "{access}");
    }
    let named = Policy::new().deny("run_plain:secrets/*");
    assert!(matches!(judge(&named, &blind(Access::NONE)), Ruling::Deny(_)), "its name is in the rule");
}

fn effects() -> impl Strategy<Value = RuleEffect> {
    prop_oneof![Just(RuleEffect::Allow), Just(RuleEffect::Ask), Just(RuleEffect::Deny)]
}

/// Patterns and texts of two letters, so that they often meet.
fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![Just("*".to_owned()), "[ab]{1,2}", "[ab]\\*", "\\*[ab]"]
}

fn rule() -> impl Strategy<Value = Rule> {
    (
        effects(),
        prop_oneof![Just("t".to_owned()), Just("*".to_owned()), Just("u".to_owned())],
        prop::option::of(pattern()),
    )
        .prop_map(|(effect, tool, subject)| Rule { effect, tool, subject })
}

fn policy() -> impl Strategy<Value = Policy> {
    (prop::collection::vec(rule(), 0..6), prop::option::of(effects())).prop_map(|(rules, fallback)| {
        let policy = rules.into_iter().fold(Policy::new(), Policy::rule);
        fallback.into_iter().fold(policy, Policy::otherwise)
    })
}

fn access() -> impl Strategy<Value = Access> {
    prop::collection::vec(
        prop::sample::select(vec![
            Access::READ,
            Access::WRITE,
            Access::EXECUTE,
            Access::NETWORK,
            Access::DELEGATE,
            Access::ASK,
        ]),
        0..4,
    )
    .prop_map(|all| all.into_iter().fold(Access::NONE, |a, b| a | b))
}

/// A kind of subject and its text.
fn subject() -> impl Strategy<Value = (u8, String)> {
    (0_u8..4, "[ab]{1,2}")
}

fn footprint(access: Access, subjects: &[(u8, String)]) -> Footprint {
    subjects.iter().fold(Footprint::new(access), |footprint, (kind, text)| match kind {
        0 => footprint.running(text.as_str()),
        1 => footprint.reading(text.as_str()),
        2 => footprint.writing(text.as_str()),
        _ => footprint.talking_to(text.as_str()),
    })
}

fn tool(access: Access, names: bool) -> ToolSpec {
    let spec = ToolSpec::new("t", "", json!({})).with_access(access);
    if names { spec.naming_subjects() } else { spec }
}

fn strict(verdict: &Ruling) -> u8 {
    match verdict {
        Ruling::Allow(_) => 0,
        Ruling::Ask(_) => 1,
        Ruling::Deny(_) | Ruling::OutOfScope(_) => 2,
    }
}

/// The rules read word by word, one subject after the other.
fn naive(policy: &Policy, spec: &ToolSpec, footprint: &Footprint) -> u8 {
    let access = spec.access() | footprint.access;
    let rules: Vec<&Rule> = policy.rules().filter(|rule| rule.tool == "*" || rule.tool == "t").collect();
    let best = |subject: Option<&str>| {
        let (mut best, mut found) = ((false, 0, 0), None);
        for rule in &rules {
            let met = match (&rule.subject, subject) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(pattern), Some(text)) => match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
                    (Some(""), _) => true,
                    (Some(start), _) => text.starts_with(start),
                    (_, Some(end)) => text.ends_with(end),
                    _ => pattern == text,
                },
            };
            let letters = |text: &str| text.chars().filter(|c| *c != '*').count();
            let rank =
                (rule.subject.is_some(), rule.subject.as_deref().map_or(0, letters), letters(&rule.tool));
            if met && (found.is_none() || rank > best) {
                (best, found) = (rank, Some(strictness(rule.effect)));
            } else if met && rank == best {
                found = found.max(Some(strictness(rule.effect)));
            }
        }
        let harmless = !access.intersects(Access::WRITE | Access::EXECUTE | Access::NETWORK);
        let fallback = policy.0.as_ref().and_then(|inner| inner.fallback).map(strictness);
        found.or(fallback).unwrap_or(u8::from(!harmless))
    };
    let mut worst = None;
    for subject in footprint.subjects() {
        worst = worst.max(Some(best(Some(subject))));
    }
    worst.unwrap_or_else(|| {
        let touches = access.intersects(Access::READ | Access::WRITE | Access::EXECUTE | Access::NETWORK);
        let mut worst = best(None);
        for rule in rules.iter().filter(|rule| rule.subject.is_some() && !spec.names_subjects()) {
            if rule.tool == "t" || touches {
                worst = worst.max(strictness(rule.effect));
            }
        }
        worst
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_are_those_of_a_naive_reading(
        policy in policy(), declared in access(), used in access(), names: bool,
        subjects in prop::collection::vec(subject(), 0..4),
    ) {
        let (spec, footprint) = (tool(declared, names), footprint(used, &subjects));
        prop_assert_eq!(strict(&policy.judge(&spec, &footprint)), naive(&policy, &spec, &footprint));
    }

    /// Rules on directories within each other, with different effects.
    #[test]
    fn cp01_the_rule_on_the_innermost_directory_decides_in_whatever_order_they_come(
        rules in prop::collection::btree_map("[ab](/[ab]){0,3}", effects(), 0..6).prop_map(Vec::from_iter).prop_shuffle(),
        project in prop::collection::btree_map("[ab](/[ab]){0,3}", effects(), 0..4),
        path in "[ab](/[ab]){1,4}",
    ) {
        let of = |rules: &[(String, RuleEffect)]| {
            rules.iter().fold(Policy::new(), |policy, (directory, effect)| {
                policy.rule(Rule { effect: *effect, tool: "t".to_owned(), subject: Some(format!("{directory}/*")) })
            })
        };
        let innermost = |rules: &[(String, RuleEffect)]| {
            let around = rules.iter().filter(|(directory, _)| path.starts_with(&format!("{directory}/")));
            around.max_by_key(|(directory, _)| directory.len()).map(|(_, effect)| strictness(*effect))
        };
        let project: Vec<_> = project.into_iter().collect();
        let (spec, touched) = (tool(Access::WRITE, true), Footprint::new(Access::WRITE).writing(path.as_str()));
        let own = innermost(&rules).unwrap_or(strictness(RuleEffect::Ask));
        prop_assert_eq!(strict(&of(&rules).judge(&spec, &touched)), own);
        // What a project opens within a closed directory stays closed.
        let both = of(&rules).restricted_by(of(&project));
        let expected = own.max(innermost(&project).unwrap_or(0));
        prop_assert_eq!(strict(&both.judge(&spec, &touched)), expected);
        // A walk sees the place as a call that names it.
        let walk = Footprint::new(Access::READ).reading("elsewhere");
        let reads = tool(Access::READ, true);
        let seen = both.within(&reads, &walk).map_or(0, |effect| strictness(effect(&path)));
        let read = Footprint::new(Access::READ).reading(path.as_str());
        prop_assert_eq!(seen, strict(&both.judge(&reads, &read)));
    }

    #[test]
    fn touching_more_is_never_judged_more_mildly(
        policy in policy(), declared in access(), used in access(), more in access(), names: bool,
        subjects in prop::collection::vec(subject(), 1..4), another in subject(),
    ) {
        let spec = tool(declared, names);
        let before = strict(&policy.judge(&spec, &footprint(used, &subjects)));
        let mut with_another = subjects.clone();
        with_another.push(another);
        prop_assert!(strict(&policy.judge(&spec, &footprint(used, &with_another))) >= before);
        prop_assert!(strict(&policy.judge(&spec, &footprint(used | more, &subjects))) >= before);
        prop_assert!(strict(&policy.judge(&tool(declared | more, names), &footprint(used, &subjects))) >= before);
        let nothing = strict(&policy.judge(&spec, &footprint(used, &[])));
        prop_assert!(strict(&policy.judge(&spec, &footprint(used | more, &[]))) >= nothing);
    }

    #[test]
    fn attack_21_a_restricting_policy_never_makes_a_verdict_milder(
        policy in policy(), project in policy(), declared in access(), names: bool, unclear: bool,
        subjects in prop::collection::vec(subject(), 0..4), path in "[ab]{1,2}",
    ) {
        let (spec, mut footprint) = (tool(declared, names), footprint(Access::NONE, &subjects));
        footprint.unclear = unclear;
        let both = policy.clone().restricted_by(project.clone());
        let apart = [&policy, &project.clone().otherwise(RuleEffect::Allow)].map(|it| strict(&it.judge(&spec, &footprint)));
        let own = strict(&policy.judge(&spec, &footprint));
        let verdict = strict(&both.judge(&spec, &footprint));
        prop_assert!(verdict >= own);
        if project.0.as_ref().and_then(|inner| inner.fallback).is_none() {
            prop_assert_eq!(verdict, *apart.iter().max().unwrap());
        }
        let reading = |policy: &Policy| policy.within(&spec, &footprint).map_or(0, |effect| strictness(effect(&path)));
        prop_assert!(reading(&both) >= reading(&policy));
    }

    #[test]
    fn a_rule_as_strict_as_the_verdict_never_makes_it_milder(
        policy in policy(), declared in access(), names: bool, rule in rule(),
        subjects in prop::collection::vec(subject(), 0..4),
    ) {
        let (spec, footprint) = (tool(declared, names), footprint(Access::NONE, &subjects));
        let before = strict(&policy.judge(&spec, &footprint));
        let rule = if strictness(rule.effect) < before { Rule { effect: RuleEffect::Deny, ..rule } } else { rule };
        prop_assert!(strict(&policy.clone().rule(rule).judge(&spec, &footprint)) >= before);
    }

    #[test]
    fn the_order_of_subjects_and_of_rules_never_matters(
        policy in policy(), declared in access(), names: bool,
        subjects in prop::collection::vec(subject(), 0..5),
    ) {
        let spec = tool(declared, names);
        let (there, mut back) = (footprint(Access::NONE, &subjects), subjects.clone());
        back.reverse();
        let back = footprint(Access::NONE, &back);
        prop_assert_eq!(policy.judge(&spec, &there), policy.judge(&spec, &back));
        prop_assert_eq!(there.digest(), back.digest());
        let mut reversed = policy.clone();
        reversed.inner().rules.reverse();
        prop_assert_eq!(strict(&policy.judge(&spec, &there)), strict(&reversed.judge(&spec, &there)));
    }
}
