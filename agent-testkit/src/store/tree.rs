//! The contract of filters by id and tree: a prefix is bytes, not a pattern, and a tree is all descendants, however
//! deep, wide or alike in their ids.

use entourage_core::{
    SessionId,
    session::{Batch, SessionFilter, SessionStatus, SharedStore},
};

use super::{
    Checked, Fixture,
    sample::{ODD, create, create_below, head, id, ids, root, row, same},
};

async fn expect(store: &SharedStore, filter: &SessionFilter, expected: &[&str]) -> Checked {
    let expected: Vec<String> = expected.iter().map(|id| (*id).to_owned()).collect();
    same(&format!("{filter:?}"), &ids(store, filter).await?, &expected)
}

pub(super) async fn a_prefix_is_bytes_and_no_pattern(at: Fixture) -> Checked {
    let long = "x".repeat(240);
    let names =
        ["a", "A", "a.", "a.1$$0", "a_", "a_b", "axb", "ab", "aB", "b", "$", "$1", "--", "0", "00", &long];
    for name in names {
        create(&at.store, name).await?;
    }
    let mut sorted = names;
    sorted.sort_unstable();
    let odd = [
        "",
        "a",
        "A",
        "a.",
        "a.1",
        "a.1$$0",
        "a.1$$00",
        "a_",
        "a_b",
        "ax",
        "aB",
        "x",
        "xX",
        "$",
        "$$",
        "-",
        "--",
        "0",
        "00",
        "000",
        "%",
        "a%",
        "%a",
        "_",
        "__",
        "*",
        "a*",
        "?",
        "a?",
        "[a]",
        "[",
        "^a",
        ".",
        "a\\",
        "\\",
        "\\_",
        "a\\_",
        "'",
        "\"",
        "a'; DROP TABLE sessions; --",
        "x') OR '1'='1",
        "é",
        "\u{0}",
        "a\u{0}",
        "\u{10ffff}",
        ODD,
        &long,
    ];
    let endless = "x".repeat(10_000);
    for prefix in odd.into_iter().chain([endless.as_str()]) {
        let expected: Vec<&str> = sorted.into_iter().filter(|name| name.starts_with(prefix)).collect();
        expect(&at.store, &SessionFilter::all().with_prefix(prefix), &expected).await?;
    }
    Ok(())
}

pub(super) async fn a_prefix_joins_the_other_filters(at: Fixture) -> Checked {
    let parent = create(&at.store, "run").await?;
    for name in ["run.1", "run.2", "other"] {
        create_below(&at.store, &parent, name).await?;
    }
    create(&at.store, "run1").await?;
    let running = id("run.3")?;
    let mut busy = head(1, 5_000);
    busy.status = SessionStatus::Running;
    let first = Batch::new(1, vec![row(1, "busy")], busy).creating(root(&running));
    at.store.append(&running, 0, first).await?;

    let runs = || SessionFilter::all().with_prefix("run");
    let below = || SessionFilter::children_of(parent.clone()).with_prefix("run.");
    expect(&at.store, &runs(), &["run.3", "run", "run.1", "run.2", "run1"]).await?;
    expect(&at.store, &runs().page(1, 2), &["run", "run.1"]).await?;
    expect(&at.store, &runs().page(4, 9), &["run1"]).await?;
    expect(&at.store, &SessionFilter::roots().with_prefix("run"), &["run.3", "run", "run1"]).await?;
    expect(&at.store, &runs().with_status(SessionStatus::Running), &["run.3"]).await?;
    expect(&at.store, &below(), &["run.1", "run.2"]).await?;
    expect(&at.store, &below().page(1, 1), &["run.2"]).await?;
    expect(&at.store, &SessionFilter::id(parent.clone()).with_prefix("run"), &["run"]).await?;
    expect(&at.store, &SessionFilter::id(parent.clone()).with_prefix("Run"), &[]).await
}

/// Creates a tree of three levels, a neighbour whose ids begin alike, and another tree.
async fn plant(store: &SharedStore) -> Checked<SessionId> {
    let top = create(store, "s1").await?;
    let left = create_below(store, &top, "s1.1$$0").await?;
    create_below(store, &top, "elsewhere").await?;
    create_below(store, &left, "s1.1$$0.1$$0").await?;
    for name in ["s10", "s1.", "s1.1$$", "S1"] {
        create(store, name).await?;
    }
    create_below(store, &id("s10")?, "s1.2$$0").await?;
    Ok(top)
}

pub(super) async fn attack_13_a_tree_is_what_is_below_and_no_neighbour(at: Fixture) -> Checked {
    let top = plant(&at.store).await?;
    let tree = |name: &str| -> Checked<SessionFilter> { Ok(SessionFilter::tree(id(name)?)) };
    let whole = ["elsewhere", "s1", "s1.1$$0", "s1.1$$0.1$$0"];
    expect(&at.store, &SessionFilter::tree(top), &whole).await?;
    expect(&at.store, &tree("s1.1$$0")?, &["s1.1$$0", "s1.1$$0.1$$0"]).await?;
    expect(&at.store, &tree("elsewhere")?, &["elsewhere"]).await?;
    expect(&at.store, &tree("s10")?, &["s1.2$$0", "s10"]).await?;
    for unknown in ["s", "nobody", "s1.1", "s1.1$$0.", "s1.3$$0"] {
        expect(&at.store, &tree(unknown)?, &[]).await?;
    }
    // After a subtree is deleted, the rest is a tree as before.
    same("deleted", &at.store.delete(&id("s1.1$$0")?).await?, &2)?;
    expect(&at.store, &tree("s1")?, &["elsewhere", "s1"]).await?;
    expect(&at.store, &tree("s1.1$$0")?, &[]).await
}

pub(super) async fn a_tree_joins_the_other_filters(at: Fixture) -> Checked {
    let top = plant(&at.store).await?;
    let tree = || SessionFilter::tree(top.clone());
    let with_parent = |parent: Option<SessionId>| {
        let mut filter = tree();
        filter.parent = Some(parent);
        filter
    };
    expect(&at.store, &tree().with_prefix("s1."), &["s1.1$$0", "s1.1$$0.1$$0"]).await?;
    expect(&at.store, &tree().with_prefix("s10"), &[]).await?;
    expect(&at.store, &tree().with_status(SessionStatus::Idle).page(1, 2), &["s1", "s1.1$$0"]).await?;
    expect(&at.store, &tree().with_status(SessionStatus::Paused), &[]).await?;
    expect(&at.store, &tree().page(3, 5), &["s1.1$$0.1$$0"]).await?;
    expect(&at.store, &tree().page(4, 5), &[]).await?;
    expect(&at.store, &with_parent(None), &["s1"]).await?;
    expect(&at.store, &with_parent(Some(id("s1.1$$0")?)), &["s1.1$$0.1$$0"]).await?;
    expect(&at.store, &with_parent(Some(id("s10")?)), &[]).await?;
    let mut one = tree();
    one.id = Some(id("elsewhere")?);
    expect(&at.store, &one, &["elsewhere"]).await?;
    one.id = Some(id("s10")?);
    expect(&at.store, &one, &[]).await
}

pub(super) async fn a_tree_may_be_deep_and_wide(at: Fixture) -> Checked {
    const DEEP: usize = 200;
    let top = create(&at.store, "top").await?;
    let mut parent = top.clone();
    for level in 1..DEEP {
        parent = create_below(&at.store, &parent, &format!("deep{level:03}")).await?;
    }
    for n in 0..DEEP {
        create_below(&at.store, &top, &format!("wide{n:03}")).await?;
    }
    create(&at.store, "neighbour").await?;
    let count = async |filter: SessionFilter| -> Checked<usize> { Ok(ids(&at.store, &filter).await?.len()) };
    same("the whole tree", &count(SessionFilter::tree(top.clone())).await?, &(2 * DEEP))?;
    same("one branch", &count(SessionFilter::tree(id("deep001")?)).await?, &(DEEP - 1))?;
    same("its half", &count(SessionFilter::tree(id("deep100")?)).await?, &(DEEP - 100))?;
    same("its end", &count(SessionFilter::tree(parent.clone())).await?, &1)?;
    same("a page of it", &count(SessionFilter::tree(top.clone()).page(390, 50)).await?, &10)?;
    same("deleted of the branch", &at.store.delete(&id("deep100")?).await?, &(DEEP as u64 - 100))?;
    same("deleted of the rest", &at.store.delete(&top).await?, &(DEEP as u64 + 100))?;
    same("the rest", &ids(&at.store, &SessionFilter::all()).await?, &vec!["neighbour".to_owned()])
}
