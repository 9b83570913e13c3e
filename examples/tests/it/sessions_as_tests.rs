//! The example `sessions_as_tests`: its files are what its command writes, and its table says what changed.

#[path = "../../sessions_as_tests/shop.rs"]
mod shop;

use std::{
    fs,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use entourage::{prelude::*, session::SharedStore, testkit::rerun::Transcript};

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/sessions_as_tests/sessions"))
}

#[tokio::test]
async fn the_files_are_what_the_sessions_of_production_give() {
    let place = tempfile::tempdir().unwrap();
    let store: SharedStore = Arc::new(SqliteStore::open(place.path().join("team.db")).await.unwrap());
    assert_eq!(shop::production(&store).await.unwrap(), 1);
    let infos = store.query(&SessionFilter::roots()).await.unwrap();
    assert_eq!(infos.len(), Transcript::load_all(folder()).unwrap().len());
    for info in infos {
        let id = info.record.id.as_str();
        let lines = Transcript::read(&store, id).await.unwrap().to_jsonl().unwrap();
        let file = folder().join(id).with_extension("jsonl");
        let kept = fs::read_to_string(&file).unwrap();
        assert!(kept == lines, "write {} with the example's command again:\n{lines}", file.display());
    }
}

#[tokio::test]
async fn the_table_of_the_set_has_these_figures() {
    let (small, model) = shop::smaller();
    let refunds = Arc::default();
    let report = shop::rerun(Transcript::load_all(folder()).unwrap(), model, &refunds).await.unwrap();
    assert_eq!(refunds.load(Ordering::Relaxed), 0);
    small.verify();
    assert_eq!(
        report.to_string(),
        "\
case           original   rerun      calls                         steps (before)  cost (before)            result
broken-mirror  completed  completed  1 same, 1 marked, 1 left out  3 (3)           $0.00002625 ($0.000315)  FAIL
one-order      completed  completed  1 same                        2 (2)           $0.0000175 ($0.00021)    pass
thanks         completed  completed  none                          1 (1)           $0.00000875 ($0.000105)  pass
two-orders     completed  completed  2 same                        4 (4)           $0.000035 ($0.00042)     pass
4 cases, 3 passed: 75.0 % (95 % interval 30.1 to 95.4 %); steps 10 (10), cost $0.0000875 ($0.00105)
  broken-mirror fails `same calls`: new: refund {\"cents\":15,\"number\":20}; left out: \
            refund {\"cents\":1500,\"number\":20}
  broken-mirror fails `same facts`: does not say 15.00, 20"
    );
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/evals.md")).unwrap();
    assert!(page.contains(&report.to_string()), "docs/evals.md shows another table");
    let marked = &report.cases()[0].changed;
    assert_eq!((marked.len(), &*marked[0].tool, marked[0].performed), (1, "refund", false));
    assert_eq!((report.cases().len(), report.passed(), report.steps()), (4, 3, 10));
}
