//! The report at the end of the demo: the results of the calls, a row for each session, and the verdict.

use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal as _;

use super::super::Failure;
use super::super::output::{self, line};
use super::feed::Fed;
use super::input::Input;
use super::takeover::{Killed, Workers};
use super::verify::{Arrival, Due, Logged, Verdict, first_copies};

const SHOWN_SESSIONS: usize = 20;
const SESSION_WIDTH: usize = 36;
/// Event types of a list.
const SHOWN_TYPES: usize = 4;

pub(super) struct Report<'a> {
    pub(super) input: &'a Input,
    pub(super) fed: &'a Fed,
    pub(super) logged: &'a Logged,
    pub(super) arrivals: &'a [Arrival],
    pub(super) killed: Option<&'a Killed>,
}

impl Report<'_> {
    /// Prints it, and returns whether everything is as promised.
    pub(super) fn print(&self) -> Result<bool, Failure> {
        let killed = self.killed.map(|killed| killed.worker);
        let verdict = Verdict::of(&self.logged.due, self.arrivals, killed);
        let first = first_copies(self.arrivals);
        self.print_counts(&first)?;
        self.print_sessions(&first, &verdict)?;
        line("")?;
        let took_over = self.print_takeover()?;
        if verdict.repeated > 0 {
            line(format!(
                "{} that it had delivered, and not yet recorded, came again: delivery is at least once",
                match verdict.repeated {
                    1 => "1 event".to_owned(),
                    many => format!("{many} events"),
                }
            ))?;
        }
        let recorded = self.logged.all_events() == self.input.recorded();
        if !recorded {
            line(format!(
                "{} calls should have become events, and the log has {}",
                self.input.recorded(),
                self.logged.all_events()
            ))?;
        }
        let holds = verdict.holds() && recorded && took_over && !self.logged.due.is_empty();
        line(format!(
            "missing {}   unexpected {}   duplicates {}   out of order {}   {}",
            verdict.missing,
            verdict.unexpected,
            verdict.duplicates,
            verdict.out_of_order,
            match holds {
                true if verdict.repeated > 0 => painted("everything arrived, in order", GREEN),
                true => painted("everything arrived once, in order", GREEN),
                false => painted("NOT AS PROMISED", RED),
            },
        ))?;
        Ok(holds)
    }

    /// From the calls to what was delivered, each difference with its reason.
    fn print_counts(&self, first: &[&Arrival]) -> Result<(), Failure> {
        let Fed {
            calls,
            took,
            median,
        } = self.fed;
        let count = |number: usize, text: String| line(format!("{number:>6}  {text}"));
        let less = |map: &BTreeMap<String, usize>, text: &str| {
            let all: usize = map.values().sum();
            match all {
                0 => Ok(()),
                _ => line(format!("{:>6}  {text}: {}", format!("-{all}"), list(map))),
            }
        };
        line("")?;
        count(
            *calls,
            format!(
                "hook calls in {:.1} s, a process each; one takes {:.0} ms at the median",
                took.as_secs_f64(),
                median.as_secs_f64() * 1e3,
            ),
        )?;
        less(
            &self.input.not_recorded,
            "not recorded, as the hook's settings have it",
        )?;
        count(self.logged.all_events(), "events in the log".to_owned())?;
        less(
            &self.logged.filtered,
            "stay in the log, since their types are not fanned out",
        )?;
        less(&self.logged.outcomes, "settled without a delivery")?;
        let accepted = first.len();
        let retried = first.iter().filter(|arrival| arrival.attempt > 1).count();
        count(
            self.logged.due.len(),
            format!(
                "due at the receiver, which accepted {accepted}, {retried} of them after a refusal"
            ),
        )
    }

    fn print_sessions(&self, first: &[&Arrival], verdict: &Verdict) -> Result<(), Failure> {
        let mut due: BTreeMap<&str, Vec<&Due>> = BTreeMap::new();
        for one in &self.logged.due {
            due.entry(&one.session).or_default().push(one);
        }
        let mut came: HashMap<&str, Vec<&Arrival>> = HashMap::new();
        for &arrival in first {
            came.entry(&arrival.session).or_default().push(arrival);
        }
        let mut rows = Vec::new();
        for (session, calls) in self.input.calls.iter().take(SHOWN_SESSIONS) {
            let cli = self.input.cli.get(session).map_or("", String::as_str);
            let due = due.get(session.as_str()).map_or(&[][..], Vec::as_slice);
            let came = came.get(session.as_str()).map_or(&[][..], Vec::as_slice);
            let events = self.logged.events.get(session).copied().unwrap_or(0);
            let name = output::short(session, SESSION_WIDTH);
            rows.push(row([cli, &name], *calls, events, due, came));
        }
        let name = match self.input.calls.len() {
            shown if shown <= SHOWN_SESSIONS => format!("{shown} sessions"),
            all => format!("{all} sessions, {} not shown", all - SHOWN_SESSIONS),
        };
        let mut total = row(
            ["all", &name],
            self.fed.calls,
            self.logged.all_events(),
            &[],
            first,
        );
        total[4] = format!("{}/{}", first.len(), self.logged.due.len());
        total[5] = yes(verdict.out_of_order == 0);
        rows.push(total);
        line("")?;
        output::table(
            [
                "CLI",
                "SESSION",
                "CALLS",
                "EVENTS",
                "DELIVERED",
                "IN ORDER",
                "P50",
                "P99",
            ],
            &rows,
        )?;
        line(
            "P50 and P99: from the event's commit to the receiver, with the waits behind events that are refused and tried again.",
        )
    }

    /// Whether the event of the worker that was killed was delivered by another one.
    fn print_takeover(&self) -> Result<bool, Failure> {
        let Some(killed) = self.killed else {
            line("no worker was killed: nothing was delivered after half of the calls")?;
            return Ok(true);
        };
        let place = format!(
            "{} was killed (SIGKILL) while it delivered event {} of {}",
            Workers::name(killed.worker),
            killed.seq,
            output::short(&output::plain(&killed.session), SESSION_WIDTH),
        );
        match killed.takeover(self.arrivals) {
            Some(takeover) => {
                line(format!(
                    "{place}; {} delivered it {:.2} s later",
                    Workers::name(takeover.worker),
                    takeover.after.as_secs_f64()
                ))?;
                Ok(takeover.worker != killed.worker)
            }
            None => {
                line(format!("{place}; NOBODY delivered it"))?;
                Ok(false)
            }
        }
    }
}

fn row(
    [cli, session]: [&str; 2],
    calls: usize,
    events: usize,
    due: &[&Due],
    came: &[&Arrival],
) -> [String; 8] {
    let mut delays: Vec<f64> = came.iter().map(|arrival| delay_ms(arrival)).collect();
    delays.sort_by(f64::total_cmp);
    let in_order = due.len() == came.len()
        && due
            .iter()
            .zip(came)
            .all(|(due, arrival)| due.id == arrival.id);
    [
        cli.to_owned(),
        output::plain(session).into_owned(),
        calls.to_string(),
        events.to_string(),
        format!("{}/{}", came.len(), due.len()),
        yes(in_order),
        percentile(&delays, 50),
        percentile(&delays, 99),
    ]
}

fn yes(is: bool) -> String {
    match is {
        true => "yes".to_owned(),
        false => "NO".to_owned(),
    }
}

fn delay_ms(arrival: &Arrival) -> f64 {
    let delay = arrival.received_at.duration_since(arrival.created_at);
    delay.as_secs_f64() * 1e3
}

/// Of sorted values, the smallest that `percent` of them do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> String {
    let rank = (sorted.len() * percent).div_ceil(100);
    match sorted.get(rank.saturating_sub(1)) {
        Some(ms) => format!("{ms:.0} ms"),
        None => "-".to_owned(),
    }
}

/// The most frequent first.
fn list(counts: &BTreeMap<String, usize>) -> String {
    let mut counts: Vec<(&String, &usize)> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut shown: Vec<String> = counts
        .iter()
        .take(SHOWN_TYPES)
        .map(|(name, count)| format!("{} {count}", output::plain(name)))
        .collect();
    if counts.len() > SHOWN_TYPES {
        let rest: usize = counts
            .iter()
            .skip(SHOWN_TYPES)
            .map(|(_, count)| **count)
            .sum();
        shown.push(format!("others {rest}"));
    }
    shown.join(", ")
}

const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[31m";

/// In colour on a terminal that wants it.
fn painted(text: &str, colour: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match std::io::stdout().is_terminal() && !plain {
        true => format!("{colour}{text}\u{1b}[0m"),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_occurred() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50), "50 ms");
        assert_eq!(percentile(&hundred, 99), "99 ms");
        assert_eq!(percentile(&[3.0, 7.0], 50), "3 ms");
        assert_eq!(percentile(&[3.0, 7.0], 99), "7 ms");
        assert_eq!(percentile(&[], 50), "-");
    }

    #[test]
    fn lists_begin_with_what_is_most_frequent_and_add_up() {
        let counts = [("a", 1), ("b", 9), ("c", 2), ("d", 3), ("e", 4), ("f", 5)];
        let counts = counts.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(list(&counts.into()), "b 9, f 5, e 4, d 3, others 3");
    }
}
