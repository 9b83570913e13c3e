//! What a team learned of its members: pure arithmetic over what came of their items.

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use entourage_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::{TaskType, TeamReport};

/// Items of a type after which a member's record counts.
const ENOUGH: u32 = 5;

/// The record of each member with each type of task: items, successes, their times and the users' ratings. The program
/// keeps it between runs: it serializes.
///
/// Of the members of one size, the one with the highest rate of success comes first, then the fastest one, once each
/// that is compared has done five items of the type. The rate of `s` successes in `n` items is `(s + 1) / (n + 2)`:
/// Laplace's rule of succession, so that few items say little. Attempts that were broken off do not count.
///
/// ```
/// use std::time::Duration;
/// use entourage_runners::team::{Performance, TaskType};
///
/// let mut performance = Performance::new();
/// for second in 0..5 {
///     performance.learn("ann", TaskType::Code, second > 0, Duration::from_secs(9));
///     performance.learn("bob", TaskType::Code, true, Duration::from_secs(20));
/// }
/// assert_eq!(performance.rate_of_success("ann", TaskType::Code), 5.0 / 7.0);
/// assert_eq!(performance.ranked(["ann", "bob"], TaskType::Code), ["bob", "ann"]);
/// performance.rate("bob", TaskType::Code, 4)?;
/// assert_eq!(performance.rating("bob", TaskType::Code), Some(4.0));
/// # Ok::<_, entourage_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Performance(BTreeMap<Box<str>, BTreeMap<TaskType, Record>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    items: u32,
    successes: u32,
    /// Time of all items, in µs.
    micros: u64,
    ratings: u32,
    /// Sum of the ratings.
    rated: u64,
}

impl Performance {
    /// Creates an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the end of an item.
    pub fn learn(&mut self, member: &str, task: TaskType, success: bool, time: Duration) {
        let record = self.record_mut(member, task);
        record.items = record.items.saturating_add(1);
        record.successes = record.successes.saturating_add(u32::from(success));
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        record.micros = record.micros.saturating_add(micros);
    }

    /// Records the attempts at the items of a run that were completed or failed, each for the member that made it.
    pub fn learn_from(&mut self, run: &TeamReport) {
        for attempt in &run.tries {
            if let Some(item) = run.item(&attempt.item) {
                self.learn(&attempt.member, item.kind, attempt.success, attempt.time);
            }
        }
    }

    /// Records a user's rating of an item, from 1 to 5.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for any other number.
    pub fn rate(&mut self, member: &str, task: TaskType, rating: u8) -> Result<()> {
        if !(1..=5).contains(&rating) {
            return Err(Error::new(ErrorKind::InvalidInput, "a rating is from 1 to 5"));
        }
        let record = self.record_mut(member, task);
        record.ratings = record.ratings.saturating_add(1);
        record.rated = record.rated.saturating_add(rating.into());
        Ok(())
    }

    /// Returns the mean of the ratings; `None` without one.
    #[must_use]
    pub fn rating(&self, member: &str, task: TaskType) -> Option<f64> {
        let record = self.record(member, task);
        // A sum of ratings is far below what a float can count.
        #[allow(clippy::cast_precision_loss, reason = "sums are small")]
        (record.ratings > 0).then(|| record.rated as f64 / f64::from(record.ratings))
    }

    /// Returns the smoothed rate of success, from 0 to 1; ½ of a member that has done nothing.
    #[must_use]
    pub fn rate_of_success(&self, member: &str, task: TaskType) -> f64 {
        let record = self.record(member, task);
        (f64::from(record.successes) + 1.0) / (f64::from(record.items) + 2.0)
    }

    /// Returns these members of one size with the best one for the task first. While one of them has done fewer than
    /// five items of the type, they keep their order.
    #[must_use]
    pub fn ranked<'a>(&self, members: impl IntoIterator<Item = &'a str>, task: TaskType) -> Vec<&'a str> {
        let mut members: Vec<_> = members.into_iter().collect();
        if members.iter().all(|member| self.record(member, task).items >= ENOUGH) {
            members.sort_by(|one, other| self.record(one, task).compare(&self.record(other, task)));
        }
        members
    }

    fn record(&self, member: &str, task: TaskType) -> Record {
        self.0.get(member).and_then(|tasks| tasks.get(&task)).map(Record::sound).unwrap_or_default()
    }

    fn record_mut(&mut self, member: &str, task: TaskType) -> &mut Record {
        self.0.entry(member.into()).or_default().entry(task).or_default()
    }
}

impl Record {
    /// The same with no more successes than items, and no rating but from 1 to 5. What was stored may have others.
    fn sound(&self) -> Self {
        let ratings = u64::from(self.ratings);
        let rated = self.rated.clamp(ratings, ratings.saturating_mul(5));
        Self { successes: self.successes.min(self.items), rated, ..*self }
    }

    /// Orders the better one first, exactly: fractions are compared by their products.
    fn compare(&self, other: &Self) -> Ordering {
        let rate = |one: &Self, by: &Self| (u128::from(one.successes) + 1) * (u128::from(by.items) + 2);
        let time = |one: &Self, by: &Self| u128::from(one.micros) * u128::from(by.items);
        rate(other, self).cmp(&rate(self, other)).then(time(self, other).cmp(&time(other, self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A member, its successes, its failures, and the seconds of each item.
    type Row = (&'static str, u32, u32, u32);

    fn learned(items: &[Row]) -> Performance {
        let mut performance = Performance::new();
        for (member, successes, failures, seconds) in items {
            for number in 0..successes + failures {
                performance.learn(member, TaskType::Code, number < *successes, SECOND * *seconds);
            }
        }
        performance
    }

    #[test]
    fn lo11_the_best_comes_first_once_there_is_enough_to_compare() {
        let table: &[(&[Row], [&str; 2])] = &[
            (&[], ["ann", "bob"]),
            (&[("bob", 9, 0, 1)], ["ann", "bob"]),
            (&[("ann", 0, 4, 1), ("bob", 5, 0, 1)], ["ann", "bob"]),
            (&[("ann", 0, 5, 1), ("bob", 5, 0, 9)], ["bob", "ann"]),
            (&[("ann", 5, 0, 9), ("bob", 5, 0, 1)], ["bob", "ann"]),
            (&[("ann", 5, 0, 1), ("bob", 5, 0, 1)], ["ann", "bob"]),
            // 6/7 is less than 91/92.
            (&[("ann", 5, 0, 1), ("bob", 90, 0, 9)], ["bob", "ann"]),
            (&[("ann", 5, 1, 1), ("bob", 5, 0, 9)], ["bob", "ann"]),
        ];
        for (items, order) in table {
            assert_eq!(learned(items).ranked(["ann", "bob"], TaskType::Code), order, "{items:?}");
            let other = learned(items).ranked(["bob", "ann"], TaskType::Review);
            assert_eq!(other, ["bob", "ann"], "another type: nothing is known");
        }
    }

    #[test]
    fn lo11_the_record_is_kept_as_json_and_ratings_have_bounds() {
        let mut performance = learned(&[("ann", 2, 1, 4)]);
        for (rating, is_one) in [(0, false), (1, true), (5, true), (6, false)] {
            assert_eq!(performance.rate("ann", TaskType::Code, rating).is_ok(), is_one, "{rating}");
        }
        let stored = serde_json::to_string(&performance).unwrap();
        let read: Performance = serde_json::from_str(&stored).unwrap();
        assert_eq!(read, performance);
        assert_eq!(read.rating("ann", TaskType::Code), Some(3.0));
        assert_eq!(read.rating("ann", TaskType::Edit), None);
        assert!((read.rate_of_success("ann", TaskType::Code) - 0.6).abs() < 1e-12);
    }

    #[test]
    fn lo11_no_stored_record_is_better_than_the_best_or_worse_than_the_worst() {
        let hostile = r#"{
            "ann": {"code": {"items": 0, "successes": 4294967295, "micros": 18446744073709551615}},
            "bob": {"code": {"items": 9, "successes": 4294967295, "ratings": 2, "rated": 18446744073709551615}},
            "eve": {"code": {"items": 10, "successes": 10, "ratings": 2, "rated": 0}}}"#;
        let mut read: Performance = serde_json::from_str(hostile).unwrap();
        read.learn("ann", TaskType::Code, true, Duration::MAX);
        assert_eq!(read.ranked(["ann"], TaskType::Code), ["ann"]);
        for (member, rating) in [("ann", None), ("bob", Some(5.0)), ("eve", Some(1.0))] {
            assert!(read.rate_of_success(member, TaskType::Code) < 1.0, "{member}");
            assert_eq!(read.rating(member, TaskType::Code), rating, "{member}");
        }
        assert_eq!(read.ranked(["bob", "eve"], TaskType::Code), ["eve", "bob"], "nine of nine, ten of ten");
        let wrong = r#"{"ann": {"code": {"items": -1}}}"#;
        assert!(serde_json::from_str::<Performance>(wrong).is_err());
    }
}
