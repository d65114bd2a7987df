//! The end of every list: lists are bounded, and say when there is more.

use super::output;

/// Flattened into the arguments of every command that lists rows.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct LimitArgs {
    /// The most rows that are shown
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

impl LimitArgs {
    /// The rows to read: one more than is shown, to know whether there are more.
    pub fn to_ask_for(self) -> i64 {
        self.limit + 1
    }

    /// Cuts the rows to those that are shown. Whether there are more is said on standard error, so
    /// that standard output stays data.
    pub fn cut<T>(self, rows: &mut Vec<T>) {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        if rows.len() > limit {
            rows.truncate(limit);
            output::note(format!(
                "there are more: these are {limit}, --limit shows up to 10000"
            ));
        }
    }
}
