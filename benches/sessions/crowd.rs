//! Many sessions that append at once.

use std::{path::Path, sync::Arc, time::Instant};

use entourage::store::{Durability, PostgresStore};
use entourage_core::{
    RunId,
    session::{ReadRange, SessionFilter, SharedStore},
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::{
    id,
    material::{self, Writer},
    sqlite,
};

const BATCHES: usize = 10;

pub(crate) async fn measure(directory: &Path, quick: bool) {
    let sessions = if quick { 50 } else { 1_000 };
    let store = sqlite(&directory.join("crowd.db"), Durability::PowerLoss).await;
    crowd("crowd_sqlite", Arc::new(store), sessions).await;
    let Ok(url) = std::env::var("DATABASE_URL") else {
        return println!("SKIPPED: crowd_postgres needs a PostgreSQL server; name it in DATABASE_URL");
    };
    let schema = format!("b_{:032x}", RunId::generate().as_u128());
    let store = PostgresStore::builder(&url).schema(&schema).build().await.unwrap();
    crowd("crowd_postgres", Arc::new(store.clone()), sessions).await;
    store.close().await;
    let mut plain = PgConnection::connect(&url).await.unwrap();
    let sql = format!("DROP SCHEMA {schema} CASCADE");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut plain).await.unwrap();
}

async fn crowd(name: &str, store: SharedStore, sessions: usize) {
    let step = material::step().await;
    let writers: Vec<_> = (0..sessions).map(|n| step.of(id(&format!("crowd-{n}")))).collect();
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for mut writer in writers.clone() {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for _ in 0..BATCHES {
                let (expected, batch) = writer.next();
                let seq = store.append(&writer.session, expected, batch).await.unwrap();
                assert_eq!(seq, expected + writer.batch_size());
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), sessions);
    for writer in &writers {
        check(&store, writer).await;
    }
    let rate = (sessions * BATCHES) as f64 / seconds;
    println!("{name}: {sessions} sessions lost nothing; {rate:.0} appends a second");
}

/// Checks that every event is there, once and in order, as appended.
async fn check(store: &SharedStore, writer: &Writer) {
    let mut again = writer.clone();
    let expected = (0..BATCHES).flat_map(|_| again.next().1.rows);
    let rows = store.read(&writer.session, ReadRange::all()).await.unwrap();
    assert_eq!(rows.len() as u64, BATCHES as u64 * writer.batch_size());
    for (row, expected) in rows.iter().zip(expected) {
        assert_eq!(row.columns(), expected.columns());
        assert_eq!(row.body().unwrap(), expected.body().unwrap());
    }
    let info = store.query(&SessionFilter::id(writer.session.clone())).await.unwrap().remove(0);
    assert_eq!((info.head, info.lease), (again.head, Some(writer.lease)));
}
