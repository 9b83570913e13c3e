//! Compiler messages for functions that cannot be tools, and none for those that can.
//!
//! `TRYBUILD=overwrite cargo test --workspace --test it -- --ignored mistakes_are_named` writes the snapshots anew;
//! read them before you keep them.

#[test]
#[ignore = "it builds all dependencies once more, which takes a minute; `.ci/run` does it"]
fn mistakes_are_named_with_the_way_out() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/*.rs");
    cases.pass("ui/pass/*.rs");
}
