//! The checker sees the conversation with the roles swapped, strictly alternating.

use entourage_core::{
    ErrorKind,
    message::{History, Role},
};
use entourage_testkit::ScriptedProvider;
use serde_json::json;

use crate::{
    common::{memory, runtime_on},
    pair::{conversation, done, pair, session, told, two_rounds},
};

/// Asserts that user and assistant alternate; tool results belong to the assistant that asked for them.
fn assert_alternates(history: &History) {
    let mut expected = Role::User;
    for message in history.iter().filter(|message| message.role() != Role::System) {
        match message.role() {
            Role::Tool => expected = Role::User,
            role => {
                // After tool results the assistant continues, or its run is over.
                let goes_on = role == Role::Assistant && expected == Role::User && history.len() > 1;
                assert!(role == expected || goes_on, "{:?}", told(history));
                expected = if role == Role::User { Role::Assistant } else { Role::User };
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cw05_the_checkers_transcript_has_the_roles_changed_and_takes_strict_turns() {
    let (works, checks) = two_rounds();
    let runtime = runtime_on(&memory());
    session(&runtime).start(&pair(&works, &checks), "Write it.").outcome().await.unwrap();
    let requests = checks.requests();
    assert_eq!(
        told(&requests[1].messages),
        [
            "U: Hello! What can I do for you?",
            "A: Write it.",
            "U: Summary one.",
            "A: Test it.",
            "U: Summary two."
        ]
    );
    let instructions = &requests[0].instructions;
    assert!(instructions.starts_with("You stand in for a user"), "{instructions}");
    assert!(instructions.ends_with("\n\nYou know the language well."), "its own come after ours");
    assert!(!instructions.contains("You write code."), "the executor's are the executor's");
}

#[tokio::test(start_paused = true)]
async fn cw05_nothing_of_the_executors_tools_crosses() {
    let works = ScriptedProvider::new()
        .call("write", json!({"path": "secret.rs"}))
        .text("I wrote it.")
        .text("Summary.")
        .text("b")
        .text("Summary two.");
    let checks = ScriptedProvider::new()
        .call("look", json!({}))
        .text("It is wrong.")
        .call("task_complete", done("I saw it."));
    let runtime = runtime_on(&memory());
    session(&runtime).start(&pair(&works, &checks), "Write it.").outcome().await.unwrap();
    for request in checks.requests() {
        let heard = told(&request.messages).join("\n");
        assert!(!heard.contains("secret.rs") && !heard.contains("written"), "{heard}");
    }
    let heard = told(&works.requests()[3].messages).join("\n");
    assert!(heard.contains("U: It is wrong.") && !heard.contains("a file"), "{heard}");
}

#[tokio::test(start_paused = true)]
async fn cw05_a_second_prompt_goes_on_in_the_same_transcript() {
    let works = ScriptedProvider::new().text("a").text("Summary one.").text("b").text("Summary two.");
    let checks = ScriptedProvider::new()
        .call("task_complete", done("I saw it."))
        .call("task_complete", done("I saw that too."));
    let runtime = runtime_on(&memory());
    let agent = pair(&works, &checks);
    let work = session(&runtime);
    work.start(&agent, "Write it.").outcome().await.unwrap();
    work.start(&agent, "Now the docs.").outcome().await.unwrap();
    let transcript = conversation(&runtime, "discriminator").await;
    assert_eq!(
        told(&transcript),
        [
            "U: Hello! What can I do for you?",
            "A: Write it.",
            "U: Summary one.",
            "A: [task_complete]",
            "T: <The task is complete.>",
            "U: Hello! What can I do for you?",
            "A: Now the docs.",
            "U: Summary two.",
            "A: [task_complete]",
            "T: <The task is complete.>"
        ]
    );
    assert_alternates(&transcript);
    assert_eq!(
        told(&work.history().await.unwrap()),
        ["U: Write it.", "A: Summary one.", "U: Now the docs.", "A: Summary two."]
    );
}

#[tokio::test(start_paused = true)]
async fn cw05_a_check_that_failed_before_it_said_anything_leaves_no_gap() {
    let works = ScriptedProvider::new().text("a").text("Summary one.").text("b").text("Summary two.");
    let checks = ScriptedProvider::new()
        .fail(ErrorKind::Overloaded, "no checks today")
        .call("task_complete", done("I saw it."));
    let runtime = runtime_on(&memory());
    let agent = pair(&works, &checks);
    let work = session(&runtime);
    work.start(&agent, "Write it.").outcome().await.unwrap_err();
    work.start(&agent, "Once more.").outcome().await.unwrap();
    let transcript = told(&checks.requests()[1].messages);
    assert_eq!(
        transcript,
        [
            "U: Hello! What can I do for you?",
            "A: Write it.",
            "U: Summary one.",
            "A: I was interrupted before I could check this.",
            "U: Hello! What can I do for you?",
            "A: Once more.",
            "U: Summary two."
        ]
    );
}
